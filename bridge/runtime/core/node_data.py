"""The port by which the node runs of a launch have the data of their tasks' storage moved."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Callable, Optional, Protocol

from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core.streams import NodeKey

Begin = Callable[[Job, NodeKey, float], list[Event]]


class NodeMounts(NamedTuple):
    """What a node run mounts: the words of the server, the folders, and a line for the program's standard error.

    `outcome` is as `NodeRun.storage`.
    """

    server: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    note: str = ""
    outcome: str = ""


class NodeData(Protocol):
    """Moves the data of node runs: before they start, and after they have ended. Times are of time.time()."""

    def start(self, job: Job, key: NodeKey, begin: Begin, now: float) -> list[Event]:
        """Begin a node run when its data has come; the reports of what could be begun at once, or not at all."""

    def collect(self, begin: Begin, now: float) -> list[Event]:
        """Begin the node runs whose data has come since the last call; the reports of those that have ended instead."""

    def stop(self, task: str, attempt: int) -> None:
        """End node runs of an attempt that wait for their data."""

    def locate(self, job: Job, task: str) -> Mapping[str, str]:
        """The places of a task's storage on the node, by the targets in its job file."""

    def mount(self, job: Job, task: str, attempt: int) -> NodeMounts:
        """What of a task's storage its node mounts, and what it says of that."""

    def copy(self, job: Job, key: NodeKey, why: str) -> None:
        """Have a node run of an attempt that could not mount its storage find it on the disk, at its next start.

        `why` is told to the program: "cannot ...".
        """

    def flush(self, job: Job, now: float) -> list[Event]:
        """Have the data of attempts whose programs have ended sent; the news of that."""

    def send_all(self, job: Job, now: float) -> bool:
        """Have all that was written sent, also while programs run; whether it was, or there is no data mover."""

    def abandon(self, task: str, attempt: int) -> None:
        """Have nothing more of an attempt sent."""

    def end(self, now: float) -> bool:
        """Have the moving end, because the launch is over; whether it has."""

    def move_clock(self, seconds: float) -> None:
        """The machine's clock was set by that much: what is due stays as far away as it was."""

    @property
    def wake_at(self) -> Optional[float]:
        """When to call `collect` and `flush` again without being woken; None while nothing is waited for."""


class NoData:
    """The port of launches whose tasks have no storage."""

    wake_at: Optional[float] = None

    def start(self, job: Job, key: NodeKey, begin: Begin, now: float) -> list[Event]:
        """Begin at once: no data is waited for."""
        return begin(job, key, now)

    def collect(self, begin: Begin, now: float) -> list[Event]:
        """Nothing waits."""
        return []

    def stop(self, task: str, attempt: int) -> None:
        """Nothing waits."""

    def locate(self, job: Job, task: str) -> Mapping[str, str]:
        """None."""
        return MappingProxyType({})

    def mount(self, job: Job, task: str, attempt: int) -> NodeMounts:
        """Nothing."""
        return NodeMounts()

    def copy(self, job: Job, key: NodeKey, why: str) -> None:
        """Nothing is mounted."""

    def flush(self, job: Job, now: float) -> list[Event]:
        """Nothing is to be sent."""
        return []

    def send_all(self, job: Job, now: float) -> bool:
        """Nothing is to be sent."""
        return True

    def abandon(self, task: str, attempt: int) -> None:
        """Nothing is to be sent."""

    def end(self, now: float) -> bool:
        """Nothing is being sent."""
        return True

    def move_clock(self, seconds: float) -> None:
        """Nothing is due."""
