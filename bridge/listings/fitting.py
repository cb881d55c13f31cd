"""The queue's table as wide as the terminal: whole names where there is room, and the group beside its tasks. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from overspan.bridge.listings.fields import FIELDS, queue_column
from overspan.bridge.listings.layout import Layout, LayoutField
from overspan.bridge.listings.rows import JobRow

QUEUE = ("id", "partition", "name", "task_group", "user", "state_code", "time_used", "nodes", "nodes_or_reason")
"""The fields of squeue's default table, and the group's name."""
_CUT = frozenset({"partition", "name", "task_group", "user"})
"""Texts of any length: these are cut where there is no room, down to the width that squeue has for them."""


def fit_queue(rows: Sequence[JobRow], now: float, room: int) -> Layout:
    """The layout of these rows in so many letters a line; 0 is any number. The last column may be longer.

    The group has a column where a row is a task of one.
    """
    grouped = any(row.group and row.task_offset is not None for row in rows)
    fields = [FIELDS[name] for name in QUEUE if grouped or name != "task_group"]
    widths = [max([len(field.header), *(len(field.text(row, now)) for row in rows)]) for field in fields]
    least = [
        min(width, max(field.width, len(field.header))) if field.name in _CUT else width
        for field, width in zip(fields, widths)
    ]
    if room:
        # A blank stands before each column but the first.
        widths = cut_widths(widths, least, room - len(fields) + 1)
    *first, last = (queue_column(field) for field in fields)
    chosen = [LayoutField(column, width, True, " ") for column, width in zip(first, widths)]
    return Layout("", (*chosen, LayoutField(last, 0, False, "")))


def cut_widths(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """The widths, of which those that are most above their least are cut until all have room or none can be cut."""
    cut = list(widths)
    while sum(cut) > room:
        place = max(range(len(cut)), key=lambda place: cut[place] - least[place])
        if cut[place] == least[place]:
            break
        cut[place] -= 1
    return cut
