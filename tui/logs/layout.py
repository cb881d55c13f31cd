"""How lines of logs fill a screen: which line is on which row, folded where they are too long. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len, get_character_cell_size

from overspan.tui.logs.choice import Member, member_of
from overspan.tui.logs.document import LogRow

TIME_WIDTH = 15
NUMBER_WIDTH = 9


class ViewOptions(NamedTuple):
    """What is shown of a line."""

    wrap: bool = False
    times: bool = False
    numbers: bool = False
    names: int = 0
    """Cells for the name of the member; 0 for none."""


class ViewPlace(NamedTuple):
    """A line, and which of its rows."""

    row: int
    part: int = 0


@lru_cache(maxsize=2000)
def fold(text: str, width: int) -> tuple[tuple[int, int], ...]:
    """Where each row of a text begins and ends, in characters, when none is wider than so many cells."""
    if width <= 0 or (len(text) <= width and cell_len(text) <= width):
        return ((0, len(text)),)
    rows, begin, cells = [], 0, 0
    for place, letter in enumerate(text):
        size = get_character_cell_size(letter)
        if cells + size > width:
            rows.append((begin, place))
            begin, cells = place, 0
        cells += size
    return (*rows, (begin, len(text)))


def name_of(row: LogRow) -> str:
    """The member that a line is from."""
    return member_of(row.key).name


def count_name_cells(members: Sequence[Member]) -> int:
    """The room that names of members need."""
    return max((cell_len(member.name) for member in members), default=0)


def measure_gutter(options: ViewOptions) -> int:
    """Cells in front of the text."""
    width = TIME_WIDTH * options.times + NUMBER_WIDTH * options.numbers
    return width + (options.names + 3 if options.names else 0)


def format_time(at: float | None) -> str:
    """When a line came, in local time."""
    return "-" if at is None else time.strftime("%m-%d %H:%M:%S", time.localtime(at))


class LogLayout:
    """The rows of the screen for a list of lines."""

    def __init__(self, rows: Sequence[LogRow], options: ViewOptions, width: int, height: int) -> None:
        self.rows, self.options = rows, options
        self.width, self.height = width, max(1, height)
        self._room = max(1, width - measure_gutter(options))

    def folds(self, row: int) -> tuple[tuple[int, int], ...]:
        """The rows of a line."""
        text = self.rows[row].line.text
        return fold(text, self._room) if self.options.wrap else ((0, len(text)),)

    def find_last(self) -> ViewPlace:
        """The place at which the last line is at the bottom."""
        return self.move(ViewPlace(max(0, len(self.rows) - 1), 1 << 30), -(self.height - 1))

    def move(self, place: ViewPlace, by: int) -> ViewPlace:
        """The place so many rows of the screen away, no farther than there are lines."""
        if not self.rows:
            return ViewPlace(0)
        row = max(0, min(place.row, len(self.rows) - 1))
        part = min(place.part, len(self.folds(row)) - 1) + by
        while part < 0 and row > 0:
            row -= 1
            part += len(self.folds(row))
        while row < len(self.rows) - 1 and part >= (count := len(self.folds(row))):
            row, part = row + 1, part - count
        return ViewPlace(row, max(0, min(part, len(self.folds(row)) - 1)))

    def scroll(self, place: ViewPlace, by: int) -> ViewPlace:
        """The same, and no farther than to the last line at the bottom."""
        return min(self.move(place, by), self.find_last())

    def fill(self, top: ViewPlace) -> list[ViewPlace]:
        """What is on each row of the screen, from the top."""
        found: list[ViewPlace] = []
        for row in range(top.row, len(self.rows)):
            begin = top.part if row == top.row else 0
            found += [ViewPlace(row, part) for part in range(begin, len(self.folds(row)))]
            if len(found) >= self.height:
                break
        return found[: self.height]


def find_row(rows: Sequence[LogRow], wanted: LogRow, near: int) -> int:
    """Where a line is in a list that may have changed; the place of the one that is nearest if it is gone."""
    for away in range(len(rows)):
        for place in {near - away, near + away}:
            if 0 <= place < len(rows) and rows[place].is_same(wanted):
                return place
    same = [(abs(row.line.begin - wanted.line.begin), place) for place, row in enumerate(rows) if row.key == wanted.key]
    return min(same)[1] if same else max(0, min(near, len(rows) - 1))
