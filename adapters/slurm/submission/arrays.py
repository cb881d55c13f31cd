"""Native arrays: joining launches into one submission, finding their elements again, sharing a throttle. Pure.

Launches of one array that differ only in their index become one `sbatch --array`. Their comment has one token for all,
made of the array's id and the launch's number; with the index it identifies one launch of one element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from overspan.adapters.contract import Launch
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.observation.outcomes import Phase, judge
from overspan.adapters.slurm.rendering.forms import is_group
from overspan.adapters.slurm.rendering.script import find_token
from overspan.bridge.model.access_documents import join_access
from overspan.bridge.model.ids import ArraySpec, parse_array

MOST = 5000
"""Elements of one native array at most, even if the site allows more."""
DEFAULT_SIZE = 1001
"""Slurm's default of MaxArraySize (slurm.conf(5)); indices are below it."""


class Key(NamedTuple):
    """The identity of a launch on the cluster: the token in the comment, and the index of an element."""

    token: str
    element: int | None = None


class Native(NamedTuple):
    """A native job by its id, or an element by its array's id and its index."""

    job: int
    element: int | None = None


def is_element(launch: Launch) -> bool:
    """Whether the launch becomes an element of a native array. Groups do not: each is an allocation of its own."""
    return launch.job.element is not None and not is_group(launch.job)


def identify(launch: Launch) -> Key:
    """The key of a launch. Elements use their array's id, which is free, since an array itself is never launched."""
    element = launch.job.element
    if element is None or not is_element(launch):
        return Key(launch.token)
    return Key(f"{_name_daemon(launch)}-{element.array}-{launch.job.launch}", element.index)


def earlier_keys(launch: Launch) -> list[Key]:
    """The keys of the earlier launches of the same tasks, newest first: a token ends with the launch's number."""
    token, index = identify(launch)
    head, dash, number = token.rpartition("-")
    if not dash or number != str(launch.job.launch):
        return []
    return [Key(f"{head}-{launch.job.launch - ago}", index) for ago in range(1, launch.job.relaunches + 1)]


def _name_daemon(launch: Launch) -> str:
    """The part of a token before the job's id: the installation."""
    ending = f"-{launch.job.id}-{launch.job.launch}"
    return launch.token.removesuffix(ending) if launch.token.endswith(ending) else launch.token


# --- submissions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SubmissionUnit:
    """The launches of one sbatch: one, or elements of an array that differ only in their index."""

    launches: tuple[Launch, ...]

    @property
    def first(self) -> Launch:
        """The launch that stands for all."""
        return self.launches[0]

    @property
    def elements(self) -> dict[int, int] | None:
        """Job ids by index; None for no array."""
        if not is_element(self.first):
            return None
        return {launch.job.element.index: launch.job.id for launch in self.launches if launch.job.element is not None}

    @property
    def access(self) -> str:
        """How commands inside reach the daemon: for elements one document with the token of each."""
        if not is_element(self.first):
            return self.first.access
        return join_access(
            {launch.job.element.index: launch.access for launch in self.launches if launch.job.element is not None}
        )

    def half(self) -> SubmissionUnit:
        """The first half of the launches, for a site that refuses the whole unit for a limit."""
        return SubmissionUnit(self.launches[: len(self.launches) // 2])


def make_units(launches: Sequence[Launch], likeness: Callable[[Launch], object], size: int) -> list[SubmissionUnit]:
    """Join launches into submissions, in order. Elements of one array with equal `likeness` go together.

    The site refuses indices from `size` on, so these are submitted alone: no other element is refused with them.
    """
    units: list[list[Launch]] = []
    open_units: dict[object, list[Launch]] = {}
    for launch in launches:
        unit: list[Launch] = []
        if is_element(launch) and launch.job.element is not None and launch.job.element.index < size:
            kind = (identify(launch).token, launch.throttle, likeness(launch))
            unit = open_units.setdefault(kind, unit)
            if len(unit) >= MOST:
                unit = open_units[kind] = []
        if not unit:
            units.append(unit)
        unit.append(launch)
    return [SubmissionUnit(tuple(unit)) for unit in units]


# --- finding ---------------------------------------------------------------------------------------------------------


class Lookup:
    """The records of one answer of squeue, by native job and by element. Waiting elements may share one record."""

    def __init__(self, records: Iterable[QueueRecord]) -> None:
        self.records = tuple(records)
        self._jobs: dict[int, QueueRecord] = {}
        self._elements: dict[tuple[int, int], QueueRecord] = {}
        self._rests: dict[int, list[tuple[frozenset[int], QueueRecord]]] = {}
        for record in self.records:
            self._jobs[record.raw] = record
            if record.array_job is not None and record.array_index is not None:
                self._elements[record.array_job, record.array_index] = record
            elif record.array_job is not None and record.waiting is not None:
                indices = frozenset(record.waiting.indices())
                self._rests.setdefault(record.array_job, []).append((indices, record))

    def find(self, native: int, index: int | None = None) -> QueueRecord | None:
        """The record of a job, or the one that contains an element; None if there is none."""
        if index is None:
            return self._jobs.get(native)
        found = self._elements.get((native, index))
        # An empty list of indices was cut off, and may contain any element.
        rests = self._rests.get(native, ()) if found is None else ()
        return found or next((record for indices, record in rests if index in indices or not indices), None)


def find_keys(records: Iterable[QueueRecord], keys: Iterable[Key]) -> dict[Key, list[QueueRecord]]:
    """The records of these launches, by key."""
    found: dict[Key, list[QueueRecord]] = {key: [] for key in keys}
    tokens = {key.token for key in found}
    by_token: dict[str, list[QueueRecord]] = {}
    for record in records:
        token = find_token(record.comment)
        if token in tokens:
            by_token.setdefault(token, []).append(record)
    lookups: dict[str, dict[int, Lookup]] = {}
    for key, place in found.items():
        if key.element is None:
            place += by_token.get(key.token, [])
            continue
        if key.token not in lookups:
            arrays = {record.array_job for record in by_token.get(key.token, ()) if record.array_job is not None}
            lookups[key.token] = {
                array: Lookup(one for one in by_token[key.token] if one.array_job == array) for array in sorted(arrays)
            }
        matches = (lookup.find(array, key.element) for array, lookup in lookups[key.token].items())
        place += [record for record in matches if record is not None]
    return found


def native_of(record: QueueRecord, index: int | None) -> Native:
    """The native job of a record, or the element with that index in it."""
    if index is None or record.array_job is None:
        return Native(record.het_job or record.raw)
    return Native(record.array_job, index)


def has_index(rest: str, index: int) -> bool:
    """Whether the accounting's list of an array's waiting elements contains that index."""
    try:
        return parse_array(rest).has(index)
    except ValueError:
        # The accounting has cut the list off, so it may contain any index.
        return bool(rest)


# --- throttles -------------------------------------------------------------------------------------------------------


class ArrayShare(NamedTuple):
    """One native array of an array: its running and waiting elements, and its throttle (None: no limit)."""

    native: int
    running: int
    waiting: int
    limit: int | None


def count_shares(records: Iterable[QueueRecord]) -> dict[int, ArrayShare]:
    """The live native arrays among the records, by id."""
    shares: dict[int, ArrayShare] = {}
    for record in records:
        phase = judge(record.state).phase
        if record.array_job is None or phase in (Phase.ENDED, Phase.REQUEUED):
            continue
        share = shares.get(record.array_job) or ArrayShare(record.array_job, 0, 0, None)
        if phase is Phase.QUEUED:
            waiting = record.waiting or ArraySpec(())
            share = share._replace(
                waiting=share.waiting + max(1, waiting.size()), limit=waiting.throttle or share.limit
            )
        else:
            share = share._replace(running=share.running + 1)
        shares[record.array_job] = share
    return shares


def find_room(limit: int, shares: Iterable[ArrayShare]) -> int:
    """How many more elements may be submitted, if the native arrays start as many as they can."""
    return limit - sum(_most(share) for share in shares)


def _most(share: ArrayShare) -> int:
    total = share.running + share.waiting
    if not share.waiting:
        return share.running
    return total if share.limit is None else min(total, max(share.running, share.limit))


def share_limit(limit: int | None, shares: Mapping[int, ArrayShare]) -> dict[int, int]:
    """The throttles to change (0: no throttle), by native array, so that together they keep to the limit.

    The oldest native array comes first. Slurm has no throttle of zero, so one with waiting elements gets at least one.
    """
    waiting = [share for _, share in sorted(shares.items()) if share.waiting]
    if limit is None:
        return {share.native: 0 for share in waiting if share.limit}
    room = limit - sum(share.running for share in shares.values())
    changes = {}
    for place, share in enumerate(waiting):
        last = place == len(waiting) - 1
        size = max(0, room) if last else min(max(0, room), share.waiting)
        room -= size
        wanted = limit if len(shares) == 1 else max(1, share.running + size)
        if wanted != share.limit:
            changes[share.native] = wanted
    return changes
