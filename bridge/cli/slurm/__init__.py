"""Slurm's verbs, each with `run(call) -> exit code`, and what they need for it."""
