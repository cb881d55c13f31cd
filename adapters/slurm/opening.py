"""How the daemon opens a Slurm cluster: as its own user, or as each of several."""

from __future__ import annotations

from overspan.adapters.contract import Adapter, ClusterConfig
from overspan.adapters.slurm.cluster import SlurmCluster
from overspan.adapters.slurm.users.cluster import SharedCluster


def open_configured(config: ClusterConfig) -> Adapter:
    """Open a Slurm cluster: nothing is touched before its first use. InvalidRequest for a wrong setting."""
    return SharedCluster(config) if config.personal else SlurmCluster(config)
