"""A window on a log of any size: the bytes around the place that is read, as lines; the rest stays where it is.

The window never asks for anything. It says which part it wants next (`want_*`), and takes what was read (`take`). It
holds at most `KEPT` bytes: what is farthest from the reading end goes first. A line that was cut by the border of a
part belongs to the part that has its beginning.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from overspan.bridge.client.terminal_texts import clean_text

PART = 256 * 1024
"""Bytes that are asked for at once."""
KEPT = 8 * 1024 * 1024
LONGEST = 16 * 1024
"""Bytes of a line that are shown."""
CUT = " [... the line is longer]"
TRUNCATED = "--- the log was truncated ---"
_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""Escape sequences: CSI (colours among them), OSC, and those of two characters."""


class Wanted(NamedTuple):
    """A part of the log to read."""

    offset: int
    limit: int


class LogLine(NamedTuple):
    """A line: where it begins and ends in the log, and what is shown of it."""

    begin: int
    end: int
    text: str


class LogWindow:
    """The lines from `begin` to `end`, byte offsets of a log of `size` bytes."""

    def __init__(self) -> None:
        self.lines: deque[LogLine] = deque()
        self.begin = self.end = self.size = 0
        self._open = b""

    @property
    def tail(self) -> str:
        """The last line, while it has no end yet."""
        return show_line(self._open) if self._open else ""

    def want_end(self, size: int) -> Wanted:
        """Begin anew at the log's end."""
        return self.want_at(max(0, size - PART), size)

    def want_at(self, offset: int, size: int) -> Wanted:
        """Begin anew at a place."""
        self.lines.clear()
        self._open = b""
        self.size = size
        self.begin = self.end = max(0, min(offset, size))
        return Wanted(self.begin, PART)

    def want_before(self) -> Wanted | None:
        """The part before the window; None at the log's beginning."""
        begin = max(0, self.begin - PART)
        return Wanted(begin, self.begin - begin) if self.begin else None

    def want_after(self) -> Wanted:
        """The part behind the window, or what will be written next."""
        return Wanted(self.end, PART)

    def take(self, offset: int, data: bytes, size: int) -> int:
        """Take a part that was read; gives how many lines came before the first one. Other parts are left out."""
        if size < self.end:
            self._begin_again(size)
            return 0
        self.size = size
        if offset == self.end:
            self._append(data)
            return 0
        return self._prepend(offset, data) if offset + len(data) == self.begin and data else 0

    def _begin_again(self, size: int) -> None:
        self.lines.append(LogLine(0, 0, TRUNCATED))
        self.begin = self.end = 0
        self.size, self._open = size, b""

    def _append(self, data: bytes) -> None:
        if not self.lines and not self._open and self.end:
            # The window begins inside a line; a line that fills the whole part is shown from there.
            head, newline, _ = data.partition(b"\n")
            skipped = len(head) + 1 if newline else 0
            self.begin = self.end = self.end + skipped
            data = data[skipped:]
        start = self.end - len(self._open)
        self.end += len(data)
        *whole, self._open = (self._open + data).split(b"\n")
        self.lines.extend(_make_lines(start, whole))
        while self.end - self.begin > KEPT and len(self.lines) > 1:
            self.begin = self.lines.popleft().end

    def _prepend(self, offset: int, data: bytes) -> int:
        if offset:
            head, newline, rest = data.partition(b"\n")
            if newline and rest:
                offset, data = offset + len(head) + 1, rest
        lines = list(_make_lines(offset, data.removesuffix(b"\n").split(b"\n")))
        self.lines.extendleft(reversed(lines))
        self.begin = offset
        while self.end - self.begin > KEPT and len(self.lines) > len(lines) + 1:
            self.end, self._open = self.lines.pop().begin, b""
        return len(lines)


def _make_lines(offset: int, parts: Iterable[bytes]) -> Iterable[LogLine]:
    for part in parts:
        end = offset + len(part) + 1
        yield LogLine(offset, end, show_line(part))
        offset = end


def show_line(data: bytes) -> str:
    """The line as it is shown: of a progress bar what was written last, without what a terminal would obey."""
    data = data.removesuffix(b"\r")
    shown = data[data.rfind(b"\r") + 1 :]
    text = _SEQUENCES.sub("", shown[:LONGEST].decode(errors="replace")).expandtabs()
    return clean_text(text) + (CUT if len(shown) > LONGEST else "")
