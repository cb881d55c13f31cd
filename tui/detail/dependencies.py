"""Dependencies of a job as a small graph: what it waits for above it, who waits for it below. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.listings.rows import JobRow

MOST_LEVELS = 3
"""How far the graph goes in each direction."""
MOST_ENDS = 8
"""How many jobs are drawn at one job, in each direction."""
_NEED = re.compile(r"(\w+)(?::([0-9]+)([^()?,]*))?\((\w+)\)")
_KINDS = {
    "after": "must have started",
    "afterany": "must have ended",
    "afterok": "must succeed",
    "afternotok": "must fail",
    "aftercorr": "must succeed, element by element",
    "singleton": "all others of its name and user must have ended",
}


class KnownNeed(NamedTuple):
    """A need that is not met: its kind, the job (None for `singleton`), and whether it never can be."""

    kind: str
    job: int | None
    failed: bool


def read_needs(text: str) -> tuple[KnownNeed, ...]:
    """Read what a row has of a dependency: `afterok:12_*(unfulfilled),singleton(unfulfilled)`."""
    return tuple(
        KnownNeed(kind, int(job) if job else None, standing == "failed")
        for kind, job, _, standing in _NEED.findall(text)
    )


def index_rows(rows: Iterable[JobRow]) -> dict[int, JobRow]:
    """A row for each job, and for each array; of several the one that tells a dependency."""
    found: dict[int, JobRow] = {}
    for row in rows:
        for number in {row.id, row.array_id or row.id}:
            if number not in found or row.dependency:
                found[number] = row
    return found


def draw_graph(job: int, dependency: str, rows: Mapping[int, JobRow]) -> list[str]:
    """The lines of the graph; empty where the job neither waits for others nor is waited for, as far as rows tell."""
    waiting: dict[int, list[tuple[int, KnownNeed]]] = {}
    for number, row in rows.items():
        for need in read_needs(row.dependency) if row.dependency else ():
            if need.job is not None:
                waiting.setdefault(need.job, []).append((number, need))
    above = _draw_above(read_needs(dependency), rows, "", MOST_LEVELS, {job})
    below = _draw_below(job, waiting, rows, "", MOST_LEVELS, {job})
    if not above and not below:
        return []
    return [*above, f"{_name(job, rows)}   <- this job", *below]


def _draw_above(
    needs: Sequence[KnownNeed], rows: Mapping[int, JobRow], prefix: str, levels: int, seen: set[int]
) -> list[str]:
    lines: list[str] = []
    for place, need in enumerate(needs[:MOST_ENDS]):
        further = need.job is not None and need.job in rows and need.job not in seen and levels > 1
        if further and need.job is not None:
            inner = read_needs(rows[need.job].dependency)
            line = "   " if place == 0 else "│  "
            lines += _draw_above(inner, rows, prefix + line, levels - 1, {*seen, need.job})
        lines.append(f"{prefix}{'┌─ ' if place == 0 else '├─ '}{_describe(need.job, need, rows)}")
    if len(needs) > MOST_ENDS:
        lines.append(f"{prefix}├─ {len(needs) - MOST_ENDS} more")
    return lines


def _draw_below(
    job: int,
    waiting: Mapping[int, Sequence[tuple[int, KnownNeed]]],
    rows: Mapping[int, JobRow],
    prefix: str,
    levels: int,
    seen: set[int],
) -> list[str]:
    lines: list[str] = []
    found = sorted(waiting.get(job, ()))
    for place, (number, need) in enumerate(found[:MOST_ENDS]):
        last = place == len(found) - 1
        lines.append(f"{prefix}{'└─ ' if last else '├─ '}{_name(number, rows)}  ({need.kind})")
        if number not in seen and levels > 1:
            inner = prefix + ("   " if last else "│  ")
            lines += _draw_below(number, waiting, rows, inner, levels - 1, {*seen, number})
    if len(found) > MOST_ENDS:
        lines.append(f"{prefix}└─ {len(found) - MOST_ENDS} more")
    return lines


def _describe(job: int | None, need: KnownNeed, rows: Mapping[int, JobRow]) -> str:
    words = "can never be met" if need.failed else _KINDS.get(need.kind, need.kind)
    return f"{need.kind}: {words}" if job is None else f"{_name(job, rows)}  {words}"


def _name(job: int, rows: Mapping[int, JobRow]) -> str:
    row = rows.get(job)
    if row is None:
        return f"{job} (not in the queue)"
    return clean_text(f"{job} {row.name if row.member_of else row.group or row.name}  {row.state}")
