"""A store that cannot be written: what ends work goes out all the same, and the record follows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controller.fakes import Bench, begin, end, play, start_job, turn, until

from overspan.adapters.contract import Decider
from overspan.bridge.controller.core.recording import RETRY_SECONDS
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.model import events
from overspan.bridge.model.errors import StoreFailed


async def mend(bench: Bench) -> None:
    """Make room, and let what is owed to the store be written."""
    bench.repository.broken = False
    bench.clock.advance(RETRY_SECONDS + 1)
    await turn(200)
    entries = list(bench.controller.recorder.registry)
    assert all(entry.unwritten is None for entry in entries)
    bench.check()


def test_a_running_job_is_cancelled_and_the_order_is_written_later() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.repository.broken = True
        outcome = await bench.controller.orders.cancel(CancelRequest(("1",), by="me"))
        assert (outcome.done, outcome.errors) == (["1"], [])
        assert "recorded when there is space" in outcome.note
        await until(lambda: bool(bench.cluster.orders))
        (order,) = bench.cluster.orders
        assert isinstance(order.event, events.Cancel) and not bench.repository.rows
        await mend(bench)
        # Written, and not given a second time.
        assert list(bench.repository.rows) == [order.token]
        assert len(bench.cluster.orders) == 1
        bench.cluster.tell("1.0", order.event, *end(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "CANCELLED")

    play(scene)


def test_a_signal_goes_out_once_however_long_the_disk_stays_full() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.repository.broken = True
        await bench.controller.orders.cancel(CancelRequest(("1",), signal="USR1", by="me"))
        await until(lambda: bool(bench.cluster.orders))
        for _ in range(20):
            bench.clock.advance(RETRY_SECONDS + 1)
            await turn()
        assert len(bench.cluster.orders) == 1
        await mend(bench)
        assert len(bench.cluster.orders) == 1 and not bench.repository.rows

    play(scene)


def test_a_waiting_job_is_cancelled_and_never_sent() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold")
        bench.repository.broken = True
        await bench.controller.orders.cancel(CancelRequest(("1",), by="me"))
        assert bench.state() == "CANCELLED"
        await mend(bench)
        assert bench.repository.jobs[1].job.state.value == "CANCELLED"
        assert not bench.cluster.launched

    play(scene)


def test_what_has_happened_meanwhile_is_written_with_it() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.repository.broken = True
        await bench.controller.orders.cancel(CancelRequest(("1",), by="me"))
        await until(lambda: bool(bench.cluster.orders))
        (order,) = bench.cluster.orders
        bench.cluster.tell("1.0", order.event, *end(bench.job(), bench.clock.now))
        await turn()
        assert bench.state() != "CANCELLED"
        bench.repository.broken = False
        bench.clock.advance(600)
        await until(lambda: bench.state() == "CANCELLED")
        await mend(bench)
        assert not bench.repository.rows

    play(scene)


def test_where_the_daemon_decides_the_end_goes_out_and_the_kill_follows_it() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.decider = Decider.DAEMON
        await bench.submit("one")
        await until(lambda: "1.0" in bench.cluster.journals)
        granted, _, started = begin(bench.job(), bench.clock.now)
        bench.cluster.tell("1.0", granted)
        await until(lambda: any(isinstance(order.event, events.Launch) for order in bench.cluster.orders))
        bench.cluster.tell("1.0", started)
        await until(lambda: bench.state() == "RUNNING")
        bench.cluster.orders.clear()
        bench.repository.broken = True
        await bench.controller.orders.cancel(CancelRequest(("1",), by="me"))
        await until(lambda: bool(bench.cluster.orders))
        assert isinstance(bench.cluster.orders[0].event, events.Terminate)
        # Its program does not obey, and the disk is still full when the grace is over.
        bench.clock.advance(31)
        await until(lambda: any(isinstance(order.event, events.Kill) for order in bench.cluster.orders))
        bench.cluster.tell("1.0", replace_signal(bench))
        bench.repository.broken = False
        bench.clock.advance(600)
        await until(lambda: bench.state() == "CANCELLED")
        await mend(bench)

    play(scene)


def replace_signal(bench: Bench) -> events.NodeEnded:
    """The end of the only node by KILL."""
    return events.NodeEnded(bench.clock.now, "one", 0, 0, signal=9)


def test_nothing_else_is_done_that_cannot_be_written() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.repository.broken = True
        with pytest.raises(StoreFailed):
            await bench.controller.orders.give("1", lambda at, task: events.Requeue(at, "me"))
        before = replace(bench.job())
        await turn()
        assert not bench.cluster.orders and bench.job() == before
        bench.repository.broken = False

    play(scene)
