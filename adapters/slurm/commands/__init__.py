"""Slurm's commands: their command lines, and parsers of their answers."""
