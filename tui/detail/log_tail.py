"""The last lines of a job's logs, for the details: read at the logs' ends, and again only where these have grown."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from overspan.bridge.cli.jobs.log_lines import prefix
from overspan.bridge.client.log_reading import choose_streams, key_of
from overspan.bridge.client.messages import LogSelection, Stream, StreamKey
from overspan.bridge.model.errors import NotFound, OverspanError
from overspan.tui.daemon.source import Source
from overspan.tui.detail.layout import CutLines, DetailText, VerbatimText
from overspan.tui.detail.sections import DetailSection
from overspan.tui.logs.lines import show_line

LEAST_SECONDS = 2.0
"""Between two looks at the logs of what runs."""
RESTS = 20
"""A look is followed by a pause of so many times what it took: a slow cluster is asked less often."""
MOST_LINES = 8
MOST_LOGS = 8
PART = 8 * 1024
"""Bytes that are read at the end of a log."""


class TailLine(NamedTuple):
    """A line of a log; `name` is the log's, where there are several."""

    name: str
    text: str


class LogTail(NamedTuple):
    """The last lines of some logs, those of each together; `left` is how many logs have no line here."""

    lines: tuple[TailLine, ...] = ()
    left: int = 0


class TailReader:
    """Reads the ends of the logs of one job at a time; used by one thread."""

    def __init__(self) -> None:
        self._ref = ""
        self._known: dict[StreamKey, tuple[int, bytes]] = {}
        """What was read of each log, and how long that was then."""

    def read(self, source: Source, ref: str) -> LogTail:
        """The last lines of the newest attempt of each member."""
        try:
            found = choose_streams(source.streams(ref), LogSelection())
        except NotFound:
            return LogTail()
        streams = [stream for stream in found if stream.size]
        shown = streams[:MOST_LOGS]
        known = self._known if ref == self._ref else {}
        self._ref, self._known = ref, {}
        lines = []
        for stream in shown:
            key = key_of(stream)
            size, data = known.get(key, (-1, b""))
            if size != stream.size:
                begin = max(0, stream.size - PART)
                data = cut_beginning(source.log_part(ref, key, begin, PART).data, begin)
            self._known[key] = (stream.size, data)
            name = name_log(stream) if len(streams) > 1 else ""
            lines += [TailLine(name, text) for text in take_last(data, max(1, MOST_LINES // len(shown)))]
        return LogTail(tuple(lines), len(streams) - len(shown))


class AskDaemon(Protocol):
    """`Questions.ask`."""

    def __call__(
        self,
        kind: str,
        ask: Callable[[Source], LogTail],
        take: Callable[[LogTail], None],
        fail: Callable[[OverspanError], None],
        /,
    ) -> None: ...


class TailFollower:
    """Keeps the last lines of one job's logs; a look at a time, and a pause after each."""

    def __init__(self, ask: AskDaemon, changed: Callable[[], None]) -> None:
        self.found: LogTail | None = None
        """None before the first answer."""
        self._ask, self._changed = ask, changed
        self._reader = TailReader()
        self._ref = ""
        self._number = 0
        """Counts jobs: an answer about an earlier one is dropped."""
        self._under_way = False
        self._next = 0.0

    def forget(self) -> None:
        """Another job is shown."""
        self.found, self._ref, self._under_way = None, "", False
        self._number += 1

    def look_again(self) -> None:
        """Look at the same logs, where that is due."""
        if self._ref and time.monotonic() >= self._next:
            self.look(self._ref)

    def look(self, ref: str) -> None:
        """Look at the logs of this job."""
        self._ref = ref
        if self._under_way:
            return
        self._under_way, number, began = True, self._number, time.monotonic()

        def end() -> bool:
            """Whether the answer is about the job that is shown."""
            if number != self._number:
                return False
            now = time.monotonic()
            self._under_way, self._next = False, now + max(LEAST_SECONDS, RESTS * (now - began))
            return True

        def fail(error: OverspanError) -> None:
            # `o` tells why a log cannot be read; what was read of it stays.
            del error
            end()

        def take(found: LogTail) -> None:
            if end() and found != self.found:
                self.found = found
                self._changed()

        self._ask("tail", lambda source: self._reader.read(source, ref), take, fail)


def name_log(stream: Stream) -> str:
    """`trainer-0`, and of its errors, where they are apart, `trainer-0 stderr`."""
    return prefix(stream) + (" stderr" if stream.stream == "error" else "")


def cut_beginning(data: bytes, begin: int) -> bytes:
    """Without the rest of a line that began before, unless there is nothing else."""
    cut = data.find(b"\n") + 1 if begin else 0
    return data[cut:] if cut < len(data) else data


def take_last(data: bytes, count: int) -> list[str]:
    """The last lines as they are shown; those behind them that are empty tell nothing."""
    lines = data.rstrip(b"\r\n\t ").split(b"\n")[-count:]
    return [show_line(line) for line in lines] if lines != [b""] else []


def tell_output(tail: LogTail, runs: bool) -> DetailSection | None:
    """The section; None where there is nothing to tell. `runs` is whether something may still come."""
    if not tail.lines:
        return DetailSection("Output", (VerbatimText(("nothing yet",)),)) if runs else None
    names = [line.name for line in tail.lines]
    width = max(map(len, names))
    rows = [
        (*([DetailText(f"{line.name:<{width}}  ", "accent")] if width else []), DetailText(line.text))
        for line in tail.lines
    ]
    more = (VerbatimText((f"{tail.left} more: `o` shows all",)),) if tail.left else ()
    return DetailSection("Output", (CutLines(tuple(rows)), *more))
