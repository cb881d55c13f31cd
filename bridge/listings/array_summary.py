"""Summary of an array: how many elements are in each state, which failed, and how long they took."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.durations import format_elapsed
from overspan.bridge.model.ids import IndexRange, collapse, format_array_indices, parse_array
from overspan.bridge.model.state_words import LIVE_WORDS

_HEADER = ("ELEMENTS", "STATE", "EXIT", "SHORTEST", "LONGEST", "INDICES")


class ElementSummary(NamedTuple):
    """The elements of an array with the same state, exit code and signal; times are in seconds."""

    state: str
    exit_code: int
    signal: int
    indices: tuple[IndexRange, ...]
    shortest: float | None = None
    longest: float | None = None

    @property
    def size(self) -> int:
        """The number of elements."""
        return sum(len(part.values()) for part in self.indices)


def summarize_elements(rows: Iterable[JobRow], now: float) -> list[ElementSummary]:
    """Group the rows of an array's elements by state and end, pending ones last."""
    indices: dict[tuple[str, int, int], list[int]] = {}
    times: dict[tuple[str, int, int], list[float]] = {}
    for row in rows:
        key = (row.state, row.exit_code, row.signal)
        if row.array_waiting:
            waiting = parse_array(row.array_waiting.partition("%")[0])
            indices.setdefault(key, []).extend(waiting.indices())
        elif row.array_index is not None:
            indices.setdefault(key, []).append(row.array_index)
            if row.started_at is not None:
                end = row.ended_at if row.ended_at is not None else row.paused_at or now
                times.setdefault(key, []).append(end - row.started_at - row.paused)
    summaries = []
    for key, found in indices.items():
        used = times.get(key)
        summaries.append(ElementSummary(*key, collapse(found), *((min(used), max(used)) if used else ())))
    return sorted(
        summaries, key=lambda summary: (summary.state == "PENDING", summary.state, summary.exit_code, summary.signal)
    )


def failed_indices(summaries: Iterable[ElementSummary]) -> str:
    """The indices that failed, without those that a user cancelled: `span resubmit --failed` takes these."""
    bad = [summary for summary in summaries if summary.state not in (*LIVE_WORDS, "COMPLETED", "CANCELLED")]
    return format_array_indices(
        collapse(index for summary in bad for part in summary.indices for index in part.values())
    )


def write_summaries(array: Any, summaries: list[ElementSummary]) -> list[str]:
    """A table in lines, then a line that says how to resubmit the failures."""
    cells = [
        (
            str(summary.size),
            summary.state,
            f"{summary.exit_code}:{summary.signal}",
            "" if summary.shortest is None else format_elapsed(summary.shortest),
            "" if summary.longest is None else format_elapsed(summary.longest),
            format_array_indices(summary.indices),
        )
        for summary in summaries
    ]
    rows = [_HEADER, *cells]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADER))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip() for row in rows]
    failed = failed_indices(summaries)
    return [*lines, "", f"failed: {failed}; `span resubmit {array} --failed` runs these again"] if failed else lines


def describe_summaries(summaries: list[ElementSummary]) -> dict[str, Any]:
    """The same as JSON data."""
    return {
        "failed": failed_indices(summaries),
        "states": [
            {**summary._asdict(), "indices": format_array_indices(summary.indices), "count": summary.size}
            for summary in summaries
        ],
    }
