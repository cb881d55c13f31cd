"""Cancels that wait, submissions in doubt, and clusters that are gone: what is told, and what ends at once."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, play, turn, until
from tests.unit.controller.slow_cluster import SlowCluster

from overspan.adapters.contract import Accepted, Launch, Refusal, before_sending
from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.controller.views.listing import Selection
from overspan.bridge.model import events
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.errors import TimedOut


class DeafCluster(FakeCluster):
    """Takes launches, or loses them, and does not say so while it is deaf."""

    def __init__(self) -> None:
        super().__init__()
        self.deaf = True
        self.loses = False
        self.final = ""

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        if self.final and not self.deaf:
            return [Refusal(launch.token, self.final) for launch in launches]
        answers = [] if self.deaf and self.loses else await super().submit(launches)
        if self.deaf:
            self.submits += self.loses
            raise TimedOut("Socket timed out on send/recv operation")
        return answers


def reason(bench: Bench, place: int = 0) -> str:
    """The reason in the queue's first row."""
    listing = json.loads(bench.controller.queue(Selection()))
    return str(listing["rows"][place][listing["columns"].index("reason")])


async def cancel(bench: Bench, ref: str = "1") -> str:
    outcome = await bench.controller.orders.cancel(CancelRequest((ref,), by="me"))
    assert outcome.done == [ref]
    return outcome.note


async def answer_again(bench: Bench, cluster: DeafCluster) -> None:
    cluster.deaf = False
    for _ in range(20):
        bench.clock.advance(60)
        await turn()


def test_a_cancel_in_doubt_is_told_and_nothing_is_made_when_the_cluster_comes() -> None:
    cluster = DeafCluster()
    cluster.loses = True

    async def scene(bench: Bench) -> None:
        since = format_timestamp(bench.clock.now)
        await bench.submit()
        await until(lambda: cluster.submits == 1)
        await turn()
        silence = f"local has not answered since {since}"
        assert reason(bench) == silence
        note = await cancel(bench)
        assert silence in note.removeprefix("what was asked waits: cluster ")
        assert bench.state() == "PENDING" and reason(bench) == f"cancel ordered; {silence}"
        shown = await bench.controller.job("1")
        assert (shown["obstacle"], shown["configured"]) == (f"cancel ordered; {silence}", True)
        await answer_again(bench, cluster)
        assert bench.state() == "CANCELLED" and cluster.launched == [] and bench.repository.rows == {}
        assert (await bench.controller.job("1"))["obstacle"] == ""

    play(scene, cluster)


def test_a_cancelled_launch_that_is_there_is_found_and_cancelled() -> None:
    cluster = DeafCluster()

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: cluster.submits == 1)
        await turn()
        await cancel(bench)
        await answer_again(bench, cluster)
        await until(lambda: [type(order.event).__name__ for order in cluster.orders] == ["Cancel"])
        assert len(cluster.launched) == 1 and bench.state() == "PENDING"

    play(scene, cluster)


def test_a_cancelled_job_is_cancelled_whatever_its_cluster_says_of_it() -> None:
    """A namespace that is missing, say: the job did not fail, somebody cancelled it."""
    cluster = DeafCluster()
    cluster.loses, cluster.final = True, "the namespace default does not exist"

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: cluster.submits == 1)
        await turn()
        await cancel(bench)
        await answer_again(bench, cluster)
        assert bench.state() == "CANCELLED"

    play(scene, cluster)


def test_what_was_never_sent_to_a_silent_cluster_is_cancelled_at_once() -> None:
    cluster = DeafCluster()
    cluster.loses = True

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: cluster.submits == 1)
        await turn()
        cluster.down = True
        await bench.submit("two")
        for _ in range(5):
            bench.clock.advance(60)
            await turn()
        assert await cancel(bench, "2") == "" and bench.state(2) == "CANCELLED"
        # The first one may be there.
        await cancel(bench, "1")
        assert bench.state(1) == "PENDING"
        cluster.down = False
        await answer_again(bench, cluster)
        assert bench.state(1) == "CANCELLED"

    play(scene, cluster)


def test_what_an_adapter_has_not_sent_is_cancelled_at_once() -> None:
    class Unreached(FakeCluster):
        async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
            self.submits += 1
            async with before_sending():
                raise TimedOut("no way to the login node")

    cluster = Unreached()

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: cluster.submits == 1)
        await turn()
        assert "no way to the login node" in str(bench.controller.clusters.get("local").silence)
        assert await cancel(bench) == "" and bench.state() == "CANCELLED"

    play(scene, cluster)


def test_a_job_of_a_cluster_that_is_not_configured_says_so_and_can_be_forgotten() -> None:
    def prepare(bench: Bench) -> None:
        bench.settings = Settings.model_validate({"clusters": {"far": {"kind": "pods"}}})
        bench.others = {"far": FakeCluster("far")}

    async def scene(bench: Bench) -> None:
        await bench.submit("one hold", cluster="far")
        await bench.controller.close()
        bench.settings = Settings()
        await bench.start()
        assert reason(bench) == "far (not configured)"
        shown = await bench.controller.job("1")
        assert (shown["obstacle"], shown["configured"]) == ("far (not configured)", False)
        # It is let go, and so never reaches a cluster.
        await bench.controller.orders.give("1", lambda at, task: events.Release(at))
        await turn()
        assert reason(bench) == "far (not configured)"
        assert await cancel(bench) == "" and bench.state() == "CANCELLED"

    play(scene, prepare=prepare)


@pytest.mark.parametrize("reached", [False, True])
def test_what_never_left_for_a_removed_cluster_is_forgotten_by_a_new_daemon(reached: bool) -> None:
    far = FakeCluster("far")

    def prepare(bench: Bench) -> None:
        bench.settings = Settings.model_validate({"clusters": {"far": {"kind": "pods"}}})
        bench.others = {"far": far}

    async def scene(bench: Bench) -> None:
        far.fail(True)
        # The first call finds out that it is silent, and may have had its effect.
        await bench.submit(cluster="far")
        await until(lambda: bench.controller.clusters.get("far").stale_since is not None)
        if not reached:
            await bench.submit(cluster="far")
        await turn()
        await bench.kill()
        bench.settings = Settings()
        await bench.start()
        await turn()
        number = 1 if reached else 2
        await cancel(bench, str(number))
        assert bench.state(number) == ("PENDING" if reached else "CANCELLED")

    play(scene, prepare=prepare)


def test_a_submission_without_an_answer_among_others_is_told() -> None:
    cluster = SlowCluster()
    cluster.slow = {1}

    async def scene(bench: Bench) -> None:
        since = format_timestamp(bench.clock.now)
        await bench.submit()
        await until(lambda: cluster.calls != [])
        await turn()
        doubt = f"local has not said since {since} whether it has the job"
        bench.clock.advance(2)
        await turn()
        assert reason(bench) == doubt and (await bench.controller.job("1"))["obstacle"] == doubt
        await cancel(bench)
        assert reason(bench) == f"cancel ordered; {doubt}"
        cluster.slow = set()
        bench.clock.advance(2)
        await until(lambda: bench.controller.recorder.registry.watched("local") != {})
        assert "has not said" not in reason(bench)

    play(scene, cluster)


def test_a_job_that_is_told_nothing_of_keeps_its_reason() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold")
        assert reason(bench) == "JobHeldUser" and (await bench.controller.job("1"))["obstacle"] == ""

    play(scene)
