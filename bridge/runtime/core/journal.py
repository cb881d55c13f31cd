"""The journal, a write-ahead log: one line for each event of a launch, on the disk before it is acted on.

A line without its newline was cut by a crash and does not count. The daemon reads the same lines and reduces them to
the same job.
"""

from __future__ import annotations

import errno
import json
import os
from typing import Any

from overspan.bridge.model.events import Event, event_from_document, event_to_document
from overspan.bridge.model.records import NamedTuple

FORMAT = 1


class JournalEntry(NamedTuple):
    """An event, and the number of the order that it came from (0: none)."""

    event: Event
    order: int = 0


class Journal:
    """Appends entries; `flush` makes everything added so far durable in one write and one fdatasync."""

    def __init__(self, path: str, job: int, launch: int) -> None:
        self._buffer: list[bytes] = []
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            lines, self._size = _read_lines(self._fd, path)
            self.entries = [_entry(line, path) for line in lines if "event" in line]
            self.ended = bool(lines) and bool(lines[-1].get("end"))
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)
        except BaseException:
            os.close(self._fd)
            raise
        if not lines:
            self._add({"format": FORMAT, "job": job, "launch": launch})

    def add(self, event: Event, order: int = 0) -> None:
        """Append an event; durable at the next flush."""
        document = event_to_document(event)
        if order:
            document["order"] = order
        self._add(document)

    def end(self) -> None:
        """Append the last line: nothing follows."""
        self._add({"end": True})

    @property
    def dirty(self) -> bool:
        """Whether something is not durable yet."""
        return bool(self._buffer)

    def flush(self) -> None:
        """Write and sync what was added. OSError leaves it all to be tried again; the file keeps whole lines only."""
        if not self._buffer:
            return
        data = memoryview(b"".join(self._buffer))
        try:
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
            os.fdatasync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)
            raise
        self._size += len(data)
        self._buffer.clear()

    def check(self) -> None:
        """Raise FileNotFoundError where the file was removed or replaced: what is written here would be lost."""
        held = os.fstat(self._fd)
        there = os.stat(self._path)
        if (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino):
            raise FileNotFoundError(errno.ENOENT, "the file was replaced by another", self._path)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _add(self, document: dict[str, Any]) -> None:
        self._buffer.append(json.dumps(document, separators=(",", ":")).encode() + b"\n")


def _read_lines(fd: int, path: str) -> tuple[list[dict[str, Any]], int]:
    """The whole lines of the file and their length in bytes. ValueError names the line that is none of a journal."""
    parts = []
    while True:
        part = os.read(fd, 1 << 20)
        if not part:
            break
        parts.append(part)
    data = b"".join(parts)
    size = data.rfind(b"\n") + 1
    return [_parse(line, f"{path}, line {number}") for number, line in enumerate(data[:size].splitlines(), 1)], size


def _parse(line: bytes, place: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ValueError(f"{place}: this is no line of a journal")
    return document


def _entry(document: dict[str, Any], path: str) -> JournalEntry:
    try:
        return JournalEntry(event_from_document(document), int(document.get("order", 0)))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} has an event that cannot be read: {error!r}") from error
