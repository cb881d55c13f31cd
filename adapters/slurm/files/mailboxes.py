"""Mailboxes of workers on Slurm: in their run directories, all of which one call to the login node visits."""

from __future__ import annotations

import os

from overspan.adapters.mailboxes import LOADER
from overspan.adapters.slurm.files.application import name_archive
from overspan.adapters.slurm.groups.handles import parse_group
from overspan.adapters.slurm.transports.transport import Transport
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.runtime.pool.mailbox import MAILBOX


class SlurmMailboxes:
    """The mailboxes of a cluster whose nodes share its root with the login node."""

    way = "mailbox"
    together = True
    wait = 1.0
    """A call's own seconds: it takes one of the few commands that a connection has at a time."""

    def __init__(self, transport: Transport, python: str) -> None:
        self._transport = transport
        self.python = python

    def find_folder(self, handle: str) -> str:
        """In the run directory that the worker's supervisor has. Raises NotFound for another handle."""
        return f"{parse_group(handle).folder}/{MAILBOX}"

    def find_library(self, handle: str) -> str:
        """What the supervisor was started from: ROOT/lib beside ROOT/runs."""
        root = os.path.dirname(os.path.dirname(parse_group(handle).folder))
        return f"{root}/lib/{name_archive()}"

    async def run(self, handle: str, line: bytes, seconds: float) -> str:
        """Run it on the login node. Raises Unreachable."""
        done = await self._transport.run([self.python, "-I", "-S", "-c", LOADER], stdin=line, timeout=seconds)
        if done.rc != 0:
            said = " ".join((done.words or done.text).split())[-200:]
            raise Unreachable(
                f"mailboxes are visited by `{self.python}` (3.9 or newer) on the login node, and it ended with "
                f"{done.rc}: {said or 'no word'}"
            )
        return done.text
