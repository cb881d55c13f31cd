"""Arrays: one job until elements start, the throttle, orders for elements, restarts in between."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest
from tests.unit.controller.elements import element, run
from tests.unit.controller.fakes import (
    Bench,
    NativeCluster,
    ThrottlingCluster,
    give_order,
    play,
    turn,
    until,
)

from overspan.adapters.contract import Report
from overspan.bridge.config.settings import ClusterSettings
from overspan.bridge.controller.orders.requests import CancelRequest, Filters, Update
from overspan.bridge.lifecycle.arrays import AHEAD
from overspan.bridge.model import events
from overspan.bridge.model.ids import format_array_indices
from overspan.bridge.model.job import Array
from overspan.bridge.store.records import JobQuery


def facts(bench: Bench, array: int = 1) -> Array:
    """What the array keeps of its elements."""
    found = bench.job(array).array
    assert found is not None
    return found


def waiting(bench: Bench, array: int = 1) -> str:
    """The indices that are no jobs yet."""
    return format_array_indices(facts(bench, array).waiting)


def test_ten_thousand_elements_are_one_job_until_they_start() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one array=0-9999")
        await turn()
        assert len(bench.repository.jobs) == 1 + AHEAD and waiting(bench) == f"{AHEAD}-9999"
        assert element(bench, 3).id == 5 and element(bench, 3).spec is bench.job().spec

    play(scene)


def test_the_throttle_is_never_passed_and_changes_live() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one array=0-9%2")
        await turn()
        assert waiting(bench) == "2-9"
        await run(bench, 0, exit_code=0)
        await until(lambda: waiting(bench) == "3-9")
        await bench.controller.orders.update("1", Update({"throttle": 4}))
        await until(lambda: waiting(bench) == "5-9")
        await bench.controller.orders.update("1", Update({"throttle": None}))
        await until(lambda: waiting(bench) == "")

    play(scene)


def test_the_array_ends_after_its_last_element() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one array=4,8")
        await turn()
        assert bench.state() == "RUNNING"
        await run(bench, 8, exit_code=7)
        assert bench.state() == "RUNNING"
        await run(bench, 4, exit_code=0)
        await until(lambda: bench.job().over)
        assert (bench.state(), bench.job().exit_code) == ("FAILED", 7)

    play(scene)


def test_an_array_is_taken_up_where_a_killed_daemon_left_it() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one array=0-9%3")
        await turn()
        await run(bench, 0, exit_code=3)
        await until(lambda: waiting(bench) == "4-9")
        await run(bench, 1)
        await bench.kill()
        await bench.start()
        await turn()
        assert waiting(bench) == "4-9" and len(bench.repository.jobs) == 5
        await run(bench, 1, exit_code=0)
        await until(lambda: waiting(bench) == "5-9")
        await bench.controller.orders.cancel(CancelRequest(("1_[4-9]",)))
        for index in (2, 3):
            await run(bench, index, exit_code=0)
        for order in bench.cluster.orders:
            bench.cluster.tell(order.handle, order.event)
        await until(lambda: bench.job().over)
        # The element that failed under the first daemon still counts.
        assert (bench.state(), bench.job().exit_code) == ("FAILED", 3)

    play(scene)


def test_elements_and_ranges_are_cancelled_alone() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one array=0-9%2")
        await turn()
        outcome = await bench.controller.orders.cancel(CancelRequest(("1_[5-7]", "1_9", "1_99"), by="me"))
        assert outcome.done == ["1_[5-7]", "1_9"] and [ref for ref, _ in outcome.errors] == ["1_99"]
        assert waiting(bench) == "2-4,8"
        assert format_array_indices(facts(bench).cancelled) == "5-7,9"
        await run(bench, 0)
        assert (await bench.controller.orders.cancel(CancelRequest(("1_0",)))).done == ["1_0"]
        await until(lambda: bool(bench.cluster.orders))
        assert bench.cluster.orders[0].handle == f"{element(bench, 0).id}.0"

    play(scene)


def test_cancelling_the_array_ends_all_of_it() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one array=0-9%2")
        await turn()
        await run(bench, 0)
        assert (await bench.controller.orders.cancel(CancelRequest(("1",)))).done == ["1"]
        assert waiting(bench) == "" and not bench.job().over
        await until(lambda: len(bench.cluster.orders) == 2)
        for order in bench.cluster.orders:
            bench.cluster.tell(order.handle, order.event)
        await run(bench, 0, exit_code=0)
        await until(lambda: bench.job().over)
        assert bench.state() == "CANCELLED"

    play(scene)


def test_a_waiting_array_is_cancelled_at_once() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold array=0-9")
        await bench.controller.orders.cancel(CancelRequest(filters=Filters(users=frozenset({"me"}))))
        await until(lambda: bench.state() == "CANCELLED")
        assert len(bench.repository.jobs) == 1

    play(scene)


def test_a_held_array_draws_nothing_and_an_element_can_be_held_alone() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold array=0-3%1")
        await turn()
        assert len(bench.repository.jobs) == 1
        await give_order(bench, "1_2", events.Hold)
        assert element(bench, 2).held or bench.cluster.orders or bench.controller.recorder.outbox
        await give_order(bench, "1", events.Release)
        await turn()
        assert waiting(bench) == "0-1,3"

    play(scene)


def test_an_order_about_one_element_does_not_start_it_before_its_turn() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold array=0-3")
        later = bench.clock.now + 60
        await bench.controller.orders.update("1", Update({"begin": later}))
        await bench.controller.orders.update("1_1", Update({"comment": "x"}))
        assert element(bench, 1).held and element(bench, 1).begin == later
        await give_order(bench, "1", events.Release)
        await give_order(bench, "1_2", events.Hold)
        await turn()
        assert bench.cluster.submits == 0 and element(bench, 2).held
        assert (bench.job().reason, element(bench, 1).reason) == ("BeginTime", "BeginTime")
        bench.clock.advance(61)
        await until(lambda: len(bench.cluster.launched) == 3)
        assert not element(bench, 2).over and waiting(bench) == ""

    play(scene)


def test_an_element_is_found_by_its_index_its_own_id_and_after_it_left_memory() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one array=0-1")
        await turn()
        await run(bench, 0, exit_code=0)
        raw = element(bench, 0).id
        find = bench.controller.directory.find
        assert (await find("1_0")).entry.job.id == raw == (await find(str(raw))).entry.job.id
        bench.controller.recorder.registry.remove(raw)
        assert (await find("1_0")).entry.job.id == raw
        stored = await bench.repository.find(JobQuery(arrays=(1,)))
        assert [found.job.element.index for found in stored if found.job.element] == [0, 1]

    play(scene)


def test_changes_of_the_array_reach_elements_that_are_drawn_later() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one array=0-3%1")
        await turn()
        await bench.controller.orders.update("1", Update({"priority": 9, "time_limit": 30, "name": "other"}))
        await run(bench, 0, exit_code=0)
        await until(lambda: 1 in bench.controller.recorder.registry.elements(1))
        later = element(bench, 1)
        assert (later.priority, later.tasks[0].time, later.labels["name"]) == (9, 30, "other")

    play(scene)


def test_a_full_disk_only_delays_the_drawing() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold array=0-3%1")
        bench.repository.broken = False
        await give_order(bench, "1", events.Release)
        bench.repository.broken = True
        await turn()
        assert waiting(bench) == "0-3"
        bench.repository.broken = False
        bench.clock.advance(10)
        await until(lambda: waiting(bench) == "1-3")

    play(scene)


def told(bench: Bench) -> list[tuple[int, int | None]]:
    """What a cluster that keeps throttles was told."""
    assert isinstance(bench.cluster, ThrottlingCluster)
    return bench.cluster.told


def test_where_the_cluster_keeps_the_throttle_it_has_elements_at_hand() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one array=0-99%2")
        await turn()
        assert waiting(bench) == f"{AHEAD}-99" and bench.job().reason == "Priority"
        assert isinstance(bench.cluster, ThrottlingCluster)
        assert set(bench.cluster.throttles.values()) == {2} and len(bench.cluster.throttles) == AHEAD
        for index in range(AHEAD // 2 - 1):
            await run(bench, index, exit_code=0)
        assert waiting(bench) == f"{AHEAD}-99"
        await run(bench, AHEAD // 2, exit_code=0)
        await until(lambda: waiting(bench) == f"{AHEAD * 3 // 2}-99")
        # Their launches have brought it along.
        assert told(bench) == []

    play(scene, ThrottlingCluster())


def test_another_throttle_reaches_elements_that_wait_on_the_cluster() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one array=0-99%2")
        await turn()
        await bench.controller.orders.update("1", Update({"throttle": 5}))
        await until(lambda: told(bench) == [(1, 5)])
        bench.cluster.fail(True)
        await bench.controller.orders.update("1", Update({"throttle": None}))
        await turn()
        bench.cluster.fail(False)
        assert told(bench) == [(1, 5)]
        bench.clock.advance(10)
        await until(lambda: told(bench) == [(1, 5), (1, None)])
        await run(bench, 0, exit_code=0)
        await turn()
        assert len(told(bench)) == 2

    play(scene, ThrottlingCluster())


def test_a_throttle_that_cannot_be_told_is_logged_twice_and_as_a_trouble_from_the_second_time_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "overspan.bridge.controller.features.arrays")

    async def scene(bench: Bench) -> None:
        await bench.submit("one array=0-99%2")
        await turn()
        bench.cluster.fail(True)
        await bench.controller.orders.update("1", Update({"throttle": 5}))
        for _ in range(4):
            bench.clock.advance(10)
            await turn()
        said = [record for record in caplog.records if record.name.endswith("features.arrays")]
        assert [record.levelname for record in said] == ["INFO", "WARNING"]
        assert {record.getMessage() for record in said} == {"array 1: no route to the cluster; trying again"}

    play(scene, ThrottlingCluster())


def test_a_new_daemon_tells_the_throttle_before_anything_else() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one array=0-99%2")
        other = await bench.submit("one array=0-3")
        await turn()
        bench.cluster.fail(True)
        await bench.controller.orders.update("1", Update({"throttle": 1}))
        await bench.kill()
        bench.cluster.fail(False)
        asked = bench.cluster.asked
        starting = asyncio.ensure_future(bench.start())
        await until(lambda: (1, 1) in told(bench))
        assert bench.cluster.asked == asked
        await starting
        assert told(bench) == [(1, 1), (other, None)]

    play(scene, ThrottlingCluster())


def test_where_slots_are_limited_no_element_takes_one_up_while_it_waits_for_the_throttle() -> None:
    async def scene(bench: Bench) -> None:
        bench.settings = bench.settings.model_copy(update={"clusters": {"local": ClusterSettings(max_running=4)}})
        await bench.kill()
        await bench.start()
        await bench.submit("one array=0-99%2")
        await turn()
        assert waiting(bench) == "2-99"

    play(scene, ThrottlingCluster())


def test_an_element_that_starts_again_after_its_array_keeps_the_throttle_as_submitted() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one array=0%3")
        await turn()
        await run(bench, 0, exit_code=1)
        await until(lambda: bench.job().over)
        job = element(bench, 0)
        bench.controller.recorder.registry.remove(1)
        await give_order(bench, str(job.id), events.Requeue)
        await until(lambda: f"{job.id}.1" in bench.cluster.journals)
        assert isinstance(bench.cluster, ThrottlingCluster)
        assert bench.cluster.throttles[f"{job.id}.1"] == 3

    play(scene, ThrottlingCluster())


def test_a_whole_array_is_given_at_once_to_a_cluster_that_has_such() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one array=0-39%2")
        await until(lambda: bool(cluster.batches))
        assert cluster.batches == [list(range(2, 42))] and waiting(bench) == ""
        await bench.submit("one array=0-99")
        await until(lambda: len(cluster.batches) == 2)
        assert len(cluster.batches[1]) == 50 and waiting(bench, 42) == "50-99"

    cluster = NativeCluster()
    play(scene, cluster)


def test_single_jobs_are_answered_a_few_at_a_time() -> None:
    async def scene(bench: Bench) -> None:
        cluster.down = True
        for _ in range(4):
            await bench.submit("one")
        await bench.submit("one array=0-9")
        await until(lambda: len(bench.repository.jobs) == 15)
        cluster.down = False
        cluster.batches.clear()
        bench.clock.advance(60)
        await until(lambda: sum(map(len, cluster.batches)) >= 14)
        units = [{min(job, 5) for job in batch} for batch in cluster.batches]
        assert all(len(unit) <= 3 for unit in units) and sum(map(len, units)) == 5

    cluster = NativeCluster()
    play(scene, cluster)


def test_an_element_s_own_name_on_the_cluster_comes_with_its_news() -> None:
    class Naming(NativeCluster):
        def _report(self, handle: str, cursor: str) -> Report | None:
            report = super()._report(handle, cursor)
            return None if report is None else replace(report, native_id=f"own-{handle}")

    async def scene(bench: Bench) -> None:
        await bench.submit("one array=0-1")
        await until(lambda: len(bench.cluster.handles) == 2)
        await run(bench, 1)
        entry = bench.controller.recorder.registry.elements(1)[1]
        assert entry.native_id == f"own-{entry.job.id}.0"

    play(scene, Naming())
