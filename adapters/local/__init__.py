"""The local cluster: real processes on this machine, queued, booked and supervised."""

from overspan.adapters.local.cluster import LocalCluster, open_cluster

__all__ = ["LocalCluster", "open_cluster"]
