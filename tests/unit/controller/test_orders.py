"""Orders of people, before, during and after the launch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, give_order, play, start_job, turn, until

from overspan.adapters.contract import Order, Refusal
from overspan.bridge.controller.orders.requests import CancelRequest, Filters, Update
from overspan.bridge.model import events
from overspan.bridge.model.errors import Conflict, NotFound, Rejected


def test_a_held_job_goes_when_it_is_released() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold")
        await turn()
        assert bench.cluster.submits == 0 and bench.job().reason == "JobHeldUser"
        await give_order(bench, "1", events.Release)
        await until(lambda: bool(bench.cluster.launched))
        assert not bench.cluster.launched[0].held

    play(scene)


def test_a_release_after_a_hold_that_has_no_answer_yet_counts() -> None:
    class Busy(FakeCluster):
        """Puts the first order off."""

        async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
            if not self.orders and not self.order_tokens:
                self.order_tokens.add("")
                return [Refusal(order.token, "not looked at yet", transient=True) for order in orders]
            return await super().order(orders)

    cluster = Busy()

    async def scene(bench: Bench) -> None:
        cluster.gate = asyncio.Event()
        await bench.submit("one")
        await until(lambda: bool(cluster.launched))
        await give_order(bench, "1", events.Hold)
        await give_order(bench, "1", events.Release)
        with pytest.raises(Conflict, match="is not held"):
            await give_order(bench, "1", events.Release)
        cluster.gate.set()
        for _ in range(5):
            await turn()
            bench.clock.advance(60)
        await until(lambda: bool(cluster.orders))
        assert [type(order.event) for order in cluster.orders] == [events.Release]

    play(scene, cluster)


def test_cancel_before_the_launch_needs_no_cluster() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold")
        outcome = await bench.controller.orders.cancel(CancelRequest(("1", "9", "x"), by="me"))
        assert outcome.done == ["1"]
        assert [(ref, error.code) for ref, error in outcome.errors] == [("9", "not_found"), ("x", "invalid")]
        assert bench.state() == "CANCELLED" and bench.cluster.submits == 0

    play(scene)


def test_a_task_that_a_job_does_not_have_ends_nothing() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold")
        outcome = await bench.controller.orders.cancel(CancelRequest(("1",), "wrong", by="me"))
        ((ref, error),) = outcome.errors
        assert (outcome.done, ref, error.code, error.message) == ([], "1", "not_found", "job 1 has no task 'wrong'")
        assert error.remedy == f"its tasks: {bench.job().tasks[0].name}" and bench.state() == "PENDING"

    play(scene)


def test_a_thousand_waiting_jobs_are_cancelled_in_one_transaction() -> None:
    async def scene(bench: Bench) -> None:
        await asyncio.gather(*(bench.submit("one hold") for _ in range(1000)))
        before = bench.repository.transactions
        outcome = await bench.controller.orders.cancel(CancelRequest(filters=Filters(users=frozenset({"me"}))))
        assert len(outcome.done) == 1000 and bench.repository.transactions == before + 1
        assert all(stored.job.over for stored in bench.repository.jobs.values())

    play(scene)


def test_a_cancel_during_a_submission_reaches_the_launch() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.gate = asyncio.Event()
        await bench.submit()
        await until(lambda: bench.cluster.submits == 1)
        outcome = await bench.controller.orders.cancel(CancelRequest(("1",), by="me"))
        assert outcome.done == ["1"]
        await turn()
        assert bench.state() == "PENDING" and bench.cluster.orders == []
        bench.cluster.gate.set()
        await until(lambda: bool(bench.cluster.orders))
        order = bench.cluster.orders[0]
        assert order.handle == "1.0" and isinstance(order.event, events.Cancel)
        bench.cluster.tell("1.0", order.event)
        await until(lambda: bench.state() == "CANCELLED")
        assert bench.repository.rows == {}

    play(scene)


def test_a_cancel_during_a_submission_that_is_refused_for_now_counts_too() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.gate = asyncio.Event()
        bench.cluster.refusals = [Refusal("", "busy", transient=True, reason="Resources")]
        await bench.submit()
        await until(lambda: bench.cluster.submits == 1)
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        bench.cluster.gate.set()
        await until(lambda: bench.state() == "CANCELLED")
        assert bench.repository.rows == {} and bench.cluster.launched == []

    play(scene)


def test_a_delivered_cancel_survives_the_loss_of_its_launch() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        await until(lambda: bool(bench.cluster.orders))
        # The launch is lost before its supervisor has read the order: without the order it would start again.
        bench.cluster.lose("1.0")
        await until(lambda: bench.state() == "CANCELLED")
        await turn()
        assert len(bench.cluster.launched) == 1 and bench.repository.rows == {}

    play(scene)


def test_a_repeated_cancel_is_one_order() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        for _ in range(3):
            assert (await bench.controller.orders.cancel(CancelRequest(("1",)))).done == ["1"]
        await turn()
        assert len(bench.cluster.orders) == 1

    play(scene)


def test_orders_that_do_not_fit_are_conflicts() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        await bench.submit("one hold")
        with pytest.raises(Conflict, match="no longer pending"):
            await give_order(bench, "1", events.Hold)
        with pytest.raises(Conflict, match="pending execution"):
            await give_order(bench, "2", events.Requeue)
        with pytest.raises(NotFound):
            await give_order(bench, "7", events.Hold)
        with pytest.raises(NotFound, match="no task 'x'"):
            await bench.controller.orders.give("1", lambda at, task: events.Restart(at, task), "x")
        outcome = await bench.controller.orders.cancel(CancelRequest(("2",), signal="USR1"))
        assert [error.code for _, error in outcome.errors] == ["conflict"]
        outcome = await bench.controller.orders.cancel(CancelRequest(("2",), signal="9"))
        assert outcome.done == ["2"] and bench.state(2) == "CANCELLED"

    play(scene)


def test_signals_go_to_the_task_that_is_meant() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench, "a b")
        await bench.controller.orders.cancel(CancelRequest(("1+1",), signal="SIGUSR1", batch_only=True))
        await until(lambda: bool(bench.cluster.orders))
        event = bench.cluster.orders[0].event
        assert isinstance(event, events.Signal) and (event.signal, event.task, event.batch_only) == (10, "b", True)
        await until(lambda: bench.repository.rows == {})

    play(scene)


def test_updates_before_and_after_the_launch() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold")
        values = {"time_limit": 120, "nice": 7, "comment": "hi", "begin": bench.clock.now + 60}
        await bench.controller.orders.update("1", Update(values, "me"))
        job = bench.job()
        assert (job.tasks[0].time, job.nice, job.labels["comment"]) == (120, 7, "hi")
        for refused in ({"nice": 9, "priority": 7}, {"comment": "bye", "nice": -1}):
            # A held job has no priority, and less than nothing is for operators.
            with pytest.raises(Conflict):
                await bench.controller.orders.update("1", Update(refused))
        assert (bench.job().nice, bench.job().labels["comment"]) == (7, "hi")
        await give_order(bench, "1", events.Release)
        assert bench.job().reason == "BeginTime"
        bench.clock.advance(61)
        await until(lambda: bool(bench.cluster.launched))
        await until(lambda: bench.controller.recorder.registry.watched("local") != {})
        await bench.controller.orders.update("1", Update({"time_limit": None}))
        await until(lambda: bool(bench.cluster.orders))

    play(scene)


def test_sizes_change_while_no_cluster_has_the_job() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold")
        sizes = {"cpus": 4, "memory": 50, "gres": "gpu:2", "requeue": False, "qos": "high", "stdout": "o-%j"}
        await bench.controller.orders.update("1", Update(sizes, "me"))
        (task,) = bench.job().spec.tasks
        need = task.resources.need()
        assert (need.cpu_milli, need.memory_mib, need.gpu_milli, task.streams.output) == (4000, 50, 2000, "/o-%j")
        assert bench.job().spec.requeue is False and task.retry.max_recoveries == 0
        assert bench.job().spec.qos == "high"
        bench.cluster.impossible = "invalid partition specified: nowhere"
        with pytest.raises(Rejected, match="Invalid partition name specified"):
            await bench.controller.orders.update("1", Update({"partition": "nowhere"}))
        bench.cluster.impossible = ""
        await give_order(bench, "1", events.Release)
        await until(lambda: bool(bench.cluster.launched))
        with pytest.raises(Conflict, match="no longer pending"):
            await bench.controller.orders.update("1", Update({"cpus": 8}))
        await bench.controller.orders.update("1", Update({"partition": bench.job().spec.partition}))

    play(scene)


def test_a_kill_of_all_is_a_cancel_without_grace() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        await bench.controller.orders.cancel(CancelRequest(("1",), signal="KILL", by="me"))
        await until(lambda: bool(bench.cluster.orders))
        event = bench.cluster.orders[-1].event
        assert isinstance(event, events.Cancel) and event.grace == 0
        await bench.controller.orders.cancel(CancelRequest(("1",), signal="KILL", batch_only=True))
        await until(lambda: len(bench.cluster.orders) > 1)
        assert isinstance(bench.cluster.orders[-1].event, events.Signal)

    play(scene)


def test_an_order_that_nobody_read_counts_for_the_next_launch() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        await bench.controller.orders.update("1", Update({"time_limit": 30}))
        await until(lambda: bool(bench.cluster.orders))
        await turn()
        assert bench.job().tasks[0].time is None and len(bench.repository.rows) == 1
        bench.cluster.tell("1.0", events.LaunchLost(bench.clock.now, 0, "node"))
        await until(lambda: bench.job().launch == 1)
        assert bench.job().tasks[0].time == 30

    play(scene)


def test_an_order_in_the_journal_is_not_owed_any_more() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        await bench.controller.orders.update("1", Update({"priority": 30}))
        await until(lambda: bool(bench.cluster.orders))
        bench.cluster.tell("1.0", bench.cluster.orders[0].event)
        await until(lambda: bench.job().priority == 30)
        assert not bench.repository.rows

    play(scene)


def test_an_order_that_its_cluster_could_not_carry_out_is_told_in_the_timeline() -> None:
    class Deaf(FakeCluster):
        async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
            await super().order(orders)
            return [Refusal(order.token, "signals may not be sent") for order in orders]

    async def scene(bench: Bench) -> None:
        await start_job(bench)
        await bench.controller.orders.give("1", lambda at, task: events.Signal(at, 10))
        await until(lambda: bool(bench.cluster.orders))
        await until(lambda: not bench.controller.recorder.outbox.of_job(1))
        told = [row.text for row in await bench.controller.timeline("1")]
        assert "Signal was not carried out: signals may not be sent" in told

    play(scene, Deaf())
