"""Which checkpoints are evaluated, in which order, and when scores end a job."""

from __future__ import annotations

import pytest

from overspan.bridge.lifecycle.checkpoint_choice import RankedCheckpoint, Scored, find_stop, put_in_order, rank, select
from overspan.bridge.model.evaluations import CheckpointSelection, EvaluationOrder, Select, StopRule, StopWhen


def steps(*numbers: float) -> list[RankedCheckpoint]:
    return [RankedCheckpoint(f"step_{number}", number) for number in numbers]


def choose(rule: CheckpointSelection, ready: list[RankedCheckpoint], taken: list[RankedCheckpoint]) -> list[float]:
    return [each.number or 0 for each in select(rule, ready, taken)]


def test_all_in_order_of_their_steps() -> None:
    assert choose(CheckpointSelection(), steps(30, 4, 200), []) == [4, 30, 200]


def test_the_latest_overtakes_the_others() -> None:
    rule = CheckpointSelection(Select.LATEST)
    assert choose(rule, steps(1, 3, 2), []) == [3]
    assert choose(rule, steps(1, 2), steps(3)) == []


def test_every_nth_step() -> None:
    assert choose(CheckpointSelection(Select.EVERY, every=100), steps(100, 150, 200), []) == [100, 200]


def test_milestones_take_the_first_at_or_after_each() -> None:
    rule = CheckpointSelection(Select.MILESTONES, milestones=(100, 500))
    assert choose(rule, steps(50, 120, 140, 500, 900), []) == [120, 500]
    assert choose(rule, steps(130, 600), steps(120, 500)) == []


def test_names_without_numbers_are_ordered_with_their_digits_as_numbers() -> None:
    names = [RankedCheckpoint(name, None) for name in ("c10", "c9", "b")]
    assert [each.name for each in sorted(names, key=rank)] == ["b", "c9", "c10"]
    assert [each.name for each in put_in_order(EvaluationOrder.NEWEST, names)] == ["c10", "c9", "b"]


def scores(*values: float) -> list[Scored]:
    return [Scored(RankedCheckpoint(f"s{step}", step), value) for step, value in enumerate(values)]


@pytest.mark.parametrize(
    ("rule", "values", "lowest", "done"),
    [
        (StopWhen(StopRule.SCORE, "e", score=0.9), (0.5, 0.89), False, False),
        (StopWhen(StopRule.SCORE, "e", score=0.9), (0.5, 0.9), False, True),
        (StopWhen(StopRule.SCORE, "e", score=0.1, above=False), (0.5, 0.1), True, True),
        (StopWhen(StopRule.NO_GAIN, "e", count=2), (0.5, 0.6, 0.6), False, False),
        (StopWhen(StopRule.NO_GAIN, "e", count=2), (0.5, 0.6, 0.6, 0.5), False, True),
        (StopWhen(StopRule.NO_GAIN, "e", count=2), (0.5, 0.4, 0.3), True, False),
        (StopWhen(StopRule.NO_GAIN, "e", count=1), (), False, False),
    ],
)
def test_scores_end_a_job(rule: StopWhen, values: tuple[float, ...], lowest: bool, done: bool) -> None:
    assert bool(find_stop(rule, reversed(scores(*values)), lowest=lowest)) is done
