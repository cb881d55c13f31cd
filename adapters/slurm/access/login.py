"""`span login`: how a user opens the connection to a Slurm cluster on a terminal."""

from __future__ import annotations

import shlex

from overspan.adapters.abilities import Invitation
from overspan.adapters.slurm.settings import LOCAL, Settings
from overspan.adapters.slurm.transports.openssh import OpenSsh
from overspan.adapters.slurm.transports.transport import Transport


async def invite(name: str, transport: Transport, settings: Settings) -> Invitation:
    """The command to run on a terminal; none if the connection is open, or if its transport asks no questions."""
    if isinstance(transport, OpenSsh):
        is_open, words = await transport.invite()
        end = shlex.join(transport.control_words("exit"))
        word = "already open" if is_open else "open"
        message = f"the connection to {name} is {word}, until `{end}` or {settings.host} ends it"
        return Invitation(message, tuple(words), tuple(transport.control_words("check")))
    if settings.transport == LOCAL:
        return Invitation(f"{name} is reached by commands of this machine: there is nothing to log in to")
    return Invitation(
        f"{name} is reached by {settings.transport}, which takes keys and agents and asks no questions: "
        f"set `transport: ssh` where {settings.host} wants passwords or codes"
    )
