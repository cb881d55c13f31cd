"""Draws scores over steps with braille dots, or with letters where only ASCII will do. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len

from overspan.bridge.client.terminal_texts import clean_text
from overspan.tui.evaluations.answers import KnownWatch, is_over
from overspan.tui.queue.styled_text import StyledText, cut_text

LEAST_WIDTH, LEAST_HEIGHT = 20, 5
"""Cells without which there is no plot: the caption, two lines of scores, and the axis with its steps."""
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bits of a braille cell, by line and column (Unicode, chapter 21.1)."""
_SPARSE = 3
"""Cells for each score from which scores have a sign of their own."""


class PlotSigns(NamedTuple):
    """The characters of a plot. Without `braille` lines are dots in the middle of a cell."""

    score: str
    best: str
    current: str
    failed: str
    live: str
    here: str
    axis: str
    corner: str
    side: str
    cut: str
    braille: bool


UNICODE = PlotSigns("•", "★", "◆", "x", "┴", "▲", "─", "└", "│", "…", True)
ASCII = PlotSigns("o", "*", "@", "x", "+", "^", "-", "+", "|", "~", False)


class StepScore(NamedTuple):
    """An evaluation at a step: its score, where it has one that can be drawn."""

    step: float
    score: float | None = None
    best: bool = False
    over: bool = True
    current: bool = False
    """Whether it is the one that the user looks at."""


class ScorePlot(NamedTuple):
    """What is drawn: the evaluations by step, and the words above and in place of them."""

    title: str
    points: tuple[StepScore, ...] = ()
    best: str = ""
    lowest_is_best: bool = False


def make_plot(watch: KnownWatch, chosen: Mapping[str, Any] | None = None) -> ScorePlot:
    """The plot of a watch; `chosen` is the evaluation under the cursor."""
    points = []
    for one in watch.evaluations:
        step, score = one.get("step"), one.get("score")
        if step is not None and math.isfinite(step):
            drawn = float(score) if score is not None and math.isfinite(score) else None
            points.append(StepScore(float(step), drawn, bool(one.get("best")), is_over(one), one is chosen))
    best = next((one for one in watch.evaluations if one.get("best") and one.get("score") is not None), None)
    words = f"best {float(best['score']):.6g} at {best.get('checkpoint', '')}" if best is not None else ""
    title = f"{watch.key.name} of {watch.summary.get('job_name') or watch.key.job}"
    points.sort(key=lambda point: point.step)
    return ScorePlot(title, tuple(points), words, bool(watch.summary.get("lowest_is_best")))


def draw_plot(plot: ScorePlot, width: int, height: int, ascii_only: bool = False) -> list[list[StyledText]]:
    """The lines of a plot, in so many cells: a caption, the scores between their bounds, the axis, and its steps."""
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return []
    signs = ASCII if ascii_only else UNICODE
    lines = [_write_caption(plot, width, signs)]
    scored = [point for point in plot.points if point.score is not None]
    if not scored:
        waits = any(not point.over for point in plot.points)
        text = "no score over a step yet" if waits or not plot.points else "no evaluation with a step has a score"
        return [*lines, [], [StyledText(cut_text(f"  {text}", width, signs.cut), "dim")]]
    labels = _label_scores(scored, height - 3)
    margin = max(map(len, labels.values()))
    canvas = _Canvas(plot.points, max(1, width - margin - 2), height - 3, signs)
    for number, row in enumerate(canvas.draw()):
        lines.append([StyledText(f"{labels.get(number, ''):>{margin}} {signs.side}", "dim"), *row])
    lines.append([StyledText(f"{'':>{margin}} {signs.corner}", "dim"), *canvas.draw_axis()])
    lines.append([StyledText(" " * (margin + 2) + canvas.label_steps(), "dim")])
    return lines


def _write_caption(plot: ScorePlot, width: int, signs: PlotSigns) -> list[StyledText]:
    """What is drawn, and at the right end the best score."""
    best = f"{signs.best} {clean_text(plot.best)}" if plot.best else ""
    best = cut_text(best, width * 2 // 3, signs.cut)
    room = max(0, width - cell_len(best) - 2)
    lowest = ", lower is better" if plot.lowest_is_best else ""
    title = cut_text(clean_text(plot.title) + lowest, room, signs.cut)
    return [
        StyledText(title, "title"),
        StyledText(" " * (width - cell_len(title) - cell_len(best))),
        StyledText(best, "good"),
    ]


def _label_scores(points: Iterable[StepScore], height: int) -> dict[int, str]:
    """The bounds of the scores, by the line that they stand on, and what is between them."""
    low, high = find_bounds([point.score for point in points if point.score is not None])
    if high <= low:
        return {height // 2: f"{low:.4g}"}
    middle = (height - 1) // 2
    labels = {middle: f"{high - (high - low) * middle / (height - 1):.4g}"} if height >= 5 else {}
    return {**labels, 0: f"{high:.4g}", height - 1: f"{low:.4g}"}


def find_bounds(values: Sequence[float]) -> tuple[float, float]:
    """The least and the largest of some numbers."""
    return min(values), max(values)


def place(value: float, bounds: tuple[float, float], count: int) -> int:
    """Where a value lies among so many dots; in the middle where all values are the same."""
    low, high = bounds
    # Halves, since the difference of two large numbers may be infinite.
    span = high / 2 - low / 2
    return (count - 1) // 2 if span <= 0 else min(count - 1, max(0, round((value / 2 - low / 2) / span * (count - 1))))


class _Canvas:
    """The cells between the bounds. Dots are counted from the top left."""

    def __init__(self, points: Sequence[StepScore], width: int, height: int, signs: PlotSigns) -> None:
        self.points = points
        self.width, self.height = width, height
        self.signs = signs
        self.steps = find_bounds([point.step for point in points])
        self.scores = find_bounds([point.score for point in points if point.score is not None])
        self._across, self._down = (2, 4) if signs.braille else (1, 1)
        self._scored = [(point, self._dot(point)) for point in points if point.score is not None]
        """What has a score, each with its dot."""
        self._bits: dict[tuple[int, int], int] = {}
        """By cell, the dots of lines."""
        self._signs: dict[tuple[int, int], StyledText] = {}

    def draw(self) -> list[list[StyledText]]:
        """The lines of cells, with equal styles joined."""
        self._draw_line()
        self._put_signs()
        return [_join_cells([self._cell(column, line) for column in range(self.width)]) for line in range(self.height)]

    def _cell(self, column: int, line: int) -> StyledText:
        sign, bits = self._signs.get((column, line)), self._bits.get((column, line), 0)
        if sign is not None:
            return sign
        return (
            StyledText(chr(0x2800 + bits) if self.signs.braille else ".", "busy") if bits else StyledText(" ", "busy")
        )

    def _draw_line(self) -> None:
        """Join the scores in the order of their steps, the newest of each step."""
        newest = {point.step: dot for point, dot in self._scored}
        # Of ten thousand scores many share a dot.
        dots = [dot for dot, _ in itertools.groupby(newest.values())]
        for (x, y), (to_x, to_y) in itertools.pairwise(dots):
            for dot in trace_line(x, y, to_x, to_y):
                self._set(*dot)
        for dot in {dot for _, dot in self._scored}:
            self._set(*dot)

    def _dot(self, point: StepScore) -> tuple[int, int]:
        columns, lines = self.width * self._across, self.height * self._down
        assert point.score is not None
        return place(point.step, self.steps, columns), lines - 1 - place(point.score, self.scores, lines)

    def _set(self, x: int, y: int) -> None:
        cell = x // self._across, y // self._down
        bit = _DOTS[y % 4][x % 2] if self.signs.braille else 1
        self._bits[cell] = self._bits.get(cell, 0) | bit

    def _put_signs(self) -> None:
        """Mark scores where there is room for signs; the best one and the current one, which nothing hides, always."""
        sparse = len(self._scored) * _SPARSE <= self.width
        marked = [(point, dot) for point, dot in self._scored if point.best or point.current or sparse]
        for point, (x, y) in sorted(marked, key=lambda each: (each[0].current, each[0].best)):
            sign = self.signs.best if point.best else self.signs.current if point.current else self.signs.score
            style = "chosen" if point.current else "good" if point.best else "accent"
            self._signs[x // self._across, y // self._down] = StyledText(sign, style)

    def draw_axis(self) -> list[StyledText]:
        """The axis: evaluations without a score, and where the current one is."""
        cells = [StyledText(self.signs.axis, "dim")] * self.width
        for point in sorted(self.points, key=lambda point: point.current):
            column = place(point.step, self.steps, self.width)
            if point.current:
                cells[column] = StyledText(self.signs.here, "chosen")
            elif point.score is None:
                failed = StyledText(self.signs.failed, "bad")
                cells[column] = failed if point.over else StyledText(self.signs.live, "busy")
        return _join_cells(cells)

    def label_steps(self) -> str:
        """The first step and the last one, and the current one where there is room between them."""
        first, last = (f"{step:.15g}" for step in self.steps)
        if self.steps[0] == self.steps[1]:
            return first.center(self.width)[: self.width].rstrip()
        text = (first + " " * max(1, self.width - len(first) - len(last)) + last)[: self.width]
        current = next((point for point in self.points if point.current), None)
        if current is not None:
            label = f"{current.step:.15g}"
            begin = min(self.width - len(label), max(0, place(current.step, self.steps, self.width) - len(label) // 2))
            end = begin + len(label)
            if begin >= 0 and not text[max(0, begin - 1) : end + 1].strip():
                text = text[:begin] + label + text[end:]
        return text


def trace_line(x: int, y: int, to_x: int, to_y: int) -> Iterator[tuple[int, int]]:
    """The dots of a straight line, one at least in each column and each line that it crosses."""
    count = max(abs(to_x - x), abs(to_y - y), 1)
    for number in range(count + 1):
        yield round(x + (to_x - x) * number / count), round(y + (to_y - y) * number / count)


def _join_cells(cells: Iterable[StyledText]) -> list[StyledText]:
    """The cells as few parts: neighbours of one style are one."""
    parts = itertools.groupby(cells, key=lambda cell: cell.style)
    return [StyledText("".join(cell.text for cell in group), style) for style, group in parts]
