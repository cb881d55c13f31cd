"""Native arrays: which launches are one submission, how their elements are found again, and how a throttle is shared.

Launches of one array that differ only in their index are one `sbatch --array`. The comment has one token for all
of them, made of the array's number and the launch's; with the index it names one launch of one element. Pure.
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
from overspan.bridge.model.ids import ArraySpec, parse_array

MOST = 5000
"""Elements of one native array at most, however many the site takes."""
DEFAULT_SIZE = 1001
"""MaxArraySize where the site does not say (slurm.conf(5)): indices are below it."""


class Key(NamedTuple):
    """What names a launch on the cluster: the token in the comment, and the index of an element."""

    token: str
    element: int | None = None


class Native(NamedTuple):
    """A native job: its id, that of the array for an element with that index."""

    job: int
    element: int | None = None


def is_element(launch: Launch) -> bool:
    """Whether the launch is an element of a native array: groups are allocations of their own."""
    return launch.job.element is not None and not is_group(launch.job)


def identify(launch: Launch) -> Key:
    """What names the launch on the cluster. An array has no launch of its own, so its number is free."""
    element = launch.job.element
    if element is None or not is_element(launch):
        return Key(launch.token)
    return Key(f"{_name_daemon(launch)}-{element.array}-{launch.job.launch}", element.index)


def earlier_keys(launch: Launch) -> list[Key]:
    """What named the job's earlier launches, newest first: a token ends with the launch's number."""
    token, index = identify(launch)
    head, dash, number = token.rpartition("-")
    if not dash or number != str(launch.job.launch):
        return []
    return [Key(f"{head}-{earlier}", index) for earlier in range(launch.job.launch - 1, -1, -1)]


def _name_daemon(launch: Launch) -> str:
    """The part of a token before the job's number."""
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
        """The jobs' numbers by index; None for what is no array."""
        if not is_element(self.first):
            return None
        return {launch.job.element.index: launch.job.id for launch in self.launches if launch.job.element is not None}

    def half(self) -> SubmissionUnit:
        """The first half of the launches, for a site that does not take all at once."""
        return SubmissionUnit(self.launches[: len(self.launches) // 2])


def make_units(launches: Sequence[Launch], likeness: Callable[[Launch], object], size: int) -> list[SubmissionUnit]:
    """Launches as submissions, in their order; `likeness` tells what of an element is not its own.

    The site refuses indices from `size` on: these go alone, so that no other element is refused with them.
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
    """The records of one answer of squeue's, by native job and by element: what waits is one record of many."""

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
        """The record that a job or an element is in; None where there is none."""
        if index is None:
            return self._jobs.get(native)
        found = self._elements.get((native, index))
        # A list that was cut off may have it.
        rests = self._rests.get(native, ()) if found is None else ()
        return found or next((record for indices, record in rests if index in indices or not indices), None)


def find_keys(records: Iterable[QueueRecord], keys: Iterable[Key]) -> dict[Key, list[QueueRecord]]:
    """The records that have the launches, by what names those."""
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
    """The native job of a record in which an element was found, or of one that is a job itself."""
    if index is None or record.array_job is None:
        return Native(record.het_job or record.raw)
    return Native(record.array_job, index)


def has_index(rest: str, index: int) -> bool:
    """Whether the waiting part of an array, as the accounting writes it, has that element."""
    try:
        return parse_array(rest).has(index)
    except ValueError:
        # Cut off by the accounting.
        return bool(rest)


# --- throttles -------------------------------------------------------------------------------------------------------


class ArrayShare(NamedTuple):
    """One native array of an array: its elements that run and that wait, and how many may run (None: any number)."""

    native: int
    running: int
    waiting: int
    limit: int | None


def count_shares(records: Iterable[QueueRecord]) -> dict[int, ArrayShare]:
    """The native arrays among the records that are not over, by id."""
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
    """How many more may run, whatever those that are there may still start."""
    return limit - sum(_most(share) for share in shares)


def _most(share: ArrayShare) -> int:
    everybody = share.running + share.waiting
    if not share.waiting:
        return share.running
    return everybody if share.limit is None else min(everybody, max(share.running, share.limit))


def share_limit(limit: int | None, shares: Mapping[int, ArrayShare]) -> dict[int, int]:
    """The throttles that have to change (0: none), so that all native arrays of one together keep to the limit.

    The oldest comes first. Slurm has no throttle of zero: an array with waiting elements gets at least one.
    """
    waiting = [share for _, share in sorted(shares.items()) if share.waiting]
    if limit is None:
        return {share.native: 0 for share in waiting if share.limit}
    room = limit - sum(share.running for share in shares.values())
    changes = {}
    for place, share in enumerate(waiting):
        last = place == len(waiting) - 1
        given = max(0, room) if last else min(max(0, room), share.waiting)
        room -= given
        wanted = limit if len(shares) == 1 else max(1, share.running + given)
        if wanted != share.limit:
            changes[share.native] = wanted
    return changes
