"""Fixtures of the rigs' own tests."""

from tests.leaks import nothing_is_dropped
from tests.rigs.plugin import kube_namespace, kube_rig, slurm_rig

__all__ = ["kube_namespace", "kube_rig", "nothing_is_dropped", "slurm_rig"]
