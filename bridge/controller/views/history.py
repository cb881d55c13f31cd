"""The history: rows of jobs of any age, page by page, so that nothing of what was read stays in memory."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

from overspan.bridge.controller.core.history_rows import decode_history_rows, make_history_rows, read_row
from overspan.bridge.controller.core.registry import JobEntry, Registry, split_handle
from overspan.bridge.controller.core.repository import Repository
from overspan.bridge.controller.core.rows import send_rows
from overspan.bridge.controller.views.listing import ALL, RowView, Selection, place_of, read_choices
from overspan.bridge.listings.rows import COLUMNS
from overspan.bridge.model.errors import StoreFailed
from overspan.bridge.store.records import HistoryRows, JobQuery

_log = logging.getLogger(__name__)

PAGE = 500
"""Jobs that are read at once."""

Handles = dict[str, dict[str, int]]
"""The jobs of launches, by cluster and handle."""
Lines = tuple[tuple[int, float], list[bytes]]
"""Where the rows of a job stand, and the rows."""

_FILTERED = {"names": "name", "partitions": "partition", "clusters": "cluster", "accounts": "account", "qos": "qos"}
"""What a selection asks of a job, and the columns that tell it."""
_STATE, _INDEX = COLUMNS.index("state"), COLUMNS.index("array_index")


async def list_history(
    registry: Registry, repository: Repository, selection: Selection, shown: Handles | None = None
) -> AsyncIterator[list[bytes]]:
    """Encoded rows of jobs of any age, a page at a time, newest last; an array's own row stands behind its elements.

    `shown` takes the launches of the jobs that are shown. Raises StoreFailed, also in the middle.
    """
    pages = (
        _list_named(registry, repository, selection, shown)
        if selection.ids
        else _list_all(registry, repository, selection, shown)
    )
    if selection.limit is None:
        async for rows in pages:
            yield send_rows(rows, selection.extent)
        return
    newest: deque[bytes] = deque(maxlen=selection.limit)
    async for rows in pages:
        newest.extend(rows)
    yield send_rows(list(newest), selection.extent)


async def _list_named(
    registry: Registry, repository: Repository, selection: Selection, shown: Handles | None
) -> AsyncIterator[list[bytes]]:
    """The rows of the jobs that ids name, with the elements of arrays among them."""
    wanted = read_choices(registry, selection.ids)
    if not wanted:
        return
    entries = [registry.read(stored) for stored in await repository.find(_make_query(selection, tuple(wanted)))]
    arrays = tuple(entry.job.id for entry in entries if entry.job.array is not None)
    if arrays:
        entries += [registry.read(stored) for stored in await repository.find(JobQuery(arrays=arrays))]
    view = RowView(selection, selection.states or frozenset((ALL,)), wanted, registry, past=True)
    rows: list[bytes] = []
    for entry in sorted(entries, key=place_of):
        if selection.fits(entry):
            rows.extend(view.rows(entry))
            _note(shown, entry.cluster, entry.handle, entry.job.id)
    yield rows


async def _list_all(
    registry: Registry, repository: Repository, selection: Selection, shown: Handles | None
) -> AsyncIterator[list[bytes]]:
    """The rows of all jobs that are asked for."""
    page = _Page(selection, RowView(selection, selection.states or frozenset((ALL,)), None, registry, past=True), shown)
    ids = await repository.find_ids(_make_query(selection, ()))
    array: int | None = None
    held: list[Lines] = []
    for begin in range(0, len(ids), PAGE):
        accounts = await repository.history_rows(ids[begin : begin + PAGE])
        kept = {each.id: None if selection.inside else decode_history_rows(each.rows) for each in accounts}
        unread = tuple(number for number, rows in kept.items() if rows is None)
        found = await repository.find(JobQuery(ids=unread)) if unread else ()
        entries = {stored.job.id: registry.read(stored) for stored in found}
        if not selection.inside:
            await _keep(repository, entries.values())
        rows: list[bytes] = []
        for account in accounts:
            belongs = account.id if account.array_id is None else account.array_id
            if belongs != array:
                rows += _sort(held)
                array, held = belongs, []
            known, entry = kept[account.id], entries.get(account.id)
            if known is not None:
                held.append(page.read(account, known))
            elif entry is not None:
                held.append(page.make(entry))
        yield rows
    yield _sort(held)


async def _keep(repository: Repository, entries: Iterable[JobEntry]) -> None:
    """Store the rows of jobs that ended under an earlier version, so that their facts are decoded only once."""
    made = [(entry.job.id, entry.job.version, make_history_rows(entry)) for entry in entries]
    accounts = [(number, version, rows) for number, version, rows in made if rows is not None]
    try:
        if accounts:
            await repository.keep_history_rows(accounts)
    except StoreFailed as error:
        _log.warning("rows of the history are not kept: %s", error.message)


class _Page:
    """What is shown of single jobs."""

    def __init__(self, selection: Selection, view: RowView, shown: Handles | None) -> None:
        self.selection = selection
        self.view = view
        self.shown = shown
        self.filters = [
            (wanted, COLUMNS.index(column))
            for name, column in _FILTERED.items()
            if (wanted := getattr(selection, name))
        ]
        self.looks = bool(self.filters) or ALL not in view.states

    def make(self, entry: JobEntry) -> Lines:
        """The rows of a job whose facts were read."""
        if not self.selection.fits(entry):
            return place_of(entry), []
        _note(self.shown, entry.cluster, entry.handle, entry.job.id)
        return place_of(entry), list(self.view.rows(entry))

    def read(self, account: HistoryRows, known: Sequence[bytes]) -> Lines:
        """The rows of a job that is over, as they were kept: its own first, then those of its tasks."""
        whole = read_row(known[0]) if self.looks or account.array_id is not None else []
        place = (account.id, float("inf")) if account.array_id is None else (account.array_id, whole[_INDEX])
        if any(whole[column] not in wanted for wanted, column in self.filters):
            return place, []
        _note(self.shown, account.cluster, split_handle(account.handle)[1], account.id)
        rows = known[1:] or known[:1] if self.selection.tasks else known[:1]
        return place, list(self._choose(rows) if self.looks else rows)

    def _choose(self, rows: Sequence[bytes]) -> Iterator[bytes]:
        return (row for row in rows if self.view.shows(read_row(row)[_STATE]))


def _make_query(selection: Selection, ids: tuple[int, ...]) -> JobQuery:
    # States are looked at here, since a task's differ from its job's; the rest narrows the store's answer.
    narrow = not (selection.states - {ALL} or selection.partitions or selection.accounts or selection.qos)
    return JobQuery(
        ids=ids,
        users=tuple(selection.users),
        clusters=tuple(selection.clusters),
        since=selection.since,
        until=selection.until,
        limit=selection.limit if narrow and not selection.names else None,
    )


def _note(shown: Handles | None, cluster: str, handle: str, number: int) -> None:
    if shown is not None and handle:
        shown.setdefault(cluster, {})[handle] = number


def _sort(held: list[Lines]) -> list[bytes]:
    """The rows of an array's elements by index, those of what is left of it behind them."""
    held.sort(key=_first)
    return [row for _, rows in held for row in rows]


def _first(lines: Lines) -> Any:
    return lines[0]
