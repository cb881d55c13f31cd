"""Which groups are sets, and a set's launch as the launches of its native jobs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from overspan.adapters.contract import Launch, Node, Order
from overspan.adapters.slurm.groups.lifetimes import latest_ends
from overspan.adapters.slurm.groups.placement import plan_on_nodes
from overspan.adapters.slurm.rendering.forms import is_group
from overspan.adapters.slurm.rendering.images import without_images
from overspan.bridge.model.errors import InvalidRequest, OverspanError
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form, RestartScope, TaskSpec

MARK = "/"
"""Stands in a token between the launch's and the parts of the native job: the task, and its first attempt."""

MEMBERS = "/members/"
"""Stands in a path between the run directory and the files of a native job: the task, and its first attempt."""


@dataclass(frozen=True)
class PartLaunch(Launch):
    """A native job of a set: the `task`, the `first` attempt that it is for, and the order to launch that, if any.

    `job` is the whole job; `token` is the native job's own, `whole` the launch's.
    """

    task: str = ""
    first: int = 0
    whole: str = ""
    order: Order | None = None


def is_set(job: Job) -> bool:
    """Whether the job asks to be a set: several tasks, and `restart: task` written out; or it races."""
    spec = job.spec
    if job.racers:
        return True
    scopes = [spec.restart, *(task.restart for task in spec.tasks)]
    return is_group(job) and len(spec.tasks) > 1 and RestartScope.TASK in scopes


def may_be_set(job: Job) -> bool:
    """Whether the job could be a set where it cannot be one allocation."""
    return is_group(job) and len(job.spec.tasks) > 1 and not any(task.share for task in job.spec.tasks)


def find_obstacle(job: Job) -> str:
    """Why a job that races cannot be a set, which alone has a start gate that the daemon opens; empty where it can."""
    if any(task.form is Form.BATCH for task in job.spec.tasks):
        return "Slurm starts a batch script by itself"
    if any(task.share for task in job.spec.tasks):
        return "tasks that share nodes are one allocation there, which starts by itself"
    return ""


def needs_hetjob(job: Job, nodes: Sequence[Node], partition: str) -> bool:
    """Whether one allocation would have to be of several components."""
    try:
        return plan_on_nodes(without_images(job), nodes, partition).hetjob
    except OverspanError:
        return False


def member_of(launch: Launch, task: str, first: int = 0, order: Order | None = None) -> PartLaunch:
    """One native job of a set's launch."""
    token = MARK.join([launch.token, task, str(first)])
    # What the whole waited for is over when a native job is replaced.
    needs = () if first else launch.needs
    return PartLaunch(
        token,
        launch.job,
        launch.environment,
        launch.throttle,
        task,
        first,
        launch.token,
        order,
        needs=needs,
        wanted=launch.wanted,
    )


def list_members(launch: Launch) -> list[PartLaunch]:
    """The native jobs that a set begins with. Raises InvalidRequest for what has to be in one allocation."""
    for task in launch.job.spec.tasks:
        if task.share:
            raise InvalidRequest(
                f"the task {task.name!r} shares the nodes of {task.share!r}, which are another job's in a set",
                remedy="leave `share` out, or leave `restart: task` out: then the group is one allocation",
            )
    return [member_of(launch, task.name) for task in launch.job.spec.tasks]


def starts_together(launch: Launch) -> bool:
    """Whether it is one of a set's first native jobs, which are released together."""
    return isinstance(launch, PartLaunch) and not launch.first


class PartToken(NamedTuple):
    """What names a native job of a set: the launch's token, the task, and the first attempt that it is for."""

    token: str
    task: str
    first: int

    @property
    def folder(self) -> str:
        """The end of the path of its own files."""
        return f"{MEMBERS}{self.task}/{self.first}"


def split_token(token: str) -> PartToken | None:
    """What a native job's token names; None where it is no set's."""
    head, *rest = token.rsplit(MARK, 2)
    if len(rest) != 2 or not rest[1].isdigit():
        return None
    return PartToken(head, rest[0], int(rest[1]))


def narrow(job: Job, name: str) -> Job:
    """The job with one task alone, for the placement and limits of its native job."""
    task = job.spec_of(name)
    only: TaskSpec = replace(
        task, primary=True, time=latest_ends(job)[name], needs=(), spread=False, termination_delay=0, grace_period=0
    )
    tasks: Sequence[TaskSpec] = (only,)
    facts = tuple(replace(one, time=None) for one in job.tasks if one.name == name)
    # What a failed job keeps its nodes for is in the task's time already.
    return replace(job, spec=replace(job.spec, tasks=tuple(tasks), hold_on_failure=0), tasks=facts)
