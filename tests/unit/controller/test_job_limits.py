"""Limits of a cluster: how many are there, who waits, who is next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.controller.fakes import Bench, begin, end, give_order, turn, until

from overspan.adapters.contract import Refusal
from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.controller.core.job_limits import MAX_RUNNING, MAX_SUBMITTED, SlotQueue, make_slot_queue
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.model import events
from overspan.bridge.model.ranks import Rank

JOBS = st.integers(1, 8)


class Line(RuleBasedStateMachine):
    """The gate against a plain sorted list."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = SlotQueue(3, MAX_RUNNING)
        self.waiting: dict[int, Rank] = {}
        self.inside: set[int] = set()

    @rule(job=JOBS, behind=st.integers(-2, 2))
    def wait(self, job: int, behind: int) -> None:
        self.waiting[job] = Rank(behind, 0.0, job)
        self.queue.wait(job, self.waiting[job])

    @rule(job=JOBS)
    def leave(self, job: int) -> None:
        self.waiting.pop(job, None)
        self.queue.leave(job)

    @rule(job=JOBS)
    def occupy(self, job: int) -> None:
        self.waiting.pop(job, None)
        self.inside.add(job)
        self.queue.occupy(job)

    @rule(job=JOBS)
    def free(self, job: int) -> None:
        self.inside.discard(job)
        self.queue.free(job)

    @rule(most=st.integers(0, 4))
    def admit(self, most: int) -> None:
        expected: list[int] = []
        while self.waiting and len(self.inside) < 3 and len(expected) < most:
            first = min(self.waiting, key=lambda job: self.waiting[job])
            del self.waiting[first]
            self.inside.add(first)
            expected.append(first)
        assert self.queue.admit(most) == expected

    @invariant()
    def same(self) -> None:
        assert len(self.queue) == len(self.waiting)
        assert all((job in self.queue) == (job in self.waiting) for job in range(9))
        assert self.queue.open == (bool(self.waiting) and len(self.inside) < 3)


TestLine = Line.TestCase


def test_a_place_that_changes_often_does_not_fill_the_memory() -> None:
    queue = SlotQueue(1, MAX_RUNNING)
    for behind in range(10_000):
        queue.wait(1, Rank(behind, 0.0, 1))
    assert len(queue._heap) < 200
    assert queue.admit(9) == [1]


@pytest.mark.parametrize(
    ("running", "submitted", "found"),
    [
        (None, None, None),
        (5, None, (5, MAX_RUNNING)),
        (None, 7, (7, MAX_SUBMITTED)),
        (5, 4, (4, MAX_SUBMITTED)),
        (4, 4, (4, MAX_RUNNING)),
    ],
)
def test_the_smaller_limit_holds(running: int | None, submitted: int | None, found: tuple[int, str] | None) -> None:
    queue = make_slot_queue(ClusterSettings(kind="local", max_running=running, max_submitted=submitted))
    assert (None if queue is None else (queue.limit, queue.reason)) == found


# --- with a controller ------------------------------------------------------------------------------------------------


@pytest.fixture
def play() -> Callable[[Callable[[Bench], Awaitable[None]]], None]:
    """Run a scene on a cluster that takes two jobs at once."""
    settings = Settings(clusters={"local": ClusterSettings(kind="local", max_running=2)})

    def play(scene: Callable[[Bench], Awaitable[None]]) -> None:
        async def run() -> None:
            bench = Bench()
            bench.settings = settings
            await bench.start()
            try:
                await scene(bench)
                await turn()
                bench.check()
            finally:
                await bench.controller.close()

        asyncio.run(run())

    return play


def launched(bench: Bench) -> list[int]:
    return [job.id for job in bench.cluster.launched]


async def finish(bench: Bench, job_id: int) -> None:
    job, handle = bench.job(job_id), f"{job_id}.{bench.job(job_id).launch}"
    bench.cluster.tell(handle, *begin(job, bench.clock.now))
    await until(lambda: bench.state(job_id) == "RUNNING")
    bench.cluster.tell(handle, *end(bench.job(job_id), bench.clock.now))
    await until(lambda: bench.job(job_id).over)


def test_no_more_than_the_limit_are_there_and_the_next_comes_at_once(play: Callable[..., None]) -> None:
    async def scene(bench: Bench) -> None:
        for _ in range(5):
            await bench.submit()
        await until(lambda: bench.job(5).reason == MAX_RUNNING)
        assert launched(bench) == [1, 2]
        await finish(bench, 2)
        await until(lambda: launched(bench) == [1, 2, 3])
        await until(lambda: bench.job(3).reason == "None")
        await finish(bench, 1)
        await finish(bench, 3)
        await until(lambda: launched(bench) == [1, 2, 3, 4, 5])

    play(scene)


def test_priority_goes_first_also_when_it_changes_later(play: Callable[..., None]) -> None:
    async def scene(bench: Bench) -> None:
        for _ in range(6):
            await bench.submit()
        await until(lambda: bench.job(6).reason == MAX_RUNNING)
        await bench.controller.orders.give("5", lambda at, name: events.SetPriority(at, 10))
        await bench.controller.orders.give("6", lambda at, name: events.SetPriority(at, 20))
        await bench.controller.orders.give("3", lambda at, name: events.SetNice(at, 5))
        for job_id in (1, 2, 6, 5):
            await finish(bench, job_id)
        await until(lambda: len(launched(bench)) == 6)
        assert launched(bench) == [1, 2, 6, 5, 4, 3]

    play(scene)


def test_who_waits_can_be_held_and_cancelled_without_its_cluster(play: Callable[..., None]) -> None:
    async def scene(bench: Bench) -> None:
        for _ in range(5):
            await bench.submit()
        await until(lambda: bench.job(5).reason == MAX_RUNNING)
        await give_order(bench, "3", events.Hold)
        await bench.controller.orders.cancel(CancelRequest(("4",)))
        assert (bench.state(4), bench.job(3).reason) == ("CANCELLED", "JobHeldUser")
        await finish(bench, 1)
        await until(lambda: launched(bench) == [1, 2, 5])
        await give_order(bench, "3", events.Release)
        await until(lambda: bench.job(3).reason == MAX_RUNNING)
        await finish(bench, 2)
        await until(lambda: launched(bench) == [1, 2, 5, 3])
        assert bench.cluster.orders == []

    play(scene)


def test_a_requeued_job_waits_for_a_slot_like_others(play: Callable[..., None]) -> None:
    async def scene(bench: Bench) -> None:
        for _ in range(3):
            await bench.submit()
        await until(lambda: bench.job(3).reason == MAX_RUNNING)
        await bench.controller.orders.give("3", lambda at, name: events.SetPriority(at, 1))
        bench.cluster.tell("1.0", *begin(bench.job(1), bench.clock.now))
        await until(lambda: bench.state(1) == "RUNNING")
        await give_order(bench, "1", events.Requeue)
        await until(lambda: bool(bench.cluster.orders))
        bench.cluster.tell("1.0", bench.cluster.orders[0].event, *end(bench.job(1), bench.clock.now + 1, exit_code=1))
        await until(lambda: launched(bench) == [1, 2, 3])
        await until(lambda: bench.job(1).reason == MAX_RUNNING)
        await turn()
        assert (bench.state(1), launched(bench)) == ("PENDING", [1, 2, 3])
        await finish(bench, 2)
        await until(lambda: launched(bench) == [1, 2, 3, 1])
        assert "1.1" in bench.cluster.journals

    play(scene)


def test_a_refused_submission_gives_its_slot_to_the_next(play: Callable[..., None]) -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.refusals = [Refusal("", "not now", transient=True, reason="PartitionDown")]
        for _ in range(3):
            await bench.submit()
        await until(lambda: launched(bench) == [2, 3])
        assert bench.job(1).reason == "PartitionDown"
        await finish(bench, 2)
        bench.clock.advance(3600)
        await until(lambda: launched(bench) == [2, 3, 1])

    play(scene)


def test_the_limit_and_the_order_outlive_the_daemon(play: Callable[..., None]) -> None:
    async def scene(bench: Bench) -> None:
        for _ in range(6):
            await bench.submit("one deadline=1000")
        await until(lambda: bench.job(6).reason == MAX_RUNNING)
        await bench.controller.orders.give("6", lambda at, name: events.SetPriority(at, 10))
        await bench.kill()
        await bench.start()
        await turn()
        assert launched(bench) == [1, 2]
        # It is known not to be on its cluster, so this needs no order, and its deadline is heeded.
        await give_order(bench, "5", events.Hold)
        assert bench.job(5).reason == "JobHeldUser" and bench.cluster.orders == []
        await finish(bench, 1)
        await until(lambda: launched(bench) == [1, 2, 6])
        bench.clock.advance(2000)
        await until(lambda: bench.state(3) == bench.state(4) == "DEADLINE")

    play(scene)


def test_a_call_that_may_have_been_made_before_a_crash_keeps_its_slot(play: Callable[..., None]) -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.gate = asyncio.Event()
        for _ in range(4):
            await bench.submit()
        await until(lambda: launched(bench) == [1])
        await bench.kill()
        bench.cluster.gate = None
        await bench.start()
        # Only the cluster can tell what became of the call that was under way.
        row = bench.controller.recorder.outbox.submit_of(1, "local")
        assert row is not None and bench.controller.recorder.outbox.tried(row.token)
        await until(lambda: bench.job(4).reason == MAX_RUNNING)
        await until(lambda: bench.controller.recorder.outbox.submit_of(1, "local") is None)
        assert launched(bench) == [1, 2] and bench.cluster.submits >= 2

    play(scene)


def test_many_who_wait_cost_little(play: Callable[..., None]) -> None:
    async def scene(bench: Bench) -> None:
        for _ in range(200):
            await bench.submit()
        await until(lambda: bench.job(200).reason == MAX_RUNNING)
        written = bench.repository.transactions
        for job_id in range(1, 20):
            await finish(bench, job_id)
        await until(lambda: len(launched(bench)) == 21)
        assert bench.repository.transactions - written < 20 * 6

    play(scene)
