"""The data mover of a launch as a child of its supervisor, in the batch step of the allocation."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Optional

from overspan.bridge.runtime.data.mover_control import keep_environment


class ChildMover:
    """The newest data mover of a launch (`mover_control.MoverProcess`). Slurm ends it with the batch step."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._child: Optional[subprocess.Popen[bytes]] = None

    def lives(self) -> bool:
        """Whether it lives."""
        return self._child is not None and self._child.poll() is None

    def start(self, argv: Sequence[str], log: str) -> None:
        """Start another one. Raises OSError."""
        with open(log, "ab") as output:
            self._child = subprocess.Popen(
                argv,
                env=keep_environment(os.environ),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        """Have it ended at once."""
        if self._child is not None:
            self._child.kill()
