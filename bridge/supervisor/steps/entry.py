"""The entries of the zip application beside the supervisor: `stepd`, `srun`, `salloc`, `sattach`."""

from __future__ import annotations

from collections.abc import Sequence

ENTRIES = ("stepd", "srun", "salloc", "sattach")


def main(words: Sequence[str]) -> int:
    """Run an entry; its name is the first word."""
    name, *rest = words
    if name == "stepd":
        from overspan.bridge.supervisor.steps import daemon

        return daemon.main(rest)
    if name == "salloc":
        from overspan.bridge.supervisor.steps import hold

        return hold.main(rest)
    if name == "sattach":
        from overspan.bridge.supervisor.steps import sattach

        return sattach.main(rest)
    from overspan.bridge.supervisor.steps import srun

    return srun.main(rest)
