"""The reducer of a supervisor that only executes: the facts of one task of a set, which the daemon decides. Pure.

No budget, no backoff and no end of the job is known here; a `SupervisedLaunch` needs only what to start and signal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional

from overspan.bridge.lifecycle.clocks import move_times
from overspan.bridge.lifecycle.decision import Decisions
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause, find_cause
from overspan.bridge.model.events import DECISIONS, Event
from overspan.bridge.model.job import Attempt, Job, NodeRun, Placement, Probe, Stop, Task
from overspan.bridge.model.records import replace
from overspan.bridge.model.spec import OnFailure, TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.runtime.core.supervised_launch import DecisionRules

_AGAIN = (Cause.RESTART, Cause.GROUP_RESTART)


def decide_nothing(job: Job, now: float) -> Decisions:
    """The daemon decides."""
    return Decisions((), None)


def reduce_task(job: Job, event: Event) -> Job:
    """The job after the event; what makes no sense changes nothing."""
    if isinstance(event, events.Granted):
        return place_members(job, [Placement(*member) for member in event.members])
    if isinstance(event, (events.Suspend, events.Resume)):
        return replace(job, suspended_at=event.at if isinstance(event, events.Suspend) else None)
    if isinstance(event, events.ClockSet):
        return move_times(job, event.seconds, 0.0)
    name = getattr(event, "task", "")
    task = next((task for task in job.tasks if task.name == name), None)
    handler = _HANDLERS.get(type(event))
    if task is None or handler is None:
        return job
    after = handler(job, task, event)
    return job if after is None else replace(job, tasks=tuple(after if old is task else old for old in job.tasks))


def place_members(job: Job, members: Sequence[Placement]) -> Job:
    """The job with those members at their new places, in the order of the file."""
    order = {task.name: number for number, task in enumerate(job.spec.tasks)}
    known = {(place.task, place.index): place for place in (*job.placements, *members)}
    placed = sorted(known.values(), key=lambda place: (order.get(place.task, 0), place.index))
    return replace(job, placements=tuple(placed))


def is_idle(job: Job, task: str) -> bool:
    """Whether nothing of the task runs."""
    return not job.task(task).live


def keep_until(job: Job, task: str, seconds: float) -> Optional[float]:
    """Until when an idle task's nodes are kept for another attempt; None where none was launched yet."""
    attempt = job.task(task).current
    if attempt is None or attempt.ended_at is None:
        return None
    if attempt.stop is not None:
        return attempt.ended_at + (seconds if attempt.stop.cause in _AGAIN else 0)
    if all(node.cause is Cause.SUCCESS for node in attempt.nodes):
        return attempt.ended_at
    kept = seconds if _may_try_again(job.spec_of(task)) else 0
    return attempt.ended_at + max(kept, job.spec.hold_on_failure)


def _may_try_again(spec: TaskSpec) -> bool:
    """Whether any budget allows another attempt after an error; what was lost starts elsewhere."""
    retry = spec.retry
    restarts = not spec.primary and spec.on_failure is OnFailure.RESTART
    return bool(retry.max_restarts_on_errors or retry.recover_on_exit_codes) or restarts


def exit_of(job: Job, task: str) -> int:
    """An exit status that tells how the task's newest attempt ended: of its failures the first."""
    attempt = job.task(task).current
    nodes = () if attempt is None else attempt.nodes
    failed = sorted((node for node in nodes if node.exit_code or node.signal), key=lambda node: node.ended_at or 0.0)
    return (failed[0].exit_code or 128 + failed[0].signal) if failed else 0


def _launch(job: Job, task: Task, event: events.Launch) -> Optional[Task]:
    nodes = tuple(NodeRun(index) for index in range(job.spec_of(task.name).num_nodes))
    return replace(task, attempts=(Attempt(event.attempt, State.CONFIGURING, event.at, nodes),), ready_at=None)


def _relaunch(job: Job, task: Task, event: events.NodeRelaunch) -> Optional[Task]:
    return _change(task, event.attempt, lambda attempt: _put(attempt, NodeRun(event.node, event.run)))


def _start(job: Job, task: Task, event: events.NodeStarted) -> Optional[Task]:
    return _change(task, event.attempt, lambda attempt: _alter(attempt, event.node, event.run, started_at=event.at))


def _end(job: Job, task: Task, event: events.NodeEnded) -> Optional[Task]:
    failed = Cause.SIGNAL if event.signal else Cause.EXIT if event.exit_code else Cause.SUCCESS
    values: dict[str, Any] = {
        "ended_at": event.at,
        "exit_code": event.exit_code,
        "signal": event.signal,
        "cause": find_cause(event.cause) or failed,
    }
    return _change(task, event.attempt, lambda attempt: _alter(attempt, event.node, event.run, **values))


def _terminate(job: Job, task: Task, event: events.Terminate) -> Optional[Task]:
    stop = Stop(find_cause(event.cause) or Cause.CANCEL, event.at, event.kill_at)
    return _change(task, event.attempt, lambda attempt: replace(attempt, stop=stop))


def _kill(job: Job, task: Task, event: events.Kill) -> Optional[Task]:
    def kill(attempt: Attempt) -> Attempt:
        stop = attempt.stop or Stop(Cause.CANCEL, event.at, event.at)
        return replace(attempt, stop=replace(stop, killed_at=event.at))

    return _change(task, event.attempt, kill)


def _ready(job: Job, task: Task, event: events.TaskReady) -> Optional[Task]:
    return replace(task, ready_at=event.at)


def _change(task: Task, number: int, work: Callable[[Attempt], Attempt]) -> Optional[Task]:
    attempt = task.current
    if attempt is None or attempt.number != number:
        return None
    return replace(task, attempts=(work(attempt),))


def _alter(attempt: Attempt, index: int, run: int, **values: Any) -> Attempt:
    node = next((node for node in attempt.nodes if node.index == index and node.run == run), None)
    return attempt if node is None else _put(attempt, replace(node, **values))


def _put(attempt: Attempt, node: NodeRun) -> Attempt:
    nodes = tuple(node if old.index == node.index else old for old in attempt.nodes)
    ends = [one.ended_at for one in nodes]
    over = None if None in ends else max(end or 0.0 for end in ends)
    return replace(attempt, nodes=nodes, ended_at=over)


def _probed(job: Job, task: Task, event: events.Probed) -> Optional[Task]:
    return replace(task, probe=Probe(event.attempt, event.tries, event.answer))


_HANDLERS: dict[type, Callable[[Job, Task, Any], Optional[Task]]] = {
    events.Launch: _launch,
    events.NodeRelaunch: _relaunch,
    events.NodeStarted: _start,
    events.NodeEnded: _end,
    events.Terminate: _terminate,
    events.Kill: _kill,
    events.TaskReady: _ready,
    events.Probed: _probed,
}
"""Each gives the task after the event; None where the event is about another attempt."""

RULES = DecisionRules(reduce_task, decide_nothing, (*DECISIONS, events.Signal, events.Suspend, events.Resume))
"""The rules of a supervisor that only executes."""
