"""Overspan: one job model over Slurm, Kubernetes and the local machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overspan.bridge.client import Client
    from overspan.bridge.client.executor import JobExecutor

__all__ = ["Client", "JobExecutor", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Importing the package must stay free: the supervisor and the hot commands import it too.
    if name == "Client":
        from overspan.bridge.client import Client

        return Client
    if name == "JobExecutor":
        from overspan.bridge.client.executor import JobExecutor

        return JobExecutor
    raise AttributeError(f"module 'overspan' has no attribute {name!r}")
