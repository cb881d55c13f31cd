"""The queue and the history: which rows, as bytes that the API sends as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from overspan.bridge.controller.book import Book, Entry, entry_of
from overspan.bridge.controller.ledger import Ledger
from overspan.bridge.controller.references import parse_reference
from overspan.bridge.controller.rows import job_row, task_rows
from overspan.bridge.model.errors import InvalidRequest, NotFound
from overspan.bridge.model.states import State
from overspan.bridge.store.records import JobQuery

ALL = "ALL"
FINISHED_WITHIN = 300.0
"""Seconds for which the queue still shows a finished job, when finished ones are asked for."""


@dataclass(frozen=True)
class Selection:
    """Which jobs, or tasks; an empty field means any. No states at all means live ones in the queue."""

    states: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    ids: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    clusters: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    qos: frozenset[str] = frozenset()
    tasks: bool = False
    finished_within: float = FINISHED_WITHIN
    since: float | None = None
    until: float | None = None
    limit: int | None = None

    def fits(self, entry: Entry) -> bool:
        """Whether the job passes all but states and ids."""
        job = entry.job
        spec = job.spec
        facts = (
            (self.users, entry.user),
            (self.names, job.labels.get("name", spec.name)),
            (self.partitions, spec.partition),
            (self.clusters, entry.cluster),
            (self.accounts, spec.account),
            (self.qos, spec.qos),
        )
        return all(not wanted or value in wanted for wanted, value in facts)


def check_states(states: Iterable[str]) -> frozenset[str]:
    """States by full name or `all`; Slurm's compact codes too. Raises InvalidRequest."""
    codes = {state.code: state.value for state in State}
    result = set()
    for text in states:
        word = text.upper()
        word = codes.get(word, word)
        if word != ALL and word not in State.__members__:
            raise InvalidRequest(f"{text!r} is no job state", remedy=f"states: {', '.join(State.__members__)}, all")
        result.add(word)
    return frozenset(result)


def list_queue(book: Book, selection: Selection, now: float) -> list[bytes]:
    """Encoded rows of live jobs, and of those that finished a moment ago where they are asked for."""
    states = selection.states or frozenset(state.value for state in State if not state.terminal)
    wanted = _places(book, selection.ids)
    oldest = now - selection.finished_within
    rows: list[bytes] = []
    for entry in _entries(book, wanted):
        job = entry.job
        if job.over and (not selection.states or (job.ended_at or 0.0) < oldest):
            continue
        if selection.fits(entry):
            rows.extend(_rows(entry, selection.tasks, states, wanted))
    return rows


async def list_history(book: Book, ledger: Ledger, selection: Selection) -> list[bytes]:
    """Encoded rows of jobs of any age, newest last."""
    wanted = _places(book, selection.ids)
    if selection.ids and not wanted:
        return []
    # States are looked at here, since a task's differ from its job's; the rest narrows the store's answer.
    narrow = not (selection.states - {ALL} or selection.partitions or selection.accounts or selection.qos)
    query = JobQuery(
        ids=tuple(wanted or ()),
        users=tuple(selection.users),
        clusters=tuple(selection.clusters),
        since=selection.since,
        until=selection.until,
        limit=selection.limit if narrow and not selection.names else None,
    )
    states = selection.states or frozenset((ALL,))
    rows: list[bytes] = []
    for stored in await ledger.find(query):
        entry = entry_of(stored)
        if selection.fits(entry):
            rows.extend(_rows(entry, selection.tasks, states, wanted))
    return rows[-selection.limit :] if selection.limit else rows


Places = dict[int, set[int] | None]
"""The places of the tasks that are wanted of each job; None for all."""


def _places(book: Book, ids: Iterable[str]) -> Places | None:
    result: Places = {}
    for text in ids:
        try:
            reference = parse_reference(text)
        except (InvalidRequest, NotFound):
            continue
        job_id = book.owner(reference.job_id)
        offset = reference.offset if job_id == reference.job_id else reference.job_id - job_id
        if offset is None:
            result[job_id] = None
        else:
            places = result.setdefault(job_id, set())
            if places is not None:
                places.add(offset)
    return result if ids else None


def _entries(book: Book, wanted: Places | None) -> Iterator[Entry]:
    if wanted is None:
        yield from book
    else:
        yield from (entry for entry in map(book.get, wanted) if entry is not None)


def _rows(entry: Entry, tasks: bool, states: frozenset[str], wanted: Places | None) -> Iterator[bytes]:
    job = entry.job
    places = wanted.get(job.id) if wanted else None
    if not tasks or len(job.tasks) == 1:
        if ALL in states or job.state.value in states:
            yield job_row(entry)
        return
    for offset, row in enumerate(task_rows(entry)):
        if (places is None or offset in places) and (ALL in states or job.tasks[offset].state.value in states):
            yield row
