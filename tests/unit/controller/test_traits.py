"""What adapters state of their clusters, and that nothing else tells the controller what a cluster can."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, play, start_job, until

from overspan.adapters.contract import ClusterConfig, Decider
from overspan.adapters.traits import FindKnown, Traits
from overspan.bridge import api
from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.controller import controller
from overspan.bridge.controller.core.clusters import Cluster, Clusters
from overspan.bridge.controller.core.outbox import BACK
from overspan.bridge.model import events
from overspan.bridge.model.errors import InvalidRequest, Unreachable

PACKAGES = (Path(controller.__file__).parent, Path(api.__file__).parent)


def test_nothing_depends_on_the_kind_of_a_cluster() -> None:
    files = [path for package in PACKAGES for path in package.rglob("*.py")]
    assert [each for path in files for each in _find_kinds(path)] == []


def _find_kinds(path: Path) -> Iterator[str]:
    """Comparisons with the kind of a cluster's entry in the settings."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
            if any(side.endswith(("config.kind", "settings.kind")) for side in sides):
                yield f"{path.name}:{node.lineno}: {ast.unparse(node)}"


def _open(adapter: object, personal: bool = False) -> Cluster:
    config = ClusterConfig("far", "abacus", personal=personal)
    return Cluster(config, lambda kind: lambda config: adapter)  # type: ignore[arg-type, return-value]


def test_an_adapter_that_states_no_traits_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="adapter for clusters of kind 'abacus' states no traits") as raised:
        _open(object()).open()
    assert "install a version" in raised.value.remedy


def test_a_shared_daemon_takes_only_an_adapter_that_reaches_its_cluster_as_each_user() -> None:
    with pytest.raises(InvalidRequest, match="the shared daemon cannot use the cluster far"):
        _open(FakeCluster(), personal=True).open()

    class Everybodys(FakeCluster):
        def state(self) -> dict[str, object]:
            return {"as_user": FakeCluster}

    cluster = _open(Everybodys(), personal=True)
    ada = cluster.adapter_for("ada")
    assert isinstance(ada, FakeCluster) and ada.name == "ada"


def test_nothing_is_stated_of_a_cluster_that_cannot_be_opened() -> None:
    def fail(config: ClusterConfig) -> FakeCluster:
        raise Unreachable("its library is missing")

    settings = Settings(clusters={"far": ClusterSettings(kind="abacus")})
    clusters = Clusters(settings, "/state", lambda kind: fail)
    cluster = clusters.get("far")
    assert cluster.traits == clusters.find_traits("far") == clusters.find_traits("moon") == Traits()
    assert not cluster.gives_back and not cluster.holds_back
    assert clusters.decider_of("far", "handle") is Decider.SUPERVISOR


def test_a_displaced_cluster_is_asked_nothing_and_stays_what_it_is() -> None:
    settings = Settings(clusters={"far": ClusterSettings(kind="slurm")})
    adapter = FakeCluster("far")
    adapter.kind, adapter.decider = "slurm", Decider.DAEMON
    clusters = Clusters(settings, "/state", lambda kind: lambda config: adapter, has_launches=lambda name: True)
    cluster = clusters.get("far")
    cluster.settle("slurm elsewhere")
    assert clusters.find_traits("far") == Traits() and clusters.decider_of("far", "handle") is Decider.SUPERVISOR
    # Of its queue it is known what it does, whatever place the name leads to now.
    assert cluster.gives_back and cluster.traits.requeued_by == "slurm"


@pytest.mark.parametrize(("kind", "back"), [("local", False), ("slurm", True)])
def test_only_a_cluster_that_requeues_jobs_itself_has_the_next_launch_already(kind: str, back: bool) -> None:
    """The requeue may as well be an order of a user with that name."""

    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.cluster.gate = asyncio.Event()
        now = bench.clock.now
        bench.cluster.tell("1.0", events.Requeue(now, "slurm"), events.LaunchLost(now, 0, "requeue"))
        await until(lambda: bench.cluster.submits == 2)
        row = bench.controller.recorder.outbox.submit_of(1, "local")
        assert row is not None and bool(row.payload.get(BACK)) is back
        bench.cluster.gate.set()
        await until(lambda: bench.job().launch == 1 and "1.1" in bench.cluster.journals)

    def prepare(bench: Bench) -> None:
        bench.settings = Settings(clusters={"local": ClusterSettings(kind=kind)})

    play(scene, prepare=prepare)


def test_a_cluster_that_forgets_is_told_which_jobs_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that lives elsewhere, or whose data is kept for a while after its end, is known."""
    known: list[Collection[int]] = []

    class Keeper(FakeCluster):
        def state(self) -> dict[str, object]:
            return {"forget": self.forget}

        async def forget(self, before: float, find_known: FindKnown) -> int:
            known.append(await find_known([1, 2, *range(10, 20_000)]))
            return 0

    async def scene(bench: Bench) -> None:
        await start_job(bench)
        known.clear()
        await until(lambda: bool(known))
        assert known[0] == {1}

    monkeypatch.setattr(controller, "FORGET_EVERY", 0.0)
    play(scene, cluster=Keeper())
