"""Handles and cursors of launches, as texts that the daemon stores. Pure.

A handle alone is enough to observe its launch and to give it orders, so the adapter stores no state of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import quote, unquote

from overspan.adapters.slurm.groups.handles import GroupHandle, is_group_handle, parse_group, parse_group_cursor
from overspan.bridge.model.allocations import is_allocation
from overspan.bridge.model.errors import NotFound
from overspan.bridge.model.job import Job

_SINGLE = "s"
"""The form of the handle of a single native job without a supervisor; see groups/handles.py for the others."""


@dataclass(frozen=True)
class Handle:
    """One run of a native job. `run` is how often Slurm had requeued it before; `grace` is in seconds.

    For an element, `native` is its native array, `index` its index there, and `array` the array's id in Overspan.
    `output` and `error` are its log files, kept here because Slurm forgets them; empty where they are not known, and
    `error` is empty too where it goes into the output. `folder` is its working directory; empty for the submitter's
    own.
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
        """The job as Slurm's commands take it: N, or N_i for an element of an array."""
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


def parse_any(text: str) -> Handle | GroupHandle:
    """Read a handle of either form. NotFound for one that this version cannot read."""
    return parse_group(text) if is_group_handle(text) else parse_handle(text)


def check_texts(handle: str, cursor: str) -> None:
    """Raises NotFound where this version cannot read a handle, or its cursor."""
    found = parse_any(handle)
    if isinstance(found, GroupHandle):
        parse_group_cursor(found, cursor)


def is_handle(text: str) -> bool:
    """Whether this version can read the handle."""
    try:
        parse_any(text)
    except NotFound:
        return False
    return True


def make_handle(job: Job, native: int, run: int = 0, paths: tuple[str, str] = ("", ""), folder: str = "") -> Handle:
    """The handle of a job's current launch; `paths` are its output and error. `native` is an element's array."""
    task, spec = job.tasks[0], job.spec.tasks[0]
    # The script of an allocation only holds the nodes and needs no grace; its steps have Slurm's KillWait.
    grace = 0 if is_allocation(spec) else max(0, spec.grace_period)
    handle = Handle(native, run, job.id, job.launch, len(task.attempts), spec.num_nodes, grace, task.name, *paths)
    handle = replace(handle, folder=folder)
    return handle if job.element is None else replace(handle, index=job.element.index, array=job.element.array)


NOTHING, GRANTED, STARTED, ENDED = range(4)
"""How far the events of a launch have been reported."""


@dataclass(frozen=True)
class Cursor:
    """What has been reported of a launch: its phase, and the orders up to number `orders`.

    `kill_at` is when the grace period of a cancel is over and the job is killed (seconds since the epoch; 0: never).
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
        """Whether everything has been reported."""
        return self.phase == ENDED

    @property
    def waiting(self) -> bool:
        """Whether no start has been reported, and it is not held."""
        return self.phase == NOTHING and not self.held

    def at(self, phase: int) -> Cursor:
        """The same at that phase, or at its own if that is later."""
        return replace(self, phase=max(self.phase, phase))


def parse_cursor(text: str) -> Cursor:
    """Read a cursor; the beginning for one that this version did not write."""
    parts = text.split(":")
    if len(parts) != 4 or not all(part.isdigit() for part in (parts[0], parts[1], parts[3])):
        return Cursor()
    return Cursor(int(parts[0]), int(parts[1]), "h" in parts[2], "s" in parts[2], int(parts[3]))
