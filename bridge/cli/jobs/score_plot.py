"""Draws scores over steps with letters, for a terminal of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

HEIGHT = 12
"""Lines of the plot itself."""
LEAST_WIDTH = 20
POINT = "o"
BEST = "*"


class PlotPoint(NamedTuple):
    """One score, and whether it is the best."""

    step: float
    score: float
    best: bool = False


def draw_scores(title: str, points: Sequence[PlotPoint], width: int) -> str:
    """The scores over the steps: `*` is the best one. At most `width` columns, where those are enough."""
    low, high = min(point.score for point in points), max(point.score for point in points)
    labels = {HEIGHT - 1: f"{low:.4g}", 0: f"{high:.4g}"} if high > low else {HEIGHT // 2: f"{low:.4g}"}
    margin = max(map(len, labels.values()))
    columns = max(LEAST_WIDTH, width - margin - 3)
    first, last = min(point.step for point in points), max(point.step for point in points)
    grid = [[" "] * columns for _ in range(HEIGHT)]
    # The best is drawn last, so that no other hides it.
    for point in sorted(points, key=lambda point: point.best):
        column = _place(point.step, first, last, columns)
        line = HEIGHT - 1 - _place(point.score, low, high, HEIGHT)
        grid[line][column] = BEST if point.best else POINT
    lines = [title]
    lines += [f"{labels.get(number, ''):>{margin}} |{''.join(row).rstrip()}" for number, row in enumerate(grid)]
    lines.append(f"{'':>{margin}} +{'-' * columns}")
    begin, end = f"{first:.15g}", f"{last:.15g}" if last > first else ""
    lines.append(f"{'':>{margin}}  {begin}{end:>{max(1, columns - len(begin))}}".rstrip())
    best = next((point for point in points if point.best), None)
    if best is not None:
        lines.append(f"{'':>{margin}}  {BEST} best: {best.score:.6g} at {best.step:.15g}")
    return "\n".join(lines) + "\n"


def _place(value: float, low: float, high: float, count: int) -> int:
    """The cell of a value among `count` cells."""
    if high <= low:
        return count // 2
    return min(count - 1, round((value - low) / (high - low) * (count - 1)))
