"""Runs a group inside one Slurm allocation: the supervisor in the batch script, and an agent under each srun."""
