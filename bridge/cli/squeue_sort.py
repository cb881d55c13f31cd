"""Sort order of squeue: -S and its default, `P,t,-p`. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from overspan.bridge.cli.row_texts import cpus_per_node, priority, seconds_used
from overspan.bridge.client.records import JobRow
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.state_words import CODES

DEFAULT_SORT = "P,t,-p"

_LAST = float("inf")
_Key = Callable[[JobRow, float], Any]

KEYS: dict[str, _Key] = {
    "i": lambda row, now: _place(row),
    "A": lambda row, now: row.raw_id,
    "j": lambda row, now: row.name,
    "P": lambda row, now: row.partition,
    "u": lambda row, now: row.user,
    "U": lambda row, now: row.uid or 0,
    "t": lambda row, now: CODES.get(row.state, row.state),
    "T": lambda row, now: row.state,
    "p": lambda row, now: _rank(row),
    "c": lambda row, now: int(cpus_per_node(row)),
    "D": lambda row, now: row.nodes,
    "C": lambda row, now: row.cpus,
    "m": lambda row, now: row.memory,
    "M": seconds_used,
    "L": lambda row, now: float("inf") if row.time_limit is None else row.time_limit - seconds_used(row, now),
    "l": lambda row, now: float("inf") if row.time_limit is None else row.time_limit,
    "S": lambda row, now: row.started_at or float("inf"),
    "e": lambda row, now: row.ended_at or float("inf"),
    "V": lambda row, now: row.submitted_at or 0,
    "N": lambda row, now: row.node_list,
    "a": lambda row, now: row.account,
    "q": lambda row, now: row.qos,
    "r": lambda row, now: row.reason,
    "k": lambda row, now: row.comment,
    "Z": lambda row, now: row.work_dir,
    "o": lambda row, now: row.command,
}
KEYS.update({"Q": KEYS["p"], "F": KEYS["A"], "R": KEYS["N"], "B": KEYS["N"]})
_CORE = frozenset("iAjPutTpDCMLlSeVNrQFRB")
"""Letters for which core rows suffice."""
_USUAL = _CORE | frozenset("aqkZo")


def sort_extent(keys: list[tuple[str, bool]]) -> str:
    """The extent of row that sorting by these keys needs."""
    letters = {letter for letter, _ in keys}
    return "core" if letters <= _CORE else "usual" if letters <= _USUAL else "all"


def parse_sort(spec: str) -> list[tuple[str, bool]]:
    """Read letters of -o, each with an optional `-` (falling) or `+` before it: letter, and whether it falls.

    Raises InvalidRequest for a letter that cannot be sorted by.
    """
    keys = []
    for part in filter(None, spec.replace(" ", "").split(",")):
        letter = part.lstrip("+-")
        if letter not in KEYS:
            raise InvalidRequest(f"Invalid sort specification: {letter}")
        keys.append((letter, part.startswith("-")))
    return keys


def sort_rows(rows: list[JobRow], spec: str, now: float) -> list[JobRow]:
    """Sort by a text that `parse_sort` reads; of equals the newest is first, as Slurm has it (measured on 22.05)."""
    ordered = sorted(rows, key=_newest)
    for letter, falling in reversed(parse_sort(spec)):
        key = KEYS[letter]
        values = [key(row, now) for row in ordered]
        if values and values.count(values[0]) < len(values):
            # Stable sorts from the last key to the first, so that each can have its own direction.
            places = sorted(range(len(values)), key=values.__getitem__, reverse=falling)
            ordered = [ordered[place] for place in places]
    return ordered


def _rank(row: JobRow) -> tuple[int, int, float]:
    """By priority, then by submission; held jobs have no rank among equals."""
    value = priority(row)
    number, place = _place(row) if value else (0, 0)
    return value, -number, -place


def _place(row: JobRow) -> tuple[int, float]:
    """By id; elements and tasks by their numbers, what waits of an array behind its elements."""
    if row.array_id is not None:
        return row.array_id, _LAST if row.array_index is None else row.array_index
    return row.id, row.task_offset or 0


def _newest(row: JobRow) -> tuple[int, float]:
    """The newest first; the elements of one array in their order."""
    if row.array_id is None:
        return -row.id, -(row.task_offset or 0)
    number, place = _place(row)
    return -number, place
