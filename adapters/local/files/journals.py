"""Reads the events of a launch from its supervisor's journal. A cursor is a byte offset; only whole lines count."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from overspan.adapters.local.files.launch_files import LaunchFiles
from overspan.adapters.local.files.run_packs import open_file
from overspan.bridge.model.events import Event, Launch, LaunchLost, NodeEnded, NodeStarted, Refused, event_from_document
from overspan.bridge.runtime.core.node_records import read_record

END = {"end": True}
"""The last line of a journal: nothing will follow."""

_PART = 4 << 20
_TAIL = 4096
_FIFO_SIZE = 65536
_LONGEST_WORD = 4096
"""PIPE_BUF: writes up to this size are atomic, so a FIFO with less free space than that may refuse one."""


class News(NamedTuple):
    """Events behind a cursor, the cursor behind them, and whether the file has more."""

    events: tuple[Event, ...]
    cursor: str
    more: bool = False


def read_news(place: LaunchFiles, cursor: str) -> News:
    """The launch's events behind the cursor, oldest first; some MiB at once, at most.

    Any cursor but an offset is of the time before the grant, so the journal is read from its start.
    """
    offset = int(cursor) if cursor.isdecimal() else 0
    documents, end = _read_part(place.journal, offset)
    return News(tuple(read_events(documents)), str(end) if end else cursor, end - offset >= _PART // 2)


def _read_part(path: str, offset: int) -> tuple[list[Any], int]:
    """The documents of the whole lines from an offset, and the offset behind them; a missing file has none."""
    try:
        with open_file(*os.path.split(path)) as file:
            # An offset in the middle of a line is of another file, such as a journal before a power loss cut it.
            if offset:
                file.seek(offset - 1)
                if file.read(1) != b"\n":
                    offset = 0
            file.seek(offset)
            data = file.read(_PART)
    except FileNotFoundError:
        return [], offset
    end = data.rfind(b"\n") + 1
    return list(parse_lines(data[:end])), offset + end


def parse_lines(data: bytes) -> Iterator[Any]:
    """The documents of whole lines; those that a crash has cut off are passed over."""
    for line in data.splitlines():
        try:
            document = json.loads(line)
        except ValueError:
            # A crash cut the line off, and the next writer went on behind it.
            continue
        if isinstance(document, dict):
            yield document


def read_events(documents: Iterable[Any]) -> Iterator[Event]:
    """The events among documents."""
    for document in documents:
        if isinstance(document, dict) and "event" in document:
            try:
                yield event_from_document(document)
            except ValueError:
                # An event of a later version, which this one does not know.
                continue


def read_lines(path: str) -> list[Any]:
    """Every whole line of a JSON lines file; none if it is missing."""
    documents: list[Any] = []
    offset = 0
    while True:
        part, end = _read_part(path, offset)
        documents += part
        if end == offset:
            return documents
        offset = end


def has_ended(path: str) -> bool:
    """Whether a journal's last line is its end."""
    try:
        with open_file(*os.path.split(path)) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            tail = file.read(_TAIL)
    except FileNotFoundError:
        return False
    if not tail.endswith(b"\n"):
        return False
    try:
        document = json.loads(tail[:-1].rpartition(b"\n")[2])
    except ValueError:
        return False
    return isinstance(document, dict) and "end" in document


def is_over(place: LaunchFiles) -> bool:
    """Whether a launch has ended, so that no event will follow."""
    return has_ended(place.journal)


def is_whole(place: LaunchFiles) -> bool:
    """Whether the files of an ended launch show how each of its attempts ended."""
    events = list(read_events(read_lines(place.journal)))
    if any(isinstance(event, LaunchLost | Refused) for event in events):
        return True
    begun = {(event.task, event.attempt) for event in events if isinstance(event, Launch)}
    ended = {(event.task, event.attempt) for event in events if isinstance(event, NodeEnded)}
    return bool(events) and begun <= ended


def has_launched(place: LaunchFiles) -> bool:
    """Whether a launch has left its start gate, or was ordered to, by its journal and its orders. Raises OSError."""
    ordered = [line.get("event") for line in read_lines(place.orders)]
    told = [*read_events(read_lines(place.journal)), *read_events(ordered)]
    return any(isinstance(event, Launch) for event in told)


def has_started(place: LaunchFiles) -> bool:
    """Whether user code of a launch has started, by its journal or by the record of a node run.

    The journal alone is not enough: a supervisor may die between the start of a program and the line about it.
    """
    events = list(read_events(read_lines(place.journal)))
    if any(isinstance(event, NodeStarted) for event in events):
        return True
    attempts = {(event.task, event.attempt) for event in events if isinstance(event, Launch)}
    return any(_has_record(f"{place.folder}/nodes", key) for key in _list_keys(place, attempts))


def _list_keys(place: LaunchFiles, attempts: set[tuple[str, int]]) -> list[str]:
    try:
        names = os.listdir(f"{place.folder}/nodes")
    except FileNotFoundError:
        return []
    keys = {name.rpartition(".")[0] for name in names if name.endswith((".start", ".end"))}
    return [key for key in keys if any(_is_of(key, *attempt) for attempt in attempts)]


def _is_of(key: str, task: str, attempt: int) -> bool:
    """Whether a node's key, TASK.NODE.ATTEMPT.RUN, is of that attempt."""
    words = key.rsplit(".", 3)
    return len(words) == 4 and words[0] == task and words[2] == str(attempt)


def _has_record(folder: str, key: str) -> bool:
    record = read_record(folder, key)
    return record is not None and record.pid > 0 and record.failed_at in ("", "lost")


class Wake:
    """A FIFO into which supervisors write `N.R` lines when a journal has grown."""

    def __init__(self, path: str, report: Callable[[str], None]) -> None:
        self._path = path
        self._report = report
        self._rest = b""
        self.fd = -1
        self.full = False
        """Whether the FIFO was full, so that wake-ups may have been lost."""

    def open(self) -> None:
        """Make the FIFO and open it, for writing too, so that it never reports end of file. Raises OSError."""
        try:
            os.mkfifo(self._path, 0o600)
        except FileExistsError:
            pass
        self.fd = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def read(self) -> None:
        """Report every handle that was written."""
        try:
            data = os.read(self.fd, _FIFO_SIZE)
        except BlockingIOError:
            return
        # A writer gives up if its line does not fit, so the FIFO counts as full before its last byte.
        self.full = self.full or len(data) > _FIFO_SIZE - _LONGEST_WORD
        data = self._rest + data
        *lines, self._rest = data.split(b"\n")
        for line in set(lines):
            self._report(line.decode("ascii", "replace"))

    def close(self) -> None:
        """Close the FIFO."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
