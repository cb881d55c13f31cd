"""Reads batch scripts and the options of sbatch by the rules of Slurm."""
