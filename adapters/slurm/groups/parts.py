"""Tells which groups are sets, and splits a set's launch into the launches of its parts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from overspan.adapters.contract import Launch, Node, Order
from overspan.adapters.slurm.groups.lifetimes import find_waits, latest_ends
from overspan.adapters.slurm.groups.placement import plan_on_nodes
from overspan.adapters.slurm.rendering.forms import is_group
from overspan.adapters.slurm.rendering.images import without_images
from overspan.bridge.lifecycle.stages import list_deferred
from overspan.bridge.model.errors import InvalidRequest, OverspanError
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form, RestartScope, TaskSpec
from overspan.bridge.runtime.slurm.part_folders import MEMBERS, name_part

MARK = "/"
"""The separator in a native job's token: the launch's token, the task, the first attempt."""

IN_PART = f"/{MEMBERS}/"
"""What is in the path of a part's files: in front of it the run directory, behind it task and first attempt."""


@dataclass(frozen=True)
class PartLaunch(Launch):
    """A native job of a set: its task and its first attempt. If it is submitted later than the set, as a replacement
    or because its task is deferred, `order` is the one that launches this attempt, and `kept` the task of the set's
    beginning in whose folder is what it is made of.

    `job` is the whole group; `token` is the native job's own, `whole` the launch's.
    """

    task: str = ""
    first: int = 0
    whole: str = ""
    order: Order | None = None
    kept: str = ""


def is_set(job: Job) -> bool:
    """Whether the job has to be a set: several tasks and an explicit `restart: task`, a race, or a part elsewhere."""
    spec = job.spec
    if job.racers or spec.across:
        return True
    scopes = [spec.restart, *(task.restart for task in spec.tasks)]
    return is_group(job) and len(spec.tasks) > 1 and RestartScope.TASK in scopes


def may_be_set(job: Job) -> bool:
    """Whether the job could be a set if it cannot be one allocation."""
    return is_group(job) and len(job.spec.tasks) > 1 and not any(task.share for task in job.spec.tasks)


def find_obstacle(job: Job) -> str:
    """Why a racing job cannot be a set, the one form with a start gate that the daemon opens; empty if it can."""
    if any(task.form is Form.BATCH for task in job.spec.tasks):
        return "Slurm starts a batch script by itself"
    if any(task.share for task in job.spec.tasks):
        return "tasks that share nodes are one allocation there, which starts by itself"
    return ""


def needs_hetjob(job: Job, nodes: Sequence[Node], partition: str) -> bool:
    """Whether the group as one allocation needs several components."""
    try:
        return plan_on_nodes(without_images(job), nodes, partition).hetjob
    except OverspanError:
        return False


def member_of(launch: Launch, task: str, first: int = 0, order: Order | None = None, kept: str = "") -> PartLaunch:
    """One native job of a set's launch."""
    token = MARK.join([launch.token, task, str(first)])
    # The set's dependencies were met before its start, so what is submitted later has none.
    needs = () if order is not None else launch.needs
    return PartLaunch(
        token,
        launch.job,
        launch.environment,
        launch.throttle,
        task,
        first,
        launch.token,
        order,
        kept or task,
        needs=needs,
        wanted=launch.wanted,
        access=launch.access,
    )


def list_members(launch: Launch) -> list[PartLaunch]:
    """The native jobs that a set begins with. Raises InvalidRequest for a group that has to be one allocation."""
    deferred = list_deferred(launch.job)
    return [part for part in list_parts(launch) if part.task not in deferred]


def list_parts(launch: Launch) -> list[PartLaunch]:
    """As `list_members`, and those of deferred tasks."""
    for task in launch.job.spec.tasks:
        if task.storage:
            raise InvalidRequest(
                f"the task {task.name!r} mounts object stores, which is done in one allocation, and this group has one "
                "for each task",
                remedy="have all tasks ask for nodes of one kind, or mount a volume",
            )
        if task.share:
            raise InvalidRequest(
                f"the task {task.name!r} shares the nodes of {task.share!r}, which are another job's in a set",
                remedy="leave `share` out, or leave `restart: task` out: then the group is one allocation",
            )
    return [member_of(launch, task.name) for task in launch.job.tasks if not task.over]


def starts_together(launch: Launch) -> bool:
    """Whether the launch is one of a set's first native jobs, which are released together."""
    return isinstance(launch, PartLaunch) and launch.order is None


class PartToken(NamedTuple):
    """The parts of a native job's token: the launch's token, the task, and the native job's first attempt."""

    token: str
    task: str
    first: int

    @property
    def folder(self) -> str:
        """The end of the path of its files."""
        return f"/{name_part(self.task, self.first)}"


def split_token(token: str) -> PartToken | None:
    """The parts of a native job's token; None for a token that is not of a set's native job."""
    head, *rest = token.rsplit(MARK, 2)
    if len(rest) != 2 or not rest[1].isdigit():
        return None
    return PartToken(head, rest[0], int(rest[1]))


def narrow(job: Job, name: str) -> Job:
    """The job with a single task, for the placement and limits of its native job."""
    task = job.spec_of(name)
    only: TaskSpec = replace(
        task,
        primary=True,
        time=latest_ends(job, find_waits(job))[name],
        needs=(),
        spread=False,
        termination_delay=0,
        grace_period=0,
    )
    tasks: Sequence[TaskSpec] = (only,)
    facts = tuple(replace(one, time=None) for one in job.tasks if one.name == name)
    # hold_on_failure is 0, because the task's time includes it already.
    return replace(job, spec=replace(job.spec, tasks=tuple(tasks), hold_on_failure=0), tasks=facts)
