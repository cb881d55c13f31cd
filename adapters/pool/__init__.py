"""The adapter of pools: a cluster whose nodes are workers, which are jobs on other clusters."""

from overspan.adapters.pool.cluster import open_cluster

__all__ = ["open_cluster"]
