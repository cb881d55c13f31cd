"""Objects of ended launches are let go by whoever stored the end, or by the next daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, begin, end, play, turn, until

from overspan.adapters.contract import Decider
from overspan.bridge.controller import controller
from overspan.bridge.controller.core import releases
from overspan.bridge.controller.core.clusters import Cluster
from overspan.bridge.controller.core.recording import RETRY_SECONDS
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.model import events
from overspan.bridge.model.errors import Unreachable


class KeepingCluster(FakeCluster):
    """A cluster that keeps objects of launches until it is told which are still wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: set[str] = set()
        self.told: list[tuple[frozenset[str], frozenset[str]]] = []

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        if self.down:
            raise Unreachable("no route to the cluster")
        assert installation
        self.told.append((frozenset(handles), frozenset(tokens)))
        self.kept = {handle for token, handle in self.handles.items() if handle in handles or token in tokens}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "GATHER_SECONDS", 0)


async def _end(bench: Bench, handle: str) -> None:
    number = int(handle.partition(".")[0])
    bench.cluster.tell(handle, *begin(bench.job(number), bench.clock.now))
    await until(lambda: bench.state(number) == "RUNNING")
    bench.cluster.tell(handle, *end(bench.job(number), bench.clock.now))
    await until(lambda: bench.state(number) == "COMPLETED")


def test_an_ended_launch_is_let_go_and_the_others_stay() -> None:
    cluster = KeepingCluster()

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await bench.submit()
        await until(lambda: len(cluster.handles) == 2)
        await turn()
        assert cluster.told == []
        await _end(bench, "1.0")
        await until(lambda: cluster.kept == {"2.0"})
        assert list(bench.repository.values.values()).count("owed") == 1
        await _end(bench, "2.0")
        await until(
            lambda: cluster.told[-1] == (frozenset(), frozenset()) and "owed" not in bench.repository.values.values()
        )

    play(scene, cluster)


def test_a_former_launch_is_let_go_when_the_next_is_owed() -> None:
    cluster = KeepingCluster()

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: "1.0" in cluster.journals)
        cluster.tell("1.0", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        cluster.tell("1.0", events.LaunchLost(bench.clock.now, 0, "node"))
        await until(lambda: bool(cluster.told))
        assert cluster.told[0][0] <= {"1.1"}
        bench.clock.advance(60)
        await until(lambda: "1.1" in cluster.journals)

    play(scene, cluster)


def test_an_element_that_is_owed_keeps_what_it_shares_with_its_array() -> None:
    """Files of a native array have the array's number in their names, and the token of an element has its own."""
    cluster = KeepingCluster()

    async def scene(bench: Bench) -> None:
        array = await bench.submit("one array=3")
        await until(lambda: bool(cluster.journals))
        (handle,) = cluster.journals
        number = int(handle.partition(".")[0])
        cluster.tell(handle, *begin(bench.job(number), bench.clock.now))
        await until(lambda: bench.state(number) == "RUNNING")
        cluster.tell(handle, events.LaunchLost(bench.clock.now, 0, "node"))
        await until(lambda: bool(cluster.told))
        cluster.down = True
        bench.clock.advance(60)
        installation = bench.controller.recorder.completion.installation
        wanted = frozenset({f"{installation}-{array}-0", f"{installation}-{number}-1"})
        await until(lambda: bench.controller.releases.wanted()[1] == wanted)

    play(scene, cluster)


def test_the_next_daemon_lets_go_what_its_predecessor_could_not(monkeypatch: pytest.MonkeyPatch) -> None:
    # The end is there to be seen, however long that takes.
    monkeypatch.setattr(controller, "CATCH_UP_SECONDS", 60.0)
    cluster = KeepingCluster()

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: "1.0" in cluster.journals)
        cluster.tell("1.0", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        cluster.fail(True)
        await bench.kill()
        cluster.fail(False)
        await bench.start()
        await until(lambda: cluster.told == [(frozenset(), frozenset())])

    play(scene, cluster)


def test_a_start_without_leftovers_asks_nothing() -> None:
    cluster = KeepingCluster()

    async def scene(bench: Bench) -> None:
        await turn()
        assert cluster.told == []

    play(scene, cluster)


def test_a_job_that_is_cancelled_during_its_submission_leaves_nothing() -> None:
    cluster = KeepingCluster()
    gate = cluster.gate = asyncio.Event()

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: bool(cluster.handles))
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        cluster.decider = Decider.DAEMON
        gate.set()
        await until(lambda: bench.state() == "CANCELLED")
        await until(lambda: cluster.told == [(frozenset(), frozenset())])
        assert cluster.kept == set()

    play(scene, cluster)


def test_what_ends_while_others_are_released_is_released_by_the_next_daemon() -> None:
    class SlowCluster(KeepingCluster):
        passing: asyncio.Event | None = None

        async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
            await super().release(installation, handles, tokens)
            if self.passing is not None:
                await self.passing.wait()

    cluster = SlowCluster()

    async def scene(bench: Bench) -> None:
        cluster.passing = asyncio.Event()
        await bench.submit()
        await bench.submit()
        await until(lambda: len(cluster.handles) == 2)
        await _end(bench, "1.0")
        await until(lambda: cluster.told == [(frozenset({"2.0"}), frozenset())])
        await _end(bench, "2.0")
        cluster.passing.set()
        cluster.passing.clear()
        await until(lambda: len(cluster.told) == 2)
        await bench.kill()
        await bench.start()
        await until(lambda: len(cluster.told) > 2)

    play(scene, cluster)


def test_a_launch_whose_end_is_not_recorded_yet_stays() -> None:
    """The disk is full: what ends the job is done. The next daemon reads that it runs, and looks for it."""
    cluster = KeepingCluster()

    async def scene(bench: Bench) -> None:
        cluster.decider = Decider.DAEMON
        await bench.submit()
        await until(lambda: "1.0" in cluster.journals)
        await turn()
        bench.repository.broken = True
        await bench.controller.orders.cancel(CancelRequest(("1",), by="me"))
        assert bench.state() == "CANCELLED"
        await turn(200)
        assert cluster.told == []
        bench.repository.broken = False
        bench.clock.advance(RETRY_SECONDS + 1)
        await turn(200)
        bench.clock.advance(600)
        await until(lambda: cluster.told == [(frozenset(), frozenset())])
        assert bench.repository.jobs[1].job.over

    play(scene, cluster)


def test_a_cluster_in_the_place_of_one_of_that_name_is_observed_and_told() -> None:
    """A pool may be deleted, and another one made under its name."""
    first, second = KeepingCluster(), KeepingCluster()

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: len(first.handles) == 1)
        await _end(bench, "1.0")
        await until(lambda: "owed" not in bench.repository.values.values())
        told, clusters = len(first.told), bench.controller.clusters
        old = clusters.get("")
        await clusters.remove_pool(old.name)
        bench.cluster = second
        clusters._clusters[old.name] = Cluster(old.config, old.opener_of)
        await bench.submit()
        await until(lambda: len(second.handles) == 1)
        await _end(bench, "2.0")
        await until(lambda: bool(second.told) and second.kept == set())
        assert len(first.told) == told

    play(scene, first)
