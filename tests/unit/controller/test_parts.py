"""The controller's small parts: clusters, outbox, timers, wake-ups, signals, states."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from tests.unit.controller.fakes import FakeCluster, turn

from overspan.adapters.abilities import Admission, Plan
from overspan.adapters.contract import Adapter, ClusterConfig
from overspan.adapters.installed import find_opener
from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.outbox import Outbox
from overspan.bridge.controller.core.registry import JobEntry, Registry, join_handle, split_handle
from overspan.bridge.controller.core.wakeups import JobWakeups, Wakeup
from overspan.bridge.controller.orders.orders import parse_signal
from overspan.bridge.controller.views.listing import check_states
from overspan.bridge.model.errors import InvalidRequest, NotFound, Unreachable
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.store.records import OutboxRow


def _settings(default: str = "", **kinds: str) -> Settings:
    return Settings(
        default_cluster=default, clusters={name: ClusterSettings(kind=kind) for name, kind in kinds.items()}
    )


def test_the_fake_cluster_meets_the_contract() -> None:
    cluster = FakeCluster()
    assert isinstance(cluster, Adapter) and isinstance(cluster, Plan) and isinstance(cluster, Admission)


def test_without_configuration_there_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    clusters = Clusters(Settings(), "/state")
    assert clusters.kinds() == {"local": "local"} and clusters.default == "local"
    assert clusters.get("").place == "local /state/clusters/local"


def test_the_default_cluster_is_never_chosen_by_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert Clusters(_settings(kube="kubernetes"), "/state").default == "local"
    assert Clusters(_settings(slurm="slurm"), "/state").default == "slurm"
    assert Clusters(_settings("kube", kube="kubernetes"), "/state").default == "kube"
    with pytest.raises(InvalidRequest, match="'moon'"):
        Clusters(_settings("moon"), "/state")
    with pytest.raises(NotFound, match="configured clusters: kube, local"):
        Clusters(_settings(kube="kubernetes"), "/state").get("moon")


def test_an_adapter_that_is_missing_or_broken_is_no_traceback() -> None:
    with pytest.raises(InvalidRequest, match="no adapter is installed for clusters of kind 'abacus'"):
        find_opener("abacus")

    def explode(config: ClusterConfig) -> FakeCluster:
        raise RuntimeError("bad settings")

    clusters = Clusters(Settings(), "/state", lambda kind: explode)
    with pytest.raises(Unreachable, match="cannot be opened: bad settings"):
        _ = clusters.get("local").adapter


def _row(token: str, job_id: int = 1, kind: str = "submit", at: float = 0.0) -> OutboxRow:
    return OutboxRow(token, job_id, "local", kind, {}, 0.0, next_try_at=at)


def test_the_outbox_gives_the_oldest_first_and_each_once() -> None:
    outbox = Outbox()
    for number in range(5):
        outbox.add(_row(f"t{number}", number))
    key = ("local", "submit")
    assert [row.token for row in outbox.take(key, 0.0, 3)] == ["t0", "t1", "t2"]
    assert [row.token for row in outbox.take(key, 0.0, 3)] == ["t3", "t4"]
    assert outbox.take(key, 0.0, 3) == [] and outbox.tried("t0")
    outbox.done("t0")
    outbox.done("t0")
    assert len(outbox) == 4 and outbox.submit_of(0, "local") is None


def test_deferred_calls_wait_for_their_time() -> None:
    outbox = Outbox()
    key = ("local", "submit")
    outbox.add(_row("a", 1))
    outbox.add(_row("b", 2, at=50.0))
    outbox.take(key, 0.0, 9)
    outbox.defer("a", 20.0, "busy")
    assert not outbox.tried("a") and outbox.next_time(key) == 20.0
    assert outbox.take(key, 10.0, 9) == []
    assert [row.token for row in outbox.take(key, 30.0, 9)] == ["a"]
    assert outbox.next_time(key) == 50.0
    outbox.done("b")
    assert outbox.next_time(key) is None and list(outbox.queue_keys()) == [key]


def test_bells() -> None:
    async def scene() -> None:
        wakeup = Wakeup()
        assert not await wakeup.wait(0)
        waiting = asyncio.ensure_future(wakeup.wait())
        await turn()
        wakeup.wake()
        assert await waiting and wakeup.idle
        assert await wakeup.wait(seen=0)
        wakeups = JobWakeups()
        many = [asyncio.ensure_future(wakeups.wait(1, 60)) for _ in range(3)]
        await turn()
        wakeups.wake(2)
        await turn()
        assert not any(task.done() for task in many)
        wakeups.wake_all()
        assert await asyncio.gather(*many) == [True] * 3

    asyncio.run(scene())


def test_locks_are_taken_in_order_and_let_go() -> None:
    async def scene() -> None:
        registry = Registry()
        order: list[str] = []

        async def hold(name: str, ids: list[int]) -> None:
            async with registry.locked(ids):
                order.append(name)
                await turn(3)
                order.append(name)

        await asyncio.gather(hold("a", [1, 2]), hold("b", [2, 1]), hold("c", [2]))
        assert order[::2] == order[1::2] and sorted(order[::2]) == ["a", "b", "c"]
        assert registry._locks == {}

    asyncio.run(scene())


def test_a_book_counts_live_jobs_and_knows_raw_ids() -> None:
    registry = Registry()
    spec = JobSpec("g", (TaskSpec("a"), TaskSpec("b")), group=True)
    registry.add(JobEntry(new_job(4, spec, 0.0), "local", "me"))
    assert (registry.live, registry.owner(5), registry.owner(4), registry.owner(9)) == (1, 4, 4, 9)
    registry.remove(4)
    assert (registry.live, registry.owner(5), len(registry)) == (0, 5, 0)


def test_handles_know_their_launch() -> None:
    assert split_handle(join_handle(3, "7:x")) == (3, "7:x")
    assert split_handle("") == (0, "")


def test_signals_and_states_as_slurm_writes_them() -> None:
    assert [parse_signal(text) for text in ("9", "USR1", "sigterm")] == [9, signal.SIGUSR1, signal.SIGTERM]
    for wrong in ("0", "400", "SIG", "SIG_DFL", "x"):
        with pytest.raises(InvalidRequest):
            parse_signal(wrong)
    assert check_states(["r", "PD", "completed", "all"]) == {"RUNNING", "PENDING", "COMPLETED", "ALL"}
    with pytest.raises(InvalidRequest, match="'Q' is no job state"):
        check_states(["Q"])


def test_nothing_is_opened_before_it_is_needed(tmp_path: Path) -> None:
    opened: list[str] = []

    def open_cluster(config: ClusterConfig) -> FakeCluster:
        opened.append(config.name)
        return FakeCluster(config.name)

    clusters = Clusters(_settings(other="x"), str(tmp_path), lambda kind: open_cluster)
    assert opened == []
    _ = clusters.get("other").adapter, clusters.get("other").adapter
    assert opened == ["other"]


def test_a_cluster_in_its_place_is_used_without_a_look_for_its_launches() -> None:
    """Each call of each job asks for the adapter; the look goes through all that is owed."""
    looks: list[bool] = []

    def look(name: str) -> bool:
        looks.append(True)
        return True

    settings = _settings(near="near")
    clusters = Clusters(settings, "/state", lambda kind: lambda config: FakeCluster(), has_launches=look)
    cluster = clusters.get("near")
    cluster.settle(cluster.place)
    assert cluster.adapter is cluster.adapter and looks == []
    cluster.settle("near elsewhere")
    with pytest.raises(Unreachable, match="jobs of near are at near elsewhere"):
        _ = cluster.adapter
    assert looks
