"""The shell program that reads the journals of supervisors, and the parser of its output. Pure.

For each file that is longer than its offset, the program prints `\\036NUMBER SIZE\\036` and the bytes from the offset
on. A journal consists of lines of JSON, which never contain that byte. Only whole lines count.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from overspan.bridge.model.events import Event, event_from_document

LIMIT = 1 << 20
"""Bytes of one file that one call reads, at most."""
FEW, LEAST = 8, 1 << 18
"""A call for more than FEW files reads at most LEAST bytes of each, which bounds its answer."""
_HEAD = re.compile(rb"\036(\d+) (\d+)\036")


class JournalRequest(NamedTuple):
    """A file to read from an offset on."""

    path: str
    offset: int = 0


class JournalChunk(NamedTuple):
    """What was read of a file: its size, and bytes from the offset."""

    size: int
    data: bytes

    def cut(self, offset: int) -> bool:
        """Whether the line at that offset is longer than the bytes that were read."""
        return b"\n" not in self.data and self.size > offset + len(self.data)


class JournalLine(NamedTuple):
    """An event of a journal, the number of the order that caused it (0: none), and the offset behind its line."""

    event: Event
    order: int
    end: int


@dataclass(frozen=True)
class JournalPage:
    """The lines of a journal from an offset on. `closed`: its last line is its end. `asked` is when it was read.

    `stop` is the offset behind the last whole line that was read; `more` says that the file has more.
    """

    begin: int
    lines: tuple[JournalLine, ...]
    stop: int
    closed: bool
    asked: float
    more: bool = False


def render_reads(wanted: Sequence[JournalRequest]) -> str:
    """The program; it skips files that do not exist."""
    limit = LIMIT if len(wanted) <= FEW else LEAST
    paths = " ".join(shlex.quote(item.path) for item in wanted)
    arms = "\n".join(
        f"{shlex.quote(item.path)}) n={number} o={item.offset};;" for number, item in enumerate(wanted) if item.path
    )
    # wc opens each file, which makes NFS check its cached size; one wc for all of them saves a process a file.
    return (
        f"wc -c -- {paths} 2>/dev/null | while read -r s f; do\n"
        f'case $f in\n{arms}\n*) continue;;\nesac\n[ "$s" -gt "$o" ] || continue\n'
        f'printf \'\\036%s %s\\036\' "$n" "$s"; tail -c +$((o + 1)) -- "$f" | head -c {limit}\ndone\n'
    )


def read_parts(output: bytes, count: int) -> dict[int, JournalChunk]:
    """The chunks that the program printed, by the number of each file."""
    parts: dict[int, JournalChunk] = {}
    heads = list(_HEAD.finditer(output))
    for place, head in enumerate(heads):
        stop = heads[place + 1].start() if place + 1 < len(heads) else len(output)
        number = int(head[1])
        if number < count:
            parts[number] = JournalChunk(int(head[2]), output[head.end() : stop])
    return parts


def read_page(part: JournalChunk | None, offset: int, asked: float) -> JournalPage:
    """The lines of a journal from an offset on; none where there is nothing new."""
    if part is None:
        return JournalPage(offset, (), offset, False, asked)
    stop = part.data.rfind(b"\n") + 1
    lines, closed = [], False
    at = offset
    for text in part.data[:stop].splitlines(keepends=True):
        at += len(text)
        document = _parse(text)
        closed = bool(document.get("end"))
        if "event" in document:
            try:
                lines.append(JournalLine(event_from_document(document), int(document.get("order", 0)), at))
            except ValueError:
                # An event of a later version.
                continue
    more = bool(stop) and part.size > offset + len(part.data)
    return JournalPage(offset, tuple(lines), offset + stop, closed, asked, more)


def read_orders(part: JournalChunk | None) -> Iterator[tuple[int, Event]]:
    """The numbered orders in an orders file's part."""
    for text in (part.data if part else b"").splitlines():
        document = _parse(text)
        try:
            yield int(document["seq"]), event_from_document(document["event"])
        except (KeyError, TypeError, ValueError):
            continue


def _parse(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError:
        # A crash cut the line off, and the next writer went on behind it.
        return {}
    return document if isinstance(document, dict) else {}
