"""Kubernetes clusters: groups as pods with names, started together, watched by one watch."""

from overspan.adapters.kubernetes.cluster import KubernetesCluster, open_cluster

__all__ = ["KubernetesCluster", "open_cluster"]
