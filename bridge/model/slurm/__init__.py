"""Slurm's own words and notations: messages, answers and lists of hosts."""
