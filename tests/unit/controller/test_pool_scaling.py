"""How many workers a pool has: fixed and by its queue, in one decision, down to none, and after failures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import hypothesis.strategies as st
from hypothesis import given

from overspan.bridge.controller.features.pools.entries import find_life
from overspan.bridge.controller.features.pools.scaling import MOST_FAILURES, PoolView, PoolWorker, plan_workers
from overspan.bridge.model.job import new_job
from overspan.bridge.model.pools import PoolSize, plan_life
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.store.pool_records import ClassFacts

NOW = 1000.0


class AlikePlan(NamedTuple):
    wanted: int
    start: int
    closed: tuple[int, ...]
    end: tuple[int, ...]
    wake_at: float | None


def view(size: PoolSize, *workers: PoolWorker, wanted: int | None = None, waiting: int = 0, **values: Any) -> PoolView:
    """A pool whose workers are all alike."""
    facts = ClassFacts(values.pop("generation", 1), size.low if wanted is None else wanted, values.pop("failures", 0))
    return PoolView(size, {"": facts}, workers, waiting={("",): waiting})._replace(**values)


def plan_alike(one: PoolView, now: float) -> AlikePlan:
    """The plan of such a pool."""
    plan = plan_workers(one, now)
    return AlikePlan(plan.wanted[""], plan.start.get("", 0), plan.closed, plan.end, plan.wake_at)


def worker(number: int, jobs: int = 0, idle: float | None = None, generation: int = 1) -> PoolWorker:
    return PoolWorker(number, generation, True, jobs, None if idle is None else NOW - idle)


def test_a_fixed_pool_has_its_number() -> None:
    plan = plan_alike(view(PoolSize(3, 3), worker(1)), NOW)
    assert (plan.wanted, plan.start, plan.closed, plan.end) == (3, 2, (), ())


def test_all_that_is_missing_at_once() -> None:
    size = PoolSize(0, 10)
    plan = plan_alike(view(size, waiting=100, waiting_since=NOW), NOW)
    assert (plan.wanted, plan.start) == (10, 10)
    plan = plan_alike(view(size, worker(1, 2), worker(2, 1), waiting=3, waiting_since=NOW, wanted=2), NOW)
    assert (plan.wanted, plan.start) == (5, 3)


def test_a_delay_is_waited_for_and_a_pool_without_workers_wakes_at_once() -> None:
    size = replace(PoolSize(0, 10), up_delay=30.0, threshold=5)
    waits = view(size, worker(1, 1), waiting=8, waiting_since=NOW - 10, wanted=1)
    assert (plan_alike(waits, NOW).start, plan_alike(waits, NOW).wake_at) == (0, NOW + 20)
    assert plan_alike(waits, NOW + 20).start == 8
    assert plan_alike(view(size, waiting=1), NOW).start == 1


def test_idle_workers_end_down_to_the_lowest_number() -> None:
    size = PoolSize(1, 10, idle=600.0)
    idle = view(size, worker(1, 1), worker(2, idle=700), worker(3, idle=100), worker(4, idle=601), wanted=4)
    plan = plan_alike(idle, NOW)
    assert (plan.wanted, plan.closed, plan.end, plan.wake_at) == (2, (2, 4), (2, 4), NOW + 500)
    none = plan_alike(view(PoolSize(0, 5, idle=10.0), worker(1, idle=11), wanted=1), NOW)
    assert (none.wanted, none.end) == (0, (1,))
    assert plan_alike(idle._replace(waiting={("",): 1}, waiting_since=NOW), NOW).end == ()


def test_a_smaller_pool_closes_idle_and_unready_workers_first_and_ends_none_with_jobs() -> None:
    plan = plan_alike(view(PoolSize(1, 1), worker(1, 1), worker(2), PoolWorker(3, 1), worker(4, 2)), NOW)
    assert set(plan.closed) == {2, 3, 4} and set(plan.end) == {2, 3}


def test_another_file_replaces_all_and_what_runs_finishes() -> None:
    plan = plan_alike(view(PoolSize(2, 2), worker(1, 1), worker(2), generation=2), NOW)
    assert (plan.start, plan.closed, plan.end) == (2, (1, 2), (2,))


def test_drained_workers_are_replaced() -> None:
    plan = plan_alike(view(PoolSize(2, 2), worker(1, 1), worker(2), closed=(1,)), NOW)
    assert (plan.start, plan.closed, plan.end) == (1, (1,), ())


def test_what_fails_three_times_is_not_tried_for_ever_and_a_deleted_pool_has_none() -> None:
    assert plan_alike(view(PoolSize(2, 2), failures=MOST_FAILURES), NOW).start == 0
    plan = plan_alike(view(PoolSize(2, 2), worker(1), worker(2, 1), ending=True, waiting=5), NOW)
    assert (plan.wanted, plan.start, plan.closed, plan.end) == (0, 0, (1, 2), (1,))


def test_where_a_worker_idles_those_that_are_missing_are_not_wanted_either() -> None:
    idle = worker(2, idle=700)
    plan = plan_alike(view(PoolSize(1, 4, idle=600.0), worker(1, 1), idle, wanted=4), NOW)
    assert (plan.wanted, plan.start, plan.end) == (1, 0, (2,))


workers = st.lists(
    st.tuples(st.integers(1, 2), st.booleans(), st.integers(0, 2), st.sampled_from([None, 0.0, 700.0])), max_size=8
).map(
    lambda found: [
        PoolWorker(number, generation, ready, jobs if ready else 0, NOW - idle if ready and not jobs and idle else None)
        for number, (generation, ready, jobs, idle) in enumerate(found, 1)
    ]
)


@given(
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
    workers,
    st.sets(st.integers(1, 8)),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_laws(sizes: tuple[int, int], known: list[PoolWorker], closed: set[int], waiting: int, wanted: int) -> None:
    size = PoolSize(min(sizes), max(sizes))
    since = NOW if waiting else None
    one = view(size, *known, generation=2, wanted=wanted, closed=closed, waiting=waiting, waiting_since=since)
    plan = plan_alike(one, NOW)
    assert size.low <= plan.wanted <= size.high
    serving = [each.job for each in known if each.job not in plan.closed]
    assert len(serving) + plan.start == plan.wanted
    assert all(each.generation == 2 for each in known if each.job in serving)
    assert {each.job for each in known if each.job in closed} <= set(plan.closed), "closed for good"
    assert set(plan.end) <= set(plan.closed) and not any(each.jobs for each in known if each.job in plan.end)
    again = plan_alike(one._replace(classes={"": ClassFacts(2, plan.wanted)}, closed=plan.closed), NOW)
    assert again._replace(wake_at=None) == plan._replace(wake_at=None), (
        "a plan that is carried out changes nothing more"
    )


def test_an_old_worker_is_replaced_before_it_is_closed() -> None:
    size = PoolSize(2, 2)
    old, young = worker(1, 3)._replace(renew_at=NOW - 1), worker(2)._replace(renew_at=NOW + 500)
    plan = plan_alike(view(size, old, young), NOW)
    assert (plan.start, plan.closed, plan.end, plan.wake_at) == (1, (), (), NOW + 500)
    coming = PoolWorker(3, 1)
    plan = plan_alike(view(size, old, young, coming), NOW)
    assert (plan.start, plan.closed) == (0, ())
    plan = plan_alike(view(size, old, young, coming._replace(ready=True)), NOW)
    assert (plan.start, plan.closed, plan.end) == (0, (1,), ())
    plan = plan_alike(view(size, old._replace(jobs=0), young, coming._replace(ready=True)), NOW)
    assert (plan.closed, plan.end) == ((1,), (1,))


def test_an_old_worker_of_a_pool_that_needs_none_ends() -> None:
    old = worker(1, idle=5)._replace(renew_at=NOW)
    plan = plan_alike(view(PoolSize(0, 5, idle=600.0), old, wanted=0), NOW)
    assert (plan.start, plan.end) == (0, (1,))
    plan = plan_alike(view(PoolSize(2, 2), old, ending=True), NOW)
    assert (plan.start, plan.end) == (0, (1,))


def test_a_worker_ends_with_its_own_limit_or_its_cluster_s() -> None:
    job = new_job(1, JobSpec("p-worker", (TaskSpec("worker"),)), 0.0)
    timed = new_job(2, JobSpec("p-worker", (TaskSpec("worker", time=300),)), 0.0)
    assert find_life(job, NOW) is None
    for one, end, ends_at in ((job, 1600.0, 1600.0), (timed, 1600.0, 1300.0), (timed, 1200.0, 1200.0)):
        life = find_life(replace(one, granted_at=NOW), NOW + 50, end)
        assert life is not None and life.ends_at == ends_at


def test_a_worker_s_life_is_from_its_allocation_to_its_limit() -> None:
    life = plan_life(1000.0, 600)
    assert (life.renew_at, life.ends_at) == (1480.0, 1600.0)
    assert life.holds(600, 1000.0) and not life.holds(601, 1000.0)
    assert life.holds(None, 1479.0) and not life.holds(None, 1480.0)
    day = plan_life(0.0, 86400)
    assert day.renew_at == 86400 - 1800


def test_a_delay_that_is_over_hides_no_later_moment() -> None:
    size = PoolSize(1, 5, up_delay=10.0)
    near = worker(1, 1)._replace(renew_at=NOW + 50)
    plan = plan_alike(view(size, near, waiting=1, waiting_since=NOW - 20), NOW)
    assert (plan.wanted, plan.wake_at) == (2, NOW + 50)
