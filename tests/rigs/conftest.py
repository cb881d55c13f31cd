"""Fixtures of the rigs' own tests."""

from tests.rigs.plugin import slurm_rig

__all__ = ["slurm_rig"]
