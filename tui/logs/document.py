"""What is read of one or several logs, as one sequence of lines: merged by the times at which they came. Pure.

Of each log there is a window. A line of one is shown only where the windows of all others reach, so that the order
does not change when more is read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple, overload

from overspan.bridge.client.log_reading import find_since, key_of, order_pieces
from overspan.bridge.client.messages import LogPart, Stream, StreamKey
from overspan.tui.logs.window import KEPT, PART, LogLine, LogWindow, Wanted

UNKNOWN = -inf
"""The time of what was there before the first look."""
LEAST_PART = 16 * 1024
LEAST_KEPT = 64 * 1024
MERGED_KEPT = 2 * 1024 * 1024
"""Bytes of all logs that are merged: their lines are sorted anew with each change."""


class LogRow(NamedTuple):
    """A line of one of the logs; `at` is when it came (epoch seconds), where that is known."""

    key: StreamKey
    line: LogLine
    at: float | None = None
    number: int | None = None

    def is_same(self, other: LogRow) -> bool:
        """Whether they are the same line, which may have grown."""
        same = self.key == other.key and self.line.mark == other.line.mark
        return same and (self.line.begin == other.line.begin or 0 < self.line.end == other.line.end)


class WindowRows(Sequence[LogRow]):
    """The lines of a window: each is made when it is looked at, since few of them are."""

    def __init__(self, key: StreamKey, window: LogWindow, marks: Sequence[tuple[float, int]]) -> None:
        self._key = key
        # A copy: what is on the screen is to stay the same until it is drawn anew.
        self._lines = window.lines.copy()
        # Of a line that goes on behind the window, the end is not known.
        self._tail = None if window.behind else window.tail
        self._count = len(window.lines) + (self._tail is not None)
        self._marks = marks
        self._before = window.before
        self._remarks = [place for place, line in enumerate(window.lines) if line.mark]

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> LogRow: ...
    @overload
    def __getitem__(self, place: slice) -> list[LogRow]: ...
    def __getitem__(self, place: int | slice) -> LogRow | list[LogRow]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(self._count))]
        if not -self._count <= place < self._count:
            raise IndexError(place)
        place %= self._count
        line = self._lines[place] if place < len(self._lines) or self._tail is None else self._tail
        number = None
        if self._before is not None and not line.mark:
            number = self._before + place + 1 - bisect_left(self._remarks, place)
        return LogRow(self._key, line, find_mark(self._marks, line.end), number)


def find_mark(marks: Sequence[tuple[float, int]], end: int) -> float | None:
    """When a log had so many bytes."""
    at = marks[min(bisect_left(marks, end, key=_size_of), len(marks) - 1)][0] if marks else UNKNOWN
    return None if at == UNKNOWN else at


def _end_of(line: LogLine) -> int:
    return line.end


def _size_of(mark: tuple[float, int]) -> int:
    return mark[1]


class Asked(NamedTuple):
    """A part to read of one of the logs."""

    key: StreamKey
    wanted: Wanted


class LogDocument:
    """The windows, and the lines that they show together."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self.windows: dict[StreamKey, LogWindow] = {}
        self._marks: dict[StreamKey, list[tuple[float, int]]] = {}
        self._streams: dict[StreamKey, Stream] = {}
        count = len(streams)
        self._part = max(LEAST_PART, PART // max(1, count))
        self._kept = KEPT if count < 2 else max(LEAST_KEPT, MERGED_KEPT // count)
        self._rows: Sequence[LogRow] = ()
        self._versions: tuple[int, ...] | None = None
        for stream in streams:
            self.add(stream)

    @property
    def merged(self) -> bool:
        """Whether there are several logs."""
        return len(self.windows) > 1

    @property
    def size(self) -> int:
        """Bytes of all logs."""
        return sum(window.size for window in self.windows.values())

    @property
    def behind(self) -> int:
        """Bytes that are not read yet, behind all that is."""
        return sum(window.behind for window in self.windows.values())

    def add(self, stream: Stream, at: float | None = None) -> LogWindow:
        """One more log; of one that was not there before, what there is came at that time."""
        key = key_of(stream)
        window = self.windows[key] = LogWindow(self._part, self._kept)
        window.size = stream.size
        self._streams[key] = stream
        self._marks[key] = list(stream.marks or ([(at, stream.size)] if at is not None and stream.size else ()))
        return window

    def note_size(self, stream: Stream, now: float) -> None:
        """What the daemon tells of a log's size; what is new came by now."""
        key = key_of(stream)
        # The cluster's clock may be ahead of the daemon's.
        now = max([now, *(marks[-1][0] for marks in self._marks.values() if marks)])
        if key not in self.windows:
            self.add(stream, now)
        marks = self._marks[key]
        if marks and stream.size < marks[-1][1]:
            marks.clear()
        if not marks and self.windows[key].size:
            marks.append((UNKNOWN, self.windows[key].size))
        if stream.size > max(self.windows[key].size, marks[-1][1] if marks else 0):
            marks.append((now, stream.size))
        if stream.size > self.windows[key].size:
            self.windows[key].size = stream.size
        self._streams[key] = stream._replace(marks=tuple(marks))

    # --- what to read -------------------------------------------------------------------------------------------------

    def want_end(self) -> list[Asked]:
        """Begin anew at the end."""
        return [Asked(key, window.want_end(window.size)) for key, window in self.windows.items()]

    def want_begin(self) -> list[Asked]:
        """Begin anew at the beginning."""
        return [Asked(key, window.want_at(window.first, window.size)) for key, window in self.windows.items()]

    def want_place(self, key: StreamKey, offset: int) -> list[Asked]:
        """Begin anew around a place of one log, and where the others were at that time."""
        if not self.merged:
            window = self.windows[key]
            return [Asked(key, window.want_at(max(0, offset - self._part // 2), window.size))]
        at = self.find_time(key, offset)
        return self.want_time(at) if at is not None else self._want_parts(offset / max(1, self.windows[key].size))

    def want_percent(self, percent: float) -> list[Asked]:
        """Begin anew where so much of all output was there."""
        if not self.merged:
            return self._want_parts(percent / 100)
        left = self.size * percent / 100
        for piece in order_pieces(self.streams, dict.fromkeys(self._streams, 0)):
            left -= piece.end - piece.begin
            if left <= 0 and piece.at is not None:
                return self.want_time(piece.at)
        return self._want_parts(percent / 100)

    def want_time(self, at: float) -> list[Asked]:
        """Begin anew at what came since a time."""
        return [
            Asked(key, window.want_at(max(0, find_since(self._streams[key], at) - self._part // 2), window.size))
            for key, window in self.windows.items()
        ]

    def want_before(self) -> list[Asked]:
        """What comes before the first line; nothing at the beginning."""
        found = [(self._first_time(key), key) for key, window in self.windows.items() if window.want_before()]
        if not found:
            return []
        latest = max(at for at, _ in found)
        return [Asked(key, wanted) for at, key in found if at >= latest and (wanted := self.windows[key].want_before())]

    def want_after(self) -> list[Asked]:
        """What comes behind the last line."""
        found = [(self._last_time(key), key) for key, window in self.windows.items() if window.behind]
        if not found:
            return []
        earliest = min(at for at, _ in found)
        return [Asked(key, self.windows[key].want_after()) for at, key in found if at <= earliest]

    def want_growth(self) -> list[Asked]:
        """All that was written since."""
        return [Asked(key, window.want_after()) for key, window in self.windows.items() if window.behind]

    def _want_parts(self, share: float) -> list[Asked]:
        return [
            Asked(key, window.want_at(int(window.size * share), window.size)) for key, window in self.windows.items()
        ]

    def take(self, parts: Iterable[tuple[StreamKey, LogPart]]) -> None:
        """Take what was read."""
        for key, part in parts:
            if key in self.windows:
                self.windows[key].take(part.offset, part.data, part.size, part.gap)

    def count_behind(self, seen: Mapping[StreamKey, int]) -> int:
        """How many lines that are here end behind these places."""
        return sum(
            len(window.lines) - bisect_right(window.lines, seen.get(key, 0), key=_end_of)
            for key, window in self.windows.items()
        )

    def mark(self, text: str) -> None:
        """Put a remark below all that there is."""
        newest = max(self.windows, key=self._last_time, default=None)
        if newest is not None:
            self.windows[newest].mark(text)

    # --- what is shown ------------------------------------------------------------------------------------------------

    def rows(self) -> Sequence[LogRow]:
        """The lines in their order; the same object while nothing changes."""
        versions = tuple(window.version for window in self.windows.values())
        if versions != self._versions:
            self._versions = versions
            parts = [WindowRows(key, window, self._marks[key]) for key, window in self.windows.items()]
            self._rows = self._merge(parts) if self.merged else next(iter(parts), ())
        return self._rows

    def _merge(self, parts: Sequence[WindowRows]) -> list[LogRow]:
        """Lines by their times, as far as all windows reach."""
        floor = max((self._first_time(key) for key, one in self.windows.items() if one.want_before()), default=-inf)
        ceiling = min((self._last_time(key) for key, one in self.windows.items() if one.behind), default=inf)
        found = [row for part in parts for row in part if floor <= _time_of(row) <= ceiling]
        found.sort(key=_time_of)
        return found

    def find_time(self, key: StreamKey, end: int) -> float | None:
        """When a line that ends there came."""
        return find_mark(self._marks.get(key, ()), end)

    def _first_time(self, key: StreamKey) -> float:
        window = self.windows[key]
        line = window.lines[0] if window.lines else window.tail
        at = self.find_time(key, line.end if line is not None else window.begin)
        return -inf if at is None else at

    def _last_time(self, key: StreamKey) -> float:
        window = self.windows[key]
        at = self.find_time(key, window.end)
        return -inf if at is None else at

    def locate(self, row: LogRow) -> float:
        """Where a line is, as a share of its log."""
        window = self.windows.get(row.key)
        return row.line.end / window.size if window is not None and window.size else 1.0

    @property
    def streams(self) -> list[Stream]:
        """The logs with something in them, and what is known of when they grew."""
        return [stream for stream in self._streams.values() if stream.size]

    @property
    def whole(self) -> bool:
        """Whether all of all logs is here."""
        return not self.behind and not any(window.want_before() for window in self.windows.values())

    @property
    def timed(self) -> bool:
        """Whether it is known of all logs when they grew."""
        return all(
            not window.size or (self._marks[key] and self._marks[key][0][0] != UNKNOWN)
            for key, window in self.windows.items()
        )

    def sizes(self) -> Mapping[StreamKey, int]:
        """The size of each log."""
        return {key: window.size for key, window in self.windows.items()}


def _time_of(row: LogRow) -> float:
    return -inf if row.at is None else row.at
