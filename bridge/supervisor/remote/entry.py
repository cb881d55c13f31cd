"""The entries of the zip application inside a Slurm allocation.

`slurm` is the supervisor of a group, `member` that of one task of a set, `node` the agent. Where the nodes share no
folder, `unshared` is the supervisor of a group, `relay` brings what it writes to the login node, and `sender` is the
relay's other end, beside it; `visit` is a shell from the login node, and `lodging` has its folder on a node.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from overspan.bridge.supervisor.remote.carrying import keep_to_self

ENTRIES = ("slurm", "member", "node", "unshared", "sender", "relay", "visit", "lodging")


def main(words: Sequence[str]) -> int:
    """Run an entry; its name is the first word."""
    name, *rest = words
    keep_to_self(sys.argv[0])
    if name == "node":
        # Started for every node run: nothing of the supervisor is loaded.
        from overspan.bridge.supervisor.remote import agent

        return agent.main()
    if name == "member":
        from overspan.bridge.supervisor.remote import member

        return member.main(rest)
    if name == "unshared":
        from overspan.bridge.supervisor.remote import unshared

        return unshared.main(rest)
    if name == "sender":
        from overspan.bridge.supervisor.remote import sender

        return sender.main(rest)
    if name == "relay":
        from overspan.bridge.supervisor.remote import relay

        return relay.main(rest)
    if name == "visit":
        from overspan.bridge.supervisor.remote import visit

        return visit.main(rest)
    if name == "lodging":
        from overspan.bridge.supervisor.remote import lodging

        return lodging.main()
    from overspan.bridge.supervisor.remote import leader

    return leader.main(rest)
