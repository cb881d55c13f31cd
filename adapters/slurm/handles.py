"""Handles and cursors of launches, as texts that the daemon stores. Pure.

A handle has all that is needed to project a launch for a daemon that knows nothing else, so that no state of
the adapter's own has to survive.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar
from urllib.parse import quote, unquote

from overspan.bridge.model.allocations import is_allocation
from overspan.bridge.model.errors import NotFound
from overspan.bridge.model.job import Job

_SINGLE, _GROUP = "s", "g"
"""The forms of a handle: one native job that is the user's own, or an allocation with a supervisor in it."""
GROUP = f"{_GROUP}."
"""How the handles of groups begin."""


@dataclass(frozen=True)
class Handle:
    """One run of a native job. `run` is how often Slurm had requeued it before; `grace` is in seconds.

    Of an element, `native` is its native array, `index` its place in there, and `array` the array as Overspan counts.
    `output` and `error` are where it writes, for when Slurm has forgotten it; empty where that is not known, or where
    the error goes with the output. `folder` is where it works, empty where that is the submitter's own path.
    """

    native: int
    run: int
    job: int
    launch: int
    attempt: int
    nodes: int
    grace: int
    task: str
    output: str = ""
    error: str = ""
    index: int | None = None
    array: int = 0
    folder: str = ""

    @property
    def name(self) -> str:
        """How Slurm's commands are told which job: N, or N_i for an element of an array."""
        return name_native(self.native, self.index)

    def __str__(self) -> str:
        native = f"{self.name}_{self.array}" if self.index is not None else self.name
        numbers = (native, self.run, self.job, self.launch, self.attempt, self.nodes, self.grace)
        found = (self.output, self.error, self.folder) if self.folder else (self.output, self.error)
        paths = [quote(path, safe="/") for path in found]
        return ".".join([_SINGLE, *map(str, numbers), "|".join([self.task, *paths])])


def parse_handle(text: str) -> Handle:
    """Read a handle. NotFound for one that this version did not write."""
    form, *parts = text.split(".", 8)
    names = parts[0].split("_") if parts else []
    numbers = [*names, *parts[1:7]]
    if form != _SINGLE or len(parts) != 8 or len(names) not in (1, 3) or not all(part.isdigit() for part in numbers):
        raise NotFound(f"{text!r} names no job on a Slurm cluster")
    run, job, launch, attempt, nodes, grace = (int(part) for part in parts[1:7])
    task, *paths = (*parts[7].split("|"), "", "", "")[:4]
    output, error, folder = map(unquote, paths)
    index, array = (int(names[1]), int(names[2])) if len(names) == 3 else (None, 0)
    return Handle(int(names[0]), run, job, launch, attempt, nodes, grace, task, output, error, index, array, folder)


def name_native(native: int, index: int | None) -> str:
    """A native job as Slurm's commands take it."""
    return str(native) if index is None else f"{native}_{index}"


@dataclass(frozen=True)
class GroupHandle:
    """One launch of a group in an allocation: `native` is the leader's id, `grace` the longest of its tasks in seconds.

    `folder` is the run directory on the cluster.
    """

    native: int
    job: int
    launch: int
    grace: int
    folder: str
    run: ClassVar[int] = 0
    """Slurm never requeues a group."""
    index: ClassVar[int | None] = None
    array: ClassVar[int] = 0

    def __str__(self) -> str:
        numbers = (self.native, self.job, self.launch, self.grace)
        return ".".join([_GROUP, *map(str, numbers), quote(self.folder, safe="/")])

    @property
    def name(self) -> str:
        """How Slurm's commands are told which job."""
        return str(self.native)

    @property
    def journal(self) -> str:
        """The path of the supervisor's record."""
        return f"{self.folder}/journal.{self.launch}.jsonl"

    @property
    def orders(self) -> str:
        """The path of the orders for the supervisor."""
        return f"{self.folder}/orders.{self.launch}.jsonl"


def parse_group(text: str) -> GroupHandle:
    """Read the handle of a group. NotFound for one that this version did not write."""
    form, *parts = text.split(".", 5)
    if form != _GROUP or len(parts) != 5 or not all(part.isdigit() for part in parts[:4]):
        raise NotFound(f"{text!r} names no group on a Slurm cluster")
    native, job, launch, grace = (int(part) for part in parts[:4])
    return GroupHandle(native, job, launch, grace, unquote(parts[4]))


def parse_any(text: str) -> Handle | GroupHandle:
    """Read a handle of either form. NotFound for one that this version did not write."""
    return parse_group(text) if text.startswith(GROUP) else parse_handle(text)


def is_handle(text: str) -> bool:
    """Whether this version can read the handle."""
    try:
        parse_any(text)
    except NotFound:
        return False
    return True


def make_group_handle(job: Job, native: int, folder: str) -> GroupHandle:
    """The handle of a group's present launch."""
    grace = max(0, *(task.grace_period for task in job.spec.tasks))
    return GroupHandle(native, job.id, job.launch, grace, folder)


def make_handle(job: Job, native: int, run: int = 0, paths: tuple[str, str] = ("", ""), folder: str = "") -> Handle:
    """The handle of a job's present launch; `paths` are its output's and its error's. Of an element: its array's id."""
    task, spec = job.tasks[0], job.spec.tasks[0]
    # The script of an allocation has nothing to say when it is cancelled; its steps have Slurm's KillWait.
    grace = 0 if is_allocation(spec) else max(0, spec.grace_period)
    handle = Handle(native, run, job.id, job.launch, len(task.attempts), spec.num_nodes, grace, task.name, *paths)
    handle = replace(handle, folder=folder)
    return handle if job.element is None else replace(handle, index=job.element.index, array=job.element.array)


NOTHING, GRANTED, STARTED, ENDED = range(4)
"""How much of a launch has been told."""


@dataclass(frozen=True)
class Cursor:
    """What has been told of a launch: how far it has come, and which orders.

    `orders` is the number of the last order that was told. `kill_at` is when what was asked to end is ended (0: no
    such time).
    """

    phase: int = NOTHING
    orders: int = 0
    held: bool = False
    suspended: bool = False
    kill_at: int = 0

    def __str__(self) -> str:
        if self == Cursor():
            return ""
        return f"{self.phase}:{self.orders}:{'h' * self.held}{'s' * self.suspended}:{self.kill_at}"

    @property
    def over(self) -> bool:
        """Whether everything has been told."""
        return self.phase == ENDED

    @property
    def waiting(self) -> bool:
        """Whether no start has been told, and it is not held."""
        return self.phase == NOTHING and not self.held

    def at(self, phase: int) -> Cursor:
        """The same, with more told."""
        return replace(self, phase=max(self.phase, phase))


def parse_cursor(text: str) -> Cursor:
    """Read a cursor; the beginning for one that this version did not write."""
    parts = text.split(":")
    if len(parts) != 4 or not all(part.isdigit() for part in (parts[0], parts[1], parts[3])):
        return Cursor()
    return Cursor(int(parts[0]), int(parts[1]), "h" in parts[2], "s" in parts[2], int(parts[3]))


@dataclass(frozen=True)
class GroupCursor:
    """What has been told of a group: `offset` in its journal, `order` the number of the last order in there.

    `orders` is the number of the last order that was carried out by Slurm's own commands; `kill_at` as for a single
    job. `over` says that Slurm's own end has been told.
    """

    offset: int = 0
    order: int = 0
    orders: int = 0
    held: bool = False
    suspended: bool = False
    over: bool = False
    kill_at: int = 0

    def __str__(self) -> str:
        if self == GroupCursor():
            return ""
        flags = "h" * self.held + "s" * self.suspended + "o" * self.over
        return f"{_GROUP}:{self.offset}:{self.order}:{self.orders}:{flags}:{self.kill_at}"

    @property
    def waiting(self) -> bool:
        """Whether no start has been told, and it is not held."""
        return not self.offset and not self.held


def parse_group_cursor(text: str) -> GroupCursor:
    """Read a group's cursor; the beginning for one that this version did not write."""
    parts = text.split(":")
    if len(parts) != 6 or parts[0] != _GROUP or not all(parts[place].isdigit() for place in (1, 2, 3, 5)):
        return GroupCursor()
    offset, order, orders, kill_at = (int(parts[place]) for place in (1, 2, 3, 5))
    flags = parts[4]
    return GroupCursor(offset, order, orders, "h" in flags, "s" in flags, "o" in flags, kill_at)


def parse_place(handle: Handle | GroupHandle, text: str) -> Cursor | GroupCursor:
    """Read the cursor that goes with a handle."""
    return parse_group_cursor(text) if isinstance(handle, GroupHandle) else parse_cursor(text)
