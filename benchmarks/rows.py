"""A line of the table that the measurements print."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """What was measured; `value` and `bar` in `unit`. `at_least` bars are floors."""

    what: str
    value: float
    bar: float
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the bar holds."""
        return self.value >= self.bar if self.at_least else self.value <= self.bar
