"""Unit of work: a job's next facts, with all that one transaction writes beside them.

Callers reduce events into a unit, `Completion` adds what follows by the rules, and `recording` commits it. Pure, apart
from the random tokens of orders.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from overspan.adapters.contract import Decider
from overspan.bridge.controller.core.dependency_resolver import DependencyResolver
from overspan.bridge.controller.core.history_rows import make_history_rows
from overspan.bridge.controller.core.outbox import BACK, ORDER, SUBMIT, Outbox
from overspan.bridge.controller.core.registry import JobEntry, join_handle, split_handle
from overspan.bridge.lifecycle.bids import plan_bids
from overspan.bridge.lifecycle.decision import decide
from overspan.bridge.lifecycle.eligibility import judge, merely_waits
from overspan.bridge.lifecycle.failover import is_withdrawal, read_withdrawal
from overspan.bridge.lifecycle.former_clusters import note_former
from overspan.bridge.lifecycle.lookup import find_task
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.lifecycle.stages import name_ended
from overspan.bridge.lifecycle.timeline import Transition, transitions
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.events import Event, event_from_document, event_to_document
from overspan.bridge.model.job import Attempt, Bid, Job, NodeRun
from overspan.bridge.model.records import replace
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.model.states import State
from overspan.bridge.store.records import Change, OutboxRow, join_changes

CARRIED_OVER = (
    events.Cancel,
    events.Hold,
    events.Release,
    events.SetTime,
    events.SetPriority,
    events.SetNice,
    events.SetBegin,
    events.SetDependency,
)
"""Orders that still count when the launch they were meant for is gone."""

_FOR_CLUSTER = (*events.DECISIONS, events.Signal, events.Suspend, events.Resume)
"""Orders and decisions that the cluster carries out where the daemon decides."""

_FOR_QUEUE = (events.Hold, events.Release, events.SetPriority, events.SetNice, events.SetBegin)
"""Orders that a cluster's own queue has to know while the job waits in it, although the daemon decides."""
_APPLIED = "heeded"
"""Marks, in a stored payload, an order whose effect the facts already have: it is only passed on."""

_KEPT = frozenset(kind.__name__ for kind in (*CARRIED_OVER, events.Expire, events.Terminate, events.Kill))

_ENDS = frozenset(kind.__name__ for kind in (events.Terminate, events.Kill))
"""Decisions that only end something."""

_WAITING = ("BeginTime", "JobHeldUser", "JobHeldAdmin", "Dependency", "DependencyNeverSatisfied")
"""Reasons why a job is not sent to its cluster."""

_MANY = 10_000
"""More decisions at once than this can only be an endless loop."""


class LaunchRules(Protocol):
    """What the rules depend on of each cluster; `Clusters` has them from its adapters."""

    def decider_of(self, name: str, handle: str) -> Decider:
        """Who decides about a launch, by its cluster and its handle."""

    def keeps_limits(self, name: str, handle: str) -> bool:
        """Whether only the cluster can change the launch's wall time."""

    def find_failover_timeout(self, name: str, job: Job) -> float | None:
        """How long a cluster has to start a job that could go elsewhere, where the job's file does not say."""


@dataclass(slots=True)
class UnitOfWork:
    """A job's next facts, with the timeline and outbox rows that one transaction writes beside them."""

    entry: JobEntry
    job: Job
    owed: list[OutboxRow]
    """Calls owed for the job before this unit."""
    tried: bool = False
    """Whether a submission of the present launch is in flight or in doubt, so that the cluster may have the job."""
    back: bool = False
    """Whether the cluster itself requeued the native job of the launch before, which now is the present launch."""
    requeued: bool = False
    """Whether the last event followed was a requeue by the cluster itself."""
    handle: str | None = None
    native_id: str | None = None
    cursor: str | None = None
    timeline: list[Transition] = field(default_factory=list)
    add: list[OutboxRow] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    wake_at: float | None = None
    jumped: float | None = None
    """The total of clock jumps, in seconds, that the job's times include from now on; None leaves it as it is."""

    @property
    def cluster(self) -> str:
        """The cluster that has the job, or is to have it, after this unit."""
        return self.job.cluster or self.entry.cluster

    @property
    def launched(self) -> bool:
        """Whether the present launch is on the cluster."""
        if self.handle:
            return split_handle(self.handle)[0] == self.job.launch
        return bool(self.entry.handle) and self.entry.handle_launch == self.job.launch

    @property
    def newest_handle(self) -> str:
        """The adapter's name of the newest launch."""
        return split_handle(self.handle)[1] if self.handle else self.entry.handle

    @property
    def dispatched(self) -> bool:
        """Whether the job is on its cluster, or may be, and is not over: then the daemon alone may not change it."""
        if self.job.over:
            return False
        return self.launched or self.back or (self.tried and self.job.launch == self.entry.job.launch)

    @property
    def is_cancelled(self) -> bool:
        """Whether all of the job is to be cancelled."""
        return any(map(is_whole_cancel, self.open_rows()))

    @property
    def is_hold_owed(self) -> bool:
        """Whether the cluster has not answered yet that the launch, which waits there, is held."""
        return self.job.held and self.job.granted_at is None and any(map(is_hold, self.open_rows()))

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        fields = (self.handle, self.native_id, self.cursor, self.entry.unwritten)
        said = self.add or self.done or self.timeline
        return self.job is not self.entry.job or bool(said) or any(f is not None for f in fields)

    @property
    def ends(self) -> bool:
        """Whether its calls only end work, which must not wait for a full disk."""
        kinds = {_kind(row) for row in self.add}
        return bool(kinds & _ENDS) and kinds <= _ENDS

    def advance(self, event: Event) -> bool:
        """Reduce an event into the facts; False when it came too late to change anything."""
        before, launched = self.job, self.launched
        self.job = reduce(before, event)
        if launched and self.job.stage is not before.stage:
            native_id = self.entry.native_id if self.native_id is None else self.native_id
            self.job = name_ended(self.job, before.launch, self.cluster, self.newest_handle, native_id)
        self.job = note_former(before, self.job, self.newest_handle)
        self.timeline += transitions(before, self.job, event)
        return self.job.late == before.late

    def follow(self, event: Event, requeued_by: str = "") -> None:
        """Reduce an event of the launch's journal; an order that appears there is no longer owed.

        `requeued_by` is the `by` of the cluster's own requeues (`Traits.requeued_by`); empty where it makes none.
        """
        if isinstance(event, events.LaunchLost):
            orders = [event_from_document(dict(row.payload["event"])) for row in self.open_rows() if row.kind == ORDER]
            passes = event.cause != Cause.CANCEL.value and event.launch == self.job.launch and merely_waits(self.job)
            if self.job.bids and passes:
                # The job still waits on other clusters. This one gets another bid later.
                self.promote(self.job.bids[0], event.at, event.detail or "its launch was lost")
                return
            event = read_withdrawal(self.job, event, orders)
        launch = self.job.launch
        self.advance(event)
        self.back = self.back or (self.requeued and self.job.launch == launch + 1 and not self.job.over)
        self.requeued = bool(requeued_by) and isinstance(event, events.Requeue) and event.by == requeued_by
        if isinstance(event, CARRIED_OVER):
            document = event_to_document(event)
            for row in self.open_rows():
                if row.kind == ORDER and row.payload["event"] == document:
                    self.settle(row)

    def promote(self, bid: Bid, at: float, text: str = "", refused: bool = False) -> None:
        """Make a bid the job's launch. The launch before is withdrawn; its waiting orders are applied to the job."""
        if not self.advance(events.Promote(at, bid.cluster, text, refused)):
            return
        self.handle = join_handle(bid.launch, bid.handle) if bid.handle else ""
        self.native_id, self.cursor, self.tried = bid.native_id, bid.cursor, False
        self.absorb_orders()

    def absorb_orders(self) -> None:
        """Apply the owed orders to the job itself, because their launch is gone."""
        for row in self.open_rows():
            if row.kind == ORDER:
                event = event_from_document(dict(row.payload["event"]))
                if isinstance(event, CARRIED_OVER) and _APPLIED not in row.payload:
                    self.advance(event)
                self.settle(row)

    def retarget_orders(self) -> None:
        """Owe the orders again, to the present launch; those that do not outlive a launch are dropped."""
        for row in self.open_rows():
            if row.kind == ORDER:
                event = event_from_document(dict(row.payload["event"]))
                if isinstance(event, CARRIED_OVER):
                    payload = {**row.payload, "launch": self.job.launch}
                    self.add.append(row._replace(token=uuid.uuid4().hex, payload=payload))
                self.settle(row)

    def amend(self, at: float, job: Job, text: str) -> None:
        """Replace facts that only the daemon keeps (labels, begin), with a line in the timeline."""
        self.job = job
        self.timeline.append(Transition(at, "", "", "", job.reason, "Update", text))

    def say(self, at: float, text: str, task: str = "") -> None:
        """Record in the timeline what became of an order."""
        self.timeline.append(Transition(at, task, "", "", self.job.reason, "Refused", text))

    def order(self, at: float, event: Event) -> None:
        """Owe an order to the job's cluster."""
        payload: dict[str, Any] = {"launch": self.job.launch, "event": event_to_document(event)}
        self.add.append(OutboxRow(uuid.uuid4().hex, self.job.id, self.cluster, ORDER, payload, at))

    def pass_on(self, at: float, event: Event) -> None:
        """Owe the job's cluster an order whose effect the facts have already."""
        payload = {"launch": self.job.launch, "event": event_to_document(event), _APPLIED: True}
        self.add.append(OutboxRow(uuid.uuid4().hex, self.job.id, self.cluster, ORDER, payload, at))

    def owed_orders(self, kind: type[Any]) -> list[OutboxRow]:
        """The orders of that kind that are owed."""
        return [row for row in self.open_rows() if _kind(row) == kind.__name__]

    def open_rows(self) -> list[OutboxRow]:
        """Calls owed for the job after this unit."""
        return [row for row in (*self.owed, *self.add) if row.token not in self.done]

    def asked(self, event: events.Expire) -> bool:
        """Whether an order of that kind, for the same cause, is owed already."""
        orders = [row.payload["event"] for row in self.open_rows() if _kind(row) == events.Expire.__name__]
        return any(order["cause"] == event.cause for order in orders)

    def settle(self, row: OutboxRow) -> None:
        """Remove a call from those owed."""
        if row in self.add:
            self.add.remove(row)
        else:
            self.done.append(row.token)

    def to_change(self) -> Change:
        """The change that the store writes, a compare-and-set on the job's version."""
        version = self.entry.job.version
        change = Change(
            job=replace(self.job, version=version + 1),
            expected_version=version,
            cluster=None if self.cluster == self.entry.cluster else self.cluster,
            handle=self.handle,
            native_id=self.native_id,
            cursor=self.cursor,
            spec=None if self.job.spec is self.entry.job.spec else self.job.spec,
            account=self._make_history_rows() if self.job.over else None,
            timeline=tuple(self.timeline),
            outbox_add=tuple(self.add),
            outbox_done=tuple(self.done),
        )
        unwritten = self.entry.unwritten
        return change if unwritten is None else join_changes(unwritten, change)

    def _make_history_rows(self) -> bytes | None:
        entry = copy(self.entry)
        entry.job, entry.cluster, entry.row, entry.task_rows = self.job, self.cluster, None, None
        return make_history_rows(entry)


def open_unit(entry: JobEntry, outbox: Outbox) -> UnitOfWork:
    """A unit of work that begins with the job's present facts."""
    submit = outbox.submit_of(entry.job.id, entry.cluster)
    tried = submit is not None and outbox.tried(submit.token)
    return UnitOfWork(entry, entry.job, outbox.of_job(entry.job.id), tried)


@dataclass(frozen=True)
class Completion:
    """Adds to a unit what follows by the rules: decisions, the submission, orders that lost their launch."""

    installation: str
    """Part of each token: it tells jobs of the same number of two daemons apart on one cluster."""
    clusters: LaunchRules
    resolver: DependencyResolver

    def complete(self, unit: UnitOfWork, now: float) -> None:
        """Decide and submit until nothing more is due now; `unit.wake_at` is when to look again."""
        unit.wake_at = None
        self._clear(unit)
        if unit.back and not unit.job.over:
            self._take_back(unit, now)
        decides = self.decides(unit)
        if not unit.dispatched:
            unit.absorb_orders()
        elif decides:
            self._apply_orders(unit)
        if not unit.dispatched or decides:
            self._decide(unit, now)
        elif unit.launched and unit.job.granted_at is None:
            self._expire(unit, now)
        if not unit.dispatched:
            needs = unit.job.dependency.needs
            self._submit(unit, now, bool(needs) and self.resolver.waits_there(unit.entry, unit.job, unit.cluster))
        self._enter(unit, now)
        self._clear(unit)
        if unit.cluster != unit.entry.cluster and not (unit.handle and unit.launched):
            # A handle means nothing on another cluster.
            unit.handle = unit.native_id = unit.cursor = ""

    def name_launch(self, job_id: int, launch: int) -> str:
        """The token of a launch."""
        return f"{self.installation}-{job_id}-{launch}"

    def decides(self, unit: UnitOfWork) -> bool:
        """Whether the daemon decides about the present launch."""
        return unit.launched and self.clusters.decider_of(unit.cluster, unit.newest_handle) is Decider.DAEMON

    def _take_back(self, unit: UnitOfWork, now: float) -> None:
        """Owe the submission of a launch that its cluster has requeued itself; the call finds it."""
        unit.retarget_orders()
        if not any(row.kind == SUBMIT for row in unit.open_rows()):
            self._owe(unit, unit.cluster, unit.job.launch, now, {BACK: True})

    def _apply_orders(self, unit: UnitOfWork) -> None:
        """Apply users' orders where the daemon decides; what only the cluster can do stays owed to it."""
        for row in unit.open_rows():
            if row.kind != ORDER or row.payload["launch"] != unit.job.launch or _APPLIED in row.payload:
                continue
            event = event_from_document(dict(row.payload["event"]))
            if isinstance(event, _FOR_CLUSTER) or (isinstance(event, events.SetTime) and self._is_limited(unit)):
                continue
            waits = unit.job.granted_at is None
            unit.advance(event)
            unit.settle(row)
            if waits and isinstance(event, _FOR_QUEUE):
                payload = {**row.payload, _APPLIED: True}
                unit.add.append(row._replace(token=uuid.uuid4().hex, payload=payload))

    def _is_limited(self, unit: UnitOfWork) -> bool:
        return self.clusters.keeps_limits(unit.cluster, unit.newest_handle)

    def _decide(self, unit: UnitOfWork, now: float) -> None:
        for _ in range(_MANY):
            found = decide(unit.job, now)
            unit.wake_at = found.wake_at
            if not found.events:
                return
            for event in found.events:
                unit.advance(event)
                if unit.launched:
                    unit.order(now, event)
        raise RuntimeError(f"job {unit.job.id}: decisions without end")

    def _expire(self, unit: UnitOfWork, now: float) -> None:
        """Order the end of a job whose deadline passes in its cluster's queue, where no supervisor decides yet."""
        found = decide(unit.job, now)
        unit.wake_at = found.wake_at
        for event in found.events:
            if isinstance(event, events.Expire) and not unit.asked(event):
                unit.order(now, event)

    def _submit(self, unit: UnitOfWork, now: float, waited_for: bool) -> None:
        """Owe the submission if and only if the job is eligible."""
        verdict = judge(unit.job, now, waited_for)
        submits = [row for row in unit.open_rows() if row.kind == SUBMIT and row.payload["launch"] == unit.job.launch]
        if verdict.now:
            if unit.job.reason != verdict.reason and {unit.job.reason, verdict.reason}.intersection(_WAITING):
                unit.advance(events.Queued(now, verdict.reason))
            # An array is never sent itself; its elements are.
            if not submits and unit.job.array is None:
                self._owe(unit, unit.cluster, unit.job.launch, now)
                if unit.job.cluster:
                    timeout = self.clusters.find_failover_timeout(unit.job.cluster, unit.job)
                    unit.advance(events.Offer(now, unit.job.cluster, timeout))
            return
        for row in submits:
            unit.settle(row)
        if verdict.at is not None:
            unit.wake_at = verdict.at if unit.wake_at is None else min(unit.wake_at, verdict.at)
        if verdict.reason in _WAITING and unit.job.reason != verdict.reason:
            unit.advance(events.Queued(now, verdict.reason, verdict.at))

    def _owe(
        self, unit: UnitOfWork, cluster: str, launch: int, now: float, marks: Mapping[str, bool] = MappingProxyType({})
    ) -> None:
        token = self.name_launch(unit.job.id, launch)
        unit.add.append(OutboxRow(token, unit.job.id, cluster, SUBMIT, {"launch": launch, **marks}, now))

    def _enter(self, unit: UnitOfWork, now: float) -> None:
        """Add and withdraw bids of a job that races; the clusters release withdrawn ones."""
        entries = plan_bids(unit.job, now)
        for name in entries.withdrawn:
            unit.advance(events.Withdraw(now, name))
        for name in entries.entered:
            unit.advance(events.Enter(now, name))
            self._owe(unit, name, unit.job.newest, now)
        if entries.wake_at is not None:
            unit.wake_at = entries.wake_at if unit.wake_at is None else min(unit.wake_at, entries.wake_at)

    def _clear(self, unit: UnitOfWork) -> None:
        """Drop owed calls that the end of the job, a task, a launch or a bid has made pointless."""
        job = unit.job
        launches = {job.launch, *(bid.launch for bid in job.bids)}
        for row in unit.open_rows():
            pointless = _is_settled(job, row) if row.kind == ORDER else row.payload["launch"] not in launches
            if job.over or pointless:
                unit.settle(row)


def is_kept(row: OutboxRow) -> bool:
    """Whether an order stays owed after its delivery, until its effect is seen.

    The launch may end before it reads the order, or start only later what the order is to end.
    """
    return _kind(row) in _KEPT and _APPLIED not in row.payload


def is_whole_cancel(row: OutboxRow) -> bool:
    """Whether an order cancels all of its job."""
    return _kind(row) == events.Cancel.__name__ and not row.payload["event"].get("task")


def is_hold(row: OutboxRow) -> bool:
    """Whether an order holds its job."""
    return _kind(row) == events.Hold.__name__


def is_end(row: OutboxRow) -> bool:
    """Whether an order is to end all or some of a job."""
    return _kind(row) in _ENDS or _kind(row) == events.Cancel.__name__


def is_start(row: OutboxRow) -> bool:
    """Whether a decision to start something is owed."""
    return _kind(row) in (events.Launch.__name__, events.NodeRelaunch.__name__)


def is_end_of(row: OutboxRow, start: OutboxRow) -> bool:
    """Whether an order ends the attempt that another is to start something of."""
    if _kind(row) not in (events.Terminate.__name__, events.Kill.__name__):
        return False
    mine, other = row.payload["event"], start.payload["event"]
    return bool((mine["task"], mine["attempt"]) == (other["task"], other["attempt"]))


def _kind(row: OutboxRow) -> str:
    """What an order is; empty for a submission."""
    return str(row.payload["event"].get("event")) if row.kind == ORDER else ""


def _is_settled(job: Job, row: OutboxRow) -> bool:
    """Whether an order has nothing left to do: its task or attempt has ended, or its effect was reported."""
    document = row.payload["event"]
    if job.granted_at is not None and is_withdrawal(event_from_document(dict(document))):
        return True
    task = find_task(job, document.get("task", ""))
    if task is None:
        return False
    if is_kept(row) and task.over:
        return True
    number = document.get("attempt")
    if number is None or number >= len(task.attempts):
        return False
    attempt = task.attempts[number]
    if not attempt.live:
        return True
    return _starts_no_more(attempt, event_from_document(dict(document)))


def _starts_no_more(attempt: Attempt, event: Event) -> bool:
    """Whether all that a decision starts is known to have started; repeated, it could start it twice."""
    if isinstance(event, events.Launch):
        return all(_was_seen(node, 0) for node in attempt.nodes)
    return isinstance(event, events.NodeRelaunch) and _was_seen(attempt.nodes[event.node], event.run)


def _was_seen(node: NodeRun, run: int) -> bool:
    return node.run > run or (node.run == run and (node.started_at is not None or node.ended_at is not None))


def submitted(job: Job) -> Transition:
    """The first line of a job's timeline."""
    text = _word_origin(job.spec)
    text = "; ".join([text, *(f"{departure.cluster}: {departure.text}" for departure in job.passed)])
    return Transition(job.submitted_at, "", "", State.PENDING.value, job.reason, "Submitted", text)


def _word_origin(spec: JobSpec) -> str:
    """What made the job: a user, a schedule, or another job."""
    again = spec.resubmission
    if again is not None:
        source = f"submitted again from job {again.source}"
        return " ".join((source, "with", *again.changes)) if again.changes else source
    cron = spec.cron
    return f"submitted by the schedule c{cron.id}, due at {format_timestamp(cron.due)}" if cron else "submitted"
