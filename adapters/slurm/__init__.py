"""Slurm clusters: real jobs through sbatch, squeue, sacct and scancel, on this machine or over ssh."""

from overspan.adapters.slurm.cluster import SlurmCluster, open_cluster

__all__ = ["SlurmCluster", "open_cluster"]
