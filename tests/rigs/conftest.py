"""Fixtures of the rigs' own tests."""

from tests.rigs.plugin import kube_namespace, kube_rig, slurm_rig

__all__ = ["kube_namespace", "kube_rig", "slurm_rig"]
