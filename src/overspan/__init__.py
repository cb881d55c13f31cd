"""Overspan: one job model over Slurm, Kubernetes and the local machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overspan.bridge.client import Client

__all__ = ["Client", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Importing the package must stay free: the supervisor and the hot commands import it too.
    if name == "Client":
        from overspan.bridge.client import Client

        return Client
    raise AttributeError(f"module 'overspan' has no attribute {name!r}")
