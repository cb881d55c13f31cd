"""`span version`, and what Slurm's verbs print for --version."""

from __future__ import annotations

from overspan import __version__
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import write
from overspan.bridge.model.slurm.answers import SLURM_VERSION, slurm_version

__all__ = ["SLURM_VERSION", "run", "slurm_version"]


def run(call: Invocation) -> int:
    """Print Overspan's version."""
    write(f"span {__version__}\n")
    return 0
