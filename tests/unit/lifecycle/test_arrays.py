"""Arrays as values: which elements are drawn, what orders leave, how the whole ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.lifecycle.arrays import AHEAD, Tally, choose_drawn, find_end
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model import events
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.ids import (
    IndexRange,
    collapse,
    common_indices,
    format_array_indices,
    parse_array,
    take_indices,
    without_indices,
)
from overspan.bridge.model.job import Job, Resolution, new_element, new_job
from overspan.bridge.model.spec import Dependency, DependencyKind, JobNeed, JobSpec, TaskSpec
from overspan.bridge.model.states import State


def make(text: str, **facts: object) -> Job:
    """An array of those elements."""
    spec = JobSpec("sweep", (TaskSpec("batch", run="true"),), array=parse_array(text), **facts)  # type: ignore[arg-type]
    return new_job(7, spec, 100.0)


def waiting(job: Job) -> str:
    """The indices that wait."""
    assert job.array is not None
    return format_array_indices(job.array.waiting)


def test_an_array_survives_its_document() -> None:
    job = make("0-9:3,20%4")
    assert decode(Job, encode(job)) == job


@pytest.mark.parametrize(
    ("text", "tally", "drawn"),
    [
        ("0-9", Tally(), "0-9"),
        ("0-99", Tally(), f"0-{AHEAD - 1}"),
        ("0-99%3", Tally(), "0-2"),
        ("0-99%3", Tally(live=2, running=1), "0"),
        ("0-99%3", Tally(live=3), ""),
        # Few more would be a transaction each; many running ones want many at hand.
        ("0-99", Tally(live=AHEAD - 1), ""),
        ("0-999", Tally(live=100, running=100), "0-99"),
        # Few more are a transaction each also where many run.
        ("0-999", Tally(live=160, running=100), ""),
        ("5,7,9", Tally(), "5,7,9"),
    ],
)
def test_which_elements_become_jobs(text: str, tally: Tally, drawn: str) -> None:
    assert format_array_indices(choose_drawn(make(text), tally)) == drawn


@pytest.mark.parametrize(
    ("text", "tally", "drawn"),
    [
        ("0-99%3", Tally(), f"0-{AHEAD - 1}"),
        ("0-99%3", Tally(live=AHEAD, running=3), ""),
        ("0-99%20", Tally(live=AHEAD, running=20), "0-19"),
        ("0-999%200", Tally(live=250, running=200), "0-149"),
        ("0-999%200", Tally(live=350, running=200), ""),
    ],
)
def test_a_throttle_that_the_cluster_keeps_does_not_bound_what_is_drawn(text: str, tally: Tally, drawn: str) -> None:
    assert format_array_indices(choose_drawn(make(text), tally, enforced=True)) == drawn


def test_what_is_drawn_waits_no_longer_and_is_drawn_once() -> None:
    event = events.Drawn(101.0, ((0, 2, 1),), 8)
    job = reduce(make("0-9"), event)
    assert waiting(job) == "3-9" and job.state is State.PENDING
    assert reduce(job, event).late == 1
    job = reduce(job, events.Drawn(102.0, ((3, 9, 1),), 11))
    assert (job.state, job.started_at) == (State.RUNNING, 102.0)


@pytest.mark.parametrize(
    ("tally", "state", "exit_code"),
    [
        (Tally(states=(State.COMPLETED,)), "COMPLETED", 0),
        (Tally(states=(State.COMPLETED, State.FAILED), exit_code=5), "FAILED", 5),
        (Tally(states=(State.COMPLETED, State.CANCELLED)), "CANCELLED", 0),
        (Tally(states=(State.TIMEOUT, State.CANCELLED)), "TIMEOUT", 0),
    ],
)
def test_the_whole_ends_as_its_worst_element(tally: Tally, state: str, exit_code: int) -> None:
    job = reduce(make("0-1"), events.Drawn(101.0, ((0, 1, 1),), 8))
    end = find_end(job, tally, 110.0)
    assert end is not None
    job = reduce(job, end)
    assert (job.state.value, job.exit_code, job.over, job.ended_at) == (state, exit_code, True, 110.0)
    assert find_end(job, tally, 111.0) is None


def test_the_whole_does_not_end_while_anything_is_left() -> None:
    job = reduce(make("0-1"), events.Drawn(101.0, ((0, 0, 1),), 8))
    assert find_end(job, Tally(states=(State.COMPLETED,)), 110.0) is None
    job = reduce(job, events.CancelElements(102.0, ((1, 1, 1),)))
    assert find_end(job, Tally(live=1), 110.0) is None
    assert find_end(job, Tally(states=(State.COMPLETED,)), 110.0) == events.Gathered(110.0, "COMPLETED")


def test_orders_that_make_no_sense_for_an_array_change_nothing() -> None:
    job = make("0-1")
    for event in (
        events.Granted(101.0, ()),
        events.Restart(101.0),
        events.Suspend(101.0),
        events.CancelElements(101.0, ((5, 6, 1),)),
        events.Gathered(101.0, "COMPLETED"),
    ):
        assert reduce(job, event) == reduce(job, event) and reduce(job, event).late == 1


def test_an_element_waits_for_its_counterpart_alone() -> None:
    pair, whole = JobNeed(DependencyKind.AFTERCORR, 3), JobNeed(DependencyKind.AFTEROK, 4)
    array = make("0-9", dependency=Dependency((pair, whole)))
    mine = JobNeed(DependencyKind.AFTERCORR, 3, element=6)
    due = replace(array, resolved=(Resolution(1, 5.0), Resolution(0, 5.0)))
    assert new_element(due, 6, 70).dependency == Dependency((mine,))
    # Before its turn it waits for all that the array waits for.
    early = new_element(replace(array, resolved=(Resolution(0, 5.0),), begin=9.0), 6, 70)
    assert (early.dependency, early.resolved, early.begin) == (Dependency((mine, whole)), (), 9.0)


_RANGES = st.lists(
    st.builds(
        lambda first, count, step: IndexRange(first, first + (count - 1) * step, step if count > 1 else 1),
        st.integers(0, 200),
        st.integers(1, 20),
        st.integers(1, 4),
    ),
    max_size=5,
)


def _set(ranges: object) -> set[int]:
    return {index for part in ranges for index in part.values()}  # type: ignore[attr-defined]


@given(_RANGES, _RANGES, st.integers(0, 50))
def test_ranges_are_sets(some: list[IndexRange], others: list[IndexRange], count: int) -> None:
    ranges = collapse(_set(some))
    assert _set(without_indices(ranges, others)) == _set(some) - _set(others)
    assert _set(common_indices(ranges, others)) == _set(some) & _set(others)
    taken, left = take_indices(ranges, count)
    assert sorted(_set(taken)) == sorted(_set(some))[:count] and _set(left) == _set(some) - _set(taken)


@given(_RANGES, st.integers(1, 50))
def test_taking_the_front_again_and_again_loses_nothing(some: list[IndexRange], count: int) -> None:
    left: tuple[IndexRange, ...] = parse_array(",".join(str(index) for index in sorted(_set(some))) or "0").ranges
    seen: list[int] = []
    while left:
        taken, rest = take_indices(left, count)
        assert without_indices(left, taken) == rest
        seen += [index for part in taken for index in part.values()]
        left = rest
    assert seen == (sorted(_set(some)) or [0])
