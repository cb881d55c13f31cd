"""The queue: selects rows, as the encoded bytes that the API sends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from overspan.bridge.controller.core.references import parse_reference
from overspan.bridge.controller.core.registry import JobEntry, Registry
from overspan.bridge.controller.core.rights import is_within
from overspan.bridge.controller.core.rows import (
    cancelled_row,
    elements_row,
    is_folded,
    job_row,
    partition_of,
    send_rows,
    task_rows,
    waiting_indices,
    waiting_row,
)
from overspan.bridge.listings.rows import EXTENTS, WHOLE
from overspan.bridge.model.errors import InvalidRequest, NotFound
from overspan.bridge.model.ids import IndexRange, common_indices
from overspan.bridge.model.state_words import FOREIGN
from overspan.bridge.model.states import State

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
    extent: str = WHOLE
    """How much of each row, of EXTENTS."""
    inside: int = 0
    """The job whose commands ask, which see what is within its reach; 0 for a user's."""
    steps: bool = False
    """Whether the steps of the jobs are told too."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the rows have."""
        return EXTENTS[self.extent]

    @cached_property
    def filters(self) -> tuple[tuple[frozenset[str], Callable[[JobEntry], str]], ...]:
        """The filters of a job besides states and ids: the accepted values, and how to find the job's own."""
        known: tuple[tuple[frozenset[str], Callable[[JobEntry], str]], ...] = (
            (self.users, lambda entry: entry.user),
            (self.names, lambda entry: entry.job.labels.get("name", entry.job.spec.name)),
            (self.partitions, partition_of),
            (self.clusters, lambda entry: entry.cluster),
            (self.accounts, lambda entry: entry.job.spec.account),
            (self.qos, lambda entry: entry.job.spec.qos),
        )
        return tuple((wanted, find) for wanted, find in known if wanted)

    def fits(self, entry: JobEntry) -> bool:
        """Whether the job passes all but states and ids."""
        if not is_within(entry.job, self.inside):
            return False
        return not self.filters or all(find(entry) in wanted for wanted, find in self.filters)


def check_states(states: Iterable[str]) -> frozenset[str]:
    """States by full name or `all`; Slurm's compact codes too. Raises InvalidRequest."""
    codes = {state.code: state.value for state in State}
    result = set()
    for text in states:
        word = text.upper()
        word = codes.get(word, word)
        if word != ALL and word not in State.__members__ and word not in FOREIGN:
            raise InvalidRequest(f"{text!r} is no job state", remedy=f"states: {', '.join(State.__members__)}, all")
        result.add(word)
    return frozenset(result)


def list_queue(
    registry: Registry, selection: Selection, now: float, shown: list[JobEntry] | None = None
) -> list[bytes]:
    """Encoded rows of live jobs, and of those that finished a moment ago where they are asked for.

    An array has one row for all of its elements that are still pending, `array_waiting` tells which; none of its own.
    `shown` takes the jobs that are looked at.
    """
    states = selection.states or frozenset(state.value for state in State if not state.terminal)
    wanted = read_choices(registry, selection.ids)
    oldest = now - selection.finished_within
    view = RowView(selection, states, wanted, registry)
    rows: list[bytes] = []
    for entry in _entries(registry, wanted):
        job = entry.job
        if job.over and (not selection.states or (job.ended_at or 0.0) < oldest):
            continue
        if selection.fits(entry):
            rows.extend(view.rows(entry))
            if shown is not None:
                shown.append(entry)
    return send_rows(rows, selection.extent)


class RowChoice(NamedTuple):
    """What is wanted of a job: the places of its tasks, or indices of its elements; None for all."""

    offsets: frozenset[int] | None = None
    indices: tuple[IndexRange, ...] | None = None

    def join(self, other: RowChoice) -> RowChoice:
        """What is wanted by one of two ids."""
        offsets = None if self.offsets is None or other.offsets is None else self.offsets | other.offsets
        indices = None if self.indices is None or other.indices is None else self.indices + other.indices
        return RowChoice(offsets, indices)


RowChoices = Mapping[int, RowChoice]
_ANY = RowChoice()


class RowView(NamedTuple):
    """Which rows of an entry are shown."""

    selection: Selection
    states: frozenset[str]
    wanted: RowChoices | None
    registry: Registry
    past: bool = False
    """The history: it tells of single elements, too, that were cancelled before they became jobs."""

    def rows(self, entry: JobEntry) -> Iterator[bytes]:
        """The rows of a job that has passed the filters."""
        job = entry.job
        if job.array is not None:
            yield from self._array_rows(entry)
        elif job.element is None and self._choice(job.id).indices is not None:
            # N_i of a job that is no array.
            return
        elif not self.selection.tasks or len(job.tasks) == 1:
            if self.shows(job.state.value) and self._chooses_element(entry):
                yield job_row(entry)
        else:
            offsets = self._choice(job.id).offsets
            for offset, row in enumerate(task_rows(entry)):
                if (offsets is None or offset in offsets) and self.shows(job.tasks[offset].state.value):
                    yield row

    def _array_rows(self, entry: JobEntry) -> Iterator[bytes]:
        indices = self._choice(entry.job.id).indices
        if self.shows(State.PENDING.value):
            elements = self.registry.elements(entry.job.id)
            if indices is None:
                row = waiting_row(entry, elements)
            else:
                chosen = common_indices(waiting_indices(entry, elements), indices)
                row = elements_row(entry, chosen, elements)
            if row is not None:
                yield row
        if self.shows(State.CANCELLED.value) and (self.past or entry.job.state is State.CANCELLED):
            row = cancelled_row(entry)
            if row is not None:
                yield row

    def _chooses_element(self, entry: JobEntry) -> bool:
        """False for an element that its array's row stands for, and for one that the ids leave out."""
        element = entry.job.element
        if element is None:
            return True
        if self.wanted is not None and entry.job.id in self.wanted:
            # By its own id; with an index behind it that is no array's.
            return self.wanted[entry.job.id].indices is None
        indices = self._choice(element.array).indices
        if indices is not None and not any(element.index in part.values() for part in indices):
            return False
        # To its own commands it is shown alone: they do not see the array.
        return entry.job.id == self.selection.inside or not is_folded(entry)

    def shows(self, state: str) -> bool:
        """Whether rows in that state are shown."""
        return ALL in self.states or state in self.states

    def _choice(self, job_id: int) -> RowChoice:
        return _ANY if self.wanted is None else self.wanted.get(job_id, _ANY)


def read_choices(registry: Registry, ids: Iterable[str]) -> RowChoices | None:
    """What is wanted of each job that ids name; None where they name none in particular."""
    result: dict[int, RowChoice] = {}
    for text in ids:
        try:
            reference = parse_reference(text)
        except (InvalidRequest, NotFound):
            continue
        job_id = registry.owner(reference.job_id)
        offset = reference.offset if job_id == reference.job_id else reference.job_id - job_id
        choice = RowChoice(None if offset is None else frozenset((offset,)), reference.elements)
        result[job_id] = result[job_id].join(choice) if job_id in result else choice
    return result if ids else None


def _entries(registry: Registry, wanted: RowChoices | None) -> Iterator[JobEntry]:
    """The entries to look at, each once: those asked for, with the elements of arrays among them."""
    if wanted is None:
        yield from registry
        return
    found = {job_id: entry for job_id in wanted if (entry := registry.get(job_id)) is not None}
    for job_id in wanted:
        found.update((entry.job.id, entry) for entry in registry.elements(job_id).values())
    yield from found.values()


def place_of(entry: JobEntry) -> tuple[int, float]:
    """Where a job stands in the history: elements by index, and what is left of the array behind them, as in sacct."""
    element = entry.job.element
    return (entry.job.id, math.inf) if element is None else (element.array, element.index)
