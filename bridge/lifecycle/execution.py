"""What an event makes of a task's attempts; the same for events of a supervisor and of the daemon. Pure.

`reduce` uses these functions and adds the consequences: budgets, needs, the end of the job. `execute` is no second
version of it: it is for a supervisor that carries out what the daemon decides. That one knows the tasks of other native
jobs by their places alone, and begins with any attempt, so every consequence that it drew would be wrong: it keeps the
newest attempt of each task and draws none. What both do to an attempt is here once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable, Optional

from overspan.bridge.lifecycle.clocks import move_times
from overspan.bridge.lifecycle.lookup import find_task, put_node
from overspan.bridge.lifecycle.members import set_peers
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause, find_cause
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Attempt, Ending, Job, NodeRun, Placement, Probe, Stop, Task
from overspan.bridge.model.names import one_line
from overspan.bridge.model.records import replace
from overspan.bridge.model.states import State

MOST_WORDS = 120
"""Characters of a readiness probe's answer that are kept."""


def begin_attempt(job: Job, event: events.Launch) -> Attempt:
    """The attempt that is launched, with a run of each node. A batch script's other nodes run the step daemon."""
    nodes = tuple(NodeRun(index) for index in range(job.spec_of(event.task).num_nodes))
    return Attempt(event.attempt, State.CONFIGURING, event.at, nodes)


def start_node(attempt: Attempt, node: NodeRun, event: events.NodeStarted) -> Attempt:
    """The attempt after the start of a node run. It is RUNNING with the last one, unless it is to end."""
    attempt = put_node(attempt, replace(node, started_at=event.at, storage=event.storage))
    if attempt.started_at is not None or any(one.started_at is None for one in attempt.nodes):
        return attempt
    begun = max(one.started_at or 0.0 for one in attempt.nodes)
    return replace(attempt, started_at=begun, state=State.RUNNING if attempt.stop is None else attempt.state)


def end_node(node: NodeRun, event: events.NodeEnded) -> NodeRun:
    """The node run after its end."""
    return replace(
        node,
        ended_at=event.at,
        exit_code=event.exit_code,
        signal=event.signal,
        cause=cause_of(event),
        detail=event.detail,
    )


def cause_of(event: events.NodeEnded) -> Cause:
    """Why a node run ended."""
    cause = find_cause(event.cause)
    if cause is not None:
        return cause
    if event.signal:
        return Cause.SIGNAL
    if event.exit_code:
        return Cause.EXIT
    # A later version wrote this cause. It is certainly not a success.
    return Cause.NODE if event.cause else Cause.SUCCESS


def stop_attempt(attempt: Attempt, cause: Cause, event: events.Terminate) -> Attempt:
    """The attempt that is to end."""
    return replace(attempt, state=State.COMPLETING, stop=Stop(cause, event.at, event.kill_at))


def read_probe(event: events.Probed) -> Probe:
    """The answer of a readiness probe. It is text of a user's program: one line without control characters."""
    return Probe(event.attempt, event.tries, one_line(event.answer, MOST_WORDS))


def place_members(job: Job, members: Iterable[Placement]) -> Job:
    """The job with those members at their new places, in the order of the file."""
    places = {(place.task, place.index): place for place in (*job.placements, *members)}
    order = {task.name: number for number, task in enumerate(job.spec.tasks)}
    placed = sorted(places.values(), key=lambda place: (order.get(place.task, len(order)), place.index))
    return replace(job, placements=tuple(placed))


# --- execution alone -------------------------------------------------------------------------------------------------


def execute(job: Job, event: Event) -> Job:
    """The job after an event that the daemon decided; one that does not apply to the job's state changes nothing."""
    if isinstance(event, events.Granted):
        return place_members(job, [Placement(*member) for member in event.members])
    if isinstance(event, (events.Suspend, events.Resume)):
        return replace(job, suspended_at=event.at if isinstance(event, events.Suspend) else None)
    if isinstance(event, events.LaunchLost):
        return replace(job, ending=Ending(Cause.CANCEL, event.at, State.CANCELLED))
    if isinstance(event, events.SetPeers):
        return set_peers(job, event) or job
    if isinstance(event, events.ClockSet):
        return move_times(job, event.seconds, 0.0)
    task = find_task(job, getattr(event, "task", ""))
    if task is None:
        return job
    after = _execute_launch(job, task, event) if isinstance(event, events.Launch) else _execute_task(task, event)
    return replace(job, tasks=tuple(after if old is task else old for old in job.tasks))


def _execute_launch(job: Job, task: Task, event: events.Launch) -> Task:
    """Any attempt may be the first here."""
    return replace(task, attempts=(begin_attempt(job, event),), ready_at=None)


def _execute_task(task: Task, event: Any) -> Task:
    """The task after an event about its newest attempt."""
    attempt, change = task.current, _CHANGES.get(type(event))
    if attempt is None or attempt.number != getattr(event, "attempt", None):
        return task
    if isinstance(event, events.TaskReady):
        return replace(task, ready_at=event.at)
    if isinstance(event, events.Probed):
        return replace(task, probe=read_probe(event))
    after = None if change is None else change(attempt, event)
    if after is None:
        return task
    ends = [node.ended_at for node in after.nodes]
    ended_at = None if None in ends else max(end or 0.0 for end in ends)
    return replace(task, attempts=(replace(after, ended_at=ended_at),))


def _relaunch(attempt: Attempt, event: events.NodeRelaunch) -> Attempt:
    return put_node(attempt, NodeRun(event.node, event.run))


def _start(attempt: Attempt, event: events.NodeStarted) -> Optional[Attempt]:
    node = _find_run(attempt, event.node, event.run)
    return None if node is None else start_node(attempt, node, event)


def _end(attempt: Attempt, event: events.NodeEnded) -> Optional[Attempt]:
    node = _find_run(attempt, event.node, event.run)
    return None if node is None else put_node(attempt, end_node(node, event))


def _terminate(attempt: Attempt, event: events.Terminate) -> Attempt:
    return stop_attempt(attempt, find_cause(event.cause) or Cause.CANCEL, event)


def _kill(attempt: Attempt, event: events.Kill) -> Attempt:
    stop = attempt.stop or Stop(Cause.CANCEL, event.at, event.at)
    return replace(attempt, stop=replace(stop, killed_at=event.at))


def _find_run(attempt: Attempt, index: int, run: int) -> Optional[NodeRun]:
    return next((node for node in attempt.nodes if (node.index, node.run) == (index, run)), None)


_CHANGES: dict[type, Callable[[Attempt, Any], Optional[Attempt]]] = {
    events.NodeRelaunch: _relaunch,
    events.NodeStarted: _start,
    events.NodeEnded: _end,
    events.Terminate: _terminate,
    events.Kill: _kill,
}
"""Each gives the attempt after the event; None for a node run that it does not have."""
