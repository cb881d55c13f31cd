"""Whose room is taken for the first in the queue, and when it would start without that."""

from __future__ import annotations

import itertools
from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given

from overspan.adapters.local.queue.booking import BookedMember, Bookings, Variant
from overspan.adapters.local.queue.capacity import Capacity
from overspan.adapters.local.queue.preemption import RunningLaunch, choose_victims
from overspan.adapters.local.queue.start_estimates import estimate_start, limit_run
from overspan.bridge.lifecycle.stages import carry
from overspan.bridge.model.job import new_job
from overspan.bridge.model.resources import NodeNeed
from overspan.bridge.model.spec import JobSpec, Need, NeedKind, Start, TaskSpec

MACHINE = Capacity(4000, 4096, ("A100", "A100"))


def need(cpus: int, memory: int | None = None, gpus: int = 0) -> Variant:
    return (BookedMember("t", 0, NodeNeed(cpus * 1000, memory, gpus * 1000)),)


def hold(
    ledger: Bookings, key: str, variant: Variant, behind: int = 0, at: float = 0.0, leaving: bool = False
) -> RunningLaunch:
    booking = ledger.book(key, [variant])
    assert booking is not None
    return RunningLaunch(key, behind, at, booking, leaving)


needs = st.builds(need, st.integers(1, 4), st.sampled_from([None, 1000, 3000]), st.integers(0, 2))
asked = st.lists(st.tuples(needs, st.integers(-2, 2), st.integers(0, 5), st.booleans()), max_size=6)


def without(ledger: Bookings, keys: list[str]) -> Bookings:
    books = ledger.copy()
    for key in keys:
        assert books.release(key)
    return books


@given(asked, needs, st.integers(-2, 2))
def test_victims_are_lower_and_enough_and_none_could_be_spared(
    held: list[tuple[Variant, int, int, bool]], wanted: Variant, behind: int
) -> None:
    ledger = Bookings(MACHINE)
    holders = []
    for place, (variant, rank, at, leaving) in enumerate(held):
        booking = ledger.book(str(place), [variant])
        if booking is not None:
            holders.append(RunningLaunch(str(place), rank, float(at), booking, leaving))
    before = ledger.copy()
    victims = choose_victims(ledger, [wanted], behind, holders)
    assert (ledger.cpu_milli, ledger.memory_mib, ledger.gpu_milli) == (
        before.cpu_milli,
        before.memory_mib,
        before.gpu_milli,
    )
    by_key = {holder.key: holder for holder in holders}
    leaving_keys = [holder.key for holder in holders if holder.leaving]
    assert len(set(victims)) == len(victims)
    assert all(by_key[key].behind > behind and not by_key[key].leaving for key in victims)
    free = without(ledger, leaving_keys)
    if victims:
        assert not free.fits([wanted])
        assert without(free, list(victims)).fits([wanted])
        for fewer in itertools.combinations(victims, len(victims) - 1):
            assert not without(free, list(fewer)).fits([wanted])
        # No higher priority is touched than has to be.
        spared = [h.key for h in holders if not h.leaving and h.behind > min(by_key[key].behind for key in victims)]
        assert not without(free, spared).fits([wanted])
    elif not free.fits([wanted]):
        lower = [holder.key for holder in holders if holder.behind > behind and not holder.leaving]
        assert not without(free, lower).fits([wanted]), "it would have helped"


def test_the_lowest_goes_first_and_the_youngest_of_those() -> None:
    ledger = Bookings(MACHINE)
    holders = [
        hold(ledger, "high", need(1), behind=-5, at=9),
        hold(ledger, "old", need(1), behind=3, at=1),
        hold(ledger, "young", need(1), behind=3, at=2),
        hold(ledger, "low", need(1), behind=2, at=8),
    ]
    assert choose_victims(ledger, [need(1)], 0, holders) == ("young",)
    assert set(choose_victims(ledger, [need(2)], 0, holders)) == {"young", "old"}
    assert set(choose_victims(ledger, [need(3)], 0, holders)) == {"young", "old", "low"}
    assert choose_victims(ledger, [need(4)], 0, holders) == ()
    assert choose_victims(ledger, [need(1)], 3, holders) == ()


def test_one_large_victim_rather_than_several_small_ones() -> None:
    ledger = Bookings(MACHINE)
    holders = [
        hold(ledger, "large", need(2), behind=1, at=0),
        hold(ledger, "small", need(1), behind=1, at=1),
        hold(ledger, "tiny", need(1), behind=1, at=2),
    ]
    assert choose_victims(ledger, [need(2)], 0, holders) == ("large",)
    assert set(choose_victims(ledger, [need(3)], 0, holders)) == {"large", "tiny"}


def test_those_who_leave_already_count_as_gone() -> None:
    ledger = Bookings(MACHINE)
    holders = [
        hold(ledger, "going", need(2), behind=1, leaving=True),
        hold(ledger, "staying", need(2), behind=1),
    ]
    assert choose_victims(ledger, [need(2)], 0, holders) == ()
    assert choose_victims(ledger, [need(3)], 0, holders) == ("staying",)


def test_the_first_starts_when_enough_of_the_limits_are_over() -> None:
    ledger = Bookings(MACHINE)
    for key in "abcd":
        hold(ledger, key, need(1))
    ends = [(40.0, "a"), (20.0, "b"), (None, "c"), (30.0, "d")]
    assert estimate_start(ledger, [need(1)], ends) == 20.0
    assert estimate_start(ledger, [need(3)], ends) == 40.0
    assert estimate_start(ledger, [need(4)], ends) is None
    assert len(ledger) == 4


def test_a_run_is_limited_by_its_primaries_and_the_delays_after_them() -> None:
    def limit(*tasks: TaskSpec) -> float | None:
        return limit_run(new_job(1, JobSpec("j", tasks), 0.0))

    server = TaskSpec("s", primary=False, termination_delay=30)
    assert limit(TaskSpec("a", time=60), TaskSpec("b", time=100), server) == 130.0
    assert limit(TaskSpec("a", time=60), TaskSpec("b"), server) is None
    assert limit(TaskSpec("a", time=60), TaskSpec("b", time=5, needs=(Need("a", NeedKind.OK),))) is None


def test_a_stage_that_primaries_follow_is_limited_by_all_of_it() -> None:
    tasks = (
        TaskSpec("a", primary=False, time=60, termination_delay=30),
        TaskSpec("b", needs=(Need("a", NeedKind.OK),)),
    )
    assert limit_run(carry(new_job(1, JobSpec("j", tasks, group=True, start=Start.TURNS), 0.0))) == 60.0
    unlimited = (replace(tasks[0], time=None), tasks[1])
    assert limit_run(carry(new_job(1, JobSpec("j", unlimited, group=True, start=Start.TURNS), 0.0))) is None
