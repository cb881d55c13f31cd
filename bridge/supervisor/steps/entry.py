"""The entries of the zip application beside the supervisor: `stepd`, `srun`, `salloc`."""

from __future__ import annotations

from collections.abc import Sequence

ENTRIES = ("stepd", "srun", "salloc")


def main(words: Sequence[str]) -> int:
    """Run an entry; its name is the first word."""
    name, *rest = words
    if name == "stepd":
        from overspan.bridge.supervisor.steps import daemon

        return daemon.main(rest)
    if name == "salloc":
        from overspan.bridge.supervisor.steps import hold

        return hold.main(rest)
    from overspan.bridge.supervisor.steps import srun

    return srun.main(rest)
