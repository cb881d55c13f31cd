"""Users' orders to jobs. The daemon changes a job itself until it is dispatched; then it owes the cluster the order."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from overspan.adapters.abilities import Admission
from overspan.bridge.controller.core.cluster_locations import ClusterLocations
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.outbox import ORDER
from overspan.bridge.controller.core.recording import Recorder
from overspan.bridge.controller.core.references import Directory, JobTarget
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.rights import split_allowed
from overspan.bridge.controller.core.unit_of_work import UnitOfWork, is_kept
from overspan.bridge.controller.orders.amendments import AMENDABLE, amend
from overspan.bridge.controller.orders.requests import CancelOutcome, CancelRequest, Update
from overspan.bridge.lifecycle.order_effects import is_fatal
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.lifecycle.stages import waits_its_turn
from overspan.bridge.model import events
from overspan.bridge.model.documents import encode
from overspan.bridge.model.durations import format_limit
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound, OverspanError, Rejected, Unreachable
from overspan.bridge.model.events import Event, event_from_document
from overspan.bridge.model.job import Job
from overspan.bridge.model.signals import signal_number
from overspan.bridge.model.slurm.words import ALREADY_ENDED, NOT_PENDING
from overspan.bridge.model.states import State
from overspan.bridge.store.records import OutboxRow

_HOLDING = (events.Hold, events.Release)

MakeEvent = Callable[[float, str], Event]
"""Makes the order of a time and a task's name."""


class JobOrders:
    """Carries out what people ask of jobs."""

    def __init__(
        self,
        recorder: Recorder,
        directory: Directory,
        locations: ClusterLocations,
        unsent_in_use: Collection[int] = frozenset(),
    ) -> None:
        self._unsent_in_use = unsent_in_use
        """Jobs whose unsent data is being sent or removed: another launch would begin with what goes away."""
        self.recorder = recorder
        self.directory = directory
        self.locations = locations
        self.clusters = locations.clusters

    async def cancel(self, request: CancelRequest) -> CancelOutcome:
        """End or signal many jobs in one transaction; each has its own answer.

        The job that fills a disk is the one to be ended: it needs no disk.
        """
        number = parse_signal(request.signal) if request.signal else None
        outcome = CancelOutcome([], [])
        chosen: dict[int, list[tuple[str, JobTarget]]] = {}
        for ref, target in await self._choose(request, outcome):
            chosen.setdefault(target.entry.job.id, []).append((ref, target))
        given: dict[str, OverspanError | None] = {}

        def work(units: list[UnitOfWork]) -> None:
            now = self.recorder.clock()
            for unit in units:
                for ref, target in chosen[unit.job.id]:
                    event = _end_event(unit, request, number, target, now)
                    try:
                        place(unit, event, now)
                        given[ref] = None
                    except OverspanError as error:
                        # One element that has ended is no error where another has not.
                        given.setdefault(ref, error)

        if chosen:
            await self.recorder.change(chosen, work, urgent=True)
            trouble = self.recorder.repository.trouble
            unwritten = any(entry.unwritten is not None for entry in map(self.recorder.registry.get, chosen) if entry)
            if unwritten:
                why = trouble.message if trouble is not None else "the store could not be written"
                outcome = outcome._replace(note=f"{why}; what was asked is under way, and recorded when there is space")
            else:
                outcome = outcome._replace(note=self._word_waits(chosen))
            for job_id, named in chosen.items():
                for ref, _ in named:
                    # Finished jobs that are only in the store have no unit of work.
                    given.setdefault(ref, _ended(job_id))
        outcome.done.extend(ref for ref, error in given.items() if error is None)
        outcome.errors.extend((ref, error) for ref, error in given.items() if error is not None)
        return outcome

    def _word_waits(self, chosen: Iterable[int]) -> str:
        """Why what was asked of some of these jobs has no effect yet; empty where nothing hinders it."""
        entries = [
            entry for entry in map(self.recorder.registry.get, chosen) if entry is not None and not entry.job.over
        ]
        names = dict.fromkeys(name for entry in entries for name in entry.places())
        troubles = {name: self.locations.find_trouble(name) for name in names}
        whys = [f"{trouble.message}; {trouble.remedy}" for trouble in troubles.values() if trouble is not None]
        found = [self.locations.clusters.find(name) for name, trouble in troubles.items() if trouble is None]
        whys += [cluster.silence for cluster in found if cluster is not None and cluster.silence]
        return "\n".join(f"what was asked waits: {why}" for why in whys)

    async def give(self, ref: str, make: MakeEvent, task: str = "") -> None:
        """Give one order to one job, or to all of an array. Raises Conflict when its state does not allow it."""

        def work(unit: UnitOfWork, name: str, now: float) -> None:
            event = make(now, name)
            if isinstance(event, events.Requeue) and unit.job.id in self._unsent_in_use:
                raise Conflict(
                    f"what job {unit.job.id} could not send is being sent or removed, and it would begin with that",
                    remedy="wait for the end of `span data rescue`, or rm",
                )
            place(unit, event, now)

        await self._each(ref, task, work)

    async def update(self, ref: str, update: Update) -> None:
        """Change a job's limits, labels and sizes, all or none. Sizes only while no cluster has the job."""
        told: set[int] = set()
        if "dependency" in update.values:
            entries = [target.entry for target in await self._targets(ref)]
            told = await self.recorder.dependency_resolver.list_takers(entries, update.values["dependency"])
        if "time_limit" in update.values:
            for target in await self._targets(ref):
                await _check_time(self.clusters, target, update.values["time_limit"])
        amended = {name: value for name, value in update.values.items() if name in AMENDABLE}
        if amended:
            for target in await self._targets(ref):
                await self._check_amended(target.entry, amended)

        def work(unit: UnitOfWork, task: str, now: float) -> None:
            if amended:
                _amend(unit, amended, now, update.by)
            for name, value in update.values.items():
                if name == "dependency" and unit.launched and unit.job.id in told:
                    place(unit, events.SetDependency(now, encode(value), update.by), now)
                elif name not in amended:
                    _UPDATES[name](unit, task, value, now, update.by)

        await self._each(ref, "", work)

    async def _check_amended(self, entry: JobEntry, values: Mapping[str, Any]) -> None:
        """Refuse what the job's cluster could never run; one that does not answer is asked at the submission."""
        cluster = self.clusters.find(entry.cluster)
        adapter = cluster.adapter if cluster is not None else None
        if entry.job.over or not isinstance(adapter, Admission):
            return
        try:
            amended = self.clusters.shared_paths.move(amend(entry.job, values), entry.cluster)
            refusal = await adapter.admit(amended)
        except Unreachable:
            return
        if refusal is not None and not refusal.transient:
            raise Rejected(
                _word_refusal(refusal.message),
                remedy=refusal.remedy or "`span sinfo` shows what the nodes and partitions have",
            )

    async def top(self, ref: str, by: str) -> None:
        """Put a waiting job before all others of its user that wait. Rejected where the queue is the cluster's own."""
        target = await self.directory.find(ref)
        cluster = self.clusters.find(target.entry.cluster)
        if cluster is not None and cluster.adapter.traits.own_queue:
            # Priorities are numbers of its own there: one of ours would put the job last.
            raise Rejected(
                f"the order of the waiting jobs on {target.entry.cluster} is that of the cluster's own queue",
                remedy=f"`span scontrol update JobId={ref} nice=N` on the jobs that may wait puts this one before them",
            )
        mine = [entry.job for entry in self.recorder.registry if entry.user == target.entry.user and not entry.job.over]
        highest = max(((job.priority or 0) - job.nice for job in mine if job.granted_at is None), default=0)
        await self.give(ref, lambda at, task: events.SetPriority(at, highest + 1 + target.entry.job.nice, by))

    async def _each(self, ref: str, task: str, work: Callable[[UnitOfWork, str, float], None]) -> None:
        """Do something with every job that an id names; the first refusal is raised where nothing was accepted."""
        targets = await self._targets(ref)
        for target in targets:
            _check_task(target, task)
            self._remember(target.entry)
        names = {target.entry.job.id: task or target.task for target in targets}

        def change(units: list[UnitOfWork]) -> None:
            now = self.recorder.clock()
            refusals: list[OverspanError] = []
            for unit in _present(units, next(iter(names))):
                before = unit.job
                try:
                    work(unit, names[unit.job.id], now)
                except Conflict as error:
                    unit.job = before
                    refusals.append(error)
            if len(refusals) == len(units):
                raise refusals[0]

        await self.recorder.change(names, change)

    async def _targets(self, ref: str) -> list[JobTarget]:
        """What an id names; elements of an array that are no jobs yet are made jobs for it."""
        found = (await self.directory.find_all((ref,)))[0]
        if isinstance(found, OverspanError):
            raise found
        waiting = next((target for target in found if target.waiting), None)
        if waiting is None:
            return found
        head = waiting.entry.job
        await self.recorder.draw(head.id, waiting.waiting, head.reason)
        again = (await self.directory.find_all((ref,)))[0]
        if isinstance(again, OverspanError):
            raise again
        return [target for target in again if not target.waiting]

    def _remember(self, entry: JobEntry) -> None:
        """Take a job that was read from the store into memory, to change it."""
        if self.recorder.registry.get(entry.job.id) is None:
            self.recorder.registry.add(entry)

    async def _choose(self, request: CancelRequest, outcome: CancelOutcome) -> list[tuple[str, JobTarget]]:
        if not request.refs:
            live = (entry for entry in self.recorder.registry if not entry.job.over)
            # Workers are their pool's, which would only start others: they end by their ids, or with the pool.
            entries = [e for e in live if e.job.spec.worker is None and request.filters.fits(e)]
            chosen = [(str(entry.job.id), JobTarget(entry)) for entry in entries]
            # Who names no user means the own jobs, as with scancel.
            allowed, refused = split_allowed(chosen, request.within, request.inside)
            outcome.errors.extend(refused if request.filters.users else ())
            return allowed
        found = []
        refs = list(dict.fromkeys(request.refs))
        for ref, targets in zip(refs, await self.directory.find_all(refs), strict=True):
            if isinstance(targets, OverspanError):
                outcome.errors.append((ref, targets))
            else:
                found += [(ref, target) for target in targets if request.filters.fits(target.entry)]
        allowed, refused = split_allowed(found, request.within, request.inside)
        outcome.errors.extend(refused)
        strange = dict(_find_strangers(allowed, request.task))
        outcome.errors.extend(strange.items())
        return [(ref, target) for ref, target in allowed if ref not in strange]


def _find_strangers(chosen: list[tuple[str, JobTarget]], task: str) -> Iterator[tuple[str, NotFound]]:
    """The ids whose jobs have no such task, with the error."""
    for ref, target in chosen:
        try:
            _check_task(target, task)
        except NotFound as error:
            yield ref, error


def _check_task(target: JobTarget, task: str) -> None:
    tasks = target.entry.job.tasks
    if task and not any(known.name == task for known in tasks):
        names = ", ".join(known.name for known in tasks)
        raise NotFound(f"job {target.entry.job.id} has no task {task!r}", remedy=f"its tasks: {names}")


def _present(units: list[UnitOfWork], job_id: int) -> list[UnitOfWork]:
    """The units; Conflict if the finished job left the registry before it was locked."""
    if not units:
        raise Conflict(f"job {job_id} is being moved to the history", remedy="try again")
    return units


def place(unit: UnitOfWork, event: Event, now: float) -> None:
    """Apply an order to the job, or owe it to the job's cluster. Raises Conflict if it would change nothing."""
    early = waits_its_turn(unit.job, getattr(event, "task", ""))
    if isinstance(event, events.Cancel) and is_fatal(unit.job, event):
        # Who decides beside the work knows nothing of later stages: what runs ends with the job.
        event, early = event._replace(task=""), False
    waits = isinstance(event, events.Signal) and (unit.job.granted_at is None or early)
    job = _foresee(unit)
    if waits or reduce(job, event).late != job.late:
        raise refuse(unit.job, event)
    if isinstance(event, events.Release) and _asked_already(unit, events.Cancel(now)):
        # The orders of a job may be carried out together: it would start before its end.
        raise Conflict(f"job {unit.job.id}: {ALREADY_ENDED}")
    if not unit.dispatched or early:
        unit.advance(event)
    elif not (isinstance(event, events.Cancel) and _asked_already(unit, event)):
        if isinstance(event, _HOLDING):
            # A deferred earlier one, given again, would undo this one.
            for row, _ in _list_holding(unit):
                unit.settle(row)
        unit.order(now, event)


def _foresee(unit: UnitOfWork) -> Job:
    """The job as it will be after the holds and releases that are still owed, which the next order follows."""
    job = unit.job
    for _, asked in _list_holding(unit):
        job = reduce(job, asked)
    return job


def _list_holding(unit: UnitOfWork) -> list[tuple[OutboxRow, Event]]:
    """The holds and releases that are owed, oldest first."""
    owed = [(row, event_from_document(dict(row.payload["event"]))) for row in unit.open_rows() if row.kind == ORDER]
    return [(row, asked) for row, asked in owed if isinstance(asked, _HOLDING)]


def _asked_already(unit: UnitOfWork, event: events.Cancel) -> bool:
    """Whether the same cancel is under way."""
    for row in unit.open_rows():
        if is_kept(row):
            asked = event_from_document(dict(row.payload["event"]))
            if isinstance(asked, events.Cancel) and asked.task in ("", event.task) and asked.flush <= event.flush:
                return True
    return False


def _end_event(unit: UnitOfWork, request: CancelRequest, number: int | None, target: JobTarget, now: float) -> Event:
    task = request.task or target.task
    waits = unit.job.granted_at is None or waits_its_turn(unit.job, task)
    # scancel(1): of the signals, only KILL reaches a pending job, and cancels it.
    kills = number == signal.SIGKILL and not request.batch_only
    if number is None or (waits and kills):
        array = unit.job.array
        if array is not None and (target.waiting or request.filters.states):
            ranges = target.waiting or array.waiting
            return events.CancelElements(now, tuple((part.first, part.last, part.step) for part in ranges), request.by)
        return events.Cancel(now, task, request.by, flush=request.flush)
    if kills and not task and unit.job.ending is None:
        # A user's KILL of everything is a cancel without grace.
        return events.Cancel(now, by=request.by, grace=0)
    return events.Signal(now, number, task, request.batch_only, request.by, request.full)


def refuse(job: Job, event: Event) -> Conflict:
    """Why an order does not fit the job's state, in scontrol's and scancel's words where they have some."""
    task = getattr(event, "task", "")
    if task and not any(known.name == task for known in job.tasks):
        return Conflict(f"job {job.id} has no task {task!r}")
    if job.over:
        return _ended(job.id)
    if isinstance(event, events.Hold):
        return Conflict(f"job {job.id}: {NOT_PENDING}", remedy="only a waiting job can be held")
    if isinstance(event, events.Release):
        return Conflict(f"job {job.id} is not held")
    if isinstance(event, events.Cancel | events.CancelElements):
        return Conflict(f"job {job.id}: {ALREADY_ENDED}")
    if job.granted_at is None or waits_its_turn(job, task):
        return Conflict(f"job {job.id}: Job is pending execution")
    return Conflict(f"job {job.id} is {job.state.value}, so {type(event).__name__.lower()} does not apply")


def _ended(job_id: int) -> Conflict:
    return Conflict(f"job {job_id}: {ALREADY_ENDED}")


def parse_signal(text: str) -> int:
    """Read a signal as scancel takes it: a number, or a name with or without SIG. Raises InvalidRequest."""
    number = signal_number(text.strip())
    if not number:
        raise InvalidRequest(f"{text!r} is no signal", remedy="write a number such as 10, or a name such as USR1")
    return number


# --- updates ---------------------------------------------------------------------------------------------------------


def _set_time(unit: UnitOfWork, task: str, value: Any, now: float, by: str) -> None:
    place(unit, events.SetTime(now, value, task, by), now)


def _set_priority(unit: UnitOfWork, task: str, value: Any, now: float, by: str) -> None:
    if unit.job.held:
        raise Conflict(f"job {unit.job.id}: Job is in held state, pending scheduler release", remedy="release it first")
    place(unit, events.SetPriority(now, value, by), now)


def _set_nice(unit: UnitOfWork, task: str, value: Any, now: float, by: str) -> None:
    if value < 0:
        # Slurm keeps this for operators; a priority says the same here.
        raise Conflict(f"job {unit.job.id}: Access/permission denied", remedy="set its priority instead")
    place(unit, events.SetNice(now, value, by), now)


def _set_begin(unit: UnitOfWork, task: str, value: Any, now: float, by: str) -> None:
    _check_here(unit)
    place(unit, events.SetBegin(now, value, by), now)


def _set_dependency(unit: UnitOfWork, task: str, value: Any, now: float, by: str) -> None:
    _check_here(unit)
    place(unit, events.SetDependency(now, encode(value), by), now)


def _set_throttle(unit: UnitOfWork, task: str, value: Any, now: float, by: str) -> None:
    if unit.job.array is not None:
        place(unit, events.SetThrottle(now, value, by), now)


def _check_here(unit: UnitOfWork) -> None:
    """Raise Conflict for a dispatched job: what only the daemon applies can be changed only before."""
    if unit.dispatched or unit.job.over:
        raise Conflict(f"job {unit.job.id}: {NOT_PENDING}", remedy="hold it before it is due")


def _set_label(name: str) -> Callable[[UnitOfWork, str, Any, float, str], None]:
    def change(unit: UnitOfWork, task: str, value: Any, now: float, by: str) -> None:
        if name == "name" and unit.job.spec.group:
            raise Conflict("a group's name is part of its members' names", remedy="submit it again with --name")
        unit.amend(now, replace(unit.job, labels={**unit.job.labels, name: value}), f"{name} set by {by}")

    return change


def _amend(unit: UnitOfWork, values: Mapping[str, Any], now: float, by: str) -> None:
    """Change the spec of a job that is not dispatched; values that it has already are no change."""
    job = unit.job
    if values == {"partition": job.spec.partition}:
        return
    if unit.dispatched or job.state is not State.PENDING:
        raise Conflict(f"job {job.id}: {NOT_PENDING}", remedy=_TOO_LATE)
    texts = [f"{name} set to {value}" for name, value in values.items()]
    unit.amend(now, amend(job, values), f"{', '.join(texts)} by {by}")


def _word_refusal(message: str) -> str:
    """A refusal of the cluster in the words of scontrol(1)."""
    return "Invalid partition name specified" if message.startswith("invalid partition") else message


_UPDATES: Mapping[str, Callable[[UnitOfWork, str, Any, float, str], None]] = {
    "time_limit": _set_time,
    "priority": _set_priority,
    "nice": _set_nice,
    "begin": _set_begin,
    "dependency": _set_dependency,
    "throttle": _set_throttle,
    "comment": _set_label("comment"),
    "name": _set_label("name"),
}
_TOO_LATE = "the cluster has the job already; cancel it and submit it again"


async def _check_time(clusters: Clusters, target: JobTarget, seconds: int | None) -> None:
    """Raise Conflict for a wall time that the job's present launch cannot have; None is no limit.

    Raises Unreachable where only the cluster could tell.
    """
    entry = target.entry
    job = entry.job
    cluster = clusters.find(entry.cluster)
    longest_time = None if cluster is None or job.over or not entry.watched else cluster.adapter.traits.longest_time
    if longest_time is None:
        return
    for task in job.tasks:
        present = job.time_of(task.name)
        grows = present is not None and (seconds is None or seconds > present)
        if (
            task.over
            or waits_its_turn(job, task.name)
            or target.task not in ("", task.name)
            or not (grows or (present is None and seconds))
        ):
            continue
        longest = await longest_time(entry.handle, task.name)
        if longest is not None and (seconds is None or seconds > longest):
            # scontrol prints the message alone, so the way is in it.
            way = _name_way(job.id, waits=job.granted_at is None)
            most = format_limit(longest)
            raise Conflict(f"job {job.id}: {task.name} can have {most} at most, since its pods end soon after: {way}")


def _name_way(job_id: int, waits: bool) -> str:
    if waits:
        return "cancel it, and submit it again with the new limit"
    return f"`span scontrol requeuehold {job_id}`, the new limit and `span release {job_id}` start it again with more"
