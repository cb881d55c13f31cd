"""`span version`, and what Slurm's verbs print for --version."""

from __future__ import annotations

from overspan import __version__
from overspan.bridge.cli.call import Call
from overspan.bridge.cli.output import write

SLURM_VERSION = "24.05.8"
"""The Slurm release whose options and formats these verbs follow; clients read the second word."""


def run(call: Call) -> int:
    """Print Overspan's version."""
    write(f"span {__version__}\n")
    return 0


def slurm_version() -> str:
    """The line that squeue --version and its like print."""
    return f"slurm {SLURM_VERSION}\n"
