"""Handles and cursors of groups, as texts that the daemon stores. Pure.

A launch of a group is a list of parts. A part is a native job with a supervisor in it. If the supervisors decide, one
part runs the whole group; if the daemon decides, each part runs one task.

Both texts are JSON with a format number. Those of the version before (`g.`, `m.`) are read as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar
from urllib.parse import unquote

from overspan.adapters.contract import Decider
from overspan.adapters.slurm.groups.lifetimes import find_patience
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.errors import NotFound
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Start
from overspan.bridge.runtime.slurm.part_folders import name_part

FORMAT = 2
NEVER = -1
"""The first attempt of a part that has had no native job yet."""
_JSON, _ALLOCATION, _SET = "{", "g.", "m."
"""How handles of this format begin, and those of the two forms of the version before."""


@dataclass(frozen=True)
class NativeJob:
    """One native job of a group: its id, and the folder of its supervisor's files on the cluster."""

    native: int
    job: int
    launch: int
    folder: str
    run: ClassVar[int] = 0
    """Always 0: groups are submitted with --no-requeue."""
    index: ClassVar[int | None] = None
    array: ClassVar[int] = 0

    def __str__(self) -> str:
        return f"{self.native}:{self.launch}:{self.folder}"

    @property
    def name(self) -> str:
        """The job as Slurm's commands take it."""
        return str(self.native)

    @property
    def journal(self) -> str:
        """The path of the supervisor's journal."""
        return f"{self.folder}/journal.{self.launch}.jsonl"

    @property
    def orders(self) -> str:
        """The path of the file with the orders for the supervisor."""
        return f"{self.folder}/orders.{self.launch}.jsonl"


@dataclass(frozen=True)
class GroupPart:
    """The native job that a part began with, its task (empty: all tasks of the group), and the task's nodes.

    Its cluster is the handle's own: a group across clusters has a handle from each. A `native` of 0: the task is
    deferred. Its native job is submitted when the task is launched.
    """

    native: int
    task: str = ""
    nodes: int = 0

    @property
    def deferred(self) -> bool:
        """Whether the launch began without a native job for it."""
        return not self.native


@dataclass(frozen=True)
class GroupHandle:
    """One launch of a group. `grace` is the longest of its tasks in seconds, `folder` the run directory.

    `together` says that no task starts before all native jobs run. `patience` is how long the native job of a deferred
    task may wait in the queue, in seconds, and `primaries` are the tasks whose work it does not interrupt. The token of
    a part is `token` with its task and first attempt behind it; empty if the supervisor decides.
    """

    job: int
    launch: int
    grace: int
    folder: str
    parts: tuple[GroupPart, ...]
    decider: Decider = Decider.SUPERVISOR
    together: bool = False
    token: str = ""
    patience: int = 0
    primaries: tuple[str, ...] = ()

    def __str__(self) -> str:
        return json.dumps({"format": FORMAT, **encode(self)}, separators=(",", ":"))

    @property
    def orders(self) -> str:
        """The path of the file with the orders on the group as a whole."""
        return f"{self.folder}/orders.{self.launch}.jsonl"

    def part(self, task: str) -> GroupPart:
        """The part that runs a task. Raises NotFound for a task of another job."""
        for part in self.parts:
            if part.task in ("", task):
                return part
        raise NotFound(f"job {self.job} has no task {task!r}")

    def part_folder(self, part: GroupPart) -> str:
        """The folder that all native jobs of a part share."""
        return f"{self.folder}/{name_part(part.task)}" if part.task else self.folder

    def native_job(self, part: PartCursor) -> NativeJob:
        """A native job of the group."""
        folder = f"{self.folder}/{name_part(part.task, part.first)}" if part.task else self.folder
        return NativeJob(part.native, self.job, self.launch, folder)

    def list_jobs(self) -> list[NativeJob]:
        """The native jobs that the launch began with."""
        return [self.native_job(part) for part in self.begin().parts if part.submitted]

    def begin(self) -> GroupCursor:
        """The cursor before anything was reported."""
        return GroupCursor(
            tuple(PartCursor(part.native, part.task, NEVER if part.deferred else 0) for part in self.parts)
        )


def make_group_handle(
    job: Job, folder: str, parts: Iterable[GroupPart], decider: Decider = Decider.SUPERVISOR, token: str = ""
) -> GroupHandle:
    """The handle of a group's current launch."""
    grace = max(0, *(task.grace_period for task in job.spec.tasks))
    together = decider is Decider.DAEMON and job.spec.start is not Start.INDEPENDENT
    patience = find_patience(job)
    primaries = tuple(task.name for task in job.lasting) if patience else ()
    return GroupHandle(job.id, job.launch, grace, folder, tuple(parts), decider, together, token, patience, primaries)


def join_natives(natives: Iterable[int]) -> str:
    """A group's native id for users: the ids of its current native jobs, as squeue(1) takes them."""
    return ",".join(map(str, natives))


def is_group_handle(text: str) -> bool:
    """Whether a handle names a group."""
    return text.startswith((_JSON, _ALLOCATION, _SET))


def find_decider(text: str) -> Decider:
    """Who decides about a launch. About a single job it is Slurm, whose verdicts are copied like a supervisor's.

    A handle that this version cannot read is left alone, so nothing is decided about it here.
    """
    try:
        return parse_group(text).decider if is_group_handle(text) else Decider.SUPERVISOR
    except NotFound:
        return Decider.SUPERVISOR


# All live groups are asked about at each observation.
@lru_cache(maxsize=65536)
def parse_group(text: str) -> GroupHandle:
    """Read the handle of a group. NotFound for one of a later version, or of something else."""
    try:
        if text.startswith(_JSON):
            document = json.loads(text)
            handle = decode(GroupHandle, document) if document.get("format") == FORMAT else None
        else:
            handle = _read_set(text) if text.startswith(_SET) else _read_allocation(text)
    except ValueError:
        handle = None
    if handle is None or not handle.parts:
        raise NotFound(f"{text!r} names no group on a Slurm cluster")
    return handle


def _read_allocation(text: str) -> GroupHandle:
    """A handle g.NATIVE.JOB.LAUNCH.GRACE.FOLDER."""
    form, *fields = text.split(".", 5)
    if f"{form}." != _ALLOCATION or len(fields) != 5:
        raise ValueError(text)
    native, job, launch, grace = map(int, fields[:4])
    return GroupHandle(job, launch, grace, unquote(fields[4]), (GroupPart(native),))


def _read_set(text: str) -> GroupHandle:
    """A handle m.JOB|LAUNCH|GRACE|TOGETHER|TOKEN|FOLDER, and |TASK=NODES=NATIVE for each part."""
    fields = text.removeprefix(_SET).split("|")
    job, launch, grace, together = map(int, fields[:4])
    token, folder = map(unquote, fields[4:6])
    named = [field.rsplit("=", 2) for field in fields[6:]]
    parts = tuple(GroupPart(int(native), task, int(nodes)) for task, nodes, native in named)
    return GroupHandle(job, launch, grace, folder, parts, Decider.DAEMON, bool(together), token)


@dataclass(frozen=True)
class PartCursor:
    """What has been reported of a part's newest native job.

    `first` is the first attempt that it runs, NEVER for a part that was not submitted. Its journal was read up to
    `offset`, where `order` is the last order's number. `since` is when it was submitted, where that was after the set's
    start (seconds since the epoch). Where the daemon decides, `attempt` is the newest one launched in it (-1: none),
    `open` its node runs that have not ended (node, run), and `over` says that nothing can be launched in it any more.
    """

    native: int
    task: str = ""
    first: int = 0
    offset: int = 0
    order: int = 0
    attempt: int = -1
    open: tuple[tuple[int, int], ...] = ()
    over: bool = False
    since: float = 0.0

    @property
    def submitted(self) -> bool:
        """Whether the part has had a native job."""
        return bool(self.native)

    def move(self, seconds: float) -> PartCursor:
        """The same after this machine's clock was set by so many seconds."""
        return replace(self, since=self.since + seconds) if self.since else self


@dataclass(frozen=True)
class GroupCursor:
    """What has been reported of a group. `orders` is the number of the last order that Slurm's commands carried out.

    `granted` says that it has its nodes, `over` that the launch has ended. `kill_at` is when the grace period of a
    cancel is over and its native jobs are killed (seconds since the epoch; 0: never).
    """

    parts: tuple[PartCursor, ...]
    granted: bool = False
    held: bool = False
    suspended: bool = False
    over: bool = False
    orders: int = 0
    kill_at: int = 0

    def __str__(self) -> str:
        return json.dumps({"format": FORMAT, **encode(self)}, separators=(",", ":"))

    @property
    def waiting(self) -> bool:
        """Whether no start has been reported, and it is not held."""
        return not (self.granted or self.held or self.over)

    def part(self, task: str) -> PartCursor:
        """The cursor of a task's part. Raises KeyError for a task of another job."""
        return self._by_task[task if task in self._by_task else ""]

    @cached_property
    def _by_task(self) -> dict[str, PartCursor]:
        return {part.task: part for part in self.parts}

    def move(self, seconds: float) -> GroupCursor:
        """The same after this machine's clock was set by so many seconds."""
        return replace(self, parts=tuple(part.move(seconds) for part in self.parts))

    def put(self, part: PartCursor) -> GroupCursor:
        """The same with a newer cursor of one part."""
        return replace(self, parts=tuple(part if old.task == part.task else old for old in self.parts))


def parse_group_cursor(handle: GroupHandle, text: str) -> GroupCursor:
    """Read the cursor of a group; the beginning for a text that is none. NotFound for one of a later version."""
    try:
        if text.startswith("g:"):
            cursor = _read_allocation_cursor(handle, text)
        else:
            document = json.loads(text)
            cursor = _read_set_cursor(document) if isinstance(document, list) else _read_cursor(handle, document)
    except (ValueError, TypeError):
        return handle.begin()
    same = [part.task for part in cursor.parts] == [part.task for part in handle.parts]
    return cursor if same else handle.begin()


def _read_cursor(handle: GroupHandle, document: Mapping[str, Any]) -> GroupCursor:
    """A cursor of this format. One of another would lose here what only its own version can read."""
    if "format" in document and document["format"] != FORMAT:
        found = document["format"]
        raise NotFound(
            f"the cursor of job {handle.job} has format {found}; this version reads {FORMAT} and those before"
        )
    return decode(GroupCursor, document)


def _read_allocation_cursor(handle: GroupHandle, text: str) -> GroupCursor:
    """A cursor g:OFFSET:ORDER:ORDERS:FLAGS:KILL_AT."""
    _, *numbers, flags, kill_at = text.split(":")
    offset, order, orders = map(int, numbers)
    part = PartCursor(handle.parts[0].native, offset=offset, order=order)
    return GroupCursor((part,), offset > 0, "h" in flags, "s" in flags, "o" in flags, orders, int(kill_at))


def _read_set_cursor(document: list[Any]) -> GroupCursor:
    """A cursor [FLAGS, ORDERS, ROWS] with a row of fields for each part."""
    flags, orders, rows = document
    parts = []
    for task, first, native, offset, order, attempt, still_open, over in rows:
        runs = tuple((node, run) for node, run in still_open)
        parts.append(PartCursor(native, task, first, offset, order, attempt, runs, over))
    return GroupCursor(tuple(parts), granted="g" in flags, over="o" in flags, orders=int(orders))
