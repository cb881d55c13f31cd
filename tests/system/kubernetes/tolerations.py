"""Pods that leave a lost node soon."""

from __future__ import annotations

SOON = [
    {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}
    for why in ("not-ready", "unreachable")
]
"""A lost node's pods are given up after two seconds."""
