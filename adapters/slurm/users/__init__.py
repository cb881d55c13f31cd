"""A Slurm cluster for the users of a shared daemon, each of whom it is reached as."""
