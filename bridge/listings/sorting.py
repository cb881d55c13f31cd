"""Sort order of squeue: -S and its default, `P,t,-p`. Pure."""

from __future__ import annotations

from overspan.bridge.listings.fields import SORTED
from overspan.bridge.listings.rows import JobRow, join_extents
from overspan.bridge.listings.texts import place_of
from overspan.bridge.model.errors import InvalidRequest

DEFAULT_SORT = "P,t,-p"


def sort_extent(keys: list[tuple[str, bool]]) -> str:
    """The extent of row that sorting by these keys needs."""
    return join_extents(("core", *(SORTED[letter].extent for letter, _ in keys)))


def parse_sort(spec: str) -> list[tuple[str, bool]]:
    """Read letters of -o, each with an optional `-` (falling) or `+` before it: letter, and whether it falls.

    Raises InvalidRequest for a letter that cannot be sorted by.
    """
    keys = []
    for part in filter(None, spec.replace(" ", "").split(",")):
        letter = part.lstrip("+-")
        if letter not in SORTED:
            raise InvalidRequest(f"Invalid sort specification: {letter}")
        keys.append((letter, part.startswith("-")))
    return keys


def sort_rows(rows: list[JobRow], spec: str, now: float) -> list[JobRow]:
    """Sort by a text that `parse_sort` reads; of equals the newest is first, as Slurm has it (measured on 22.05)."""
    ordered = sorted(rows, key=_newest)
    for letter, falling in reversed(parse_sort(spec)):
        key = SORTED[letter].sort
        values = [key(row, now) for row in ordered] if key else []
        if values and values.count(values[0]) < len(values):
            # Stable sorts from the last key to the first, so that each can have its own direction.
            places = sorted(range(len(values)), key=values.__getitem__, reverse=falling)
            ordered = [ordered[place] for place in places]
    return ordered


def _newest(row: JobRow) -> tuple[int, float]:
    """The newest first; the elements of one array in their order."""
    if row.array_id is None:
        return -row.id, -(row.task_offset or 0)
    number, place = place_of(row)
    return -number, place
