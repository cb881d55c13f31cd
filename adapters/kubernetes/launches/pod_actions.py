"""Pod actions: what one decision asks of the cluster, as single calls on pods. Pure.

They come in the order in which they are carried out; each may be repeated after a crash.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from overspan.adapters.kubernetes.observation.launch_summaries import MIN_GRACE, LaunchSummary
from overspan.adapters.kubernetes.observation.projection import Cursor, PodSnapshot, read_go, write_go
from overspan.adapters.kubernetes.observation.records import GO, MEMBER, MEMBERS, NOTICE, PRIMARIES_DONE, PodRecord
from overspan.bridge.model import events
from overspan.bridge.model.elastic import Peer
from overspan.bridge.model.events import Event
from overspan.bridge.runtime.core.members_file import render_members

LEAVE_SECONDS = 5
"""How long after the end of its delay a pod's node ends it; a daemon that is there does so in time, and sooner."""
UNSUPPORTED = "a pod cannot be suspended: Kubernetes has no such thing"


@dataclass(frozen=True)
class PatchPod:
    """Change marks of a pod; None takes one away."""

    pod: PodRecord
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    labels: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class CreatePods:
    """Make the pods of some nodes of an attempt, with their `go`."""

    task: str
    attempt: int
    nodes: tuple[int, ...]
    run: int
    go: str


@dataclass(frozen=True)
class DeletePod:
    """End a pod: TERM now, KILL after `grace` seconds."""

    pod: PodRecord
    grace: int


@dataclass(frozen=True)
class GiveUpData:
    """End a pod whose job no longer waits for its data."""

    pod: PodRecord


@dataclass(frozen=True)
class ExecInPod:
    """Run a command in a pod's main container; not an error if the container has ended."""

    pod: PodRecord
    words: tuple[str, ...]


@dataclass(frozen=True)
class AnnounceEnd:
    """Let a pod know that Overspan ends it: by a file in it, else by its annotation `go`."""

    pod: PodRecord
    go: str


@dataclass(frozen=True)
class LowerDeadline:
    """Have its node end a pod so many seconds after it took it, unless it is ended before: TERM, its grace, KILL."""

    pod: PodRecord
    seconds: int


@dataclass(frozen=True)
class LosePod:
    """A node run that is to end and has no pod: a tombstone reports its end."""

    task: str
    attempt: int
    index: int
    go: str


PodAction = PatchPod | CreatePods | DeletePod | GiveUpData | ExecInPod | AnnounceEnd | LowerDeadline | LosePod


_SOON = 2.0
"""A pod whose grace period is over within so many seconds is left to its kubelet: the API has whole seconds."""


class LaunchFacts(NamedTuple):
    """What a decision is planned from: the launch, its pods, what has been reported of it, and the time."""

    summary: LaunchSummary
    snapshot: PodSnapshot
    cursor: Cursor
    now: float


def plan_actions(event: Event, facts: LaunchFacts) -> tuple[PodAction, ...]:
    """The actions of a decision; none where nothing is left to do. ValueError for one that cannot be carried out."""
    planner = _PLANNERS.get(type(event))
    if planner is None:
        raise ValueError(f"a {type(event).__name__} is not for this cluster")
    return tuple(planner(event, facts))


def misses_pods(event: Event, facts: LaunchFacts) -> bool:
    """Whether a decision is about pods that the snapshot lacks; they may be too young to be in it."""
    if isinstance(event, (events.Terminate, events.Kill)):
        return any(record is None for _, record in _open_nodes(event.task, event.attempt, facts))
    return False


# --- starting --------------------------------------------------------------------------------------------------------


def _launch(event: events.Launch, facts: LaunchFacts) -> Iterator[PodAction]:
    task = facts.summary.task(event.task)
    progress = facts.cursor.tasks.get(event.task)
    if task is None or (progress is not None and progress.attempt > event.attempt):
        return
    yield from _leave_names(event.task, facts, lambda record: record.attempt < event.attempt)
    reported = progress.nodes if progress is not None and progress.attempt == event.attempt else (0,) * task.nodes
    go, missing = write_go(event.at), []
    for index in range(task.nodes):
        record, gone = facts.snapshot.find((event.task, event.attempt, index))
        if record is None and not reported[index]:
            missing.append(index)
        elif record is not None and not record.go:
            yield LosePod(event.task, event.attempt, index, go) if gone else PatchPod(record, {GO: go})
    if missing:
        yield CreatePods(event.task, event.attempt, tuple(missing), 0, go)


def _relaunch(event: events.NodeRelaunch, facts: LaunchFacts) -> Iterator[PodAction]:
    progress = facts.cursor.tasks.get(event.task)
    if progress is not None and (
        progress.attempt > event.attempt
        or (progress.attempt == event.attempt and progress.nodes[event.node] >= 4 * event.run + 3)
    ):
        return
    record, _ = facts.snapshot.find((event.task, event.attempt, event.node))
    if record is not None and record.run >= event.run:
        return
    yield from _leave_names(
        event.task, facts, lambda old: old.attempt == event.attempt and old.index == event.node and old.run < event.run
    )
    yield CreatePods(event.task, event.attempt, (event.node,), event.run, write_go(event.at))


def _leave_names(task: str, facts: LaunchFacts, older: Callable[[PodRecord], bool]) -> Iterator[PodAction]:
    """Take older pods out of the group's Service: a name leads to one pod."""
    for record in facts.snapshot.pods.values():
        if record.task == task and record.member and older(record):
            yield PatchPod(record, labels={MEMBER: None})


# --- ending ----------------------------------------------------------------------------------------------------------


def _terminate(event: events.Terminate, facts: LaunchFacts) -> Iterator[PodAction]:
    task = facts.summary.task(event.task)
    # What sends its data ends last of a pod's containers, within the pod's grace.
    grace = max(MIN_GRACE, math.ceil(event.kill_at - facts.now)) + (task.flush if task is not None else 0)
    for index, record in _open_nodes(event.task, event.attempt, facts):
        if record is None:
            yield LosePod(event.task, event.attempt, index, write_go(event.at, event.at))
            continue
        go = read_go(record.go)
        if go is not None and go.stop_at is not None and record.deleting_at is not None:
            continue
        mark = PatchPod(record, {GO: write_go(event.at if go is None else go.at, event.at)})
        # One that may not start yet must not be let go by the mark. And a change of a pod has the kubelet busy until
        # its next look at the containers, a second later: TERM would wait for that.
        if go is not None and _has_hook(event.task, facts):
            yield AnnounceEnd(record, mark.annotations[GO] or "")
        yield from (DeletePod(record, grace), mark)


def _has_hook(name: str, facts: LaunchFacts) -> bool:
    task = facts.summary.task(name)
    return task is not None and task.has_hook


def _kill(event: events.Kill, facts: LaunchFacts) -> Iterator[PodAction]:
    for index, record in _open_nodes(event.task, event.attempt, facts):
        if record is None:
            yield LosePod(event.task, event.attempt, index, write_go(event.at, event.at))
        elif _sends(event.task, record, facts):
            yield ExecInPod(record, kill_words("KILL", batch_only=False))
        elif record.deleting_at is None or record.deleting_at > facts.now + _SOON:
            # Else its kubelet sends KILL itself. One that hears of the deletion late, as after an outage of the API
            # server, counts the grace period from then, and a shorter one would take that from the work.
            yield DeletePod(record, MIN_GRACE)


def _sends(name: str, record: PodRecord, facts: LaunchFacts) -> bool:
    """Whether a pod has data to send when its program is killed: the pod itself has to stay for that."""
    task = facts.summary.task(name)
    return task is not None and bool(task.flush) and record.started_at is not None and record.deleting_at is not None


def _abandon_flush(event: events.AbandonFlush, facts: LaunchFacts) -> Iterator[PodAction]:
    for record in facts.snapshot.pods.values():
        if (record.task, record.attempt) == (event.task, event.attempt) and record.phase not in ("Succeeded", "Failed"):
            yield GiveUpData(record)


def _open_nodes(task: str, attempt: int, facts: LaunchFacts) -> Iterator[tuple[int, PodRecord | None]]:
    """The nodes of an attempt whose end is not known yet, and their pods: None for one that was never seen."""
    known = facts.summary.task(task)
    progress = facts.cursor.tasks.get(task)
    for index in range(known.nodes if known is not None else 0):
        record, gone = facts.snapshot.find((task, attempt, index))
        if record is None:
            if progress is None or progress.attempt < attempt or not progress.nodes[index] % 4:
                yield index, None
        elif not gone and not record.ended and not facts.cursor.over(record):
            yield index, record


# --- notices and signals ---------------------------------------------------------------------------------------------


def _notice(event: events.Notice, facts: LaunchFacts) -> Iterator[PodAction]:
    task = facts.summary.task(event.task)
    for record in _live(event.task, None, facts):
        if event.deadline > event.at:
            # Else its end comes at once, and TERM would wait for the kubelet to be done with the change.
            yield _note(record, event.kind or PRIMARIES_DONE, event.at, event.deadline)
            if record.limited_since is not None:
                # For the absence of any daemon. So ended, its log stays, which goes with a pod that is deleted.
                yield LowerDeadline(record, max(1, math.ceil(event.deadline - record.limited_since) + LEAVE_SECONDS))
        if task is not None and task.notice_signal:
            yield ExecInPod(record, kill_words(task.notice_signal, batch_only=False))


def _warn(event: events.Warn, facts: LaunchFacts) -> Iterator[PodAction]:
    for record in _live(event.task, event.attempt, facts):
        yield _note(record, "time_limit", event.at, event.deadline)
        if event.signal:
            yield ExecInPod(record, kill_words(event.signal, event.batch_only))


def _set_peers(event: events.SetPeers, facts: LaunchFacts) -> Iterator[PodAction]:
    text = render_members((Peer(*peer) for peer in event.peers), event.generation, facts.summary.domain)
    for record in facts.snapshot.pods.values():
        if not record.ended:
            yield PatchPod(record, {MEMBERS: text})


def _signal(event: events.Signal, facts: LaunchFacts) -> Iterator[PodAction]:
    name = signal.Signals(event.signal).name
    for task in facts.summary.tasks:
        if event.task in ("", task.name):
            for record in _live(task.name, None, facts):
                yield ExecInPod(record, kill_words(name, event.batch_only))


def _live(task: str, attempt: int | None, facts: LaunchFacts) -> list[PodRecord]:
    """The pods of a task whose program may run; of its newest attempt, or of one."""
    return [
        record
        for record in facts.snapshot.pods.values()
        if record.task == task and record.go and not record.ended and attempt in (None, record.attempt)
    ]


def _note(record: PodRecord, kind: str, at: float, deadline: float) -> PatchPod:
    line = json.dumps({"kind": kind, "task": record.task, "at": at, "deadline": deadline})
    return PatchPod(record, {NOTICE: line + "\n"})


def kill_words(name: str, batch_only: bool) -> tuple[str, ...]:
    """The command that sends a signal to a container's processes, or to the task's own alone (kill(1p), POSIX).

    The first process hands on what it gets; all others are everything but that one.
    """
    short = name.upper().removeprefix("SIG")
    return ("/bin/sh", "-c", f"kill -s {short} {'1' if batch_only else '-1'}")


def _nothing(event: Event, facts: LaunchFacts) -> Iterator[PodAction]:
    """Events that change the daemon's facts alone."""
    return iter(())


_PLANNERS: Mapping[type, Callable[..., Iterator[PodAction]]] = {
    events.Launch: _launch,
    events.NodeRelaunch: _relaunch,
    events.Terminate: _terminate,
    events.Kill: _kill,
    events.Notice: _notice,
    events.Warn: _warn,
    events.Signal: _signal,
    events.SetPeers: _set_peers,
    events.AbandonFlush: _abandon_flush,
    events.HoldOver: _nothing,
    events.Expire: _nothing,
    events.SetBegin: _nothing,
    events.SetNice: _nothing,
    events.SetPriority: _nothing,
    events.SetTime: _nothing,
}
