"""Names of launches and places in their stories, as texts that the daemon keeps. Pure.

A handle has all that is needed to tell the story of a launch to a daemon that knows nothing else, so that no state of
the adapter's own has to survive.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import quote, unquote

from overspan.bridge.model.errors import NotFound
from overspan.bridge.model.job import Job

_SINGLE = "s"
"""The form of a handle: one native job. Others are for groups."""


@dataclass(frozen=True)
class Handle:
    """One run of a native job. `run` is how often Slurm had requeued it before; `grace` is in seconds.

    `output` and `error` are where it writes, for when Slurm has forgotten it; empty where that is not known, or where
    the error goes with the output.
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

    def __str__(self) -> str:
        numbers = (self.native, self.run, self.job, self.launch, self.attempt, self.nodes, self.grace)
        paths = [quote(path, safe="/") for path in (self.output, self.error)]
        return ".".join([_SINGLE, *map(str, numbers), "|".join([self.task, *paths])])


def parse_handle(text: str) -> Handle:
    """Read a handle. NotFound for one that this version did not write."""
    form, *parts = text.split(".", 8)
    if form != _SINGLE or len(parts) != 8 or not all(part.isdigit() for part in parts[:7]):
        raise NotFound(f"{text!r} names no job on a Slurm cluster")
    native, run, job, launch, attempt, nodes, grace = (int(part) for part in parts[:7])
    task, output, error = (*parts[7].split("|"), "", "")[:3]
    return Handle(native, run, job, launch, attempt, nodes, grace, task, unquote(output), unquote(error))


def is_handle(text: str) -> bool:
    """Whether this version can tell the story of a handle."""
    try:
        parse_handle(text)
    except NotFound:
        return False
    return True


def make_handle(job: Job, native: int, run: int = 0, paths: tuple[str, str] = ("", "")) -> Handle:
    """The handle of a job's present launch; `paths` are its output's and its error's."""
    task, spec = job.tasks[0], job.spec.tasks[0]
    grace = max(0, spec.grace_period)
    return Handle(native, run, job.id, job.launch, len(task.attempts), spec.num_nodes, grace, task.name, *paths)


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

    def at(self, phase: int) -> Cursor:
        """The same, with more told."""
        return replace(self, phase=max(self.phase, phase))


def parse_cursor(text: str) -> Cursor:
    """Read a cursor; the beginning for one that this version did not write."""
    parts = text.split(":")
    if len(parts) != 4 or not all(part.isdigit() for part in (parts[0], parts[1], parts[3])):
        return Cursor()
    return Cursor(int(parts[0]), int(parts[1]), "h" in parts[2], "s" in parts[2], int(parts[3]))
