"""Handles and cursors of sets, as texts that the daemon stores. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from overspan.adapters.slurm.handles import GroupHandle
from overspan.bridge.model.errors import NotFound

SET = "m."
"""The prefix of sets' handles."""


class SetPart(NamedTuple):
    """A task of a set: its number of nodes, and the id of its first native job."""

    task: str
    nodes: int
    native: int


@dataclass(frozen=True)
class SetHandle:
    """One launch of a group as a set. `grace` is the longest of its tasks in seconds, `folder` the run directory.

    `together` says that no task starts before all native jobs run. The token of a native job is `token` with its task
    and first attempt behind it.
    """

    job: int
    launch: int
    grace: int
    together: bool
    token: str
    folder: str
    parts: tuple[SetPart, ...]

    def __str__(self) -> str:
        numbers = (self.job, self.launch, self.grace, int(self.together))
        parts = [f"{part.task}={part.nodes}={part.native}" for part in self.parts]
        return SET + "|".join([*map(str, numbers), quote(self.token), quote(self.folder), *parts])

    @property
    def orders(self) -> str:
        """The path of the file with the orders on the set as a whole."""
        return f"{self.folder}/orders.{self.launch}.jsonl"

    def part(self, task: str) -> SetPart:
        """The part of a task. Raises NotFound for a task of another job."""
        for part in self.parts:
            if part.task == task:
                return part
        raise NotFound(f"job {self.job} has no task {task!r}")

    def task_folder(self, task: str) -> str:
        """The folder that all native jobs of a task share."""
        return f"{self.folder}/members/{task}"


def join_natives(natives: Iterable[int]) -> str:
    """A set's native id for users: the ids of its current native jobs, as squeue(1) takes them."""
    return ",".join(map(str, natives))


def is_set_handle(text: str) -> bool:
    """Whether a handle names a set."""
    return text.startswith(SET)


def parse_set(text: str) -> SetHandle:
    """Read the handle of a set. NotFound for one that this version did not write."""
    fields = text.removeprefix(SET).split("|")
    try:
        job, launch, grace, together = map(int, fields[:4])
        token, folder = map(unquote, fields[4:6])
        parts = tuple(_parse_part(field) for field in fields[6:])
    except ValueError:
        parts = ()
    if not text.startswith(SET) or not parts:
        raise NotFound(f"{text!r} names no set on a Slurm cluster")
    return SetHandle(job, launch, grace, bool(together), token, folder, parts)


def _parse_part(field: str) -> SetPart:
    task, nodes, native = field.rsplit("=", 2)
    return SetPart(task, int(nodes), int(native))


@dataclass(frozen=True)
class PartCursor:
    """What has been reported of a task's newest native job.

    `first` is the first attempt that it runs. Its journal was read up to `offset`, where `order` is the last order's
    number. `attempt` is the newest one launched in it (-1: none), `open` its node runs that have not ended (node, run).
    `over` says that nothing can be launched in it any more.
    """

    task: str
    first: int
    native: int
    offset: int = 0
    order: int = 0
    attempt: int = -1
    open: tuple[tuple[int, int], ...] = ()
    over: bool = False


@dataclass(frozen=True)
class SetCursor:
    """What has been reported of a set. `orders` is the number of the last order that Slurm itself carried out."""

    members: tuple[PartCursor, ...] = ()
    granted: bool = False
    over: bool = False
    orders: int = 0

    def __str__(self) -> str:
        flags = "g" * self.granted + "o" * self.over
        rows = [[*member.__dict__.values()] for member in self.members]
        return json.dumps([flags, self.orders, rows], separators=(",", ":"))

    def member(self, task: str) -> PartCursor:
        """The cursor of a task. Raises KeyError for a task of another job."""
        return self._by_task[task]

    @cached_property
    def _by_task(self) -> dict[str, PartCursor]:
        return {member.task: member for member in self.members}

    def put(self, member: PartCursor) -> SetCursor:
        """The same with a newer cursor of one task."""
        return replace(self, members=tuple(member if old.task == member.task else old for old in self.members))


def parse_set_cursor(handle: SetHandle, text: str) -> SetCursor:
    """Read the cursor of a set; the beginning for one that this version did not write."""
    try:
        flags, orders, rows = json.loads(text)
        members = tuple(_read_member(*row) for row in rows)
        if [member.task for member in members] == [part.task for part in handle.parts]:
            return SetCursor(members, "g" in flags, "o" in flags, int(orders))
    except (ValueError, TypeError):
        pass
    return SetCursor(tuple(PartCursor(part.task, 0, part.native) for part in handle.parts))


def _read_member(task: str, first: int, native: int, offset: int, *rest: Any) -> PartCursor:
    order, attempt, still_open, over = rest
    return PartCursor(task, first, native, offset, order, attempt, tuple((n, run) for n, run in still_open), over)


def name_member(handle: SetHandle, task: str, first: int, native: int) -> GroupHandle:
    """A native job of a set as an allocation with a supervisor in it."""
    return GroupHandle(native, handle.job, handle.launch, handle.grace, f"{handle.task_folder(task)}/{first}")
