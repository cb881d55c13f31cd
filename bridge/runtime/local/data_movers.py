"""The data mover of a launch as a process below a shim, which outlives its supervisor."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Callable

from overspan.bridge.runtime.core import shim_control
from overspan.bridge.runtime.core.node_records import is_claimed, shim_alive
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.core.shim import NodeLaunch
from overspan.bridge.runtime.core.shim_control import Shim
from overspan.bridge.runtime.data.mover_control import keep_environment


class ShimMover:
    """The newest data mover of a launch (`mover_control.MoverProcess`)."""

    def __init__(
        self, directory: RunDirectory, spawn: Callable[[NodeLaunch], Shim], retire: Callable[[Shim], None]
    ) -> None:
        self._directory = directory
        self._spawn, self._retire = spawn, retire
        self._nodes = directory.folder("nodes")
        self._number = 0

    def lives(self) -> bool:
        """Whether one runs, started by this supervisor or by one before it."""
        while is_claimed(self._nodes, self._key(1)):
            self._number += 1
        return shim_alive(self._nodes, self._key())

    def start(self, argv: Sequence[str], log: str) -> None:
        """Start another one. Raises OSError."""
        while is_claimed(self._nodes, self._key()):
            self._number += 1
        self._spawn(
            NodeLaunch(
                directory=self._nodes,
                key=self._key(),
                argv=tuple(argv),
                env=keep_environment(os.environ),
                cwd=self._directory.path,
                stdout=log,
                stderr=log,
                append=True,
                umask=0o022,
            )
        )

    def kill(self) -> None:
        """Have it ended at once."""
        shim = Shim(self._nodes, self._key(), 0, None)
        self._retire(shim)
        shim_control.send(shim, signal.SIGKILL)

    def _key(self, ahead: int = 0) -> str:
        return f"data-mover.{self._directory.launch}.{self._number + ahead}"
