"""Merges several logs by whole lines, each prefixed with its member's name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from overspan.bridge.cli.output import paint
from overspan.bridge.client import Stream
from overspan.bridge.client.messages import name_member
from overspan.bridge.model.durations import format_timestamp

_PALETTE = ("cyan", "green", "magenta", "yellow", "blue")


def prefix(stream: Stream) -> str:
    """The member that a line is from: `trainer-0`, or the element `42_1` of an array."""
    return name_member(stream.job, stream.task, stream.node)


_ENDS = re.compile(rb"\r\n|\n|\r(?!\Z)")


class _Rest(NamedTuple):
    """The beginning of a line whose end has not arrived yet."""

    text: bytes = b""
    bar: bool = False
    """Whether it overwrites the line before, as progress bars do."""
    shown: bytes = b""
    """What has been written of it."""


class LinePrinter:
    """Writes lines as soon as they are whole, so that those of two logs never mix.

    A carriage return ends a line too. Of lines that come at once and are written over each other, the last is shown.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        width: int = 0,
        colour: bool = False,
        *,
        named: bool = True,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`named`: each line behind its member's name; with a `clock` (epoch seconds) also behind its time.

        That is the one it was fed with, else the present one for what comes after the first pause.
        """
        self._write = write
        self._width = width
        self._colour = colour
        self._named = named
        self._clock = clock
        self._current = False
        self._rests: dict[Stream, _Rest] = {}
        self._came: dict[Stream, float | None] = {}

    def feed(self, stream: Stream, data: bytes, at: float | None = None) -> None:
        """Take bytes of a log, which came at that time where it is known."""
        # The size changes as the log grows, so it does not identify the log.
        key = stream._replace(size=0, marks=None)
        self._came[key] = at
        text, bar, shown = self._rests.get(key, _Rest())
        text, begin, over = text + data, 0, b""
        for end in _ENDS.finditer(text):
            line, begin = text[begin : end.start()], end.end()
            if end[0] == b"\r":
                over, bar = line or over, True
                continue
            line = line or over
            if line != shown or not bar:
                self._print(key, line)
            over, bar, shown = b"", False, b""
        if over and over != shown:
            self._print(key, over)
            shown = over
        self._rests[key] = _Rest(text[begin:], bar, shown)

    def pause(self) -> None:
        """Write the present state of progress bars, whose lines end only with the work."""
        # What was there before the first wait may be of any age.
        self._current = True
        for key, (text, bar, shown) in self._rests.items():
            line = text.rstrip(b"\r")
            if line and line != shown and (bar or line != text):
                self._print(key, line)
                self._rests[key] = _Rest(text, True, line)

    def close(self) -> None:
        """Write what has no line end."""
        for key, rest in self._rests.items():
            line = rest.text.rstrip(b"\r")
            if line and line != rest.shown:
                self._print(key, line)

    def _print(self, stream: Stream, line: bytes) -> None:
        head = ""
        if self._clock is not None:
            at = self._came.get(stream) or (self._clock() if self._current else None)
            head = f"{format_timestamp(at, '-'):<19} "
        if self._named:
            name = prefix(stream)
            # Elements that start later may have longer names.
            self._width = max(self._width, len(name))
            colour = _PALETTE[sum((stream.job or stream.task).encode()) % len(_PALETTE)]
            head += paint(f"{name:<{self._width}} | ", colour, self._colour)
        self._write(head.encode() + line + b"\n")
