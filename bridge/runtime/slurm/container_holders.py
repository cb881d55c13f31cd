"""The containers of node runs in images, each held by an srun of its own beside the agent's.

The plugin of srun that opens an image (Pyxis) starts a step's tasks in there, and an image need not have Python: so the
agent's step is not the container's. The agent asks for its container when its node is prepared, and is told when it is
there. It is closed when nothing of the node run is left.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

from overspan.bridge.runtime.core.streams import NodeKey
from overspan.bridge.runtime.slurm.containers import HOLD_WORDS, MARK
from overspan.bridge.runtime.slurm.images import fill_words
from overspan.bridge.runtime.slurm.placement import NodeSlot, srun_words
from overspan.bridge.runtime.slurm.srun import Srun


class ContainerHolder:
    """One srun that holds a container, or tries to."""

    def __init__(self, srun: Srun, mark: str) -> None:
        self.srun = srun
        self.mark = mark
        self.held = False
        """Whether the container has been there."""

    @property
    def lost(self) -> bool:
        """Whether it has ended without having been asked to."""
        return self.srun.status is not None

    def close(self) -> None:
        """End it: by its input, or at once where an image is still being fetched."""
        self.srun.close_input()
        if not self.held and not self.lost:
            self.srun.signal(signal.SIGTERM)


class ContainerHolders:
    """The holders of a launch; `log` takes a line for the supervisor's log."""

    def __init__(self, poller: select.poll, log: Callable[[str], None]) -> None:
        self._poller = poller
        self._log = log
        self._open: dict[NodeKey, ContainerHolder] = {}
        self._closing: list[ContainerHolder] = []

    def open(self, key: NodeKey, words: Sequence[str], environment: Mapping[str, str], umask: int) -> ContainerHolder:
        """Start the srun of a node run's container. OSError and ValueError where it cannot be."""
        mark = os.urandom(8).hex()
        self._open[key] = ContainerHolder(Srun(words, {**environment, MARK: mark}, self._poller, umask), mark)
        return self._open[key]

    def find(self, key: NodeKey) -> Optional[ContainerHolder]:
        """That of a node run, where it has one."""
        return self._open.get(key)

    def handle(self, ready: Sequence[int]) -> None:
        """Read and write what poll found ready, and log what was said."""
        for fd in ready:
            any(holder.srun.handle(fd) for holder in (*self._open.values(), *self._closing))
        for key, holder in self._open.items():
            for line in holder.srun.take_lines():
                self._log(f"{key}: image: {line}")

    def take_new(self) -> list[tuple[NodeKey, str]]:
        """Node runs whose containers are there since the last call, with their marks."""
        new = []
        for key, holder in self._open.items():
            messages, holder.srun.messages = holder.srun.messages, []
            if not holder.held and any("held" in message for message in messages):
                holder.held = True
                new.append((key, holder.mark))
        return new

    def close(self, key: NodeKey) -> None:
        """End that of a node run, where it has one."""
        holder = self._open.pop(key, None)
        if holder is not None:
            holder.close()
            self._closing.append(holder)

    def close_all(self) -> None:
        """End all."""
        for key in list(self._open):
            self.close(key)

    def reap(self) -> bool:
        """Forget those that were closed and have ended; tells whether any is left."""
        for holder in self._closing:
            if holder.lost:
                holder.srun.release()
        self._closing = [holder for holder in self._closing if not holder.lost]
        return bool(self._open or self._closing)

    def abandon(self) -> None:
        """Have Slurm end what is left."""
        for holder in (*self._open.values(), *self._closing):
            holder.srun.signal(signal.SIGTERM)


def holder_words(slot: NodeSlot, components: int, wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """The srun that holds the container of a member; `wanted` are its node's paths, as its agent tells them."""
    home, hosts, folder = (str(wanted.get(name, "")) for name in ("home", "hosts", "folder"))
    options = fill_words(slot.image, home, hosts, folder)
    return srun_words(slot._replace(options=(*slot.options, *options)), components, HOLD_WORDS)
