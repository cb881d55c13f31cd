"""What was ordered and what was answered, the newest last; kept for as long as the application runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from overspan.bridge.client.terminal_texts import clean_text

KEPT = 1000
"""Entries; the oldest go first."""
_TOLD = 4
"""Lines of a notification."""


class OrderEntry(NamedTuple):
    """An order about one target, and its answer. `at` is the daemon's time."""

    at: float
    order: str
    target: str
    answer: str
    failed: bool = False


class OrderLog:
    """The entries of one run of the application."""

    def __init__(self) -> None:
        self._entries: list[OrderEntry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[OrderEntry]:
        """The newest first."""
        return reversed(self._entries)

    def add(self, entry: OrderEntry) -> OrderEntry:
        """Keep an entry, its texts fit for a terminal; gives it as it is kept."""
        target, answer = (clean_text(text.replace("\n", " ")) for text in (entry.target, entry.answer))
        kept = entry._replace(target=target, answer=answer)
        self._entries.append(kept)
        del self._entries[:-KEPT]
        return kept


def sum_up_answers(entries: Sequence[OrderEntry]) -> str:
    """A notification about an order's answers: equal ones in a line, those that failed first."""
    grouped: dict[tuple[bool, str], list[str]] = {}
    for entry in sorted(entries, key=lambda each: not each.failed):
        grouped.setdefault((entry.failed, entry.answer), []).append(entry.target)
    lines = [
        f"{targets[0] if len(targets) == 1 else f'{len(targets)} jobs'}: {answer}"
        for (_, answer), targets in grouped.items()
    ]
    more = len(lines) - _TOLD
    return "\n".join([*lines[:_TOLD], *([f"and {more} more answers in the order log"] if more > 0 else [])])
