"""The plot of scores over steps: where each dot is, what is marked, and numbers that no plot was made for."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.unit.tui.fake_source import evaluation, sum_up, watch
from tests.unit.tui.labs import HOSTILE

from overspan.bridge.client.terminal_texts import UNSAFE
from overspan.tui.evaluations.answers import KnownWatch, WatchKey
from overspan.tui.evaluations.plot import ScorePlot, StepScore, draw_plot, make_plot, place, trace_line

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def know(document: dict[str, Any]) -> KnownWatch:
    """The watch as the screen knows it."""
    return KnownWatch(WatchKey(document["job"], document["name"]), sum_up(document), document)


def read(plot: ScorePlot, width: int = 40, height: int = 9, ascii_only: bool = True) -> list[str]:
    """The lines as text."""
    return ["".join(part.text for part in line).rstrip() for line in draw_plot(plot, width, height, ascii_only)]


def make_points(*scores: float | None) -> tuple[StepScore, ...]:
    """A score at each of the steps 10, 20...; the highest is the best one."""
    best = max((score for score in scores if score is not None), default=None)
    return tuple(StepScore(step * 10.0, score, score == best) for step, score in enumerate(scores, 1))


def test_scores_stand_between_their_bounds_with_the_best_one_marked() -> None:
    plot = ScorePlot("gsm8k of rl", make_points(0.25, 0.5, 0.75), "best 0.75 at step_30")
    assert read(plot) == [
        "gsm8k of rl       * best 0.75 at step_30",
        "0.75 |                               ..*",
        "     |                         ......",
        "0.55 |                   ......",
        "     |             ...o..",
        "     |    .........",
        "0.25 |o...",
        "     +----------------------------------",
        "      10                              30",
    ]


def test_lines_are_drawn_in_braille_where_the_terminal_has_it() -> None:
    plot = ScorePlot("t", make_points(*range(60)))
    text = "\n".join(read(plot, ascii_only=False))
    assert any(0x2800 < ord(letter) < 0x2900 for letter in text) and "★" in text and "•" not in text
    assert "•" in "\n".join(read(ScorePlot("t", make_points(1, 2, 3)), ascii_only=False)), "few have signs of their own"
    assert "\n".join(read(plot)).isascii()


def test_the_current_one_the_failed_and_the_live_ones_are_on_the_axis() -> None:
    points = (
        StepScore(10, 0.1),
        StepScore(20, 0.4, best=True),
        StepScore(30, 0.3, current=True),
        StepScore(40, None),
        StepScore(50, None, over=False),
    )
    lines = read(ScorePlot("t", points))
    assert "@" in "\n".join(lines[1:-2]) and "*" in "\n".join(lines[1:-2])
    axis, steps = lines[-2], lines[-1]
    assert axis.endswith("+") and "x" in axis
    assert steps.split() == ["10", "30", "50"] and steps.index("30") <= axis.index("^") <= steps.index("30") + 1
    styles = {part.text: part.style for line in draw_plot(ScorePlot("t", points), 40, 9, True) for part in line}
    assert styles["x"] == "bad" and styles["^"] == "chosen" and styles["@"] == "chosen"


def test_lower_is_better_where_the_watch_says_so() -> None:
    found = know(
        watch(1, "loss", evaluation(1, 10, score=2.0), evaluation(2, 20, score=1.5, best=True), lowest_is_best=True)
    )
    plot = make_plot(found, found.evaluations[0])
    assert plot.best == "best 1.5 at step_20" and [point.current for point in plot.points] == [True, False]
    assert read(plot, 60)[0].startswith("loss of rl-math, lower is better")


@pytest.mark.parametrize(
    ("evaluations", "told"),
    [
        ((), "no score over a step yet"),
        ((evaluation(1, 10, "RUNNING"),), "no score over a step yet"),
        ((evaluation(1, 10, "FAILED"),), "no evaluation with a step has a score"),
        (({**evaluation(1, 10, score=0.5), "step": None},), "no score over a step yet"),
        ((evaluation(1, 10, score=float("nan")),), "no evaluation with a step has a score"),
    ],
)
def test_without_a_score_it_says_so(evaluations: tuple[dict[str, Any], ...], told: str) -> None:
    assert read(make_plot(know(watch(1, "q", *evaluations))))[-1].strip() == told


def test_one_score_and_equal_scores_are_in_the_middle() -> None:
    lines = read(ScorePlot("t", make_points(0.5)))
    assert lines[-1].split() == ["10"] and sum("*" in line for line in lines) == 1
    lines = read(ScorePlot("t", make_points(0.5, 0.5, 0.5)))
    assert [line.count(" |") for line in lines[1:-2]] == [1] * 6 and lines[4].startswith("0.5 |*")


def test_scores_of_one_step_are_one_line_up_and_the_newest_is_joined() -> None:
    points = (StepScore(10, 0.0), StepScore(20, 1.0), StepScore(20, 0.5), StepScore(30, 0.5))
    lines = read(ScorePlot("t", points), 60)
    assert sum(line.count("o") for line in lines[1:-2]) == 4


def test_hostile_names_are_cleaned() -> None:
    found = know(watch(1, f"q{HOSTILE}", evaluation(1, 10, score=1.0, best=True, checkpoint=HOSTILE), job_name=HOSTILE))
    lines = read(make_plot(found), 100)
    assert not UNSAFE.search("".join(lines)) and "[bold]" in lines[0]


@given(
    st.lists(st.tuples(FLOATS, FLOATS | st.none()), max_size=40), st.integers(1, 90), st.integers(1, 30), st.booleans()
)
def test_any_numbers_fit_into_any_size(
    pairs: list[tuple[float, float | None]], width: int, height: int, a: bool
) -> None:
    points = [
        StepScore(step, score, number == 2, number != 3, number == 1) for number, (step, score) in enumerate(pairs)
    ]
    lines = draw_plot(ScorePlot("title", tuple(sorted(points, key=lambda point: point.step)), "best"), width, height, a)
    assert len(lines) <= height
    for line in lines:
        assert cell_len("".join(part.text for part in line)) <= width


@given(FLOATS, FLOATS, FLOATS, st.integers(1, 500))
def test_a_place_is_one_of_the_dots(value: float, low: float, high: float, count: int) -> None:
    low, high = sorted((low, high))
    found = place(min(high, max(low, value)), (low, high), count)
    assert 0 <= found < count
    if low < high and math.isfinite(high - low) and (high - low) / 2 > 0:
        assert place(low, (low, high), count) == 0 and place(high, (low, high), count) == count - 1


@given(*[st.integers(0, 60)] * 4)
def test_a_line_has_no_gap(x: int, y: int, to_x: int, to_y: int) -> None:
    dots = list(trace_line(x, y, to_x, to_y))
    assert dots[0] == (x, y) and dots[-1] == (to_x, to_y)
    assert all(abs(a - c) <= 1 and abs(b - d) <= 1 for (a, b), (c, d) in itertools.pairwise(dots))
