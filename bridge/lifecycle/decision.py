"""`decide(job, now)`: what is to be done now, and when to look again.

The answer is a list of decisions, which are events. Whoever decides records them, reduces them, carries them out and
asks again until there are none. Nothing here reads a clock.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from overspan.bridge.lifecycle.dependencies import stand
from overspan.bridge.lifecycle.needs import needs_met
from overspan.bridge.lifecycle.readiness import ready_deadline
from overspan.bridge.model.allocations import has_body
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.durations import parse_time_limit
from overspan.bridge.model.events import Decision, Expire, HoldOver, Kill, Launch, NodeRelaunch, Notice, Terminate, Warn
from overspan.bridge.model.job import Attempt, Ending, Job, Task
from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.model.states import State

NOTICE_SECONDS = 60
"""How long before its time limit a task is told, unless it asked otherwise; shorter limits have no notice."""


class Decisions(NamedTuple):
    """Decisions that are due, and the time of the next one known today (None: only an event can bring one)."""

    events: tuple[Decision, ...]
    wake_at: Optional[float]


class _Agenda:
    """Collects what is due and the earliest of what is not."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.events: list[Decision] = []
        self.wake_at: Optional[float] = None

    def due(self, at: float) -> bool:
        """Whether `at` has come; if not, it is noted as a time to look again."""
        if at <= self.now:
            return True
        if self.wake_at is None or at < self.wake_at:
            self.wake_at = at
        return False


def decide(job: Job, now: float) -> Decisions:
    """What is due at `now`."""
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
    """When its deadline ends the job: while it waits, as soon as its limit leaves no time to be over by then.

    As Slurm does (deadline_ok of its scheduler), which looks at no job that is held.
    """
    deadline = job.spec.deadline
    if deadline is None or job.granted_at is not None or job.held:
        return deadline
    return deadline - max((_shortest(job, task) for task in job.tasks), default=0)


def _shortest(job: Job, task: Task) -> int:
    """The wall time that would do for a task: its --time-min, or else its limit; 0 without one."""
    spec = job.spec_of(task.name)
    text = spec.native.get("slurm", {}).get("time-min")
    try:
        least = parse_time_limit(str(text)) if text else None
    except ValueError:
        least = None
    limit = spec.time if task.time is None else task.time
    return least or limit or 0


def _decide_granted(job: Job, agenda: _Agenda) -> None:
    ending = job.ending
    if ending is not None and ending.hold_until is not None and agenda.due(ending.hold_until):
        agenda.events.append(HoldOver(agenda.now))
        return
    for task in job.tasks:
        attempt = task.current
        if attempt is not None and attempt.live:
            _decide_live(job, job.spec_of(task.name), task, attempt, agenda)
    # An end may end the job, so nothing starts in its round. While a group gathers to start again together, and while
    # the job is suspended, nothing starts either.
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
    """Why this attempt has to end now, if it has to."""
    if job.ending is not None and job.ending.hold_until is None and _ending_reached(job.ending, spec, task, agenda):
        return job.ending.cause
    if task.wanted is not None:
        return task.wanted
    if has_body(spec) and attempt.nodes[0].ended_at is not None:
        # What is left are step daemons.
        return attempt.nodes[0].cause or Cause.SUCCESS
    for node in attempt.nodes:
        if node.failed:
            return node.cause
    if job.suspended_at is not None:
        return None
    ready_by = ready_deadline(job, spec, task)
    if ready_by is not None and agenda.due(ready_by):
        return Cause.NOT_READY
    limit = spec.time if task.time is None else task.time
    return Cause.TIME if limit and _limit_reached(spec, task, attempt, limit, agenda) else None


def _ending_reached(ending: Ending, spec: TaskSpec, task: Task, agenda: _Agenda) -> bool:
    """Whether the job's end has come for this task; notices are given on the way."""
    if ending.cause is not Cause.PRIMARIES_DONE:
        return True
    deadline = ending.at if ending.at_once else ending.at + spec.termination_delay
    if task.noticed_at is None:
        agenda.events.append(Notice(agenda.now, task.name, deadline))
    # What is to end at once does so by any clock.
    return ending.at_once or agenda.due(deadline)


def _limit_reached(spec: TaskSpec, task: Task, attempt: Attempt, limit: int, agenda: _Agenda) -> bool:
    """Whether the wall time is over; the warning before it is given on the way. Waiting for a place costs none."""
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
    """Whether the group waits for this task's end to start again together."""
    attempt = task.current
    if attempt is None or not attempt.live:
        return False
    stopped_for = attempt.stop.cause if attempt.stop else None
    return Cause.GROUP_RESTART in (task.wanted, stopped_for)
