"""What one decision asks of the cluster, as single steps on pods. Pure.

Steps are in the order in which they are carried out; each may be made again after a crash.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from overspan.adapters.kubernetes.observation.launch_summaries import MIN_GRACE, Shape
from overspan.adapters.kubernetes.observation.projection import Cursor, View, read_go, write_go
from overspan.adapters.kubernetes.observation.records import GO, MEMBER, NOTICE, PRIMARIES_DONE, PodRecord
from overspan.bridge.model import events
from overspan.bridge.model.events import Event

LEAVE_SECONDS = 5
"""How long after the end of its delay a pod's node ends it; a daemon that is there does so in time, and sooner."""
UNSUPPORTED = "a pod cannot be suspended: Kubernetes has no such thing"


@dataclass(frozen=True)
class Patch:
    """Change marks of a pod; None takes one away."""

    pod: PodRecord
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    labels: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Create:
    """Make the pods of some nodes of an attempt, with their `go`."""

    task: str
    attempt: int
    nodes: tuple[int, ...]
    run: int
    go: str


@dataclass(frozen=True)
class Delete:
    """End a pod: TERM now, KILL after `grace` seconds."""

    pod: PodRecord
    grace: int


@dataclass(frozen=True)
class Execute:
    """Run words in a pod's main container; a container that has ended meanwhile is fine."""

    pod: PodRecord
    words: tuple[str, ...]


@dataclass(frozen=True)
class Announce:
    """Tell a pod that it is Overspan who ends it: by a file in it, else by its marks (`go`)."""

    pod: PodRecord
    go: str


@dataclass(frozen=True)
class Limit:
    """Have its node end a pod so many seconds after it took it, unless it is ended before: TERM, its grace, KILL."""

    pod: PodRecord
    seconds: int


@dataclass(frozen=True)
class Lose:
    """A node run that is to end and has no pod: it is told as ended."""

    task: str
    attempt: int
    index: int
    go: str


Step = Patch | Create | Delete | Execute | Announce | Limit | Lose


class Scene(NamedTuple):
    """What a decision meets: the launch, its pods, what has been told of it, and the time."""

    shape: Shape
    view: View
    cursor: Cursor
    now: float


def plan_steps(event: Event, scene: Scene) -> tuple[Step, ...]:
    """The steps of a decision, none where nothing is left to do. ValueError for one that cannot be carried out."""
    planner = _PLANNERS.get(type(event))
    if planner is None:
        raise ValueError(f"a {type(event).__name__} is not for this cluster")
    return tuple(planner(event, scene))


def misses_pods(event: Event, scene: Scene) -> bool:
    """Whether a decision is about pods that are not in the view; they may be too young to be in it."""
    if isinstance(event, (events.Terminate, events.Kill)):
        return any(record is None for _, record in _open_nodes(event.task, event.attempt, scene))
    return False


# --- starting --------------------------------------------------------------------------------------------------------


def _launch(event: events.Launch, scene: Scene) -> Iterator[Step]:
    task = scene.shape.task(event.task)
    progress = scene.cursor.tasks.get(event.task)
    if task is None or (progress is not None and progress.attempt > event.attempt):
        return
    yield from _leave_names(event.task, scene, lambda record: record.attempt < event.attempt)
    told = progress.nodes if progress is not None and progress.attempt == event.attempt else (0,) * task.nodes
    go, missing = write_go(event.at), []
    for index in range(task.nodes):
        record, gone = scene.view.find((event.task, event.attempt, index))
        if record is None and not told[index]:
            missing.append(index)
        elif record is not None and not record.go:
            yield Lose(event.task, event.attempt, index, go) if gone else Patch(record, {GO: go})
    if missing:
        yield Create(event.task, event.attempt, tuple(missing), 0, go)


def _relaunch(event: events.NodeRelaunch, scene: Scene) -> Iterator[Step]:
    progress = scene.cursor.tasks.get(event.task)
    if progress is not None and (
        progress.attempt > event.attempt
        or (progress.attempt == event.attempt and progress.nodes[event.node] >= 4 * event.run + 3)
    ):
        return
    record, _ = scene.view.find((event.task, event.attempt, event.node))
    if record is not None and record.run >= event.run:
        return
    yield from _leave_names(
        event.task, scene, lambda old: old.attempt == event.attempt and old.index == event.node and old.run < event.run
    )
    yield Create(event.task, event.attempt, (event.node,), event.run, write_go(event.at))


def _leave_names(task: str, scene: Scene, older: Callable[[PodRecord], bool]) -> Iterator[Step]:
    """Take older pods out of the group's Service: a name leads to one pod."""
    for record in scene.view.pods.values():
        if record.task == task and record.member and older(record):
            yield Patch(record, labels={MEMBER: None})


# --- ending ----------------------------------------------------------------------------------------------------------


def _terminate(event: events.Terminate, scene: Scene) -> Iterator[Step]:
    grace = max(MIN_GRACE, math.ceil(event.kill_at - scene.now))
    for index, record in _open_nodes(event.task, event.attempt, scene):
        if record is None:
            yield Lose(event.task, event.attempt, index, write_go(event.at, event.at))
            continue
        go = read_go(record.go)
        if go is not None and go.stop_at is not None and record.deleting_at is not None:
            continue
        mark = Patch(record, {GO: write_go(event.at if go is None else go.at, event.at)})
        # One that may not start yet must not be let go by the mark. And a change of a pod has the kubelet busy until
        # its next look at the containers, a second later: TERM would wait for that.
        if go is not None and _has_hook(event.task, scene):
            yield Announce(record, mark.annotations[GO] or "")
        yield from (Delete(record, grace), mark)


def _has_hook(name: str, scene: Scene) -> bool:
    task = scene.shape.task(name)
    return task is not None and task.has_hook


def _kill(event: events.Kill, scene: Scene) -> Iterator[Step]:
    for index, record in _open_nodes(event.task, event.attempt, scene):
        if record is None:
            yield Lose(event.task, event.attempt, index, write_go(event.at, event.at))
        else:
            yield Delete(record, MIN_GRACE)


def _open_nodes(task: str, attempt: int, scene: Scene) -> Iterator[tuple[int, PodRecord | None]]:
    """The nodes of an attempt whose end is not known yet, and their pods: None for one that was never seen."""
    known = scene.shape.task(task)
    progress = scene.cursor.tasks.get(task)
    for index in range(known.nodes if known is not None else 0):
        record, gone = scene.view.find((task, attempt, index))
        if record is None:
            if progress is None or progress.attempt < attempt or not progress.nodes[index] % 4:
                yield index, None
        elif not gone and not record.ended and not scene.cursor.over(record):
            yield index, record


# --- telling ---------------------------------------------------------------------------------------------------------


def _notice(event: events.Notice, scene: Scene) -> Iterator[Step]:
    task = scene.shape.task(event.task)
    for record in _live(event.task, None, scene):
        if event.deadline > event.at:
            # Else its end comes at once, and TERM would wait for the kubelet to be done with the change.
            yield _note(record, PRIMARIES_DONE, event.at, event.deadline)
            if record.limited_since is not None:
                # For the absence of any daemon. So ended, its log stays, which goes with a pod that is deleted.
                yield Limit(record, max(1, math.ceil(event.deadline - record.limited_since) + LEAVE_SECONDS))
        if task is not None and task.notice_signal:
            yield Execute(record, kill_words(task.notice_signal, batch_only=False))


def _warn(event: events.Warn, scene: Scene) -> Iterator[Step]:
    for record in _live(event.task, event.attempt, scene):
        yield _note(record, "time_limit", event.at, event.deadline)
        if event.signal:
            yield Execute(record, kill_words(event.signal, event.batch_only))


def _signal(event: events.Signal, scene: Scene) -> Iterator[Step]:
    name = signal.Signals(event.signal).name
    for task in scene.shape.tasks:
        if event.task in ("", task.name):
            for record in _live(task.name, None, scene):
                yield Execute(record, kill_words(name, event.batch_only))


def _live(task: str, attempt: int | None, scene: Scene) -> list[PodRecord]:
    """The pods of a task whose program may run; of its newest attempt, or of one."""
    return [
        record
        for record in scene.view.pods.values()
        if record.task == task and record.go and not record.ended and attempt in (None, record.attempt)
    ]


def _note(record: PodRecord, kind: str, at: float, deadline: float) -> Patch:
    line = json.dumps({"kind": kind, "task": record.task, "at": at, "deadline": deadline})
    return Patch(record, {NOTICE: line + "\n"})


def kill_words(name: str, batch_only: bool) -> tuple[str, ...]:
    """The command that sends a signal to a container's processes, or to the task's own alone (kill(1p), POSIX).

    The first process hands on what it gets; all others are everything but that one.
    """
    short = name.upper().removeprefix("SIG")
    return ("/bin/sh", "-c", f"kill -s {short} {'1' if batch_only else '-1'}")


def _nothing(event: Event, scene: Scene) -> Iterator[Step]:
    """What only the daemon's own facts are about."""
    return iter(())


_PLANNERS: Mapping[type, Callable[..., Iterator[Step]]] = {
    events.Launch: _launch,
    events.NodeRelaunch: _relaunch,
    events.Terminate: _terminate,
    events.Kill: _kill,
    events.Notice: _notice,
    events.Warn: _warn,
    events.Signal: _signal,
    events.HoldOver: _nothing,
    events.Expire: _nothing,
    events.SetBegin: _nothing,
    events.SetNice: _nothing,
    events.SetPriority: _nothing,
    events.SetTime: _nothing,
}


def count_pods(steps: Sequence[Step]) -> int:
    """How many pods some steps make."""
    return sum(len(step.nodes) for step in steps if isinstance(step, Create))
