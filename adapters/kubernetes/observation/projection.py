"""From the pods of a launch to its events, each once by the cursor. Pure; the same pods give the same events.

A fact of a pod counts once the pod has its `go`: the mark that the decision to start it was carried out. Kubernetes
truncates times to whole seconds: a thing happened within the second after its time, and before it was observed. Events
carry the end of that span, so that delays which count from it are not too short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from signal import SIGKILL, SIGTERM
from typing import NamedTuple

from overspan.adapters.kubernetes.observation.evidence import has_begun, judge_end, judge_flush, judge_gone
from overspan.adapters.kubernetes.observation.launch_summaries import LaunchSummary, TaskSummary
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event, Flushed, Granted, LaunchLost, NodeEnded, NodeStarted, TaskReady

NONE, STARTED, READY, ENDED = range(4)
"""How much of one node run has been reported."""

STUCK_SECONDS = 30.0
"""How long after its grace a pod that is deleted has to end; then its node does not do it."""

EVICTED = "WorkloadEvicted"
"""How Kueue's reasons begin for ending all pods of a group (WorkloadEvictedDueToPreempted...)."""


# --- the decisions on a pod ------------------------------------------------------------------------------------------


class Go(NamedTuple):
    """What was decided of a pod: since when it may start, and since when it is to end (None: it is not)."""

    at: float
    stop_at: float | None = None


def write_go(at: float, stop_at: float | None = None) -> str:
    """The `go` annotation: both times in seconds since the epoch."""
    return f"{at:.6f}" if stop_at is None else f"{at:.6f} {stop_at:.6f}"


def read_go(text: str) -> Go | None:
    """The decisions on a pod; None where it may not start yet. One that cannot be read counts from 1970."""
    if not text:
        return None
    try:
        first, _, second = text.partition(" ")
        return Go(float(first), float(second) if second else None)
    except ValueError:
        return Go(0.0)


# --- the cursor ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Progress:
    """What has been reported of a task: its attempt, and for each node `4 * run + level`."""

    attempt: int
    nodes: tuple[int, ...]
    sends: bool = False
    """Whether data of the attempt may still be on its way, as far as has been reported."""


def is_unready(progress: Progress) -> bool:
    """Whether a task was reported as started, and not yet as ready."""
    return progress.nodes[0] % 4 == STARTED


def is_sending(progress: Progress | None, attempt: int, index: int) -> bool:
    """Whether the end of a node's program was reported, and not yet what came of its data."""
    if progress is None or not progress.sends or progress.attempt != attempt:
        return False
    return progress.nodes[index] % 4 == ENDED


@dataclass(frozen=True)
class Cursor:
    """What has been reported of a launch."""

    granted: bool = False
    tasks: Mapping[str, Progress] = field(default_factory=dict)

    def over(self, record: PodRecord) -> bool:
        """Whether the end of that pod has been reported, and what came of its data."""
        progress = self.tasks.get(record.task)
        if progress is None or not 0 <= record.index < len(progress.nodes):
            return False
        if record.attempt != progress.attempt:
            return record.attempt < progress.attempt
        if progress.sends:
            return False
        run, level = divmod(progress.nodes[record.index], 4)
        return record.run < run or (record.run == run and level == ENDED)


_SENDS = ":sends"


def format_cursor(cursor: Cursor, summary: LaunchSummary) -> str:
    """The cursor as the store keeps it, '' for nothing: `granted;place:attempt:levels`, with `:sends` for that fact.

    Levels are run-length coded.
    """
    if not cursor.granted:
        return ""
    parts = ["1"]
    for place, task in enumerate(summary.tasks):
        progress = cursor.tasks.get(task.name)
        if progress is not None:
            runs = ((value, len(list(same))) for value, same in groupby(progress.nodes))
            coded = ",".join(str(value) if count == 1 else f"{value}x{count}" for value, count in runs)
            parts.append(f"{place}:{progress.attempt}:{coded}{_SENDS if progress.sends else ''}")
    return ";".join(parts)


def parse_cursor(text: str, summary: LaunchSummary) -> Cursor:
    """Read a cursor; the beginning for one that is not of this launch."""
    granted, *parts = text.split(";")
    if granted != "1":
        return Cursor()
    try:
        return Cursor(True, dict(_parse_progress(part, summary) for part in parts))
    except (ValueError, IndexError):
        return Cursor()


def _parse_progress(part: str, summary: LaunchSummary) -> tuple[str, Progress]:
    sends = part.endswith(_SENDS)
    place, attempt, coded = part.removesuffix(_SENDS).split(":")
    task = summary.tasks[int(place)]
    nodes: list[int] = []
    for run in coded.split(","):
        value, _, count = run.partition("x")
        nodes += [int(value)] * int(count or 1)
    if len(nodes) != task.nodes:
        raise ValueError(part)
    return task.name, Progress(int(attempt), tuple(nodes), sends)


# --- the pods --------------------------------------------------------------------------------------------------------

Key = tuple[str, int, int]
"""Task, attempt and index."""


class PodSnapshot(NamedTuple):
    """The pods of one launch: those that are there, and the last of those that were removed."""

    pods: Mapping[Key, PodRecord]
    gone: Mapping[Key, PodRecord]

    def find(self, key: Key) -> tuple[PodRecord | None, bool]:
        """The newest pod of a node, and whether it was removed."""
        here, gone = self.pods.get(key), self.gone.get(key)
        if here is not None and (gone is None or gone.run <= here.run):
            return here, False
        return gone, gone is not None


def take_snapshot(pods: Iterable[PodRecord], gone: Iterable[PodRecord] = ()) -> PodSnapshot:
    """The newest run of each node."""
    return PodSnapshot(_newest(pods), _newest(gone))


def _newest(records: Iterable[PodRecord]) -> dict[Key, PodRecord]:
    found: dict[Key, PodRecord] = {}
    for record in records:
        key = record.task, record.attempt, record.index
        known = found.get(key)
        if known is None or (record.run, record.created_at) >= (known.run, known.created_at):
            found[key] = record
    return found


def is_placed(record: PodRecord) -> bool:
    """Whether a pod has a node and its volumes: it runs, waits at its start gate, or runs init containers."""
    return record.ended or record.begun or record.started_at is not None


class Projection(NamedTuple):
    """Events, oldest first, and the cursor behind them."""

    events: tuple[Event, ...]
    cursor: Cursor


def project(summary: LaunchSummary, snapshot: PodSnapshot, cursor: Cursor, now: float) -> Projection:
    """The events behind a cursor. The grant comes alone: the decisions that follow from it precede any other fact."""
    if not cursor.granted:
        granted = _project_grant(summary, snapshot, now)
        return Projection((granted,), Cursor(True)) if granted is not None else Projection((), cursor)
    events: list[Event] = []
    tasks = dict(cursor.tasks)
    for task in summary.tasks:
        progress = _find_progress(task, snapshot, cursor)
        if progress is not None:
            nodes = list(progress.nodes)
            gathered = summary.together and progress.attempt == task.attempt
            for index in range(task.nodes):
                events += _project_node(task, progress.attempt, index, nodes, _AttemptView(snapshot, now, gathered))
            sends = progress.sends
            if sends and all(node % 4 == ENDED for node in nodes):
                flushed = _project_flush(task, progress.attempt, nodes, snapshot, now)
                sends = not flushed
                events += flushed
            tasks[task.name] = Progress(progress.attempt, tuple(nodes), sends)
    events.sort(key=lambda event: event.at)
    return Projection(tuple(events), Cursor(True, tasks) if tasks != cursor.tasks else cursor)


def _project_grant(summary: LaunchSummary, snapshot: PodSnapshot, now: float) -> Granted | None:
    members, at, placed = [], now, 0
    for task in summary.tasks:
        for index in range(task.nodes):
            record, gone = snapshot.find((task.name, task.attempt, index))
            # A deleted pod stays for its finalizer and never gets a node: its end is reported after the grant.
            ready = record is not None and (gone or is_placed(record) or is_unbound(record) or is_stuck(record, now))
            placed += ready
            if summary.together and not ready:
                return None
            go = read_go(record.go) if record is not None else None
            at = min(at, go.at) if go is not None and go.at else at
            node, address = (record.node, record.address) if record is not None else ("", "")
            members.append((task.name, index, node, address, ()))
    return Granted(at, tuple(members)) if placed or not members else None


def find_eviction(snapshot: PodSnapshot) -> str:
    """Kueue's reason for evicting the group; '' if it does not."""
    return next((pod.disruption for pod in snapshot.pods.values() if pod.disruption.startswith(EVICTED)), "")


def project_eviction(summary: LaunchSummary, snapshot: PodSnapshot, cursor: Cursor, now: float) -> Projection:
    """The events of a launch that Kueue evicts: ends of programs that had finished before, then the loss of the launch.

    Nothing is reported while some of its pods run. New pods of the same group would wait for ever, because Kueue counts
    a pod that succeeded as present.
    """
    done = {key: pod for key, pod in snapshot.pods.items() if not pod.disruption and _has_succeeded(pod, now)}
    done_before = project(summary, PodSnapshot(done, {}), cursor, now) if cursor.granted else Projection((), cursor)
    if done_before.events or any(pod.node and find_end(pod, False, now) is None for pod in snapshot.pods.values()):
        return done_before
    detail = f"its places were taken back ({find_eviction(snapshot)})"
    return Projection((LaunchLost(now, summary.launch, Cause.PREEMPTION.value, detail),), cursor)


def _has_succeeded(record: PodRecord, now: float) -> bool:
    end = find_end(record, False, now)
    return end is not None and not end.cause and not end.exit_code and not end.signal


def _find_progress(task: TaskSummary, snapshot: PodSnapshot, cursor: Cursor) -> Progress | None:
    """What has been reported of the newest attempt that may start; None if there is none."""
    known = cursor.tasks.get(task.name)
    attempts = [
        key[1]
        for records in snapshot
        for key, record in records.items()
        if key[0] == task.name and record.go and (known is None or key[1] >= known.attempt)
    ]
    newest = max(attempts, default=None)
    if newest is None or (known is not None and known.attempt == newest):
        return known
    return Progress(newest, (0,) * task.nodes, bool(task.flush))


class _AttemptView(NamedTuple):
    """An attempt's pods at one moment."""

    snapshot: PodSnapshot
    now: float
    gathered: bool
    """Whether its start gates opened only after all of its pods had nodes."""


def _project_node(task: TaskSummary, attempt: int, index: int, nodes: list[int], seen: _AttemptView) -> Iterator[Event]:
    (record, gone), now = seen.snapshot.find((task.name, attempt, index)), seen.now
    run, level = divmod(nodes[index], 4)
    go = read_go(record.go) if record is not None else None
    if record is None or go is None or record.run < run:
        return
    if record.run > run:
        run, level = record.run, NONE
    start = _find_start(record, go, seen)
    if has_begun(record) and level < STARTED:
        if _moved(task, attempt, run, seen):
            yield Granted(start, ((task.name, index, record.node, record.address, ()),))
        yield NodeStarted(start, task.name, attempt, index, run)
        level = STARTED
    if level == STARTED and task.ready and index == 0 and record.ready and not record.ended:
        yield TaskReady(now, task.name, attempt)
        level = READY
    end = find_end(record, gone, now) if level < ENDED else None
    if end is not None:
        at = max(end.at, start if has_begun(record) else go.at)
        fields = (end.exit_code, end.signal, end.cause, end.detail)
        yield NodeEnded(at, task.name, attempt, index, run, *fields)
        level = ENDED
    nodes[index] = 4 * run + level


def _project_flush(task: TaskSummary, attempt: int, nodes: list[int], snapshot: PodSnapshot, now: float) -> list[Event]:
    """What came of the data of an attempt whose programs have all ended; empty while some is on its way."""
    left, errors = 0, []
    for index in range(len(nodes)):
        record, gone = snapshot.find((task.name, attempt, index))
        if record is None:
            continue
        flush = judge_flush(record, gone or is_unbound(record) or is_stuck(record, now))
        if flush is None:
            return []
        left += flush.left
        errors += [flush.error] if flush.error else []
    return [Flushed(now, task.name, attempt, "; ".join(dict.fromkeys(errors)), left)]


def _moved(task: TaskSummary, attempt: int, run: int, seen: _AttemptView) -> bool:
    """Whether a node run may be on another node than the grant said: a later run, or one that had no node then."""
    return attempt != task.attempt or run > 0 or (not seen.gathered and task.nodes > 1)


def _find_start(record: PodRecord, go: Go, seen: _AttemptView) -> float:
    """When a pod's program began: with the decision, where its container was there already and waited for that."""
    began = record.started_at or 0.0
    waited = seen.gathered and not record.run and not record.begun and began <= go.at
    return go.at if waited else max(round_up(began, seen.now), go.at)


class ProgramEnd(NamedTuple):
    """The end of a pod's program; `cause` as NodeEnded has it."""

    at: float
    exit_code: int = 0
    signal: int = 0
    cause: str = ""
    detail: str = ""


def find_end(record: PodRecord, gone: bool, now: float) -> ProgramEnd | None:
    """How a pod ended, by the evidence on its record; None while its program may run."""
    go = read_go(record.go)
    ordered = go is not None and go.stop_at is not None
    if record.ended:
        cause, detail = judge_end(record, ordered)
    elif gone or is_unbound(record):
        cause, detail = judge_gone(record, ordered)
    elif is_stuck(record, now):
        cause, detail = judge_gone(record, ordered)
        detail = f"{detail or 'its node does not end it'}; the pod stays until that node answers or is removed"
    else:
        return None
    at = now if record.finished_at is None else round_up(record.finished_at, now)
    code, signal = _read_exit(record, ordered)
    return ProgramEnd(at, code, signal, cause.value if cause else "", detail)


def _read_exit(record: PodRecord, ordered: bool) -> tuple[int, int]:
    """Exit code and signal as Slurm shows them (0:9), from the 128 + signal that a container ends with.

    A runtime does not distinguish KILL from `exit 137`. Programs hardly ever exit with 137 themselves, so it counts
    as KILL, by which memory, time and nodes end programs. 143 is TERM if the pod was ended, else the program's own.
    """
    was_ended = ordered or record.deleting_at is not None or bool(record.disruption) or bool(record.status_reason)
    code = record.exit_code or 0
    if not record.signal and (code == 128 + SIGKILL or (code == 128 + SIGTERM and was_ended)):
        return 0, code - 128
    return code, record.signal


def round_up(second: float, now: float) -> float:
    """The latest time that a cut-off time may mean: all of its second, and not later than now."""
    return min(second + 1 if second.is_integer() else second, now)


def is_unbound(record: PodRecord) -> bool:
    """Whether a pod was deleted before it had a node: it never runs."""
    return record.deleting_at is not None and not record.node


def is_stuck(record: PodRecord, now: float) -> bool:
    """Whether a deleted pod should have ended long ago: its node is lost."""
    return record.deleting_at is not None and not record.ended and now >= record.deleting_at + STUCK_SECONDS
