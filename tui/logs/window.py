"""A window on a log of any size: the bytes around the place that is read, as lines; the rest stays where it is.

The window never asks for anything. It says which part it wants next (`want_*`), and takes what was read (`take`). It
holds at most `KEPT` bytes: what is farthest from the reading end goes first. A line that was cut by the border of a
part belongs to the part that has its beginning; of a line that is longer than a part, each part is a line of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from overspan.bridge.model.log_matching import LONGEST, keep_last
from overspan.tui.logs.lines import show_line

PART = 256 * 1024
"""Bytes that are asked for at once."""
KEPT = 8 * 1024 * 1024
LINE_COST = 100
"""Bytes that a line counts for, beside its own."""
OVERLAP = 32
"""Bytes that are read again with what follows: other ones are those of another file."""
TRUNCATED = "the log was truncated, or begun anew"


class Wanted(NamedTuple):
    """A part of the log to read."""

    offset: int
    limit: int


class LogLine(NamedTuple):
    """A line: where it begins and ends in the log, and its first bytes.

    `bar`: a part was overwritten, as by a progress bar, and is left out. `mark` is the viewer's message, not the log's.
    """

    begin: int
    end: int
    data: bytes = b""
    bar: bool = False
    mark: str = ""

    @property
    def text(self) -> str:
        """The line as it is shown."""
        return self.mark or show_line(self.data)


def find_place(offset: int, part: int = 0) -> Wanted:
    """The part that begins at the first line from there on: the byte before tells whether a line begins there."""
    begin = max(0, offset - 1)
    return Wanted(begin, (part or PART) + offset - begin if offset > 0 else part or PART)


class LogWindow:
    """The lines from `begin` to `end`, byte offsets of a log of `size` bytes."""

    def __init__(self, part: int = 0, kept: int = 0) -> None:
        self._part, self._kept = part or PART, kept or KEPT
        self.version = 0
        """Grows with each change of the lines."""
        self._clear(0, 0)
        self.first = 0
        """The first byte that there is still."""

    def _clear(self, begin: int, size: int) -> None:
        self.lines: list[LogLine] = []
        self.version += 1
        self.begin = self.end = self._open_begin = begin
        self.size = size
        self.before: int | None = None if begin else 0
        """How many lines of the log come before the first one; None where that is not known."""
        self._open, self._bar = b"", False
        self._held = 0
        self._old = 0
        """Lines in front that are of an earlier file."""
        self._inside = begin > 0
        self._last = b""

    @property
    def tail(self) -> LogLine | None:
        """The last line, while it has no end yet."""
        return LogLine(self._open_begin, self.end, self._open, self._bar) if self._open else None

    @property
    def settled(self) -> int:
        """Where the line begins that may still grow."""
        return self.size if self.behind else self._open_begin

    @property
    def behind(self) -> int:
        """Bytes of the log after the window."""
        return max(0, self.size - self.end)

    @property
    def full(self) -> bool:
        """Whether it holds as much as it may."""
        return self._held >= self._kept

    def want_end(self, size: int) -> Wanted:
        """Begin anew at the log's end."""
        return self.want_at(max(0, size - self._part), size)

    def want_at(self, offset: int, size: int) -> Wanted:
        """Begin anew at a place."""
        wanted = find_place(max(0, min(offset, size)), self._part)
        self._clear(wanted.offset, size)
        return wanted

    def want_before(self) -> Wanted | None:
        """The part before the window; None at the log's beginning."""
        begin = max(self.first, self.begin - self._part)
        return Wanted(begin, self.begin - begin) if self.begin > begin else None

    def want_after(self) -> Wanted:
        """The part behind the window, or what will be written next."""
        return Wanted(self.end - len(self._last), self._part + len(self._last))

    def mark(self, text: str) -> None:
        """Put a remark below what there is now."""
        if self._open:
            self._close_line(self.end)
        self._push(LogLine(self.end, self.end, mark=text))

    def take(self, offset: int, data: bytes, size: int, gap: int = 0) -> int:
        """Take a part that was read; gives how many lines came before the first one. Other parts are left out.

        `gap` is how many bytes before `offset` are lost.
        """
        if gap:
            self.first = max(self.first, offset)
        if size < self.end or (
            offset == self.end - len(self._last) and data and not data.startswith(self._last[: len(data)])
        ):
            self._begin_again(size)
            return 0
        self.size = size
        if offset == self.end - len(self._last):
            self._append(data[len(self._last) :])
            return 0
        if gap and offset > self.end:
            self._clear(offset, size)
            self._append(data)
            return 0
        data = data[: max(0, self.begin - offset)]
        return self._prepend(offset, data) if data and offset + len(data) == self.begin else 0

    def _begin_again(self, size: int) -> None:
        if self._open:
            self._close_line(self.end)
        self._push(LogLine(0, 0, mark=TRUNCATED))
        self._old = len(self.lines)
        self.begin = self.end = self._open_begin = self.first = 0
        self.size, self._last, self._inside, self.before = size, b"", False, 0

    # --- towards the end ----------------------------------------------------------------------------------------------

    def _append(self, data: bytes) -> None:
        if not data:
            return
        self._last = (self._last + data)[-OVERLAP:]
        if self._inside:
            # The window begins inside a line; one that is longer than the part is shown from there.
            self._inside = False
            skipped = data.find(b"\n") + 1
            self.begin = self.end = self._open_begin = self.end + skipped
            data = data[skipped:]
        place = 0
        while (newline := data.find(b"\n", place)) >= 0:
            self._extend(data[place:newline])
            self.end += newline + 1 - place
            self._close_line(self.end)
            place = newline + 1
        self._extend(data[place:])
        self.end += len(data) - place
        if len(self._open) >= self._part:
            self._close_line(self.end)
        self._trim_front()

    def _extend(self, data: bytes) -> None:
        """Add to the line that has no end yet; what it writes over goes."""
        self._open += data
        self.version += 1
        body = self._open.rstrip(b"\r")
        place = body.rfind(b"\r") + 1
        if place:
            self._open, self._bar = self._open[place:], True

    def _close_line(self, end: int) -> None:
        self._push(_make_line(self._open_begin, end, self._open, self._bar))
        self._open, self._bar, self._open_begin = b"", False, end

    def _push(self, line: LogLine) -> None:
        self.lines.append(line)
        self.version += 1
        self._held += len(line.data) + LINE_COST

    def _trim_front(self) -> None:
        surplus = 0
        while self._held > self._kept and surplus < len(self.lines) - 1:
            line = self.lines[surplus]
            surplus += 1
            self._held -= len(line.data) + LINE_COST
            if self._old:
                self._old -= 1
                continue
            self.begin = line.end
            if self.before is not None and not line.mark:
                self.before += 1
        del self.lines[:surplus]

    # --- towards the beginning ----------------------------------------------------------------------------------------

    def _prepend(self, offset: int, data: bytes) -> int:
        if offset > self.first:
            cut = data.find(b"\n") + 1
            if cut < len(data):
                offset, data = offset + cut, data[cut:]
        whole = data.endswith(b"\n")
        found: list[LogLine] = []
        end = offset
        for part in data.removesuffix(b"\n").split(b"\n"):
            begin, end = end, end + len(part) + 1
            found.append(_make_line(begin, end, part))
        if not whole:
            found[-1] = found[-1]._replace(end=self.begin)
            if self._is_overwritten():
                self._widen(found.pop().begin)
        self.lines[:0] = found
        self.version += 1
        self._held += sum(len(line.data) + LINE_COST for line in found)
        self.begin = offset
        self.before = 0 if offset <= self.first and not self.first else self.before and self.before - len(found)
        self._trim_back(len(found))
        return len(found)

    def _is_overwritten(self) -> bool:
        """Whether the first line writes over what comes before it."""
        return self.lines[0].bar if self.lines else self._bar

    def _widen(self, begin: int) -> None:
        if self.lines:
            self.lines[0] = self.lines[0]._replace(begin=begin)
        else:
            self._open_begin = begin

    def _trim_back(self, fresh: int) -> None:
        while self._held > self._kept and len(self.lines) > fresh + 1:
            line = self.lines.pop()
            self._held -= len(line.data) + LINE_COST
            self.end = self._open_begin = line.begin
            self._open, self._bar, self._last, self._inside = b"", False, b"", False


def _make_line(begin: int, end: int, part: bytes, bar: bool = False) -> LogLine:
    last = keep_last(part)
    return LogLine(begin, end, last[: LONGEST + 1], bar or b"\r" in part.rstrip(b"\r"))
