"""End marks: the line that reports a program's end in its pod's log; written, found and removed. Pure.

Facts: a kubelet gives a followed log on in pieces, each line with its time in front where that is asked for, and joins
what the runtime had to cut (16 KiB, containerd) to one line with the time of its first part.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from overspan.adapters.kubernetes.manifests.scripts import END_OCTAL, END_WORD
from overspan.adapters.kubernetes.observation.records import PodRecord, read_time

_BEGIN = bytes([int(END_OCTAL, 8)]) + END_WORD.encode()
_HEAD, _TAIL = 64, 128
"""Bytes of a line that are kept: its time in front, the mark at its end."""
_ONE_PIECE = 16 << 10
"""Lines up to this length are written at once, so that their time is that of the end."""


class HeardEnd(NamedTuple):
    """An end from a log: its exit code, and when (epoch seconds; None where the line does not say it)."""

    code: int
    at: float | None


def make_mark(token: str, task: str, index: int, attempt: int, run: int) -> str:
    """The unique mark of one node run, which nothing prints by accident."""
    return hashlib.sha256(f"{token}/{task}/{index}/{attempt}/{run}".encode()).hexdigest()[:16]


def mark_of(record: PodRecord) -> str:
    return make_mark(record.token, record.task, record.index, record.attempt, record.run)


def leave_out(data: bytes, mark: str) -> bytes:
    """The lines of a log without the end mark; text before the mark on its line stays."""
    if _BEGIN not in data:
        return data
    return re.sub(re.escape(_BEGIN) + f" {mark} ".encode() + rb"[0-9]+\n", b"", data)


class EndMarkScanner:
    """Finds the end mark in a log that is followed: in pieces of any size, behind lines of any length."""

    def __init__(self, mark: str) -> None:
        self._pattern = re.compile(re.escape(_BEGIN) + f" {mark} ".encode() + rb"([0-9]+)$")
        self._head = self._tail = b""
        self._size = 0

    def scan(self, data: bytes) -> HeardEnd | None:
        """Take the next bytes; the end, once it is among them."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._add(line)
            found = self._pattern.search(self._tail)
            if found is not None:
                return HeardEnd(int(found[1]), self._read_time())
            self._head = self._tail = b""
            self._size = 0
        self._add(rest)
        return None

    def _add(self, part: bytes) -> None:
        self._head += part[: max(0, _HEAD - len(self._head))]
        self._tail = (self._tail + part[-_TAIL:])[-_TAIL:]
        self._size += len(part)

    def _read_time(self) -> float | None:
        if self._size > _ONE_PIECE:
            return None
        return read_time(self._head.partition(b" ")[0].decode("ascii", "replace"))
