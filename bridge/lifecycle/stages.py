"""Stages: tasks that wait for the end of others take turns, and each stage is a launch of its own.

A stage asks its cluster for resources when all tasks of the one before it have ended; until then it holds nothing.
Between two stages the job waits in the queue as its next launch. The cluster is chosen by the first stage: what it
leaves is there.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Optional

from overspan.bridge.lifecycle.suspension import end_suspension
from overspan.bridge.model.job import EndedStage, Job, Stage, Task, list_stages
from overspan.bridge.model.records import replace
from overspan.bridge.model.spec import JobSpec, Need, NeedKind, Start, TaskSpec
from overspan.bridge.model.stages import list_late_starters
from overspan.bridge.model.states import State, move

_NEVER_MET = (NeedKind.OK, NeedKind.STARTED, NeedKind.READY)
"""Needs of a task that is skipped."""


def is_carried(job: Job, name: str) -> bool:
    """Whether the present launch carries the task of that name."""
    return job.stage is None or name in job.stage.tasks


def list_carried(job: Job) -> tuple[Task, ...]:
    """The tasks that the present launch carries."""
    return job.tasks if job.stage is None else tuple(task for task in job.tasks if task.name in job.stage.tasks)


def waits_its_turn(job: Job, name: str) -> bool:
    """Whether the task of that name belongs to a later stage."""
    return not is_carried(job, name) and any(task.name == name and not task.over for task in job.tasks)


def is_under_way(job: Job) -> bool:
    """Whether a stage has ended and another is to follow: the rest of the job stays on its cluster."""
    return (
        job.stage is not None
        and not job.over
        and any(task.over and task.attempts for task in job.tasks if not is_carried(job, task.name))
    )


def carry(job: Job) -> Job:
    """The job as its present launch carries it: with the tasks of the stage, and what the later ones need of them."""
    stage = job.stage
    if stage is None or len(stage.tasks) == len(job.spec.tasks):
        return job
    gang = job.spec.start is Start.TURNS or len(stage.tasks) == 1
    later = tuple(spec for spec in job.spec.tasks if waits_its_turn(job, spec.name))
    known = {*stage.tasks, *(spec.name for spec in later)}
    return replace(
        job,
        spec=replace(
            job.spec,
            tasks=tuple(
                replace(spec, needs=_keep_needs(spec, stage.tasks))
                for spec in job.spec.tasks
                if spec.name in stage.tasks
            ),
            start=Start.TOGETHER if gang else job.spec.start,
        ),
        tasks=list_carried(job),
        stage=replace(
            stage,
            followed=any(spec.primary for spec in later),
            later=tuple(TaskSpec(spec.name, primary=spec.primary, needs=_keep_needs(spec, known)) for spec in later),
            deferred=list_deferred(job),
        ),
        placements=tuple(place for place in job.placements if place.task in stage.tasks),
        racers=() if is_under_way(job) else job.racers,
        unstarted=job.unstarted + stage.restarts,
        ended_stages=(),
    )


def list_deferred(job: Job) -> tuple[str, ...]:
    """The tasks that a launch which begins with these facts carries, but asks resources for at their own turn.

    They wait for the end of others of the same launch. Where clusters compete for the job or each has a part of it,
    all is asked for from the start.
    """
    spec = job.spec
    if job.racers or spec.race or spec.across:
        return ()
    if job.stage is not None and job.stage.deferred:
        return tuple(name for name in job.stage.deferred if not job.task(name).over)
    if spec.start is Start.TOGETHER:
        return ()
    left = tuple(task for task in spec.tasks if is_carried(job, task.name) and not job.task(task.name).over)
    known = {task.name for task in left}
    return list_late_starters(tuple(replace(task, needs=_keep_needs(task, known)) for task in left))


def _keep_needs(spec: TaskSpec, known: Container[str]) -> tuple[Need, ...]:
    return tuple(need for need in spec.needs if need.task in known)


def bring_later(job: Job) -> Job:
    """A job that is carried alone, with the tasks of later stages; else the job itself."""
    if job.stage is None or not job.stage.later:
        return job
    later = job.stage.later
    spec = replace(job.spec, tasks=(*job.spec.tasks, *later))
    return replace(job, spec=spec, tasks=(*job.tasks, *(Task(spec.name) for spec in later)))


def leave_later(job: Job) -> Job:
    """What `bring_later` took, without those that are skipped by now: they come no more."""
    stage = job.stage
    if stage is None or not stage.later:
        return job
    left = [spec for spec in job.spec.tasks if waits_its_turn(job, spec.name)]
    known = {*stage.tasks, *(spec.name for spec in left)}
    later = tuple(replace(spec, needs=_keep_needs(spec, known)) for spec in left)
    carried = tuple(spec for spec in job.spec.tasks if spec.name in stage.tasks)
    return replace(
        job,
        spec=replace(job.spec, tasks=carried),
        tasks=list_carried(job),
        stage=replace(stage, followed=any(spec.primary for spec in later), later=later),
    )


def prevents_primary(spec: JobSpec, name: str) -> bool:
    """Whether some primary task can never start once that task has failed."""
    skipped: list[TaskSpec] = []
    while True:
        names = {task.name for task in skipped}
        lost = {Need(name, NeedKind.OK), *(Need(other, kind) for other in names for kind in _NEVER_MET)}
        found = [task for task in spec.tasks if task.name not in names and not lost.isdisjoint(task.needs)]
        if not found:
            return any(task.primary for task in skipped)
        skipped += found


def split_stages(job: Job) -> tuple[Job, ...]:
    """The job as each of its launches would carry it, in turn; a job that is launched as a whole is the only one."""
    stages = list_stages(job.spec)
    return tuple(carry(replace(job, stage=Stage(names))) for names in stages) if stages else (job,)


def move_on(job: Job, at: float) -> Job:
    """The job as it waits for the resources of its next stage, once all tasks of the present one have ended."""
    stage = job.stage
    if stage is None or not all(task.over for task in list_carried(job)):
        return job
    following = find_next_stage(job)
    if following is None:
        return job
    job = end_suspension(job, at)
    number = job.next_launch
    return replace(
        leave_stage(job),
        stage=Stage(following, number, job.restarts),
        state=move(job.state, State.PENDING),
        reason="None",
        granted_at=None,
        begin=None,
        backs_off=False,
        expected_start=None,
        partition="",
        launch=number,
        newest=number,
        unstarted=job.unstarted + number - job.launch,
    )


def name_ended(job: Job, launch: int, cluster: str, handle: str, native_id: str) -> Job:
    """The job with how its cluster names the stage that ended with that launch."""
    ended = tuple(
        one._replace(cluster=cluster, handle=handle, native_id=native_id) if one.launch == launch else one
        for one in job.ended_stages
    )
    return replace(job, ended_stages=ended)


def find_ended(job: Job, name: str) -> Optional[EndedStage]:
    """The ended stage of a task that the present launch does not carry, where its cluster has named it."""
    if is_carried(job, name):
        return None
    return next((ended for ended in job.ended_stages if name in ended.tasks and ended.handle), None)


def find_next_stage(job: Job) -> Optional[tuple[str, ...]]:
    """The tasks of the first stage that has not ended, without those that are skipped; None where all have ended."""
    for names in list_stages(job.spec):
        left = tuple(name for name in names if not job.task(name).over)
        if left:
            return left
    return None


def leave_stage(job: Job) -> Job:
    """The job with its present stage among those that have ended; the daemon adds how the cluster names it."""
    if job.stage is None:
        return job
    others = tuple(ended for ended in job.ended_stages if ended.tasks != job.stage.tasks)
    return replace(job, ended_stages=(*others, EndedStage(job.stage.tasks, job.launch)))
