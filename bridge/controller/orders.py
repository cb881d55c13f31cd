"""What people ask of jobs. A job that nobody else has yet is changed at once; else its cluster is owed an order."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from overspan.bridge.controller.book import Entry
from overspan.bridge.controller.drafts import Draft, is_kept
from overspan.bridge.controller.recording import Recorder
from overspan.bridge.controller.references import Directory, Target
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model import events
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound, OverspanError
from overspan.bridge.model.events import Event, event_from_document
from overspan.bridge.model.job import Job

MakeEvent = Callable[[float, str], Event]
"""Makes the order of a time and a task's name."""


@dataclass(frozen=True)
class Filters:
    """Which live jobs a cancel is about; an empty field means any."""

    states: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    clusters: frozenset[str] = frozenset()

    def fits(self, entry: Entry) -> bool:
        """Whether the job passes."""
        job = entry.job
        facts = (
            (self.states, job.state.value),
            (self.users, entry.user),
            (self.names, job.labels.get("name", job.spec.name)),
            (self.partitions, job.spec.partition),
            (self.clusters, entry.cluster),
        )
        return all(not wanted or value in wanted for wanted, value in facts)


@dataclass(frozen=True)
class CancelRequest:
    """Jobs to end or to signal. No refs: every live job that passes the filters."""

    refs: Sequence[str] = ()
    task: str = ""
    filters: Filters = Filters()
    signal: str = ""
    batch_only: bool = False
    by: str = ""


class Outcome(NamedTuple):
    """What was asked of each job: refs that it was done for, and the errors of the others."""

    done: list[str]
    errors: list[tuple[str, OverspanError]]


@dataclass(frozen=True)
class Update:
    """New values for a job, only those that were given."""

    values: Mapping[str, Any] = field(default_factory=dict)
    by: str = ""


class Orders:
    """Carries out what people ask of jobs."""

    def __init__(self, recorder: Recorder, directory: Directory) -> None:
        self.recorder = recorder
        self.directory = directory

    async def cancel(self, request: CancelRequest) -> Outcome:
        """End or signal many jobs in one transaction; each has its own answer."""
        number = parse_signal(request.signal) if request.signal else None
        outcome = Outcome([], [])
        chosen: dict[int, list[tuple[str, str]]] = {}
        for ref, target in await self._choose(request, outcome):
            chosen.setdefault(target.entry.job.id, []).append((ref, request.task or target.task))

        def work(drafts: list[Draft]) -> None:
            now = self.recorder.clock()
            for draft in drafts:
                for ref, task in chosen[draft.job.id]:
                    event = _end_event(draft, request, number, task, now)
                    try:
                        place(draft, event, now)
                        outcome.done.append(ref)
                    except OverspanError as error:
                        outcome.errors.append((ref, error))

        if chosen:
            await self.recorder.change(chosen, work)
            told = {*outcome.done, *(ref for ref, _ in outcome.errors)}
            for job_id, refs in chosen.items():
                # Finished jobs that are only in the store have no draft.
                outcome.errors.extend((ref, _ended(job_id)) for ref, _ in refs if ref not in told)
        return outcome

    async def give(self, ref: str, make: MakeEvent, task: str = "") -> None:
        """Give one order to one job. Raises Conflict when its state does not allow it."""
        target = await self.directory.find(ref)
        name = task or target.task
        if name and not any(known.name == name for known in target.entry.job.tasks):
            names = ", ".join(known.name for known in target.entry.job.tasks)
            raise NotFound(f"job {target.entry.job.id} has no task {name!r}", remedy=f"its tasks: {names}")
        self._remember(target.entry)

        def work(drafts: list[Draft]) -> None:
            now = self.recorder.clock()
            for draft in _present(drafts, target.entry.job.id):
                place(draft, make(now, name), now)

        await self.recorder.change((target.entry.job.id,), work)

    async def update(self, ref: str, update: Update) -> None:
        """Change a job's limits and labels, all or none."""
        target = await self.directory.find(ref)
        self._remember(target.entry)

        def work(drafts: list[Draft]) -> None:
            now = self.recorder.clock()
            for draft in _present(drafts, target.entry.job.id):
                for name, value in update.values.items():
                    _UPDATES[name](draft, target.task, value, now, update.by)

        await self.recorder.change((target.entry.job.id,), work)

    def _remember(self, entry: Entry) -> None:
        """Take a job that was read from the store into memory, to change it."""
        if self.recorder.book.get(entry.job.id) is None:
            self.recorder.book.add(entry)

    async def _choose(self, request: CancelRequest, outcome: Outcome) -> list[tuple[str, Target]]:
        if not request.refs:
            entries = [e for e in self.recorder.book if not e.job.over and request.filters.fits(e)]
            return [(str(entry.job.id), Target(entry)) for entry in entries]
        found = []
        refs = list(dict.fromkeys(request.refs))
        for ref, target in zip(refs, await self.directory.find_all(refs), strict=True):
            if isinstance(target, OverspanError):
                outcome.errors.append((ref, target))
            elif request.filters.fits(target.entry):
                found.append((ref, target))
        return found


def _present(drafts: list[Draft], job_id: int) -> list[Draft]:
    """The drafts; Conflict where the finished job left memory before it was locked."""
    if not drafts:
        raise Conflict(f"job {job_id} is being moved to the history", remedy="try again")
    return drafts


def place(draft: Draft, event: Event, now: float) -> None:
    """Apply an order to the draft, or owe it to the cluster. Raises Conflict when it would change nothing."""
    waits = isinstance(event, events.Signal) and draft.job.granted_at is None
    if waits or reduce(draft.job, event).late != draft.job.late:
        raise refuse(draft.job, event)
    if not draft.away:
        draft.advance(event)
    elif not (isinstance(event, events.Cancel) and _asked_already(draft, event)):
        draft.order(now, event)


def _asked_already(draft: Draft, event: events.Cancel) -> bool:
    """Whether the same cancel is under way."""
    for row in draft.open_rows():
        if is_kept(row):
            asked = event_from_document(dict(row.payload["event"]))
            if isinstance(asked, events.Cancel) and asked.task in ("", event.task):
                return True
    return False


def _end_event(draft: Draft, request: CancelRequest, number: int | None, task: str, now: float) -> Event:
    waits = draft.job.granted_at is None
    # scancel(1): of the signals, only KILL reaches a pending job, and cancels it.
    if number is None or (waits and number == signal.SIGKILL and not request.batch_only):
        return events.Cancel(now, task, request.by)
    return events.Signal(now, number, task, request.batch_only, request.by)


def refuse(job: Job, event: Event) -> Conflict:
    """Why an order does not fit the job's state, in scontrol's and scancel's words where they have some."""
    task = getattr(event, "task", "")
    if task and not any(known.name == task for known in job.tasks):
        return Conflict(f"job {job.id} has no task {task!r}")
    if job.over:
        return _ended(job.id)
    if isinstance(event, events.Hold):
        return Conflict(f"job {job.id}: Job is no longer pending execution", remedy="only a waiting job can be held")
    if isinstance(event, events.Release):
        return Conflict(f"job {job.id} is not held")
    if isinstance(event, events.Cancel):
        return Conflict(f"job {job.id}: Job/step already completing or completed")
    if job.granted_at is None:
        return Conflict(f"job {job.id}: Job is pending execution")
    return Conflict(f"job {job.id} is {job.state.value}, so {type(event).__name__.lower()} does not apply")


def _ended(job_id: int) -> Conflict:
    return Conflict(f"job {job_id}: Job/step already completing or completed")


def parse_signal(text: str) -> int:
    """Read a signal as scancel takes it: a number, or a name with or without SIG. Raises InvalidRequest."""
    word = text.strip().upper()
    if re.fullmatch(r"[0-9]{1,3}", word) and 0 < int(word) < signal.NSIG:
        return int(word)
    name = word if word.startswith("SIG") else f"SIG{word}"
    found = getattr(signal, name, None)
    if isinstance(found, signal.Signals):
        return int(found)
    raise InvalidRequest(f"{text!r} is no signal", remedy="write a number such as 10, or a name such as USR1")


# --- updates ---------------------------------------------------------------------------------------------------------


def _set_time(draft: Draft, task: str, value: Any, now: float, by: str) -> None:
    place(draft, events.SetTime(now, value, task, by), now)


def _set_priority(draft: Draft, task: str, value: Any, now: float, by: str) -> None:
    place(draft, events.SetPriority(now, value, by), now)


def _set_begin(draft: Draft, task: str, value: Any, now: float, by: str) -> None:
    if draft.away or draft.job.over:
        raise Conflict(f"job {draft.job.id}: Job is no longer pending execution", remedy="hold it before it is due")
    draft.amend(now, replace(draft.job, begin=value), f"begin set by {by}")


def _set_label(name: str) -> Callable[[Draft, str, Any, float, str], None]:
    def change(draft: Draft, task: str, value: Any, now: float, by: str) -> None:
        if name == "name" and draft.job.spec.group:
            raise Conflict("a group's name is part of its members' names", remedy="submit it again with --name")
        draft.amend(now, replace(draft.job, labels={**draft.job.labels, name: value}), f"{name} set by {by}")

    return change


def _refuse_update(name: str) -> Callable[[Draft, str, Any, float, str], None]:
    def change(draft: Draft, task: str, value: Any, now: float, by: str) -> None:
        raise InvalidRequest(f"the {name} of a submitted job cannot be changed", remedy="cancel it and submit it again")

    return change


_UPDATES: Mapping[str, Callable[[Draft, str, Any, float, str], None]] = {
    "time_limit": _set_time,
    "priority": _set_priority,
    "begin": _set_begin,
    "comment": _set_label("comment"),
    "name": _set_label("name"),
    "partition": _refuse_update("partition"),
    "nice": _refuse_update("nice value"),
}
UPDATABLE = tuple(_UPDATES)
