"""Whether a cluster has room for a launch: what is called too small is so for certain."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.kubernetes_api import KubernetesApi
from tests.fakes.kubernetes_objects import Refused
from tests.unit.adapters.kubernetes.bench import Bench, make_job, play

from overspan.adapters.contract import Accepted
from overspan.adapters.kubernetes.launches import soft_gang
from overspan.adapters.kubernetes.launches.free_capacity import NodeCapacity, PodDemand, find_shortage, read_demand
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model import events
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.spec import TaskSpec

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
NONE = "no node takes such pods (labels, taints, or not ready)"
TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def capacity(
    cpu: float, labels: dict[str, str] | None = None, spec: dict[str, Any] | None = None, **more: float
) -> NodeCapacity:
    return NodeCapacity(
        {"metadata": {"labels": labels or {}}, "spec": spec or {}, "status": READY}, {"cpu": cpu, **more}
    )


def demand(count: int, cpu: float, **selector: str) -> PodDemand:
    return PodDemand(count, {"cpu": cpu}, selector)


@pytest.mark.parametrize(
    ("needs", "capacities", "words"),
    [
        ([demand(4, 2)], [capacity(4), capacity(4)], ""),
        (
            [demand(13, 1)],
            [capacity(6), capacity(6.5)],
            "12 of 13 pods have room: the next needs cpu 1, and a node has cpu 0.5 left",
        ),
        # A sum does not help a pod that fits nowhere.
        (
            [demand(1, 5)],
            [capacity(4), capacity(4)],
            "0 of 1 pods have room: the next needs cpu 5, and a node has cpu 4 left",
        ),
        # Each kind alone would fit, and both together do not.
        ([demand(2, 3), demand(2, 2)], [capacity(6), capacity(3)], "all together lack cpu"),
        (
            [demand(1, 1, pool="a")],
            [capacity(4, {"pool": "b"}), capacity(0.5, {"pool": "a"})],
            "0 of 1 pods have room: the next needs cpu 1, and a node has cpu 0.5 left",
        ),
        ([demand(1, 1, pool="a")], [capacity(4, {"pool": "a"})], ""),
        ([demand(1, 1)], [capacity(4, spec={"unschedulable": True})], f"0 of 1 pods have room: {NONE}"),
        ([demand(1, 1)], [capacity(4, spec={"taints": [TAINT]})], f"0 of 1 pods have room: {NONE}"),
        ([PodDemand(1, {"cpu": 1}, {}, (TAINT,))], [capacity(4, spec={"taints": [TAINT]})], ""),
        (
            [PodDemand(1, {"cpu": 1, "nvidia.com/gpu": 1}, {})],
            [capacity(4)],
            "0 of 1 pods have room: the next needs nvidia.com/gpu 1, and a node has nvidia.com/gpu 0 left",
        ),
        # Too much is in use: nothing is free, and nothing less than that.
        ([demand(1, 1)], [capacity(-2), capacity(1)], ""),
        # Sums of fractions.
        ([demand(3, 0.1)], [capacity(0.30000000000000004 - 1e-9)], ""),
    ],
)
def test_what_has_no_room(needs: list[PodDemand], capacities: list[NodeCapacity], words: str) -> None:
    assert find_shortage(needs, capacities, Settings()) == words


def test_a_pod_counts_as_one_of_its_node() -> None:
    pod = {"spec": {"containers": [{"resources": {"requests": {"cpu": "500m"}}}], "nodeSelector": {"a": "b"}}}
    assert read_demand(pod, 3) == PodDemand(3, {"cpu": 0.5, "pods": 1.0}, {"a": "b"})


def test_pods_that_were_given_back_are_made_again_when_there_is_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soft_gang, "PROBE_SECONDS", 0.1)
    tasks = (TaskSpec(name="w", run="sleep 60", num_nodes=3, resources=Resources(cpus=2.0)),)
    status = {"allocatable": {"cpu": "5", "memory": "64Gi", "pods": "110"}, **READY}

    async def story() -> None:
        bench.api.objects.create_simple("nodes", "n1", status=status)
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, make_job(*tasks))
            assert isinstance(answer, Accepted)
            await bench.step(cluster)
            await bench.insist(cluster, answer.handle, events.Hold(time.time(), "me"))
            await bench.until(cluster, lambda: not bench.pods(), "its pods to be given back")
            await bench.insist(cluster, answer.handle, events.Release(time.time(), "me"))
            await bench.until(
                cluster,
                lambda: any("2 of 3 pods have room" in str(one) for one in bench.told[answer.handle]),
                "the reason",
            )
            assert bench.pods() == []
            bench.api.objects.create_simple("nodes", "n2", status=status)
            await bench.until(cluster, lambda: len(bench.pods()) == 3, "its pods to be made again")

    play(story)


def test_who_may_not_list_nodes_asks_with_pods(bench: Bench) -> None:
    async def story() -> None:
        bench.api.objects.create_simple("nodes", "n1", status=READY)
        bench.api.denied.add(("list", "nodes"))
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, make_job())
            assert isinstance(answer, Accepted)
            await bench.step(cluster)
            await bench.insist(cluster, answer.handle, events.Hold(time.time(), "me"))
            await bench.until(cluster, lambda: not bench.pods(), "its pods to be given back")
            await bench.insist(cluster, answer.handle, events.Release(time.time(), "me"))
            await bench.until(cluster, lambda: len(bench.pods()) == 3, "its pods to be made again")

    play(story)


def test_a_group_that_never_fits_is_away_for_longer_each_time_whatever_becomes_of_the_daemon(
    api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[int] = []

    def note(timeout: float, oldest: bool, returns: int = 0) -> float:
        assert soft_gang.LONGEST_ABSENCE >= choose_wait(timeout, oldest, returns + 2) > choose_wait(timeout, oldest)
        rounds.append(returns)
        return 0.0

    choose_wait = soft_gang.choose_wait
    monkeypatch.setattr(soft_gang, "choose_wait", note)
    bench = Bench(api, tmp_path, gang_timeout=1)

    async def story() -> None:
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, make_job())
            assert isinstance(answer, Accepted)
            await bench.until(cluster, lambda: give_places(bench) and len(rounds) >= 2, "two rounds")
        async with bench.open() as cluster:
            await bench.until(cluster, lambda: give_places(bench) and len(rounds) >= 3, "the next daemon's round")
        assert rounds[:3] == [0, 1, 2]

    play(story)


def give_places(bench: Bench) -> bool:
    """Bind all pods but the trainer's, for which the cluster has no room, and end those that are deleted."""
    for name, pod in bench.documents().items():
        # The adapter removes pods meanwhile.
        with contextlib.suppress(Refused):
            if pod["metadata"].get("deletionTimestamp"):
                bench.api.pods.gone(name)
            elif "trainer" not in name and not pod["spec"].get("nodeName"):
                bench.place(name)
    return True
