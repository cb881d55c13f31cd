"""What was ordered and what was answered, the newest last; kept for as long as the application runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from overspan.bridge.client.terminal_texts import clean_text

KEPT = 1000
"""Entries; the oldest go first."""
SLOW_SECONDS = 3.0
"""How long an answer may take before it is said that none has come."""
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
        self.under_way: list[OrderEntry] = []
        """Orders that were sent and have no answer yet, the oldest first."""

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

    def begin(self, at: float, order: str, target: str) -> OrderEntry:
        """Note that an order was sent; `end` takes what this gives."""
        entry = OrderEntry(at, order, clean_text(target.replace("\n", " ")), "sent, no answer yet")
        self.under_way.append(entry)
        return entry

    def end(self, entry: OrderEntry) -> None:
        """The order has its answer."""
        self.under_way.remove(entry)

    def count_unanswered(self, now: float) -> int:
        """How many orders have waited so long for their answer that it is worth a word."""
        return sum(now - entry.at >= SLOW_SECONDS for entry in self.under_way)


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
