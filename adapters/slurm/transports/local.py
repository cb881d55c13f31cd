"""Commands of this machine: the daemon runs on a login node."""

from __future__ import annotations

import os

from overspan.adapters.slurm.transports.processes import feed_process
from overspan.adapters.slurm.transports.programs import INTERPRETER
from overspan.adapters.slurm.transports.shell import Raw, Shell
from overspan.bridge.model.errors import Unreachable

KEPT = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "SLURM_CONF",
    "XDG_RUNTIME_DIR",
    "KRB5CCNAME",
    "LD_LIBRARY_PATH",
)
"""Variables of the daemon's own that commands get; all others are those of whoever started it, and no job's."""


class LocalTransport(Shell):
    """Slurm's commands on this machine."""

    async def carry(self, program: bytes, timeout: float) -> Raw:
        """Run a program by sh."""
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        try:
            ended = await feed_process([INTERPRETER], program, timeout, environment)
        except OSError as error:
            raise Unreachable(f"{INTERPRETER} cannot be started: {error.strerror}") from error
        trouble = f"no answer within {timeout:g} s" if ended.code is None else ""
        return Raw(ended.out, ended.err, trouble)
