"""Timeline rows: what an event changed, for users to read."""

from __future__ import annotations

from typing import Union

from overspan.bridge.lifecycle.execution import MOST_WORDS
from overspan.bridge.lifecycle.readiness import describe_readiness
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Attempt, Job, Task
from overspan.bridge.model.names import one_line
from overspan.bridge.model.records import NamedTuple


class Transition(NamedTuple):
    """One row of a job's timeline; `task` is empty for the job itself, `start` and `end` where no state changed."""

    at: float
    task: str
    start: str
    end: str
    reason: str
    cause: str
    text: str


_TOLD = (
    events.Granted,
    events.Refused,
    events.LaunchLost,
    events.Notice,
    events.Warn,
    events.Kill,
    events.TaskReady,
    events.Flushed,
    events.AbandonFlush,
    events.ClockSet,
    events.NodeRelaunch,
    events.Expire,
    events.Offer,
    events.Move,
    events.Enter,
    events.Withdraw,
    events.Promote,
    *(kind for kind in events.ORDERS if kind is not events.SetPeers),
)


def transitions(before: Job, after: Job, event: Event) -> list[Transition]:
    """The rows of one event: a row for each changed state, or one for the event itself where users expect to see it."""
    text = describe(event)
    if isinstance(event, events.Granted) and before.granted_at is not None and not any(_nodes_of(event)):
        text = "other nodes are asked for"
    if isinstance(event, events.AbandonFlush):
        text = f"{text}: {_find_detail(after, event)}"
    cause = type(event).__name__
    rows = []
    for old, new in zip(before.tasks, after.tasks):
        if old.state is not new.state or (old.next_start != new.next_start and new.next_start is not None):
            told = _name_other(new.name, event) + _tell_task(new, event, text)
            rows.append(Transition(event.at, new.name, old.state.value, new.state.value, new.reason, cause, told))
    if after.stage is not None and before.stage not in (None, after.stage) and not before.over:
        names = after.stage.tasks
        text = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} next"
    if before.state is not after.state or (before.reason != after.reason and not after.over):
        # A job with several tasks names the task.
        task = getattr(event, "task", "") if len(after.tasks) > 1 else ""
        told = f"{task}: {text}" if task else text
        rows.append(Transition(event.at, "", before.state.value, after.state.value, after.reason, cause, told))
    if not rows and after.late == before.late and isinstance(event, events.Probed):
        rows.append(
            Transition(event.at, event.task, "", "", after.reason, cause, describe_readiness(after, event.task))
        )
    if not rows and after.late == before.late and isinstance(event, _TOLD):
        rows.append(Transition(event.at, getattr(event, "task", ""), "", "", after.reason, cause, text))
    return rows


def describe(event: Event) -> str:
    """The event in a few words."""
    if isinstance(event, events.NodeEnded):
        return _describe_end(event)
    if isinstance(event, events.Probed):
        return f"not ready after {event.tries} tries: {one_line(event.answer, MOST_WORDS)}"
    if isinstance(event, events.ClockSet):
        return _describe_jump(event)
    if isinstance(event, events.NodeStarted):
        return f"node {event.node} started"
    if isinstance(event, events.NodeRelaunch):
        return f"node {event.node} is started again, run {event.run}"
    if isinstance(event, events.Offer):
        return f"given to the cluster {event.cluster}"
    if isinstance(event, events.Move):
        return f"goes to the cluster {event.cluster}: {event.text}"
    if isinstance(event, (events.Enter, events.Withdraw, events.Promote)):
        return describe_bid(event)
    if isinstance(event, events.Expire) and event.cluster:
        return f"goes to the cluster {event.cluster}: it did not start in time"
    if isinstance(event, events.Expire):
        return "the deadline has passed" if event.cause == Cause.DEADLINE.value else "it did not start in time"
    if isinstance(event, events.Terminate):
        return f"TERM sent ({event.cause}), KILL in {event.kill_at - event.at:g} s"
    if isinstance(event, (events.Refused, events.LaunchLost)):
        return getattr(event, "message", "") or getattr(event, "detail", "") or f"lost: {getattr(event, 'cause', '')}"
    if isinstance(event, events.Launch):
        return f"attempt {event.attempt}"
    if isinstance(event, events.Granted):
        return f"resources granted on {len(_nodes_of(event))} node(s)"
    if isinstance(event, events.Notice) and event.kind:
        return "told that it is to end: its task has fewer members now"
    if isinstance(event, events.Scale):
        size = "the file's number of" if event.size is None else str(event.size)
        return f"is to have {size} members" + (f", by {event.by}" if event.by else "")
    if isinstance(event, events.Preempt):
        return f"PREEMPTED by {event.by}" if event.by else "PREEMPTED"
    if isinstance(event, events.Flushed):
        return (
            f"data is not in its store: {one_line(event.error, MOST_WORDS)}"
            if event.error
            else "all data is in its store"
        )
    if isinstance(event, events.ORDERS):
        by = f" by {getattr(event, 'by', '')}" if getattr(event, "by", "") else ""
        return f"{type(event).__name__.lower()}{by}"
    return _WORDS.get(type(event), type(event).__name__)


def _find_detail(job: Job, event: events.AbandonFlush) -> str:
    """What the attempt says that is missing in its stores."""
    attempts = (attempt for task in job.tasks if task.name == event.task for attempt in task.attempts)
    return next((attempt.detail for attempt in attempts if attempt.number == event.attempt), "it was lost before")


def _nodes_of(event: events.Granted) -> set[str]:
    return {member[2] for member in event.members}


def _describe_end(event: events.NodeEnded) -> str:
    end = f"ended with signal {event.signal}" if event.signal else f"ended with exit code {event.exit_code}"
    if event.cause == Cause.NODE.value and not (event.exit_code or event.signal):
        # Its end was not observed.
        end = "is lost"
    elif event.cause == Cause.LAUNCH.value:
        end = "could not start"
    return f"node {event.node} {end}" + (f": {event.detail}" if event.detail else "")


def _describe_jump(event: events.ClockSet) -> str:
    way = "forward" if event.seconds > 0 else "back"
    return f"the machine's clock was set {way} by {abs(event.seconds):.0f} s; limits and delays go on unchanged"


def describe_bid(event: Union[events.Enter, events.Withdraw, events.Promote]) -> str:
    """What happens to a bid, in a few words."""
    if isinstance(event, events.Enter):
        return f"waits for the cluster {event.cluster} too"
    if isinstance(event, events.Promote):
        return f"goes to the cluster {event.cluster}: {event.text or 'it is the first to have room'}"
    return f"waits for the cluster {event.cluster} no more" + (f": {event.text}" if event.text else "")


_WORDS = {
    events.Notice: "told that the primaries are done",
    events.Warn: "told that the time limit is near",
    events.Kill: "KILL sent, the grace period is over",
    events.TaskReady: "ready",
    events.AbandonFlush: "no more data is sent",
    events.Flushing: "data is on its way",
    events.Queued: "queued by the cluster",
    events.Resolved: "one thing that it waits for is settled",
    events.Gathered: "the last element has ended",
    events.Drawn: "elements are on their way",
    events.HoldOver: "the time for looking at the failure is over",
}


def _name_other(task: str, event: Event) -> str:
    """`s: ` before what has happened to another task than the row's."""
    other = getattr(event, "task", "")
    return f"{other}: " if other not in ("", task) else ""


def _tell_task(task: Task, event: Event, text: str) -> str:
    attempt = task.current
    if task.next_start is not None and isinstance(attempt, Attempt) and not attempt.live:
        return f"{text}; next attempt in {max(0.0, task.next_start - event.at):.1f} s"
    return text
