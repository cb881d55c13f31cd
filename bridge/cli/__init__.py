"""The commands. `main` is the entry point of `span`; each command is a module that is imported when it is run.

They are in rooms: `slurm`, `jobs`, `clusters`, `data` and `service`; `tables` has what Slurm's verbs print.
"""

from __future__ import annotations

import gc

# A command makes a long list at most once and ends; collecting on the way costs a quarter of a large squeue.
gc.set_threshold(100_000)

from overspan.bridge.cli.program import main  # noqa: E402

__all__ = ["main"]
