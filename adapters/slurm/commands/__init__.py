"""Slurm's commands: how each is asked, and how its answer is read."""
