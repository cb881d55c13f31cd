"""Whether a cluster has room for a launch: what is called too small is so for certain."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.unit.adapters.kubernetes.bench import Bench, make_job, play

from overspan.adapters.contract import Accepted
from overspan.adapters.kubernetes.launches import soft_gang
from overspan.adapters.kubernetes.launches.free_capacity import Need, Room, find_shortage, read_need
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model import events
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.spec import TaskSpec

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
NONE = "no node takes such pods (labels, taints, or not ready)"
TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def room(cpu: float, labels: dict[str, str] | None = None, spec: dict[str, Any] | None = None, **more: float) -> Room:
    return Room({"metadata": {"labels": labels or {}}, "spec": spec or {}, "status": READY}, {"cpu": cpu, **more})


def need(count: int, cpu: float, **selector: str) -> Need:
    return Need(count, {"cpu": cpu}, selector)


@pytest.mark.parametrize(
    ("needs", "rooms", "words"),
    [
        ([need(4, 2)], [room(4), room(4)], ""),
        (
            [need(13, 1)],
            [room(6), room(6.5)],
            "12 of 13 pods have room: the next needs cpu 1, and a node has cpu 0.5 left",
        ),
        # A sum does not help a pod that fits nowhere.
        ([need(1, 5)], [room(4), room(4)], "0 of 1 pods have room: the next needs cpu 5, and a node has cpu 4 left"),
        # Each kind alone would fit, and both together do not.
        ([need(2, 3), need(2, 2)], [room(6), room(3)], "all together lack cpu"),
        (
            [need(1, 1, pool="a")],
            [room(4, {"pool": "b"}), room(0.5, {"pool": "a"})],
            "0 of 1 pods have room: the next needs cpu 1, and a node has cpu 0.5 left",
        ),
        ([need(1, 1, pool="a")], [room(4, {"pool": "a"})], ""),
        ([need(1, 1)], [room(4, spec={"unschedulable": True})], f"0 of 1 pods have room: {NONE}"),
        ([need(1, 1)], [room(4, spec={"taints": [TAINT]})], f"0 of 1 pods have room: {NONE}"),
        ([Need(1, {"cpu": 1}, {}, (TAINT,))], [room(4, spec={"taints": [TAINT]})], ""),
        (
            [Need(1, {"cpu": 1, "nvidia.com/gpu": 1}, {})],
            [room(4)],
            "0 of 1 pods have room: the next needs nvidia.com/gpu 1, and a node has nvidia.com/gpu 0 left",
        ),
        # Too much is in use: nothing is free, and nothing less than that.
        ([need(1, 1)], [room(-2), room(1)], ""),
        # Sums of fractions.
        ([need(3, 0.1)], [room(0.30000000000000004 - 1e-9)], ""),
    ],
)
def test_what_has_no_room(needs: list[Need], rooms: list[Room], words: str) -> None:
    assert find_shortage(needs, rooms, Settings()) == words


def test_a_pod_counts_as_one_of_its_node() -> None:
    pod = {"spec": {"containers": [{"resources": {"requests": {"cpu": "500m"}}}], "nodeSelector": {"a": "b"}}}
    assert read_need(pod, 3) == Need(3, {"cpu": 0.5, "pods": 1.0}, {"a": "b"})


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
