"""Where checkpoints of pods are looked for: in a pod of the job, or in a small one that mounts the same volume."""
