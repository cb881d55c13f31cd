"""Commands of this machine: the daemon runs on a login node."""

from __future__ import annotations

import os

from overspan.adapters.identities import AccountDatabase, Identity
from overspan.adapters.slurm.transports.processes import feed_process
from overspan.adapters.slurm.transports.programs import INTERPRETER
from overspan.adapters.slurm.transports.shell import Raw, Shell
from overspan.bridge.model.errors import Denied, Unreachable

SITE = ("PATH", "LANG", "LC_ALL", "TZ", "SLURM_CONF", "LD_LIBRARY_PATH")
"""Variables that are the machine's: another user's commands get them too."""
KEPT = (*SITE, "HOME", "USER", "LOGNAME", "SHELL", "XDG_RUNTIME_DIR", "KRB5CCNAME")
"""Variables of the daemon's own that commands get; all others belong to the shell that started it, and to no job."""


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
    """The same as another user: each program, and so each file that it reads or writes, is in that user's name.

    Only root can do so; Unreachable, before anything has run, where the account or the right is missing.
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
            # The account database may be away for a while; nothing has failed.
            raise Unreachable(error.message, remedy=error.remedy) from None
        environment = {name: os.environ[name] for name in SITE if name in os.environ}
        environment |= {"HOME": identity.home, "USER": identity.name, "LOGNAME": identity.name}
        return await self._run_shell(program, timeout, {**environment, "SHELL": identity.shell}, identity)
