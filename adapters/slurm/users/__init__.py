"""A Slurm cluster for the users of a shared daemon, which acts there as each of them."""
