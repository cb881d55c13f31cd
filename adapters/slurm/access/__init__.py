"""Access to a cluster beside submitted jobs: shells, allocations for srun and salloc, imported jobs, fsck."""
