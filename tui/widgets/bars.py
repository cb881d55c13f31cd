"""Bars of what is in use, drawn with block characters, or with `#` where only ASCII will do. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL, _EMPTY = "█", "░"
_ASCII_FULL, _ASCII_EMPTY = "#", "."
_STEPS, _ASCII_STEPS = "▁▂▃▄▅▆▇█", "_.-=+*#"
_NEARLY_ALL = 0.9
"""The share in use from which a bar warns."""


def draw_bar(used: float, total: float, width: int, ascii_only: bool = False) -> str:
    """A bar of so many cells; empty where there is nothing to use.

    A little in use shows at least as a sliver, and only what is in use altogether fills the bar.
    """
    if total <= 0 or width <= 0:
        return ""
    share = min(1.0, max(0.0, used / total))
    if ascii_only:
        full = _count(share, width)
        return _ASCII_FULL * full + _ASCII_EMPTY * (width - full)
    eighths = _count(share, width * 8)
    full, rest = divmod(eighths, 8)
    part = _EIGHTHS[rest] if rest else ""
    return _FULL * full + part + _EMPTY * (width - full - len(part))


def _count(share: float, parts: int) -> int:
    """How many of the parts are in use: none only for nothing, all only for everything."""
    if share in (0.0, 1.0):
        return int(share * parts)
    return max(1, min(parts - 1, round(share * parts)))


def style_use(used: float, total: float) -> str:
    """The style of a bar: a component class of the table without `line-table--`."""
    if total <= 0 or used <= 0:
        return "dim"
    return "waiting" if used / total >= _NEARLY_ALL else "good"


def draw_history(values: Sequence[int], width: int, ascii_only: bool = False) -> str:
    """Numbers over time, the latest last, in at most so many cells: each has the largest of its part."""
    if not values or width <= 0:
        return ""
    cells = min(width, len(values))
    parts = [values[len(values) * at // cells : len(values) * (at + 1) // cells] for at in range(cells)]
    marks, most = _ASCII_STEPS if ascii_only else _STEPS, max(values)
    return "".join(marks[_find_step(max(part), most, len(marks))] for part in parts)


def _find_step(value: int, most: int, steps: int) -> int:
    """The lowest step for nothing alone, the highest for the most."""
    if value <= 0 or most <= 0:
        return 0
    return max(1, round(value / most * (steps - 1)))
