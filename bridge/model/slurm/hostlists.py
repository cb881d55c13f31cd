"""Host lists in Slurm's bracket notation: n[1-3,07-09],r[1-2]n[0-3]."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Union

from overspan.bridge.model.records import NamedTuple

MAX_HOSTS = 65536
# No host has a larger number; the bound also keeps arithmetic within 64 bits.
_MAX_DIGITS = 18


class _Run(NamedTuple):
    """Consecutive numbers of one bracket, both ends included, padded with zeros to a width."""

    first: int
    last: int
    width: int


_Piece = Union[str, tuple[_Run, ...]]


def expand(text: str, limit: int = MAX_HOSTS) -> list[str]:
    """Give every name of a host list, in its order, duplicates kept; the rightmost bracket runs fastest.

    Names are separated by commas or blanks. Raises ValueError with the position of what is wrong, and for
    more than `limit` names.
    """
    entries = list(_parse(text))
    total = sum(_entry_count(entry) for entry in entries)
    if total > limit:
        raise ValueError(f"the host list names {total} hosts; at most {limit} are allowed")
    names: list[str] = []
    for entry in entries:
        names.extend("".join(parts) for parts in itertools.product(*(_spell(piece) for piece in entry)))
    return names


def count(text: str) -> int:
    """Count the names of a host list without making them; raises ValueError as expand does, but has no limit."""
    return sum(_entry_count(entry) for entry in _parse(text))


def compress(names: Iterable[str]) -> str:
    """Write names as a host list that expands to the same names in the same order.

    Neighbours that differ in their last number only share a bracket, as in Slurm. Raises ValueError for an
    empty name and for one with a comma, blank or bracket in it.
    """
    groups: list[tuple[str, list[_Run]]] = []
    for name in names:
        if not name or re.search(r"[\[\],\s]", name):
            raise ValueError(f"{name!r} is not a host name: commas, blanks and brackets cannot be part of one")
        stem = name.rstrip("0123456789")
        digits = name[len(stem) :]
        if not digits or len(digits) > _MAX_DIGITS:
            groups.append((name, []))
            continue
        if not groups or not groups[-1][1] or groups[-1][0] != stem:
            groups.append((stem, []))
        _add_number(groups[-1][1], digits)
    return ",".join(_write_group(stem, runs) for stem, runs in groups)


def _add_number(runs: list[_Run], digits: str) -> None:
    """Lengthen the last run by a number that continues it, else begin another."""
    number = int(digits)
    if runs:
        last = runs[-1]
        if number == last.last + 1 and digits == f"{number:0{last.width}d}":
            runs[-1] = last._replace(last=number)
            return
    runs.append(_Run(number, number, len(digits)))


def _write_group(stem: str, runs: list[_Run]) -> str:
    if not runs:
        return stem
    texts = [_write_run(run) for run in runs]
    if len(texts) == 1 and runs[0].first == runs[0].last:
        return stem + texts[0]
    return f"{stem}[{','.join(texts)}]"


def _write_run(run: _Run) -> str:
    first = f"{run.first:0{run.width}d}"
    return first if run.first == run.last else f"{first}-{run.last:0{run.width}d}"


def _spell(piece: _Piece) -> Iterable[str]:
    """Give the texts one piece of a name can take."""
    if isinstance(piece, str):
        return (piece,)
    return (f"{number:0{run.width}d}" for run in piece for number in range(run.first, run.last + 1))


def _entry_count(entry: list[_Piece]) -> int:
    total = 1
    for piece in entry:
        if not isinstance(piece, str):
            total *= sum(run.last - run.first + 1 for run in piece)
    return total


def _parse(text: str) -> Iterator[list[_Piece]]:
    """Split a host list into names, and each name into plain text and brackets."""
    entry: list[_Piece] = []
    at = 0
    while at < len(text):
        letter = text[at]
        if letter == "," or letter.isspace():
            if entry:
                yield entry
            entry = []
            at += 1
        elif letter == "[":
            runs, at = _parse_bracket(text, at)
            entry.append(runs)
        elif letter == "]":
            raise ValueError(f"']' at character {at + 1} of the host list has no '[' before it")
        else:
            end = at + 1
            while end < len(text) and text[end] not in "[]," and not text[end].isspace():
                end += 1
            entry.append(text[at:end])
            at = end
    if entry:
        yield entry


def _parse_bracket(text: str, start: int) -> tuple[tuple[_Run, ...], int]:
    """Read one bracket that opens at `start`: its runs, and the position after it."""
    end = text.find("]", start)
    if end < 0:
        raise ValueError(f"'[' at character {start + 1} of the host list is never closed")
    runs = []
    at = start + 1
    for item in text[start + 1 : end].split(","):
        match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", item)
        if not match:
            raise ValueError(f"{item!r} at character {at + 1} of the host list is not a number or a range such as 1-3")
        first, last = match[1], match[2] or match[1]
        if max(len(first), len(last)) > _MAX_DIGITS:
            raise ValueError(f"the number at character {at + 1} of the host list is too long")
        if int(last) < int(first):
            raise ValueError(f"the range {item!r} at character {at + 1} of the host list runs backwards")
        runs.append(_Run(int(first), int(last), len(first)))
        at += len(item) + 1
    return tuple(runs), end + 1
