"""Runs commands on this machine, for a daemon on a login node."""

from __future__ import annotations

import os

from overspan.adapters.identities import AccountDatabase, Identity
from overspan.adapters.slurm.transports.processes import feed_process
from overspan.adapters.slurm.transports.programs import INTERPRETER
from overspan.adapters.slurm.transports.shell import Raw, Shell
from overspan.bridge.model.errors import Denied, Unreachable

SITE = ("PATH", "LANG", "LC_ALL", "TZ", "SLURM_CONF", "LD_LIBRARY_PATH")
"""Variables of the machine, which other users' commands get too."""
KEPT = (*SITE, "HOME", "USER", "LOGNAME", "SHELL", "XDG_RUNTIME_DIR", "KRB5CCNAME")
"""The daemon's variables that its commands get. The others came from the shell that started it, and are for no job."""


class LocalTransport(Shell):
    """Slurm's commands on this machine."""

    async def carry(self, program: bytes, timeout: float) -> Raw:
        """Run a program by sh."""
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        return await self._run_shell(program, timeout, environment)

    async def _run_shell(
        self, program: bytes, timeout: float, environment: dict[str, str], identity: Identity | None = None
    ) -> Raw:
        try:
            ended = await feed_process([INTERPRETER], program, timeout, environment, identity)
        except OSError as error:
            raise Unreachable(f"{INTERPRETER} cannot be started: {error.strerror}") from error
        trouble = f"no answer within {timeout:g} s" if ended.code is None else ""
        return Raw(ended.out, ended.err, trouble)


class UserTransport(LocalTransport):
    """Runs each program as another user, so files are read and written with that user's rights. Needs root.

    Raises Unreachable, before anything has run, if the account or the right is missing.
    """

    def __init__(self, user: str, accounts: AccountDatabase, path: str = "") -> None:
        super().__init__(path)
        self._user = user
        self._accounts = accounts

    async def carry(self, program: bytes, timeout: float) -> Raw:
        """Run a program by sh as the user."""
        try:
            identity = await self._accounts.find(self._user)
        except Denied as error:
            # Unreachable is transient: the account database may be down for a while.
            raise Unreachable(error.message, remedy=error.remedy) from None
        environment = {name: os.environ[name] for name in SITE if name in os.environ}
        environment |= {"HOME": identity.home, "USER": identity.name, "LOGNAME": identity.name}
        return await self._run_shell(program, timeout, {**environment, "SHELL": identity.shell}, identity)
