"""Numbers of workers for each class of a pool: each within its own, all together within the pool's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.unit.controller.fakes import begin, turn, until
from tests.unit.controller.pool_scenes import LimitedCluster, PoolScene, ScenePlayer, make_player

from overspan.bridge.controller.features.pools.changes import change_spec, resize
from overspan.bridge.controller.features.pools.numbers import ClassCounts, choose_numbers
from overspan.bridge.controller.features.pools.patience import BARRED_SECONDS, PATIENCE, bar_classes
from overspan.bridge.controller.features.pools.scaling import PoolView, PoolWorker, plan_workers
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.errors import InvalidRequest, NotFound
from overspan.bridge.model.job import Ending
from overspan.bridge.model.pools import PoolSize, WorkerClass, check_size, resize_class
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.readers.pool_file import PoolSpec
from overspan.bridge.readers.submission import Submission
from overspan.bridge.store.pool_records import ClassFacts, PoolFacts

NOW = 1000.0
GPU, CPU = WorkerClass("gpu", 0, 4, 2.0), WorkerClass("cpu", 1, 6)
BOTH = PoolSize(1, 8, classes=(GPU, CPU))


def count(one: WorkerClass, wanted: int, **values: Any) -> ClassCounts:
    """A class whose wanted workers are all there and ready."""
    return ClassCounts(one, wanted, wanted, ready=wanted)._replace(**values)


def choose(
    waiting: dict[str, int], gpu: ClassCounts, cpu: ClassCounts, size: PoolSize = BOTH, due: bool = True
) -> tuple[int, int]:
    """The numbers of both classes; a job waits for the classes that its key names."""
    named = {tuple(key.split()): number for key, number in waiting.items()}
    chosen = choose_numbers(size, {"gpu": gpu, "cpu": cpu}, named, due=due)
    return chosen["gpu"], chosen["cpu"]


@pytest.mark.parametrize(
    ("waiting", "numbers"),
    [
        ({}, (0, 1)),
        ({"gpu cpu": 1}, (0, 1)),
        ({"gpu cpu": 4}, (3, 1)),
        ({"gpu cpu": 6}, (4, 2)),
        ({"gpu": 2}, (2, 1)),
        ({"cpu": 3}, (0, 3)),
        ({"gpu": 3, "gpu cpu": 4}, (4, 3)),
        ({"gpu": 90, "cpu": 90}, (4, 4)),
        ({"": 7}, (0, 1)),
    ],
)
def test_a_job_calls_for_the_class_of_most_weight_that_it_fits(
    waiting: dict[str, int], numbers: tuple[int, int]
) -> None:
    assert choose(waiting, count(GPU, 0), count(CPU, 1)) == numbers


def test_a_free_worker_is_for_one_waiting_job() -> None:
    assert choose({"gpu": 2, "gpu cpu": 3}, count(GPU, 2), count(CPU, 1)) == (4, 1)


def test_a_pool_that_is_full_gives_up_what_is_spare_for_what_waits() -> None:
    full = PoolSize(1, 5, classes=(GPU, CPU))
    assert choose({"gpu": 2}, count(GPU, 0), count(CPU, 5, busy=2), full) == (2, 3)
    assert choose({"gpu": 9}, count(GPU, 0), count(CPU, 5, busy=2), full) == (3, 2)
    assert choose({"gpu": 2}, count(GPU, 0), count(CPU, 5, busy=5), full) == (0, 5)
    assert choose({"gpu": 2, "cpu": 3}, count(GPU, 0), count(CPU, 5, busy=2), full) == (0, 5)
    assert choose({"gpu": 2}, count(GPU, 0), count(CPU, 5), full, due=False) == (2, 3), "no worker fits: at once"


def test_a_barred_class_has_its_number_and_another_one_serves_the_queue() -> None:
    stuck = count(GPU, 3, ready=0, barred=True)
    assert choose({"gpu cpu": 3}, stuck, count(CPU, 1)) == (3, 3)
    full = PoolSize(1, 5, classes=(GPU, CPU))
    assert choose({"gpu cpu": 4}, stuck, count(CPU, 1), full) == (1, 4), "those that wait for their cluster are spare"
    assert choose({"gpu": 4}, stuck, count(CPU, 1)) == (4, 1), "nobody else can have it"
    assert choose({}, stuck, count(CPU, 1)) == (0, 1), "nobody needs them any more"


def test_what_is_on_its_way_in_a_barred_class_serves_before_more_of_it() -> None:
    stuck = count(GPU, 1, ready=0, barred=True)
    assert choose({"gpu": 1}, stuck, count(CPU, 1, busy=1)) == (1, 1)
    assert choose({"gpu": 2, "gpu cpu": 1}, stuck, count(CPU, 1, busy=1)) == (2, 2)
    assert choose({"gpu": 2}, count(GPU, 3, ready=1, busy=1, barred=True), count(CPU, 1)) == (3, 1)


def test_classes_that_are_barred_leave_each_other_their_workers_in_a_full_pool() -> None:
    low = CPU._replace(low=0)
    size = PoolSize(0, 2, classes=(GPU, low))
    for numbers in ((2, 0), (1, 1), (0, 2)):
        stuck = [count(own, number, ready=0, barred=True) for own, number in zip((GPU, low), numbers, strict=True)]
        assert choose({"gpu cpu": 2}, stuck[0], stuck[1], size) == numbers


def test_a_class_that_is_tried_again_has_free_room_and_one_worker_of_another_s() -> None:
    low = CPU._replace(low=0)
    size = PoolSize(0, 3, classes=(GPU, low))
    stuck = count(low, 3, ready=0, barred=True)
    assert choose({"gpu cpu": 3}, count(GPU, 0, again=True), stuck, size) == (1, 2)
    assert choose({"gpu cpu": 3}, count(GPU, 1, ready=0, again=True), stuck._replace(wanted=2), size) == (1, 2)
    assert choose({"gpu cpu": 3}, count(GPU, 1), stuck._replace(wanted=2), size) == (3, 0), "it gives some again"
    assert choose({"gpu cpu": 3}, count(GPU, 0, again=True), stuck._replace(wanted=1), size) == (2, 1)


@pytest.mark.parametrize("there", [0, 2])
def test_a_barred_class_is_none_that_may_be_waited_for_until_the_queue_is_long(there: int) -> None:
    low = CPU._replace(low=0)
    stuck = count(GPU, 2, there=there, ready=0, barred=True)
    assert choose({"gpu cpu": 1}, stuck, count(low, 0), due=False) == (2, 1)
    assert choose({"gpu cpu": 1}, stuck, count(low, 1, ready=0), due=False) == (2, 1), "it has one that comes"
    ready = count(GPU, 1, busy=1, barred=True)
    assert choose({"gpu cpu": 1}, ready, count(low, 0), due=False) == (1, 0)


def test_the_pool_s_own_numbers_hold_for_all_together() -> None:
    low = PoolSize(4, 8, classes=(GPU, CPU))
    assert choose({}, count(GPU, 0), count(CPU, 1), low) == (3, 1)
    assert choose({}, count(GPU, 0), count(CPU, 4), low) == (0, 4)
    assert choose({}, count(GPU, 0, barred=True), count(CPU, 1), low) == (0, 4)
    high = PoolSize(1, 3, classes=(GPU, CPU))
    assert choose({}, count(GPU, 3, busy=3), count(CPU, 4), high) == (2, 1), "idle ones first, and least weight"
    assert choose({}, count(GPU, 4, idle=4), count(CPU, 2, idle=2), low) == (3, 1)
    assert choose({"gpu": 1}, count(GPU, 4, idle=4), count(CPU, 3, idle=3)) == (4, 1), "one waits for such"


classes = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from([0.5, 1.0, 2.0])), min_size=1, max_size=4
).map(
    lambda found: [
        WorkerClass("abcd"[index], min(pair[:2]), max(pair[:2]), pair[2]) for index, pair in enumerate(found)
    ]
)
shares = st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.sampled_from(["", "barred", "again"]))


@given(
    classes, st.lists(shares, min_size=4, max_size=4), st.integers(0, 9), st.integers(0, 9), st.booleans(), st.data()
)
def test_laws(
    found: list[WorkerClass], drawn: list[tuple[int, int, int, str]], below: int, above: int, due: bool, data: Any
) -> None:
    least, most = sum(each.low for each in found), sum(each.high for each in found)
    high = min(most, least + above)
    size = PoolSize(max(0, min(high, least + below)), high, classes=tuple(found))
    assert check_size(size) is None
    counts = {}
    for each, (wanted, busy, ready, state) in zip(found, drawn, strict=False):
        # A class that is tried again has given none since.
        ready = 0 if state == "again" else min(ready, wanted)
        busy = min(busy, ready)
        counts[each.name] = ClassCounts(
            each, wanted, wanted, busy, ready, ready - busy, barred=state == "barred", again=state == "again"
        )
    names = st.sets(st.sampled_from([each.name for each in found])).map(lambda chosen: tuple(sorted(chosen)))
    waiting = data.draw(st.dictionaries(names, st.integers(0, 6), max_size=3))
    chosen = choose_numbers(size, counts, waiting, due=due)
    assert all(each.low <= chosen[each.name] <= each.high for each in found)
    assert size.low <= sum(chosen.values()) <= size.high
    for fitting, number in waiting.items():
        short = number and all(chosen[name] <= counts[name].busy for name in fitting)
        room = any(chosen[each.name] < each.high for each in found if each.name in fitting)
        idle = [each for each in found if each.name not in fitting and chosen[each.name] > each.low]
        spare = [each for each in idle if not counts[each.name].busy and not any(each.name in key for key in waiting)]
        if fitting and due and short and room:
            assert sum(chosen.values()) == size.high and not spare, "nobody starves beside a worker that nobody needs"


def test_workers_of_a_class_that_is_gone_are_closed_and_those_of_another_stay() -> None:
    facts = {"gpu": ClassFacts(1, 1), "new": ClassFacts(2, 1)}
    size = PoolSize(2, 2, classes=(WorkerClass("gpu", 1, 1), WorkerClass("new", 1, 1)))
    workers = [
        PoolWorker(1, 1, True, worker_class="gpu"),
        PoolWorker(2, 1, True, 1, worker_class="cpu"),
        PoolWorker(3, 1, True, worker_class="new"),
    ]
    plan = plan_workers(PoolView(size, facts, workers), NOW)
    assert (plan.start, plan.closed, plan.end) == ({"new": 1}, (2, 3), (3,))


def test_a_class_that_has_failed_is_not_tried_and_others_go_on() -> None:
    facts = {"gpu": ClassFacts(failures=3), "cpu": ClassFacts()}
    plan = plan_workers(PoolView(BOTH, facts, [], waiting={("cpu", "gpu"): 3}, waiting_since=NOW), NOW)
    assert plan.start == {"cpu": 3}


def test_a_class_that_has_failed_keeps_no_number_but_its_lowest() -> None:
    facts = {"gpu": ClassFacts(failures=3, wanted=4), "cpu": ClassFacts(failures=3, wanted=5)}
    one = PoolWorker(1, 1, ready=True, jobs=1, worker_class="gpu")
    plan = plan_workers(PoolView(BOTH, facts, [one], waiting={("gpu",): 9}, waiting_since=NOW), NOW)
    assert (plan.wanted, plan.start, plan.closed) == ({"gpu": 1, "cpu": 1}, {}, ())


def make_spec(**setups: str) -> PoolSpec:
    """A pool whose classes differ by their set-up."""
    sizes = tuple(WorkerClass(name, 0, 2) for name in setups)
    workers = {name: JobSpec("p", (TaskSpec("worker", setup=setup),)) for name, setup in setups.items()}
    return PoolSpec(PoolSize(0, 4, classes=sizes), workers)


def test_another_file_makes_the_workers_old_of_classes_that_have_changed() -> None:
    before = make_spec(a="x", b="x", c="x")
    facts = resize(PoolFacts(before.size, 0.0), before.size).with_class("a", ClassFacts(1, 2, 3, "it failed"))
    facts = change_spec(facts, before, make_spec(a="x", b="y", d="x"))
    assert facts.generation == 2
    assert {name: own.since for name, own in facts.classes.items()} == {"a": 1, "b": 2, "d": 2}
    assert facts.of("a") == ClassFacts(1, 2)
    more = replace(before, size=PoolSize(0, 9, classes=before.size.classes))
    assert change_spec(resize(PoolFacts(before.size, 0.0), before.size), before, more).generation == 1


def test_numbers_of_the_pool_that_are_those_of_its_classes_follow_them() -> None:
    size = PoolSize(1, 10, classes=(GPU, CPU))
    changed = resize_class(size, "gpu", 2, 9)
    assert (changed.low, changed.high, changed.classes[0]) == (3, 15, GPU._replace(low=2, high=9))
    own = resize_class(PoolSize(2, 5, classes=(GPU, CPU)), "gpu", 1, 9)
    assert (own.low, own.high) == (2, 5)
    assert check_size(resize_class(PoolSize(2, 5, classes=(GPU, CPU)), "cpu", 6, 6)) is not None


# --- in the daemon ----------------------------------------------------------------------------------------------------

FILE = """
pool:
  classes:
  - {name: big, min_workers: 0, max_workers: 2, weight: 2, resources: {cpus: 8}}
  - {name: small, min_workers: 1, max_workers: 3}
resources: {cpus: 2}
"""


@pytest.fixture
def play_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScenePlayer:
    return make_player(tmp_path, monkeypatch)


def list_workers(pool: PoolScene) -> list[tuple[int, str, str]]:
    """The workers of the pool: job, class, state."""
    (found,) = pool.bench.controller.pools.describe("p")
    return [(each["job"], each["class"], each["state"]) for each in found["workers"]]


async def apply(pool: PoolScene, text: str) -> None:
    """Make the pool of a file, or change it."""
    await pool.bench.controller.pools.apply("p", Submission("job_file", text, file="pool.yaml", user="me"))
    await turn(200)


def test_a_class_starts_for_the_jobs_that_fit_it_alone(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        await apply(pool, FILE)
        assert list_workers(pool) == [(1, "small", "PENDING")]
        await pool.bench.submit("pool: p\nresources: {cpus: 8}\nrun: 'true'\n", kind="job_file")
        await pool.pass_time(1)
        assert [each[1] for each in list_workers(pool)] == ["small", "big"]
        pools = pool.bench.controller.pools
        with pytest.raises(NotFound, match="no class 'huge'"):
            await pools.resize("p", 1, 2, "huge")
        with pytest.raises(InvalidRequest, match="max_workers 0 of the pool is below 1"):
            await pools.resize("p", 0, 0)
        await pools.resize("p", 2, 2, "small")
        assert [each[1] for each in list_workers(pool)] == ["small", "big", "small"]

    play_pool(scene)


def test_a_file_without_a_class_closes_its_workers_alone(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        await apply(pool, FILE.replace("min_workers: 0", "min_workers: 1"))
        assert [each[1:] for each in list_workers(pool)] == [("big", "PENDING"), ("small", "PENDING")]
        await apply(pool, "pool: {classes: [{name: small, workers: 1}]}\nresources: {cpus: 2}\n")
        assert [each[1:] for each in list_workers(pool)] in (
            [("big", "DRAINING"), ("small", "PENDING")],
            [("small", "PENDING")],
        )
        await apply(pool, "pool: {classes: [{name: small, workers: 1, setup: echo}]}\nresources: {cpus: 2}\n")
        assert sorted(each[1:] for each in list_workers(pool))[-1] == ("small", "PENDING")
        assert pool.bench.controller.pools.describe("p")[0]["generation"] == 3

    play_pool(scene)


def test_where_workers_of_a_class_do_not_start_another_one_serves(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        await apply(pool, FILE)
        pool.cluster.tell("1.0", *begin(pool.bench.job(1), pool.bench.clock.now))
        await until(lambda: pool.bench.state(1) == "RUNNING")
        for _ in range(3):
            await pool.bench.submit("pool: p\nresources: {cpus: 1}\nrun: 'true'\n", kind="job_file")
        await pool.pass_time(1)
        assert [each[1] for each in list_workers(pool)] == ["small", "big", "big"]
        await pool.pass_time(PATIENCE)
        await pool.pass_time(1)
        assert [each[1] for each in list_workers(pool)] == ["small", "big", "big", "small", "small"]
        (told,) = pool.bench.controller.pools.describe("p")
        assert [(each["name"], each["barred"]) for each in told["classes"]] == [("big", True), ("small", False)]

    play_pool(scene)


def test_a_class_whose_workers_wait_has_no_more_for_the_same_job(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        await apply(pool, FILE.replace("max_workers: 2", "max_workers: 10"))
        await pool.bench.submit("pool: p\nresources: {cpus: 8}\nrun: 'true'\n", kind="job_file")
        for seconds in (1, PATIENCE, 1, 1, 1):
            await pool.pass_time(seconds)
        assert [each[1] for each in list_workers(pool)] == ["small", "big"]

    play_pool(scene)


def test_a_class_is_tried_again_after_its_bar(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        await apply(pool, "pool: {max_workers: 2, classes: [{name: a, weight: 2}, {name: b}]}\n")
        for _ in range(2):
            await pool.bench.submit("pool: p\nresources: {cpus: 1}\nrun: 'true'\n", kind="job_file")
        await pool.pass_time(1)
        assert [each[1] for each in list_workers(pool)] == ["a", "a"]
        seen = []
        for seconds in (PATIENCE, 1, BARRED_SECONDS, *[PATIENCE] * 9):
            await pool.pass_time(seconds)
            seen.append([each[:2] for each in list_workers(pool) if each[2] == "PENDING"])
        assert seen[1] == [(5, "b"), (6, "b")]
        assert seen[-1] == [(5, "b"), (7, "a")] == seen[3], "each has one that waits, and keeps its place"

    play_pool(scene)


def test_workers_that_are_closed_or_of_another_file_bar_no_class(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        await apply(pool, FILE)
        await pool.pass_time(PATIENCE)
        pools = pool.bench.controller.pools
        (entry,) = pools._pools.values()
        workers = pools._list_workers("p")
        own, job = workers[0].job.spec.worker, workers[0].job
        assert own is not None

        def list_barred() -> list[str]:
            entry.barred.clear()
            bar_classes(entry, workers, lambda _: None, pool.bench.clock.now)
            return list(entry.barred)

        assert list_barred() == ["small"]
        stored = entry.stored
        entry.stored = replace(stored, facts=replace(stored.facts, closed=(job.id,)))
        assert list_barred() == []
        entry.stored = replace(stored, facts=stored.facts.with_class("small", ClassFacts(own.generation + 1, 1)))
        assert list_barred() == []
        entry.stored = stored
        workers[0] = replace(workers[0], job=replace(job, ending=Ending(Cause.CANCEL, 0.0, State.CANCELLED)))
        assert list_barred() == []

    play_pool(scene)


def test_a_class_whose_cluster_is_away_is_passed_over(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        await apply(pool, FILE)
        pool.cluster.tell("1.0", *begin(pool.bench.job(1), pool.bench.clock.now))
        await until(lambda: pool.bench.state(1) == "RUNNING")
        for _ in range(2):
            await pool.bench.submit("pool: p\nresources: {cpus: 1}\nrun: 'true'\n", kind="job_file")
        await pool.pass_time(1)
        assert [each[1] for each in list_workers(pool)] == ["small", "big"]
        controller = pool.bench.controller
        controller.clusters.get("").stale_since = pool.bench.clock.now
        await controller.pools._look("p")
        assert [each[1] for each in list_workers(pool)] == ["small", "big", "small"]

    play_pool(scene)


def test_a_refused_class_is_named(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        text = FILE.replace("resources: {cpus: 8}", "resources: {cpus: 8}, file_mounts: {/d: 'ftp://x/y'}")
        with pytest.raises(InvalidRequest, match="the class big: "):
            await apply(pool, text)
        assert pool.bench.controller.pools.describe() == []

    play_pool(scene, LimitedCluster())
