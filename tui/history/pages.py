"""The pages of the history that were read: newest first, older ones on demand, each job once. Pure.

The daemon selects by time of submission and keeps the newest by id. Both orders agree for most jobs, but not for
elements of arrays and for imported jobs, which are older than their ids. So pages overlap: each asks for what was
submitted up to the latest of the oldest jobs that are known, and one that brings nothing new is asked again at twice
the size.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

from overspan.bridge.client.records import JobFilter, Listing
from overspan.bridge.listings.rows import JobRow

PAGE = 200
"""Jobs in a page."""
_OVERLAP = 20
"""How many of the oldest jobs are looked at for where the next page begins: one of them is older than none before."""

_ALL = JobFilter()
_Part = tuple[int | None, int | None, bool]


class HistoryPages:
    """What is known of the history of a filter; `complete`: nothing older is there."""

    def __init__(self, wanted: JobFilter = _ALL) -> None:
        self.wanted = wanted
        self.complete = False
        self._rows: dict[int, dict[_Part, JobRow]] = {}
        self._limit = PAGE
        self._until: float | None = None
        self._oldest = 0
        """The least id of a job that is no element: all that is newer was read."""

    def __len__(self) -> int:
        return len({row.family for row in self.rows()})

    def ask_newest(self) -> JobFilter:
        """What asks for the newest page."""
        return self.wanted._replace(tasks=True, limit=PAGE)

    def ask_older(self) -> JobFilter:
        """What asks for the page before those that are known."""
        until = self._until if self._until is not None else self.wanted.until
        return self.wanted._replace(tasks=True, until=until, limit=self._limit)

    def take_newest(self, listing: Listing) -> bool:
        """Take the newest page; where more than it has come since the last one, what is older is read anew.

        Whether an older one has to be asked for at once, to know whether there is any.
        """
        before = set(self._rows)
        if before and len(listing.rows) >= PAGE and not before & {row.id for row in listing.rows}:
            self._rows.clear()
            self.complete, self._until, self._limit = False, None, PAGE
        first = not self._rows
        self._put(listing.rows)
        if first:
            self.complete = len(listing.rows) * 2 < PAGE
            self._move()
        return first and not self.complete and len(listing.rows) < PAGE

    def take_older(self, listing: Listing) -> bool:
        """Take an older page; whether another one has to be asked for at once: it brought nothing new, or is short."""
        new = self._put(listing.rows)
        # A job that waits in an array only has no row of its own, but each array has at least one other row.
        asked, before = self._limit, self._until
        self.complete = len(listing.rows) * 2 < asked
        self._move()
        self._limit = PAGE if self._until != before else self._limit * 2
        return not self.complete and (not new or len(listing.rows) < asked)

    def is_partial(self, family: int) -> bool:
        """Whether elements of an array may be on the next page."""
        return not self.complete and family < self._oldest

    def rows(self) -> list[JobRow]:
        """The rows of all jobs that are known in full: of the oldest group, tasks may be on the next page."""
        return [row for parts in self._rows.values() if self._is_whole(parts.values()) for row in parts.values()]

    def _is_whole(self, parts: Iterable[JobRow]) -> bool:
        return self.complete or min(row.task_offset or 0 for row in parts) == 0

    def _put(self, rows: Sequence[JobRow]) -> bool:
        """Keep rows; whether one of them was unknown."""
        new = False
        for row in rows:
            parts = self._rows.setdefault(row.id, {})
            part = (row.task_offset, row.array_index, bool(row.array_waiting))
            new = new or part not in parts
            parts[part] = row
        return new

    def _move(self) -> None:
        """Find where the next page begins."""
        plain = (row for parts in self._rows.values() for row in parts.values() if row.array_index is None)
        oldest = heapq.nsmallest(_OVERLAP, plain, key=lambda row: row.id)
        self._oldest = oldest[0].id if oldest else 0
        times = [row.submitted_at for row in oldest if row.submitted_at is not None]
        if times:
            # The daemon's bound is not part of what it selects.
            self._until = math.nextafter(max(times), math.inf)
