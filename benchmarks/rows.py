"""A line of the table that the measurements print, and its bar: times of things measured in the same run."""

from __future__ import annotations

from typing import NamedTuple

_UNITS = {"ms": 1.0, "s": 1e-3, "% of a core": 0.1}
"""What a millisecond is in a unit; of a core, a millisecond a second."""


class Reference(NamedTuple):
    """What the machine takes, milliseconds: a bare interpreter as a whole process, a commit of SQLite, a bare fork."""

    start: float
    commit: float
    fork: float


class Bar(NamedTuple):
    """What a value is held to: so many starts, commits and forks together.

    `beside`, in the row's unit, is what takes as long on every machine: a tick, a sleep. `per_start` is the bar of a
    rate: how many in the time of a start. `size` is one of memory, of a count, or of something measured beside it.
    """

    starts: float = 0
    commits: float = 0
    forks: float = 0
    beside: float = 0
    per_start: float = 0
    size: float | None = None

    def limit(self, reference: Reference, unit: str) -> float:
        """The bar in the row's unit. Times in ms or s, shares of a core, rates in 1/s."""
        if self.size is not None:
            return self.size
        if self.per_start:
            return self.per_start / reference.start * 1000
        parts = zip((self.starts, self.commits, self.forks), reference, strict=True)
        return self.beside + sum(count * time for count, time in parts) * _UNITS[unit]

    def __str__(self) -> str:
        if self.size is not None:
            return "a size"
        if self.per_start:
            return f"{self.per_start:g} a start"
        named = {"starts": self.starts, "commits": self.commits, "forks": self.forks}
        parts = [f"{count:g} {name}" for name, count in named.items() if count]
        return " + ".join([*([f"{self.beside:g}"] if self.beside else []), *parts])


class Row(NamedTuple):
    """What was measured, `value` in `unit`; `at_least` bars are floors. Without a bar it is for comparison."""

    what: str
    value: float
    bar: Bar | None
    unit: str
    at_least: bool = False

    def is_met(self, reference: Reference) -> bool:
        """Whether the bar holds on the machine as it was then."""
        if self.bar is None:
            return True
        limit = self.bar.limit(reference, self.unit)
        return self.value >= limit if self.at_least else self.value <= limit
