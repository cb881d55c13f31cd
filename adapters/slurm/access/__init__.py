"""Access to a cluster beside submitted jobs: login, shells, allocations for srun and salloc, imported jobs, fsck."""
