"""Launches that come back, times, decisions, and daemons that are killed."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.controller.fakes import Bench, begin, end, give_order, play, start_job, turn, until

from overspan.adapters.contract import Decider
from overspan.bridge.controller.core.clusters import Cluster
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.controller.views.listing import Selection
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause


def test_a_requeued_job_is_submitted_again_by_itself() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        await give_order(bench, "1", events.Requeue)
        await until(lambda: bool(bench.cluster.orders))
        job = bench.job()
        # The supervisor's last words, behind those that end the launch, are no news of the next one.
        rest = events.LaunchLost(bench.clock.now + 2, 0, "node")
        bench.cluster.tell("1.0", bench.cluster.orders[0].event, *end(job, bench.clock.now + 1, exit_code=1), rest)
        await until(lambda: "1.1" in bench.cluster.journals)
        assert bench.job().launch == 1 and bench.job().late == 0
        # What the old launch still says is of no interest.
        bench.cluster.tell("1.0", events.LaunchLost(bench.clock.now, 0, "node"))
        bench.cluster.tell("1.1", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        assert len(bench.job().tasks[0].attempts) == 2

    play(scene)


def test_a_lost_launch_comes_back_after_its_backoff() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.cluster.lose("1.0")
        await until(lambda: bench.state() == "PENDING")
        assert bench.job().reason == "BeginTime"
        await turn()
        assert len(bench.cluster.launched) == 1
        bench.clock.advance(5)
        await until(lambda: "1.1" in bench.cluster.journals)
        assert bench.job().tasks[0].recoveries == 1

    play(scene)


def test_a_finished_job_can_be_requeued() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "COMPLETED")
        bench.clock.now += 10_000
        bench.controller.queue(Selection())
        assert bench.controller.recorder.registry.get(1) is None
        await give_order(bench, "1", events.Requeue)
        await until(lambda: "1.1" in bench.cluster.journals)

    play(scene)


def test_begin_times_and_deadlines() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one begin=100")
        await bench.submit("one hold deadline=50")
        assert bench.job(1).reason == "BeginTime"
        assert set(bench.clock.due()) == {"job:1", "job:2"}
        bench.clock.advance(60)
        await until(lambda: bench.state(2) == "DEADLINE")
        assert bench.cluster.submits == 0
        bench.clock.advance(60)
        await until(lambda: bool(bench.cluster.launched))
        assert bench.cluster.launched[0].reason == "None"

    play(scene)


def test_where_the_daemon_decides_its_decisions_are_recorded_and_owed() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.decider = Decider.DAEMON
        await bench.submit("a b")
        await until(lambda: "1.0" in bench.cluster.journals)
        members = tuple((name, 0, "me", "10.0.0.1", ()) for name in "ab")
        bench.cluster.tell("1.0", events.Granted(bench.clock.now, members))
        await until(lambda: len(bench.cluster.orders) == 2)
        assert {type(order.event) for order in bench.cluster.orders} == {events.Launch}
        started = [events.NodeStarted(bench.clock.now, name, 0, 0) for name in "ab"]
        bench.cluster.tell("1.0", *started)
        await until(lambda: bench.state() == "RUNNING")
        # The wall time of the fake's tasks is 60 s; nobody but the daemon ends them.
        bench.clock.advance(61)
        await until(lambda: len(bench.cluster.orders) == 4)
        assert {type(order.event) for order in bench.cluster.orders[2:]} == {events.Terminate}

    play(scene)


def test_where_the_daemon_decides_people_are_heeded_at_once_and_effects_go_on() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.decider = Decider.DAEMON
        await bench.submit("a b")
        await until(lambda: "1.0" in bench.cluster.journals)
        members = tuple((name, 0, "me", "10.0.0.1", ()) for name in "ab")
        bench.cluster.tell("1.0", events.Granted(bench.clock.now, members))
        await until(lambda: len(bench.cluster.orders) == 2)
        bench.cluster.tell("1.0", *[events.NodeStarted(bench.clock.now, name, 0, 0) for name in "ab"])
        await until(lambda: bench.state() == "RUNNING")
        await give_order(bench, "1", events.Suspend)
        await bench.controller.orders.cancel(CancelRequest(("1",), signal="USR1"))
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        ending = bench.job().ending
        assert ending is not None and ending.cause is Cause.CANCEL
        await until(lambda: len(bench.cluster.orders) == 6)
        kinds = [type(order.event).__name__ for order in bench.cluster.orders[2:]]
        assert kinds == ["Suspend", "Signal", "Terminate", "Terminate"]
        bench.cluster.tell("1.0", *[events.NodeEnded(bench.clock.now, name, 0, 0, signal=15) for name in "ab"])
        await until(lambda: bench.state() == "CANCELLED")
        other = await bench.submit("c")
        await until(lambda: f"{other}.0" in bench.cluster.journals)
        await bench.controller.orders.cancel(CancelRequest((str(other),)))
        assert bench.state(other) == "CANCELLED"

    play(scene)


def test_a_restart_takes_up_where_the_other_stopped() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        await bench.submit("one begin=100")
        await bench.kill()
        # News while nobody is there.
        bench.cluster.tell("1.0", *end(bench.repository.jobs[1].job, bench.clock.now, exit_code=3))
        await bench.start()
        await until(lambda: bench.state(1) == "FAILED")
        assert bench.job(1).exit_code == 3 and bench.job(1).late == 0
        bench.clock.advance(101)
        await until(lambda: "2.0" in bench.cluster.journals)

    play(scene)


@pytest.mark.parametrize("steps", range(0, 40, 3))
def test_killed_anywhere_a_job_runs_exactly_once(steps: int) -> None:
    async def scene(bench: Bench) -> None:
        asking = asyncio.ensure_future(bench.submit())
        for _ in range(steps):
            await asyncio.sleep(0)
        asking.cancel()
        await bench.kill()
        await bench.start()
        if not bench.repository.jobs:
            return
        await until(lambda: bench.controller.recorder.registry.watched("local") != {})
        assert len(bench.cluster.launched) == 1
        if len(bench.cluster.journals["1.0"]) == 0:
            bench.cluster.tell("1.0", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        assert bench.repository.rows == {}

    play(scene)


def test_an_owed_cancel_is_delivered_by_the_next_daemon() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.cluster.fail(True)
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        await bench.kill()
        bench.cluster.fail(False)
        assert bench.cluster.orders == []
        await bench.start()
        await until(lambda: bool(bench.cluster.orders))
        (order,) = bench.cluster.orders
        assert order.handle == "1.0" and isinstance(order.event, events.Cancel)

    play(scene)


def test_a_failed_write_of_news_is_made_up_for() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.repository.broken = True
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        asked = bench.cluster.asked
        await until(lambda: bench.cluster.asked > asked or bool(bench.clock.due()))
        assert bench.state() == "RUNNING"
        assert bench.controller.clusters.get("local").stale_since is None
        bench.repository.broken = False
        bench.clock.advance(10)
        await until(lambda: bench.state() == "COMPLETED")

    play(scene)


def test_a_launch_that_may_be_there_is_not_decided_about_by_the_next_daemon() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.gate = asyncio.Event()
        await bench.submit("one deadline=50")
        await until(lambda: bool(bench.cluster.launched))
        await bench.kill()
        bench.clock.now += 100
        await bench.start()
        await turn()
        # Its processes may run: whether the deadline ends it is for its supervisor to say.
        assert bench.state() == "PENDING"
        bench.cluster.gate.set()
        await until(lambda: bench.controller.recorder.registry.watched("local") != {})
        assert len(bench.cluster.launched) == 1

    play(scene)


@pytest.mark.parametrize("steps", range(10))
def test_a_caller_that_leaves_does_not_part_memory_from_the_store(steps: int) -> None:
    async def scene(bench: Bench) -> None:
        asking = asyncio.ensure_future(bench.submit())
        for _ in range(steps):
            await asyncio.sleep(0)
        asking.cancel()
        await turn()
        assert {entry.job.id for entry in bench.controller.recorder.registry} == set(bench.repository.jobs)
        if bench.repository.jobs:
            await until(lambda: bool(bench.cluster.launched))

    play(scene)


def test_a_launch_that_comes_while_the_observer_turns_round_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        await turn()
        observer = bench.controller.observer
        ask = observer._list_cursors
        count: list[bool] = []

        def look_away(cluster: Cluster) -> dict[str, str]:
            since = ask(cluster)
            if not count:
                count.append(True)
                observer.wake(cluster.name)
            return since

        monkeypatch.setattr(observer, "_list_cursors", look_away)
        bench.cluster.tell("1.0", events.TaskReady(bench.clock.now, "one", 0))
        await until(lambda: bool(count))
        asked = bench.cluster.asked
        await until(lambda: bench.cluster.asked > asked + 1)
        assert count == [True]

    play(scene)
