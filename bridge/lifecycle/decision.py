"""`decide(job, now)`: the decisions that are due now, and when to look again.

Decisions are events. The decider (supervisor or daemon) records them, reduces them, carries them out, and calls
`decide` again until nothing is due. Nothing here reads a clock.
"""

from __future__ import annotations

from typing import Optional

from overspan.bridge.lifecycle.dependencies import stand
from overspan.bridge.lifecycle.needs import needs_met
from overspan.bridge.lifecycle.readiness import ready_deadline
from overspan.bridge.lifecycle.stages import list_carried
from overspan.bridge.model.allocations import has_body
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.durations import parse_time_limit
from overspan.bridge.model.elastic import SCALED, SCALED_NOTICE
from overspan.bridge.model.events import (
    AbandonFlush,
    Decision,
    Expire,
    HoldOver,
    Kill,
    Launch,
    NodeRelaunch,
    Notice,
    Terminate,
    Warn,
)
from overspan.bridge.model.job import Attempt, Ending, Job, Task
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.model.states import State

NOTICE_SECONDS = 60
"""Seconds of warning before the time limit, unless the task asks for others; shorter limits have no warning."""


class Decisions(NamedTuple):
    """Decisions that are due, and the time of the next one known today (None: only an event can bring one)."""

    events: tuple[Decision, ...]
    wake_at: Optional[float]


class _Agenda:
    """Collects due decisions, and the earliest time at which another becomes due."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.events: list[Decision] = []
        self.wake_at: Optional[float] = None

    def due(self, at: float) -> bool:
        """Whether `at` has come; if not, remember it as a time to look again."""
        if at <= self.now:
            return True
        if self.wake_at is None or at < self.wake_at:
            self.wake_at = at
        return False


def decide(job: Job, now: float) -> Decisions:
    """The decisions due at `now`."""
    agenda = _Agenda(now)
    if not job.over:
        latest = _latest_time(job)
        if job.ending is None and latest is not None and agenda.due(latest):
            agenda.events.append(Expire(now, Cause.DEADLINE.value))
        elif job.ending is None and job.spec.kill_on_invalid_dep and stand(job, now).never:
            agenda.events.append(Expire(now, Cause.DEPENDENCY.value))
        elif job.granted_at is not None:
            _decide_granted(job, agenda)
    return Decisions(tuple(agenda.events), agenda.wake_at)


def _latest_time(job: Job) -> Optional[float]:
    """When the deadline ends the job. A waiting job ends as soon as its time limit no longer fits before the deadline.

    As in Slurm, held jobs are left alone (deadline_ok in its scheduler).
    """
    deadline = job.spec.deadline
    if deadline is None or job.granted_at is not None or job.held:
        return deadline
    return deadline - max((_shortest(job, task) for task in list_carried(job)), default=0)


def _shortest(job: Job, task: Task) -> int:
    """The least wall time that a task accepts: its --time-min, else its limit; 0 without either."""
    spec = job.spec_of(task.name)
    text = spec.native.get("slurm", {}).get("time-min")
    try:
        least = parse_time_limit(str(text)) if text else None
    except ValueError:
        least = None
    return least or job.time_of(task.name) or 0


def _decide_granted(job: Job, agenda: _Agenda) -> None:
    ending = job.ending
    if ending is not None and ending.hold_until is not None and agenda.due(ending.hold_until):
        agenda.events.append(HoldOver(agenda.now))
        return
    for task in job.tasks:
        attempt = task.current
        if attempt is not None and attempt.live:
            _decide_live(job, job.spec_of(task.name), task, attempt, agenda)
    # An end may end the whole job, so nothing starts in the same round. Nor does anything start while a group waits to
    # restart together, or while the job is suspended.
    if (
        agenda.events
        or ending is not None
        or job.suspended_at is not None
        or any(_regroups(task) for task in job.tasks)
    ):
        return
    for task in job.tasks:
        if not task.live and _start_due(job, job.spec_of(task.name), task, agenda):
            agenda.events.append(Launch(agenda.now, task.name, len(task.attempts)))


def _start_due(job: Job, spec: TaskSpec, task: Task, agenda: _Agenda) -> bool:
    if task.state is not State.PENDING or (task.next_start is not None and not agenda.due(task.next_start)):
        return False
    return needs_met(job, spec)


def _decide_live(job: Job, spec: TaskSpec, task: Task, attempt: Attempt, agenda: _Agenda) -> None:
    if attempt.flush is not None:
        if task.unflushed or agenda.due(attempt.flush.until):
            agenda.events.append(AbandonFlush(agenda.now, task.name, attempt.number))
        return
    if attempt.stop is not None:
        if attempt.stop.killed_at is None and agenda.due(attempt.stop.kill_at):
            agenda.events.append(Kill(agenda.now, task.name, attempt.number))
        return
    cause = _stop_cause(job, spec, task, attempt, agenda)
    if cause is not None:
        grace = spec.grace_period if job.ending is None or job.ending.grace is None else job.ending.grace
        agenda.events.append(Terminate(agenda.now, task.name, attempt.number, cause.value, agenda.now + grace))
        return
    for node in attempt.nodes:
        if node.next_start is not None and job.suspended_at is None and agenda.due(node.next_start):
            agenda.events.append(NodeRelaunch(agenda.now, task.name, attempt.number, node.index, node.run + 1))


def _stop_cause(job: Job, spec: TaskSpec, task: Task, attempt: Attempt, agenda: _Agenda) -> Optional[Cause]:
    """Why this attempt must end now; None where it need not."""
    if job.ending is not None and job.ending.hold_until is None and _ending_reached(job.ending, spec, task, agenda):
        return job.ending.cause
    if task.wanted is not None:
        return task.wanted
    if has_body(spec) and attempt.nodes[0].ended_at is not None:
        # Only step daemons are left.
        return attempt.nodes[0].cause or Cause.SUCCESS
    for node in attempt.nodes:
        if node.failed:
            return node.cause
    if job.suspended_at is not None:
        return None
    ready_by = ready_deadline(job, spec, task)
    if ready_by is not None and agenda.due(ready_by):
        return Cause.NOT_READY
    limit = job.time_of(task.name)
    return Cause.TIME if limit and _limit_reached(spec, task, attempt, limit, agenda) else None


def _ending_reached(ending: Ending, spec: TaskSpec, task: Task, agenda: _Agenda) -> bool:
    """Whether the job's end reaches this task now. Adds the notice that precedes it when that is due."""
    if ending.cause is not Cause.PRIMARIES_DONE:
        return True
    deadline = ending.at if ending.at_once else ending.at + spec.termination_delay
    if task.noticed_at is None:
        kind = SCALED_NOTICE if ending.reason == SCALED else ""
        agenda.events.append(Notice(agenda.now, task.name, deadline, kind))
    # An immediate end does not depend on any clock.
    return ending.at_once or agenda.due(deadline)


def _limit_reached(spec: TaskSpec, task: Task, attempt: Attempt, limit: int, agenda: _Agenda) -> bool:
    """Whether the wall time is used up. Adds the warning before it when due. Time in the queue does not count."""
    begun_at = attempt.begun_at
    if begun_at is None:
        return False
    deadline = begun_at + attempt.suspended + limit
    if agenda.due(deadline):
        return True
    seconds = spec.signal.seconds if spec.signal else NOTICE_SECONDS
    if attempt.warned_at is None and (spec.signal or limit > seconds) and agenda.due(deadline - seconds):
        name = spec.signal.name if spec.signal else ""
        batch_only = spec.signal.batch_only if spec.signal else False
        agenda.events.append(Warn(agenda.now, task.name, attempt.number, deadline, name, batch_only))
    return False


def _regroups(task: Task) -> bool:
    """Whether a group restart waits for this task to end."""
    attempt = task.current
    if attempt is None or not attempt.live:
        return False
    stopped_for = attempt.stop.cause if attempt.stop else None
    return Cause.GROUP_RESTART in (task.wanted, stopped_for)
