"""squeue's default table, written by the daemon: a cache of lines, each made once a change.

The texts are those of the command's own columns, so both say the same.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import NamedTuple

from overspan.bridge.controller.controller import Controller
from overspan.bridge.controller.views.listing import Selection
from overspan.bridge.listings.fields import DEFAULT_FORMAT, LETTERS
from overspan.bridge.listings.layout import parse_letters, render, write_header
from overspan.bridge.listings.rows import CORE, JobRow, rows_from_document
from overspan.bridge.listings.sorting import DEFAULT_SORT, sort_rows
from overspan.bridge.listings.texts import BITSTRING

_LAYOUT = parse_letters(DEFAULT_FORMAT, LETTERS)
_KEPT = 8
"""Selections whose order is kept."""
_SPARE = 1000
"""Lines that may be kept beside those of the jobs in memory."""


class _TableLine(NamedTuple):
    """A row, and its line as JSON; None for one that tells how long it has run, which is written each time."""

    row: JobRow
    text: bytes | None


class QueueLines:
    """Writes the queue's table for the jobs of a controller."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._lines: dict[bytes, _TableLine] = {}
        self._orders: dict[Selection, tuple[int, list[_TableLine]]] = {}

    def write(self, selection: Selection) -> bytes | None:
        """The listing with `header` and `lines` in place of rows; None where the command has to write it itself."""
        if os.environ.get(BITSTRING):
            # What this process was started with is not what the user of the command has set.
            return None
        now = self._controller.clock()
        lines = [line.text or _write(line.row, now) for line in self._order(replace(selection, extent="core"), now)]
        head = self._controller.describe_listing((), now) | {"header": write_header(_LAYOUT)}
        return json.dumps(head).encode()[:-1] + b', "lines":[' + b",".join(lines) + b"]}"

    def _order(self, selection: Selection, now: float) -> list[_TableLine]:
        """The lines as squeue sorts them."""
        revision = self._controller.settle_queue(now)
        written, order = self._orders.get(selection, (-1, []))
        # Jobs that are over leave the listing by the clock.
        if revision == written and not selection.states:
            return order
        order = self._sort([self._line(row, now) for row in self._controller.list_rows(selection, now)], now)
        self._orders.pop(selection, None)
        self._orders[selection] = (revision, order)
        if len(self._orders) > _KEPT:
            del self._orders[next(iter(self._orders))]
        if len(self._lines) > 2 * self._controller.count_jobs() + _SPARE:
            self._lines.clear()
        return order

    def _sort(self, lines: list[_TableLine], now: float) -> list[_TableLine]:
        by_row = {id(line.row): line for line in lines}
        return [by_row[id(row)] for row in sort_rows([line.row for line in lines], DEFAULT_SORT, now)]

    def _line(self, encoded: bytes, now: float) -> _TableLine:
        line = self._lines.get(encoded)
        if line is None:
            (row,) = rows_from_document(CORE, [json.loads(encoded)])
            runs = row.started_at is not None and row.ended_at is None and row.state != "PENDING"
            line = self._lines[encoded] = _TableLine(row, None if runs else _write(row, now))
        return line


def _write(row: JobRow, now: float) -> bytes:
    return json.dumps(render(_LAYOUT, [row], now, header=False)[:-1], ensure_ascii=False).encode()
