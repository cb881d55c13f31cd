"""Slurm clusters: what is given to sbatch, and what its answers mean.

Everything here so far is pure; nothing opens a cluster yet, so no adapter is registered under this kind.
"""
