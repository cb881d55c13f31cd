"""Calls that come in another order than they were decided in, and decisions that are made again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.unit.controller.fakes import START, Bench, FakeCluster, play, turn, until

from overspan.adapters.contract import Decider, Observation, Order, Refusal
from overspan.bridge.controller import controller
from overspan.bridge.controller.core.outbox import ORDER, Outbox
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.model import events
from overspan.bridge.model.errors import TimedOut
from overspan.bridge.model.spec import Backoff, JobSpec, RestartScope, RetryPolicy, TaskSpec
from overspan.bridge.store.records import OutboxRow

LANE = ("local", ORDER)


class RefusingCluster(FakeCluster):
    """The daemon decides; launches are refused, or lose their answers."""

    decider = Decider.DAEMON

    def __init__(self, *, final: bool = False) -> None:
        super().__init__()
        self.full = True
        self.final = final
        self.silent = False
        self.told: list[str] = []
        """What was delivered and not refused."""

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        answers: list[Refusal | None] = []
        for order in orders:
            if self.full and isinstance(order.event, events.Launch | events.NodeRelaunch):
                answers.append(Refusal(order.token, "exceeded quota", not self.final, "Resources"))
            else:
                self.told.append(type(order.event).__name__)
                answers.append(None)
        if self.silent:
            raise TimedOut("no answer in time")
        return answers


async def _grant(bench: Bench) -> None:
    await bench.submit("a")
    await until(lambda: "1.0" in bench.cluster.journals)
    bench.cluster.tell("1.0", events.Granted(bench.clock.now, (("a", 0, "me", "10.0.0.1", ()),)))
    await until(lambda: bench.job().granted_at is not None)


def _row(token: str, **fields: Any) -> OutboxRow:
    return OutboxRow(token, 1, "local", ORDER, {"event": {}}, 0.0, **fields)


def test_calls_that_are_given_back_go_before_younger_ones() -> None:
    outbox = Outbox()
    for token in ("hold", "other"):
        outbox.add(_row(token))
    assert len(outbox.take(LANE, 0.0, 2)) == 2
    outbox.add(_row("release"))
    for token in ("other", "hold"):
        outbox.offer(token)
    assert [row.token for row in outbox.take(LANE, 0.0, 2)] == ["hold", "other"]
    outbox.offer("hold")
    assert [row.token for row in outbox.claim(LANE, 0.0)] == ["hold", "release"]


def test_an_end_that_overtook_the_start_is_delivered_again_after_it() -> None:
    cluster = RefusingCluster()

    async def scene(bench: Bench) -> None:
        await _grant(bench)
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        await until(lambda: cluster.told == ["Terminate"])
        cluster.full = False
        bench.clock.advance(5)
        await until(lambda: cluster.told == ["Terminate", "Launch", "Terminate"])
        bench.cluster.tell("1.0", events.NodeEnded(bench.clock.now, "a", 0, 0, signal=15))
        await until(lambda: bench.state() == "CANCELLED")
        assert bench.repository.rows == {}

    play(scene, cluster)


def test_the_next_daemon_delivers_an_end_again_whose_effect_nobody_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "CATCH_UP_SECONDS", 0)
    cluster = RefusingCluster()

    async def scene(bench: Bench) -> None:
        await _grant(bench)
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        await until(lambda: cluster.told == ["Terminate"])
        await bench.kill()
        await bench.start()
        await until(lambda: cluster.told == ["Terminate", "Terminate"])

    play(scene, cluster)


def test_a_launch_whose_answer_was_lost_is_not_made_again_once_it_is_seen() -> None:
    cluster = RefusingCluster()
    cluster.full = False
    cluster.silent = True

    async def scene(bench: Bench) -> None:
        await _grant(bench)
        await until(lambda: cluster.told == ["Launch"])
        bench.cluster.tell("1.0", events.NodeStarted(bench.clock.now, "a", 0, 0))
        await until(lambda: bench.state() == "RUNNING")
        assert bench.repository.rows == {}
        bench.clock.advance(30)
        await turn()
        assert cluster.told == ["Launch"]

    play(scene, cluster)


def test_a_launch_that_is_refused_for_good_ends_its_attempt() -> None:
    cluster = RefusingCluster(final=True)

    async def scene(bench: Bench) -> None:
        await _grant(bench)
        await until(lambda: bench.state() == "FAILED")
        assert bench.job().tasks[0].attempts[0].detail == "exceeded quota"
        # No wait mends it, so no budget pays for another try.
        assert bench.job().reason == "BadConstraints"

    play(scene, cluster)


def test_a_node_that_cannot_be_started_again_does_not_hold_up_a_cancel() -> None:
    cluster = RefusingCluster()
    cluster.full = False
    retry = RetryPolicy(max_restarts_on_errors=1, backoff=Backoff(first=0.0))
    task = TaskSpec("a", run="true", num_nodes=2, restart=RestartScope.NODE, retry=retry)

    def prepare(bench: Bench) -> None:
        bench.reader = lambda submission, kinds, now: ParsedSubmission(JobSpec("g", tasks=(task,)), {"wait": False})

    async def scene(bench: Bench) -> None:
        await bench.submit("a")
        await until(lambda: "1.0" in cluster.journals)
        now = bench.clock.now
        cluster.tell("1.0", events.Granted(now, tuple(("a", node, "me", "10.0.0.1", ()) for node in (0, 1))))
        await until(lambda: cluster.told == ["Launch"])
        cluster.full = True
        cluster.tell("1.0", *[events.NodeStarted(now, "a", 0, node) for node in (0, 1)])
        cluster.tell("1.0", events.NodeEnded(now, "a", 0, 0, exit_code=1))
        # Its start is decided, and refused for now.
        await until(lambda: bench.job().tasks[0].restarts == 1)
        await until(lambda: any(row.tries for row in bench.repository.rows.values()))
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        cluster.tell("1.0", events.NodeEnded(now, "a", 0, 1, signal=15))
        await turn()
        assert bench.state() == "COMPLETING"
        bench.clock.advance(5)
        await until(lambda: bench.state() == "CANCELLED")

    play(scene, cluster, prepare)


def test_what_was_done_before_the_deadline_is_done_whenever_it_is_told() -> None:
    cluster = RefusingCluster()
    cluster.full = False

    async def scene(bench: Bench) -> None:
        await bench.submit("a deadline=50")
        await until(lambda: "1.0" in cluster.journals)
        start = bench.clock.now
        cluster.tell("1.0", events.Granted(start, (("a", 0, "me", "10.0.0.1", ()),)))
        await until(lambda: bench.job().granted_at is not None)
        cluster.tell("1.0", events.NodeStarted(start, "a", 0, 0))
        await until(lambda: bench.state() == "RUNNING")
        bench.clock.advance(55)
        await until(lambda: bench.job().ending is not None)
        cluster.tell("1.0", events.NodeEnded(start + 40, "a", 0, 0))
        await until(lambda: bench.job().over)
        assert bench.state() == "COMPLETED"

    play(scene, cluster)


class CopyingCluster(FakeCluster):
    """The cluster decides; that somebody had ordered an end is told only by who gave the order in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = False
        self.ended = False

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        self.ended = True
        if not self.answers:
            await asyncio.Event().wait()
        assert all(order.again for order in orders)
        for order in orders:
            self.journals["1.0"].insert(2, order.event)
        return [None for _ in orders]

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        if self.ended and not any(isinstance(event, events.NodeEnded) for event in self.journals["1.0"]):
            self.journals["1.0"].append(events.NodeEnded(START + 1, "a", 0, 0, signal=15))
        return await super().observe(since, timeout)


def test_what_an_earlier_daemon_had_ended_is_not_told_before_its_order_was_given_again() -> None:
    cluster = CopyingCluster()

    async def scene(bench: Bench) -> None:
        await _grant(bench)
        bench.cluster.tell("1.0", events.Launch(bench.clock.now, "a", 0))
        await until(lambda: bool(bench.job().tasks[0].attempts))
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        await until(lambda: cluster.ended)
        await bench.kill()
        cluster.answers = True
        await bench.start()
        await until(lambda: bench.job().over)
        assert bench.state() == "CANCELLED"

    play(scene, cluster)
