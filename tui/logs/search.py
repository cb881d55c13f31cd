"""A search in logs as far as it has come: what to ask next, and the lines that were found. Pure.

The daemon searches some of one log for each question, from its end. So the newest lines are found first, a search of a
large log can be left at any time, and what is written meanwhile is searched too.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from overspan.bridge.client.messages import FoundLine, LogFinds, LogSearch, StreamKey
from overspan.bridge.model.log_matching import compile_pattern
from overspan.tui.logs.document import LogDocument, LogRow
from overspan.tui.logs.window import LogLine

MOST = 20_000
"""Lines that a search holds: the newest ones that match."""
INVERSE = "!"


class _Span(NamedTuple):
    """Bytes of a log that are to be searched."""

    begin: int
    end: int


class SearchedLog:
    """One log: what is left to search, and what was found."""

    def __init__(self, size: int, place: int | None = None) -> None:
        """It is searched from `place` to its beginning first, then from its end."""
        place = size if place is None else min(place, size)
        self.left = [span for span in (_Span(place, size), _Span(0, place)) if span.end > span.begin]
        """The next one last."""
        self.end = self.size = size
        self.first = 0
        self.lines: dict[int, FoundLine] = {}
        self.trouble = ""

    def misses(self, begin: int, end: int) -> bool:
        """Whether some of these bytes are left."""
        return any(span.begin < end and begin < span.end for span in self.left)

    @property
    def missing(self) -> int:
        """Bytes that are left."""
        return sum(max(0, span.end - max(span.begin, self.first)) for span in self.left)


class LogSearching:
    """What is searched for: a regular expression; `!` in front wants lines without it."""

    def __init__(self, text: str, sizes: Mapping[StreamKey, int], place: int | None = None) -> None:
        """`place` is where the reader is, of a log that is read alone: what is older is searched first."""
        self.text = text
        self.inverted = text.startswith(INVERSE) and len(text) > 1
        self.pattern = text[1:] if self.inverted else text
        self.expression: re.Pattern[str] = compile_pattern(self.pattern)
        self.logs = {key: SearchedLog(size, place if len(sizes) == 1 else None) for key, size in sizes.items()}
        self._rows: list[LogRow] | None = None
        self._places: dict[StreamKey, int] = {}

    # --- what to ask --------------------------------------------------------------------------------------------------

    def next_question(self) -> tuple[StreamKey, LogSearch] | None:
        """Which log to search next, and where; None when all is searched."""
        if self.count >= MOST:
            return None
        found = [(span.end - log.end, key, span) for key, log in self.logs.items() for span in log.left[-1:]]
        if not found:
            return None
        # In turn: the one of which the least was searched.
        _, key, span = max(found, key=lambda one: one[0])
        return key, LogSearch(self.pattern, self.inverted, span.begin, span.end)

    def take(self, key: StreamKey, asked: LogSearch, finds: LogFinds) -> None:
        """Take an answer."""
        log = self.logs.get(key)
        if log is None:
            return
        self._rows = None
        log.first, log.trouble = max(log.first, finds.first), finds.trouble or log.trouble
        log.lines.update((line.begin, line) for line in finds.lines)
        log.left = [span for span in log.left if span != (asked.begin, asked.end)]
        if finds.begin > max(asked.begin, log.first) and not finds.trouble and finds.begin < (asked.end or inf):
            log.left.append(_Span(asked.begin, finds.begin))

    def fail(self, key: StreamKey, why: str) -> None:
        """A log cannot be searched any further."""
        log = self.logs.setdefault(key, SearchedLog(0))
        log.trouble, log.left = why, []

    def grow(self, key: StreamKey, settled: int, size: int) -> bool:
        """A log has `size` bytes now, whole lines up to `settled`; whether there is more to search."""
        log = self.logs.setdefault(key, SearchedLog(0))
        if size < log.size:
            self.logs[key] = log = SearchedLog(0)
            self._rows = None
        if size <= log.size:
            log.end = min(log.end, settled)
            return False
        log.left.append(_Span(min(log.end, settled), size))
        log.size, log.end = size, settled
        return True

    # --- what was found -----------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many lines were found."""
        return sum(len(log.lines) for log in self.logs.values())

    @property
    def share(self) -> float:
        """How much was searched, from 0 to 1."""
        size = sum(max(0, log.size - log.first) for log in self.logs.values())
        return 1 - sum(log.missing for log in self.logs.values()) / size if size else 1.0

    @property
    def trouble(self) -> str:
        """Why not all can be searched."""
        return next((log.trouble for log in self.logs.values() if log.trouble), "")

    def rows(self, document: LogDocument) -> list[LogRow]:
        """The lines that were found, in the order of the merged view."""
        if self._rows is None:
            self._places = {key: place for place, key in enumerate(self.logs)}
            found = [
                LogRow(key, LogLine(line.begin, line.end, line.data), document.find_time(key, line.end))
                for key, log in self.logs.items()
                for line in log.lines.values()
            ]
            self._rows = sorted(found, key=self._order)
        return self._rows

    def find_next(self, document: LogDocument, row: LogRow | None, older: bool) -> LogRow | None:
        """The line before, or behind, a row (None: all). None: there is none, or what is between is not searched."""
        rows = self.rows(document)
        if row is None:
            return rows[-1] if older and rows else None
        order = self._order(row)
        place = bisect_left(rows, order, key=self._order) - 1 if older else bisect_right(rows, order, key=self._order)
        found = rows[place] if 0 <= place < len(rows) else None
        if found is not None and found.key == row.key:
            begin, end = sorted((found.line.begin, row.line.begin))
            if self.logs[row.key].misses(begin, end):
                return None
        return found

    def _order(self, row: LogRow) -> tuple[float, int, int]:
        at = -inf if row.at is None or len(self.logs) < 2 else row.at
        return at, self._places.get(row.key, 0), row.line.begin
