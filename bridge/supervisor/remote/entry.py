"""The entries of the zip application inside a Slurm allocation.

`slurm` is the supervisor of a group, `member` that of one task of a set, `node` the agent.
"""

from __future__ import annotations

from collections.abc import Sequence

ENTRIES = ("slurm", "member", "node")


def main(words: Sequence[str]) -> int:
    """Run an entry; its name is the first word."""
    name, *rest = words
    if name == "node":
        # Started for every node run: nothing of the supervisor is loaded.
        from overspan.bridge.supervisor.remote import agent

        return agent.main()
    if name == "member":
        from overspan.bridge.supervisor.remote import member

        return member.main(rest)
    from overspan.bridge.supervisor.remote import leader

    return leader.main(rest)
