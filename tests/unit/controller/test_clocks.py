"""The machine's clock is set while the daemon lives: what is due stays as far away, and the calendar is followed."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, begin, play, turn, until

from overspan.adapters.contract import Decider, Refusal
from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.model import events

HOUR = 3600.0
JUMPS = pytest.mark.parametrize("jump", [3 * HOUR, -6 * HOUR])


class Deciding(FakeCluster):
    """A cluster where the daemon decides."""

    decider = Decider.DAEMON


async def set_clock(bench: Bench, seconds: float) -> None:
    """Set the machine's clock, and let the daemon notice it."""
    bench.clock.jump = seconds
    await bench.controller.apply_clock_jump()
    await turn()


async def run_job(bench: Bench, text: str = "one") -> None:
    """Have a job run of which the daemon decides; its limit is 60 s."""
    await bench.submit(text)
    await until(lambda: "1.0" in bench.cluster.journals)
    names = [task.name for task in bench.job().tasks]
    members = tuple((name, 0, "me", "10.0.0.1", ()) for name in names)
    bench.cluster.tell("1.0", events.Granted(bench.clock.now, members))
    await until(lambda: len(bench.cluster.orders) == len(names))
    bench.cluster.tell("1.0", *(events.NodeStarted(bench.clock.now, name, 0, 0) for name in names))
    await until(lambda: bench.state() == "RUNNING")


def kinds(bench: Bench) -> list[str]:
    return [type(order.event).__name__ for order in bench.cluster.orders]


@JUMPS
def test_a_limit_counts_the_time_that_has_passed(jump: float, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(bench: Bench) -> None:
        await run_job(bench)
        bench.clock.advance(50)
        with caplog.at_level(logging.WARNING):
            await set_clock(bench, jump)
            await set_clock(bench, 0.0)
        way = "forward by 10800 s" if jump > 0 else "back by 21600 s"
        assert [way in record.message for record in caplog.records] == [True]
        bench.clock.advance(9)
        await turn()
        # The notice of its limit comes 60 s before, if it is longer than that.
        assert kinds(bench) == ["Launch"]
        bench.clock.advance(1)
        await until(lambda: kinds(bench) == ["Launch", "Terminate"])
        assert "clock was set" in " ".join(row.text for row in await bench.repository.timeline(1))

    play(scene, Deciding())


@JUMPS
def test_news_by_the_clusters_own_clock_are_dated_by_the_daemons(jump: float) -> None:
    async def scene(bench: Bench) -> None:
        await run_job(bench)
        bench.clock.advance(20)
        told = bench.clock.now + 10
        await set_clock(bench, jump)
        bench.clock.advance(10)
        bench.cluster.tell("1.0", events.NodeEnded(told, "one", 0, 0))
        await until(lambda: bench.state() == "COMPLETED")
        job = bench.job()
        assert job.ended_at == bench.clock.now
        assert job.ended_at - (job.started_at or 0.0) == pytest.approx(30)

    play(scene, Deciding())


@JUMPS
def test_a_change_under_way_is_brought_in_line_first(jump: float) -> None:
    async def scene(bench: Bench) -> None:
        await run_job(bench)
        bench.clock.advance(10)
        bench.clock.jump = jump
        recorder = bench.controller.recorder
        async with recorder.registry.locked((1,)):
            changed = asyncio.ensure_future(recorder.change((1,), lambda units: None))
            await turn()
            noticed = asyncio.ensure_future(bench.controller.apply_clock_jump())
            await turn()
        await asyncio.gather(changed, noticed)
        assert kinds(bench) == ["Launch"] and bench.job().started_at == bench.clock.now - 10

    play(scene, Deciding())


@JUMPS
def test_where_a_supervisor_decides_its_journal_tells(jump: float) -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: "1.0" in bench.cluster.journals)
        bench.cluster.tell("1.0", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        started = bench.job().started_at
        await set_clock(bench, jump)
        assert bench.job().started_at == started
        bench.cluster.tell("1.0", events.ClockSet(bench.clock.now, jump))
        await until(lambda: bench.job().started_at == (started or 0.0) + jump)
        # It is not moved again when the daemon decides, as while it waits for its next launch.
        bench.cluster.lose("1.0")
        await until(lambda: bench.state() == "PENDING")
        begins = bench.job().begin
        await bench.controller.recorder.change((1,), lambda units: None)
        assert bench.job().begin == begins and 0.0 < (begins or 0.0) - bench.clock.now < 60

    play(scene)


@JUMPS
def test_a_refused_call_is_made_again_after_the_time_that_it_was_to_wait(jump: float) -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.refusals = [Refusal("", "too many jobs", transient=True)] * 6
        await bench.submit()
        for seconds in (2, 4, 8, 16):
            await turn()
            bench.clock.advance(seconds)
        await turn()
        tries = bench.cluster.submits
        await set_clock(bench, jump)
        assert bench.cluster.submits == tries
        bench.clock.advance(60)
        await until(lambda: bench.cluster.submits == tries + 1)

    play(scene)


@JUMPS
def test_a_cluster_that_is_silent_is_asked_again_in_time(jump: float) -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.fail(True)
        await bench.submit()
        await until(lambda: bench.controller.clusters.get("local").stale_since is not None)
        since = bench.controller.clusters.get("local").stale_since
        await set_clock(bench, jump)
        assert bench.controller.clusters.get("local").stale_since == (since or 0.0) + jump
        bench.cluster.fail(False)
        bench.clock.advance(300)
        await until(lambda: "1.0" in bench.cluster.journals)

    play(scene)


@pytest.mark.parametrize(("jump", "sent"), [(3 * HOUR, True), (-6 * HOUR, False)])
def test_a_begin_time_follows_the_calendar(jump: float, sent: bool) -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one begin=7200")
        await set_clock(bench, jump)
        bench.clock.advance(0)
        await turn()
        assert (bench.cluster.submits == 1) is sent
        if not sent:
            bench.clock.advance(2 * HOUR)
            await turn()
            assert bench.cluster.submits == 0
            bench.clock.advance(6 * HOUR)
            await until(lambda: bench.cluster.submits == 1)

    play(scene)


@pytest.mark.parametrize(("jump", "state"), [(3 * HOUR, "DEADLINE"), (-6 * HOUR, "PENDING")])
def test_a_deadline_follows_the_calendar(jump: float, state: str) -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold deadline=7200")
        await set_clock(bench, jump)
        bench.clock.advance(0)
        await turn()
        assert bench.state() == state

    play(scene)


@JUMPS
def test_the_time_on_a_cluster_is_that_which_has_passed(jump: float) -> None:
    near, far = FakeCluster("local"), FakeCluster("far")

    def prepare(bench: Bench) -> None:
        bench.others = {"far": far}
        clusters = {"local": {"kind": "local"}, "far": {"kind": "slurm"}}
        bench.settings = Settings.model_validate({"clusters": clusters, "default_cluster": "local"})

    async def scene(bench: Bench) -> None:
        await bench.submit("one clusters=local,far after=60")
        await until(lambda: "1.0" in near.journals)
        offered = bench.job().offered_at
        bench.clock.advance(50)
        await set_clock(bench, jump)
        assert bench.job().offered_at == (offered or 0.0) + jump
        bench.clock.advance(9)
        await turn()
        assert near.orders == []
        bench.clock.advance(1)
        await until(lambda: len(near.orders) == 1)

    play(scene, near, prepare)


@JUMPS
def test_a_back_off_of_a_lost_launch_goes_on(jump: float) -> None:
    async def scene(bench: Bench) -> None:
        await run_job(bench)
        bench.cluster.lose("1.0")
        await until(lambda: bench.state() == "PENDING")
        due = bench.job().begin
        assert due is not None and due > bench.clock.now
        left = due - bench.clock.now
        await set_clock(bench, jump)
        assert bench.job().begin == due + jump and "1.1" not in bench.cluster.journals
        bench.clock.advance(left + 1)
        await until(lambda: "1.1" in bench.cluster.journals)

    play(scene, Deciding())


@JUMPS
def test_a_jump_that_cannot_be_written_is_written_later(jump: float) -> None:
    async def scene(bench: Bench) -> None:
        await run_job(bench)
        started = bench.job().started_at or 0.0
        bench.clock.advance(10)
        bench.repository.broken = True
        await set_clock(bench, jump)
        assert bench.job().started_at == started
        bench.repository.broken = False
        bench.clock.advance(5)
        await until(lambda: bench.job().started_at == started + jump)
        assert kinds(bench) == ["Launch"]
        # A cancel works as ever.
        await bench.controller.orders.cancel(CancelRequest(("1",), by="me"))
        await until(lambda: kinds(bench) == ["Launch", "Terminate"])

    play(scene, Deciding())


def test_without_a_jump_nothing_is_written() -> None:
    async def scene(bench: Bench) -> None:
        await run_job(bench)
        written, job = bench.repository.transactions, bench.job()
        await set_clock(bench, 0.0)
        assert (bench.repository.transactions, bench.job()) == (written, job)

    play(scene, Deciding())
