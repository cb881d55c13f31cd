"""A configuration that changes under running work: nothing is ended, nothing runs twice, and everything is said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, begin, end, play, turn, until

from overspan.adapters.abilities import Trace
from overspan.adapters.contract import Decider, Observation, Report
from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.core import releases
from overspan.bridge.controller.features.orphans import OrphanRemoval
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.controller.views.listing import Selection
from overspan.bridge.model import events
from overspan.bridge.model.errors import Unreachable


class Namespace(FakeCluster):
    """A place that keeps launches until it is told that they are not wanted, and knows of none but its own."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        self.kept: set[str] = set()

    def place(self) -> str:
        return self.address

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        if any(handle not in self.journals for handle in since) and not self.down:
            return Observation(tuple(Report(handle, (), cursor, gone=True) for handle, cursor in since.items()), 0.0)
        return await super().observe(since, timeout)

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        if self.down:
            raise Unreachable("no route to the cluster")
        self.kept = {handle for token, handle in self.handles.items() if handle in handles or token in tokens}


class Listed(Namespace):
    """One that can list what launches have there."""

    async def find_traces(self) -> list[Trace]:
        return [Trace(token, handle, token.partition("-")[0], 1, 0, ()) for token, handle in self.handles.items()]

    async def remove_traces(self, traces: Collection[Trace]) -> None:
        for trace in traces:
            self.kept.discard(trace.handle)
            del self.handles[trace.token]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "GATHER_SECONDS", 0)


def configure(bench: Bench, kinds: Mapping[str, str] | None = None, **clusters: FakeCluster) -> None:
    """Have these clusters and no others, beside `local`."""
    given = {name: {"kind": (kinds or {}).get(name, "pods")} for name in clusters}
    bench.others = clusters
    bench.settings = Settings.model_validate({"clusters": given})


async def run_on(bench: Bench, name: str, place: FakeCluster) -> int:
    """A job that runs on a cluster."""
    number = await bench.submit("one", cluster=name)
    await until(lambda: f"{number}.0" in place.journals)
    place.tell(f"{number}.0", *begin(bench.job(number), bench.clock.now))
    await until(lambda: bench.state(number) == "RUNNING")
    return number


async def finish(bench: Bench, number: int, place: FakeCluster) -> None:
    place.tell(f"{number}.0", *end(bench.job(number), bench.clock.now))
    await until(lambda: bench.state(number) == "COMPLETED")


async def restart(bench: Bench, kinds: Mapping[str, str] | None = None, **clusters: FakeCluster) -> None:
    """End the daemon, change the file, and begin another."""
    await bench.kill()
    configure(bench, kinds, **clusters)
    await bench.start()


async def told(bench: Bench, name: str, number: int) -> list[str]:
    """What is said of a cluster by ping, clusters, check, show and squeue, each in one text."""
    boss = bench.controller
    rows = [str(row["message"]) for row in boss.health.list_clusters() if row["name"] == name]
    found = [f"{one.seen} {one.remedy}" for one in await boss.health.check(name) if not one.works]
    shown = (await boss.job(str(number)))["notes"]
    listed = boss.queue(Selection()).decode()
    return [*boss.problems, *rows, *found, *shown, listed]


def watch(scene: Callable[[Bench, Namespace], object], home: Namespace | None = None) -> None:
    """Play a scene in which `lab` and `py` are names of one namespace."""
    home = home or Namespace("https://one, namespace a")

    async def run(bench: Bench) -> None:
        await scene(bench, home)  # type: ignore[misc]

    play(run, prepare=lambda bench: configure(bench, lab=home, py=home))


@pytest.mark.parametrize("names", [("laboratory", "py"), ("py",)], ids=["renamed", "removed"])
def test_a_cluster_that_is_named_no_more_keeps_its_jobs(names: tuple[str, ...]) -> None:
    async def scene(bench: Bench, home: Namespace) -> None:
        stays, ends = await run_on(bench, "lab", home), await run_on(bench, "py", home)
        await restart(bench, None, **dict.fromkeys(names, home))
        await finish(bench, ends, home)
        await until(lambda: f"{ends}.0" not in home.kept)
        assert home.kept == {f"{stays}.0"}
        assert bench.state(stays) == "RUNNING" and len(home.launched) == 2
        texts = await told(bench, "lab", stays)
        assert len(texts) == 5
        for text in texts:
            assert "does not name the cluster lab, which was pods https://one, namespace a" in text, text
        # As it was, everything goes on.
        await restart(bench, lab=home, py=home)
        await finish(bench, stays, home)
        assert bench.controller.problems == []

    watch(scene)


def test_fsck_of_another_name_of_the_place_takes_nothing_away() -> None:
    home = Listed("https://one, namespace a")

    async def scene(bench: Bench, place: Namespace) -> None:
        stays = await run_on(bench, "lab", home)
        await restart(bench, py=home)
        found = await bench.controller.orphans.check("py", OrphanRemoval(release=True))
        assert [one.removed for one in found.found] == [False]
        assert list(home.handles.values()) == [f"{stays}.0"]

    watch(scene, home)


@pytest.mark.parametrize("kind", ["pods", "other"])
def test_a_name_that_leads_elsewhere_asks_nothing_there(kind: str) -> None:
    dispatched = Namespace("https://two, namespace a" if kind == "pods" else "https://one, namespace a")

    async def scene(bench: Bench, home: Namespace) -> None:
        stays = await run_on(bench, "lab", home)
        await restart(bench, {"lab": kind}, lab=dispatched, py=home)
        await until(lambda: bench.controller.clusters.get("lab").stale_since is not None)
        bench.clock.advance(3600)
        await turn()
        assert (bench.state(stays), dispatched.asked, dispatched.launched) == ("RUNNING", 0, [])
        for text in await told(bench, "lab", stays):
            assert "jobs of lab are at pods https://one, namespace a" in text, text
        with pytest.raises(Unreachable, match="jobs of lab are at"):
            await bench.submit("one", cluster="lab")
        # What is ordered now is heeded when the place is back.
        await bench.controller.orders.cancel(CancelRequest((str(stays),)))
        await restart(bench, lab=home, py=home)
        await until(lambda: bool(home.orders))
        assert home.orders[0].handle == f"{stays}.0"
        await finish_cancelled(bench, stays, home)

    watch(scene)


async def finish_cancelled(bench: Bench, number: int, place: FakeCluster) -> None:
    place.tell(f"{number}.0", place.orders[0].event, *end(bench.job(number), bench.clock.now, 143))
    await until(lambda: bench.job(number).over)


class Numbered(Listed):
    """One that knows the handle of what it was asked about only, as Slurm does: its traces name native jobs."""

    async def find_traces(self) -> list[Trace]:
        return [
            Trace(token, "native.7", token.split("-")[0], int(token.split("-")[1]), int(token.split("-")[2]), ())
            for token in self.handles
        ]


@pytest.mark.parametrize("kind", [Listed, Numbered])
def test_a_place_by_another_address_is_known_by_a_launch_of_ours(kind: type[Listed]) -> None:
    home = kind("https://one, namespace a")

    async def scene(bench: Bench, place: Namespace) -> None:
        stays = await run_on(bench, "lab", home)
        home.address = "https://one.example, namespace a"
        await restart(bench, lab=home)
        await finish(bench, stays, home)
        assert bench.controller.problems == [] and len(home.launched) == 1

    watch(scene, home)


@pytest.mark.parametrize("token", ["stranger-1-0", "{ours}-2-0", "{ours}-1-1"])
def test_what_another_has_there_does_not_make_it_the_same_place(token: str) -> None:
    home, dispatched = Listed("https://one, namespace a"), Numbered("https://two, namespace a")

    async def scene(bench: Bench, place: Namespace) -> None:
        stays = await run_on(bench, "lab", home)
        dispatched.handles[token.format(ours=bench.controller.recorder.completion.installation)] = "native.7"
        await restart(bench, lab=dispatched)
        await until(lambda: bench.controller.clusters.get("lab").stale_since is not None)
        assert (bench.state(stays), dispatched.asked, dispatched.launched) == ("RUNNING", 0, [])
        assert bench.controller.problems != []

    watch(scene, home)


async def leave_in_doubt(bench: Bench, home: Namespace) -> tuple[int, int]:
    """A daemon that is killed while a submission has no answer; gives the job before it, which is over, and its job."""
    first = await run_on(bench, "lab", home)
    home.gate = asyncio.Event()
    doubtful = await bench.submit("one", cluster="lab")
    await until(lambda: f"{doubtful}.0" in home.journals)
    await finish(bench, first, home)
    await bench.kill()
    home.gate = None
    return first, doubtful


def test_a_submission_in_doubt_makes_a_place_known_by_another_address() -> None:
    home = Listed("https://one, namespace a")

    async def scene(bench: Bench, place: Namespace) -> None:
        first, doubtful = await leave_in_doubt(bench, home)
        home.address = "https://one.example, namespace a"
        await restart(bench, lab=home)
        await until(lambda: bench.controller.recorder.registry.get(doubtful).launched)  # type: ignore[union-attr]
        assert [job.id for job in home.launched] == [first, doubtful]

    watch(scene, home)


class Unreadable(Namespace):
    """One whose address stands in a file that may be missing; the daemon decides about its launches."""

    decider = Decider.DAEMON
    missing = False

    def place(self) -> str:
        if self.missing:
            raise Unreachable("there is no kubeconfig")
        return super().place()

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        # It answers in time although there is no news, as every cluster does.
        await asyncio.sleep(0)
        found = [self._report(handle, cursor) for handle, cursor in since.items()]
        return Observation(tuple(report for report in found if report is not None), 0.0)


def test_what_was_due_while_a_place_could_not_be_read_is_done_when_it_can() -> None:
    home = Unreadable("https://one, namespace a")

    async def scene(bench: Bench, place: Namespace) -> None:
        number = await bench.submit("one", cluster="lab")
        await until(lambda: f"{number}.0" in home.journals)
        granted, _, started = begin(bench.job(number), bench.clock.now)
        home.tell(f"{number}.0", granted)
        await until(lambda: any(isinstance(order.event, events.Launch) for order in home.orders))
        home.tell(f"{number}.0", started)
        await until(lambda: bench.state(number) == "RUNNING")
        home.missing = True
        await restart(bench, lab=home)
        await until(lambda: bench.controller.clusters.get("lab").stale_since is not None)
        await turn()
        home.missing = False
        # Its wall time of a minute passes; nothing is heard of it.
        for _ in range(20):
            bench.clock.advance(60)
            await turn()
        assert any(isinstance(order.event, events.Terminate) for order in home.orders)

    watch(scene, home)


def test_a_place_without_live_jobs_may_be_left() -> None:
    dispatched = Namespace("https://two, namespace a")

    async def scene(bench: Bench, home: Namespace) -> None:
        first = await run_on(bench, "lab", home)
        await finish(bench, first, home)
        await restart(bench, lab=dispatched, py=home)
        second = await run_on(bench, "lab", dispatched)
        await finish(bench, second, dispatched)
        assert bench.controller.problems == []

    watch(scene)


def test_a_wrong_address_that_never_answered_may_be_mended() -> None:
    wrong, right = Namespace("https://wrong, namespace a"), Namespace("https://two, namespace a")
    wrong.fail(True)

    async def scene(bench: Bench, home: Namespace) -> None:
        first = await run_on(bench, "lab", home)
        await finish(bench, first, home)
        await restart(bench, lab=wrong, py=home)
        number = await bench.submit("one", cluster="lab")
        await until(lambda: wrong.submits > 0)
        await restart(bench, lab=right, py=home)
        await until(lambda: f"{number}.0" in right.journals)
        assert bench.controller.problems == []

    watch(scene)


def test_a_submission_in_doubt_is_not_made_in_another_place() -> None:
    dispatched = Namespace("https://two, namespace a")

    async def scene(bench: Bench, home: Namespace) -> None:
        first, doubtful = await leave_in_doubt(bench, home)
        await restart(bench, lab=dispatched, py=home)
        await until(lambda: bench.controller.clusters.get("lab").stale_since is not None)
        assert dispatched.launched == [] and bench.controller.problems != []
        assert f"{doubtful}.0" in home.journals
        await restart(bench, lab=home, py=home)
        await until(lambda: bench.controller.recorder.registry.get(doubtful).launched)  # type: ignore[union-attr]
        assert [job.id for job in home.launched] == [first, doubtful]

    watch(scene)


def test_a_name_without_jobs_is_unknown() -> None:
    async def scene(bench: Bench, home: Namespace) -> None:
        with pytest.raises(Exception, match="no cluster 'nowhere'"):
            await bench.controller.health.check("nowhere")
        assert bench.controller.problems == []

    watch(scene)
