"""What a cluster has, compared with the store: what is live stays, what is left goes, others' goes when it is named."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import httpx2
from tests.unit.controller.fakes import Bench, FakeCluster, play, until

from overspan.adapters.abilities import Trace
from overspan.bridge.api.app import build_app
from overspan.bridge.controller.features.orphans import LaunchStanding, OrphanRemoval
from overspan.bridge.controller.orders.requests import CancelRequest


class TracingCluster(FakeCluster):
    """A cluster that can list what launches have there."""

    def __init__(self) -> None:
        super().__init__()
        self.extra: list[Trace] = []
        self.hidden: set[str] = set()
        self.removed: list[str] = []

    async def find_traces(self) -> list[Trace]:
        own = [
            Trace(token, handle, token.partition("-")[0], 1, 0, (f"Pod p-{handle}",))
            for token, handle in self.handles.items()
            if handle not in self.hidden
        ]
        return [trace for trace in [*own, *self.extra] if trace.token not in self.removed]

    async def remove_traces(self, traces: Sequence[Trace]) -> None:
        self.removed += [trace.token for trace in traces]


def _other(installation: str) -> Trace:
    return Trace(f"{installation}-9-0", f"x/{installation}-9-0", installation, 9, 0, ("Pod p",), 1)


def test_what_is_live_is_never_removed_and_others_only_by_name() -> None:
    cluster = TracingCluster()
    cluster.extra = [_other("aaa"), _other("bbb")]

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: "1.0" in cluster.journals)
        check = bench.controller.orphans.check

        async def standings(sweep: OrphanRemoval) -> dict[str, tuple[LaunchStanding, bool]]:
            found = await check("local", sweep)
            assert found.looked and not found.missing
            return {one.trace.installation: (one.standing, one.removed) for one in found.found}

        mine = bench.controller.recorder.completion.installation
        others = {"aaa": (LaunchStanding.OTHER, False), "bbb": (LaunchStanding.OTHER, False)}
        assert await standings(OrphanRemoval()) == {mine: (LaunchStanding.LIVE, False), **others}
        assert await standings(OrphanRemoval(release=True)) == {mine: (LaunchStanding.LIVE, False), **others}
        assert await standings(OrphanRemoval(installations=("aaa",))) == {mine: (LaunchStanding.LIVE, False), **others}
        assert cluster.removed == []
        await standings(OrphanRemoval(release=True, installations=("aaa", mine)))
        assert cluster.removed == ["aaa-9-0"]
        await standings(OrphanRemoval(release=True, all_installations=True))
        assert cluster.removed == ["aaa-9-0", "bbb-9-0"]

    play(scene, cluster)


def test_what_an_ended_job_left_is_found_and_removed() -> None:
    cluster = TracingCluster()

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: "1.0" in cluster.journals)
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        cluster.lose("1.0")
        await until(lambda: bench.job().over)
        (found,) = (await bench.controller.orphans.check("local", OrphanRemoval())).found
        assert (found.standing, found.removed) == (LaunchStanding.LEFT, False)
        (found,) = (await bench.controller.orphans.check("local", OrphanRemoval(release=True))).found
        assert found.removed and cluster.removed == [found.trace.token]

    play(scene, cluster)


def test_a_job_without_anything_there_is_told() -> None:
    cluster = TracingCluster()
    cluster.hidden = {"1.0"}

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: bool(bench.controller.releases.wanted()[0]))
        assert (await bench.controller.orphans.check("local", OrphanRemoval())).missing == (1,)

    play(scene, cluster)


class LettingGo(FakeCluster):
    """A cluster that cannot list launches, and lets go of those that are not named."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Collection[str]] = []

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        self.told.append(handles)


def test_a_cluster_that_lists_nothing_is_asked_to_let_go() -> None:
    cluster = LettingGo()

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: bool(bench.controller.releases.wanted()[0]))
        assert not (await bench.controller.orphans.check("local", OrphanRemoval())).looked
        assert cluster.told == []
        assert not (await bench.controller.orphans.check("local", OrphanRemoval(release=True))).looked
        assert cluster.told == [frozenset({"1.0"})]

    play(scene, cluster)


def test_the_route_looks_and_removes() -> None:
    cluster = TracingCluster()
    cluster.extra = [_other("aaa")]

    async def scene(bench: Bench) -> None:
        transport = httpx2.ASGITransport(app=build_app(bench.controller))
        async with httpx2.AsyncClient(transport=transport, base_url="http://span") as client:
            answer = (await client.post("/v1/clusters/local/fsck")).json()
            (launch,) = answer["launches"]
            assert (launch["standing"], launch["removed"], launch["objects"]) == ("other", False, ["Pod p"])
            assert answer["looked"] and answer["missing"] == []
            body = {"release": True, "all_installations": True}
            answer = (await client.post("/v1/clusters/local/fsck", json=body)).json()
            assert answer["launches"][0]["removed"] and cluster.removed == ["aaa-9-0"]
            assert (await client.post("/v1/clusters/moon/fsck", json={})).status_code == 404
            for wrong in ({"release": "yes"}, {"installations": "aaa"}, {"more": 1}):
                assert (await client.post("/v1/clusters/local/fsck", json=wrong)).status_code == 400

    play(scene, cluster)


def test_what_the_next_launch_of_a_live_job_takes_over_is_that_jobs() -> None:
    cluster = TracingCluster()

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: "1.0" in cluster.journals)
        mine = bench.controller.recorder.completion.installation
        # Its launch is over, and the cluster has it again: the next one is not there yet.
        cluster.extra = [
            Trace(f"{mine}-{job}-0", f"native.{job}", mine, job, 0, ("job 42",), resumes=True) for job in (1, 9)
        ]
        found = {
            one.trace.handle: one.standing
            for one in (await bench.controller.orphans.check("local", OrphanRemoval())).found
        }
        assert (found["native.1"], found["native.9"]) == (LaunchStanding.LIVE, LaunchStanding.LEFT)

    play(scene, cluster)
