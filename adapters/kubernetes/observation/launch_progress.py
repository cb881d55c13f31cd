"""In-memory state of each watched launch, and its reports.

Nothing here is the only copy: another process finds the same in anchors, pods and cursors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from overspan.adapters.contract import MOST_WORDS, Report
from overspan.adapters.kubernetes.observation.evidence import REFUSED, explain_waiting
from overspan.adapters.kubernetes.observation.failed_probes import ProbeFailure
from overspan.adapters.kubernetes.observation.launch_summaries import LaunchSummary, TaskSummary
from overspan.adapters.kubernetes.observation.projection import (
    Cursor,
    Key,
    PodSnapshot,
    find_eviction,
    format_cursor,
    is_placed,
    is_sending,
    is_unready,
    parse_cursor,
    project,
    project_eviction,
    take_snapshot,
)
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.bridge.model.events import Event, Flushing, Probed, Queued
from overspan.bridge.runtime.data.requests import FlushProgress

MISSING_SECONDS = 30.0
"""Seconds until a missing pod counts as lost: the watch may be late, or a creation under way."""
FACTS_SECONDS = 5.0
"""Seconds until a waiting group's reason says how many pods have a node: most have all of them by then."""
QUIET_SECONDS = 1.0
"""Seconds without a report for a launch that has no reason to wait."""
_TROUBLES = ("JobLaunchFailure", "BadConstraints")
"""Reasons that are reported with their detail: waiting alone does not resolve them."""


@dataclass
class WatchedLaunch:
    """One launch that this process follows."""

    handle: str
    summary: LaunchSummary
    anchor: str
    """The uid of its anchor, which owns all else."""
    namespace: str
    cursor: Cursor = field(default_factory=Cursor)
    """What the daemon has stored."""
    cursor_known: bool = False
    """Whether the cursor was given to this process."""
    soft: bool = False
    """Whether its pods wait for each other at Overspan's own start gates."""
    queued: bool = False
    """Whether its pods are a group to Kueue."""
    again_at: float = 0.0
    """When pods that were given back are made again; 0 while none were."""
    returns: int = 0
    """How often its pods were given back."""
    given_back: bool = False
    """Whether this process has given all of them back."""
    granting: bool = False
    """True if its grant was told and the daemon has not asked since: it may be stored."""
    was_oldest: bool = False
    """Whether it was the oldest waiting launch when it gave them back."""
    shortage: str = ""
    """Why not all of its pods have a place, as it was seen last."""
    holds_since: float | None = None
    """Since when some of its pods have nodes while it waits (monotonic time); None while none has."""
    expiry: Event | None = None
    """Why it may wait no longer: reported in place of a grant."""
    reason: str = ""
    """Why it waits, as last reported."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why attempts of tasks do not start after the grant, as last reported."""
    waits_since: float = 0.0
    tombstones: dict[Key, PodRecord] = field(default_factory=dict)
    """Node runs that have no pod and never will."""
    gone: bool = False
    """Whether its anchor is known to be gone."""
    busy: int = 0
    """Orders and submissions under way: pods may be missing for a moment."""
    missing: dict[Key, float] = field(default_factory=dict)
    """Since when pods are missing that must have been there."""
    ends: dict[str, float] = field(default_factory=dict)
    """When programs ended with 0 by the end marks in their logs, by pod uid: the pod's status shows it later."""
    troubles: Mapping[str, str] = field(default_factory=dict)
    """What events say of pods that do not start, by uid."""
    failures: Mapping[str, ProbeFailure] = field(default_factory=dict)
    """What events say of probes that fail, by uid."""
    lost: frozenset[str] = frozenset()
    """The uids of pods that are deleted on nodes that do not answer."""
    left: dict[str, float] = field(default_factory=dict)
    """When programs of pods that are deleted had ended, as the movers of their data have told, by pod uid."""
    sending: Mapping[str, FlushProgress] = field(default_factory=dict)
    """How far the data of ended programs is, by pod uid."""
    sent: dict[tuple[str, int], FlushProgress] = field(default_factory=dict)
    """The same of attempts, as last reported."""
    probed: dict[str, ProbeFailure] = field(default_factory=dict)
    """The failures that were last reported, by uid."""
    touched: float = -math.inf
    """When its pods were last changed from here (time.monotonic); the watch may not know of it yet."""
    made: float = -math.inf
    """When pods were last made for it after its submission (time.monotonic)."""
    dirty: bool = True
    """Whether there may be new events."""
    since: str = ""
    """The cursor it was last asked with."""
    timed: bool = False
    """Whether time alone may bring new events."""

    @property
    def token(self) -> str:
        """The launch's token."""
        return self.summary.token

    @property
    def flushes(self) -> bool:
        """Whether any of its tasks writes to an object store."""
        return any(task.flush for task in self.summary.tasks)

    def waits(self, task: str) -> bool:
        """Whether the pods of a task wait at a start gate."""
        summary = self.summary.task(task)
        return summary is not None and summary.waits

    def snapshot(self, pods: Iterable[PodRecord], gone: Iterable[PodRecord]) -> PodSnapshot:
        """Its pods, with the ends that are known from logs alone."""
        heard = (end_by_log(pod, self.ends[pod.uid]) if pod.uid in self.ends else pod for pod in pods)
        if self.left:
            heard = (end_by_mover(pod, self.left[pod.uid]) if pod.uid in self.left else pod for pod in heard)
        if self.lost:
            heard = (pod._replace(deleting_at=pod.asked_at) if pod.uid in self.lost else pod for pod in heard)
        return take_snapshot(heard, [*gone, *self.tombstones.values()])

    def project(self, snapshot: PodSnapshot, since: str, now: float) -> Report | None:
        """The report of all events behind a stored cursor; None if there are none."""
        self.cursor, self.cursor_known, self.granting = parse_cursor(since, self.summary), True, False
        if self.gone:
            return Report(self.handle, (), since, gone=True)
        if self.expiry is not None and not self.cursor.granted:
            return Report(self.handle, (self.expiry,), since)
        if find_eviction(snapshot):
            projection = project_eviction(self.summary, snapshot, self.cursor, now)
            return (
                Report(self.handle, projection.events, format_cursor(projection.cursor, self.summary))
                if projection.events
                else None
            )
        if self.again_at and not self.cursor.granted:
            # Pods that were given back are evidence neither of a start nor of an end.
            snapshot = PodSnapshot({}, {})
        self._note_missing(snapshot, now)
        projection = project(self.summary, snapshot, self.cursor, now)
        events: tuple[Event, ...] = projection.events
        if not projection.cursor.granted:
            self.waits_since = self.waits_since or now
            reason = self._find_reason(snapshot, now)
            early = not self.reason and reason == "None" and now - self.waits_since < QUIET_SECONDS
            if reason != self.reason and not projection.events and not early:
                events, self.reason = (Queued(now, reason),), reason
        elif self.cursor.granted:
            events += (*self._report_troubles(snapshot, now), *self._report_probes(snapshot, projection.cursor, now))
            events += tuple(self._report_sending(snapshot, projection.cursor, now))
        if not events:
            return None
        self.granting = projection.cursor.granted and not self.cursor.granted
        return Report(self.handle, events, format_cursor(projection.cursor, self.summary))

    def _find_reason(self, snapshot: PodSnapshot, now: float) -> str:
        """Why it waits. For lack of resources, also how many pods have a node, once it has waited for a while."""
        reason = "Resources" if self.again_at else find_reason(self.summary, snapshot, self.troubles)
        if reason not in ("Resources", "ReqNodeNotAvail") or self.again_at == math.inf:
            return reason
        if not self.again_at and now - self.waits_since >= FACTS_SECONDS:
            self.shortage = describe_shortage(self.summary, snapshot) or self.shortage
        return f"{reason}: {self.shortage}" if self.shortage else reason

    def _report_troubles(self, snapshot: PodSnapshot, now: float) -> Iterable[Event]:
        """New reasons why pods of running attempts do not start."""
        found: dict[str, str] = {}
        for (task, _, _), record in snapshot.pods.items():
            if record.go and not is_placed(record) and record.deleting_at is None and found.get(task, "None") == "None":
                found[task] = word_reason([explain(record, self.troubles)])
        for task, reason in found.items():
            if reason != self.reasons.get(task, "None"):
                yield Queued(now, reason, task=task)
        self.reasons = found

    def list_unready(self, snapshot: PodSnapshot) -> list[tuple[TaskSummary, int, PodRecord]]:
        """The tasks that have started and are not ready, with their attempt and the pod that is probed."""
        found = []
        for task in self.summary.tasks if self.cursor.granted else ():
            progress = self.cursor.tasks.get(task.name)
            if task.ready and progress is not None and is_unready(progress):
                record = snapshot.pods.get((task.name, progress.attempt, 0))
                if record is not None and not record.ready and not record.ended:
                    found.append((task, progress.attempt, record))
        return found

    def _report_probes(self, snapshot: PodSnapshot, cursor: Cursor, now: float) -> Iterable[Event]:
        """Failed probes: a report for each new answer, and each time the tries have doubled."""
        for task, attempt, record in self.list_unready(snapshot):
            failure, last = self.failures.get(record.uid), self.probed.get(record.uid)
            if failure is None or not is_unready(cursor.tasks[task.name]):
                continue
            if last is None or failure.answer != last.answer or failure.tries >= 2 * last.tries:
                self.probed[record.uid] = failure
                yield Probed(now, task.name, attempt, failure.tries, failure.answer)

    def list_sending(self, snapshot: PodSnapshot, cursor: Cursor) -> list[PodRecord]:
        """The pods whose programs have ended, and whose data is on its way."""
        return [
            record
            for (task, attempt, index), record in snapshot.pods.items()
            if is_sending(cursor.tasks.get(task), attempt, index) and not record.data_end
        ]

    def list_leaving(self, snapshot: PodSnapshot) -> list[PodRecord]:
        """The pods that are deleted, and whose programs may have ended: their status tells that with the last of them.

        A node writes no status of a pod that it ends until all of its containers have (pkg/kubelet,
        SyncTerminatingPod), and data may be on its way for long.
        """
        sending = {task.name for task in self.summary.tasks if task.flush}
        return [
            record
            for (task, _, _), record in snapshot.pods.items()
            if task in sending and record.deleting_at is not None and record.started_at is not None and not record.ended
        ]

    def _report_sending(self, snapshot: PodSnapshot, cursor: Cursor, now: float) -> Iterable[Event]:
        """How far the data of ended programs is, where that has changed."""
        found: dict[tuple[str, int], FlushProgress] = {}
        for record in self.list_sending(snapshot, cursor):
            told = self.sending.get(record.uid)
            if told is not None:
                key = record.task, record.attempt
                before = found.get(key, FlushProgress(0))
                found[key] = FlushProgress(before.left + told.left, before.trouble or told.trouble)
        for (task, attempt), progress in found.items():
            if self.sent.get((task, attempt)) != progress:
                yield Flushing(now, task, attempt, *progress)
        self.sent = found

    def _note_missing(self, snapshot: PodSnapshot, now: float) -> None:
        """Count node runs as lost whose pod has been missing for long."""
        absent = [] if self.busy else list(_find_absent(self.summary, snapshot, self.cursor))
        self.missing = {key: self.missing.get(key, now) for key, _ in absent}
        for key, go in absent:
            if now - self.missing[key] >= MISSING_SECONDS:
                self.tombstones[key] = make_tombstone(self, key, go)


def end_by_log(record: PodRecord, at: float) -> PodRecord:
    """The record with an end at that time and exit code 0; unchanged for a pod that is being ended."""
    if record.ended or record.deleting_at is not None or record.disruption:
        return record
    return record._replace(finished_at=at, exit_code=0, reason="Completed")


def end_by_mover(record: PodRecord, at: float) -> PodRecord:
    """The record of a pod whose program has ended, with an exit code that is not known yet."""
    return record if record.ended else record._replace(finished_at=at)


def make_tombstone(watched: WatchedLaunch, key: Key, go: str, run: int = 0, message: str = "") -> PodRecord:
    """Tombstone: a record in place of a pod that could not be created, or is known to be gone; reported as ended."""
    task, attempt, index = key
    return PodRecord(
        name="",
        uid="",
        namespace=watched.namespace,
        token=watched.token,
        task=task,
        index=index,
        attempt=attempt,
        run=run,
        phase="Failed" if message else "Pending",
        node="",
        address="",
        go=go,
        deleting_at=None,
        created_at=math.inf,
        started_at=None,
        finished_at=None,
        exit_code=None,
        signal=0,
        reason=REFUSED if message else "",
        message=message,
        disruption="",
        status_reason="",
        waiting_reason="",
        waiting_message="",
        scheduled=False,
        ready=False,
        member="",
    )


def _find_absent(summary: LaunchSummary, snapshot: PodSnapshot, cursor: Cursor) -> Iterable[tuple[Key, str]]:
    """Nodes of running attempts without a pod, a removed pod or a reported end; with their attempt's `go`."""
    for task in summary.tasks:
        records = [
            record for records in snapshot for key, record in records.items() if key[0] == task.name and record.go
        ]
        progress = cursor.tasks.get(task.name)
        attempt = max([record.attempt for record in records], default=progress.attempt if progress else None)
        if attempt is None:
            continue
        go = next((record.go for record in records if record.attempt == attempt), "0")
        for index in range(task.nodes):
            reported = progress.nodes[index] % 4 if progress is not None and progress.attempt == attempt else 0
            key = (task.name, attempt, index)
            if reported < 3 and snapshot.find(key)[0] is None:
                yield key, go


def find_reason(summary: LaunchSummary, snapshot: PodSnapshot, troubles: Mapping[str, str]) -> str:
    """Why a launch waits, in Slurm's words; among several reasons, one that waiting does not resolve."""
    found: list[tuple[str, str]] = []
    for task in summary.tasks:
        for index in range(task.nodes):
            record = snapshot.pods.get((task.name, task.attempt, index))
            if record is None or is_placed(record):
                continue
            found.append(explain(record, troubles))
    return word_reason(found)


def describe_shortage(summary: LaunchSummary, snapshot: PodSnapshot) -> str:
    """How many pods of a group have a node, and the scheduler's message for one that has none."""
    records = [
        snapshot.pods.get((task.name, task.attempt, index)) for task in summary.tasks for index in range(task.nodes)
    ]
    placed = sum(record is not None and bool(record.node) for record in records)
    words = [" ".join(record.waiting_message.split()) for record in records if record is not None and not record.node]
    said = next(filter(None, words), "")
    if placed == len(records) or not said:
        return ""
    # The rest of the message is about candidates for preemption, which users cannot act on.
    return f"{placed} of {len(records)} have a place: {said.partition(' preemption:')[0]}"[:MOST_WORDS]


def explain(record: PodRecord, troubles: Mapping[str, str]) -> tuple[str, str]:
    """Why one pod does not run, in Slurm's words, and the cluster's words for trouble."""
    reason, detail = explain_waiting(record)
    trouble = troubles.get(record.uid, "")
    return ("JobLaunchFailure", trouble) if trouble and reason == "None" else (reason, detail)


def word_reason(found: Sequence[tuple[str, str]]) -> str:
    """Among several reasons one that waiting does not resolve, with its detail."""
    for wanted in _TROUBLES:
        for reason, detail in found:
            if reason == wanted:
                return f"{reason}: {detail[:MOST_WORDS]}" if detail else reason
    return next((reason for reason, _ in found if reason != "None"), "None")
