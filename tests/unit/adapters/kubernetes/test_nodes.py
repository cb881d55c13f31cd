"""Nodes as sinfo shows them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.kubernetes_api import KubernetesApi
from tests.fakes.kubernetes_objects import Key
from tests.unit.adapters.kubernetes.bench import Bench, play, solo

from overspan.adapters.contract import Node
from overspan.adapters.kubernetes import cluster as cluster_module
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.observation.nodes import NodeUse, ask_nodes, read_node, read_quota
from overspan.adapters.kubernetes.settings import GpuKind, NodeGpus, Settings
from overspan.bridge.model.errors import Unreachable

Document = dict[str, Any]
READY = {"type": "Ready", "status": "True"}
LOST = {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting\nnode status."}


def make_node(
    name: str = "n1", spec: Document | None = None, ready: Document = READY, gives: Mapping[str, str] | None = None
) -> Document:
    """A node of 8 CPUs and 16 GiB, and what else it `gives`."""
    allocatable = {"cpu": "8", "memory": "16Gi", "pods": "110", **(gives or {})}
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB", "pool": "batch"}
    status = {"allocatable": allocatable, "conditions": [ready]}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec or {}, "status": status}


def make_pod(name: str, node: str = "n1", owner: str = "", phase: str = "Running", **requests: str) -> Document:
    """A pod that asks for so much."""
    requests = {key.replace("__", "/"): value for key, value in requests.items()}
    metadata: Document = {"name": name, "ownerReferences": [{"kind": owner, "uid": "u"}] if owner else []}
    spec = {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": requests}}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def show(document: Document, *pods: Document, settings: Settings | None = None) -> Node:
    use = NodeUse()
    for pod in pods:
        use.add(pod)
    return read_node(document, use, "training", settings or Settings())


def test_an_idle_node() -> None:
    assert show(make_node()) == Node("n1", "training", "idle", 8.0, 0.0, 16384, 0)


def test_its_own_services_make_a_node_no_less_idle() -> None:
    node = show(
        make_node(), make_pod("proxy", owner="DaemonSet", cpu="100m"), make_pod("static", owner="Node", cpu="1")
    )
    assert (node.state, node.cpus_used) == ("idle", 1.1)


def test_a_node_in_use() -> None:
    node = show(
        make_node(), make_pod("a", cpu="1500m", memory="1Gi"), make_pod("b", cpu="1"), make_pod("c", "n2", cpu="5")
    )
    assert (node.state, node.cpus_used, node.memory_used) == ("mixed", 2.5, 1024)


@pytest.mark.parametrize(
    ("requests", "gives"), [({"cpu": "7950m"}, {}), ({"nvidia.com__gpu": "4", "cpu": "1"}, {"nvidia.com/gpu": "4"})]
)
def test_a_full_node(requests: dict[str, str], gives: dict[str, str]) -> None:
    assert show(make_node(gives=gives), make_pod("a", **requests)).state == "allocated"


def test_a_node_that_is_lost() -> None:
    node = show(make_node(ready=LOST), make_pod("a", cpu="1"))
    assert (node.state, node.reason) == ("down", "Kubelet stopped posting node status.")
    assert show({"metadata": {"name": "new"}}).state == "down"


def test_a_node_that_is_cordoned() -> None:
    cordoned = make_node(spec={"unschedulable": True})
    assert (show(cordoned).state, show(cordoned).reason) == ("drained", "cordoned")
    assert show(cordoned, make_pod("a", cpu="1")).state == "draining"


@pytest.mark.parametrize(
    ("toleration", "state"),
    [
        (None, "drained"),
        ({"key": "team", "value": "b"}, "drained"),
        ({"key": "team", "value": "a", "effect": "NoExecute"}, "drained"),
        ({"key": "team", "value": "a"}, "idle"),
        ({"key": "team", "operator": "Exists", "effect": "NoSchedule"}, "idle"),
        ({"operator": "Exists"}, "idle"),
    ],
)
def test_a_taint_is_in_the_way_unless_it_is_tolerated(toleration: Document | None, state: str) -> None:
    node = make_node(spec={"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]})
    settings = Settings(tolerations=(toleration,) if toleration else ())
    assert show(node, settings=settings).state == state
    soft = make_node(spec={"taints": [{"key": "team", "effect": "PreferNoSchedule"}]})
    assert show(soft).state == "idle"


def test_gpus_and_their_kind() -> None:
    node = show(
        make_node(gives={"nvidia.com/x": "1", "nvidia.com/gpu": "8"}),
        make_pod("a", cpu="1", **{"nvidia.com__gpu": "3"}),
    )
    assert (node.gpus, node.gpus_used, node.gpu_kind) == (8, 3.0, "nvidia-h100-80gb")
    named = Settings(
        gpus=NodeGpus(types={"h100": GpuKind(value=("NVIDIA-H100-80GB",)), "mi300": GpuKind(resource="amd.com/gpu")})
    )
    assert show(make_node(gives={"nvidia.com/gpu": "8"}), settings=named).gpu_kind == "h100"
    amd = show(make_node(gives={"amd.com/gpu": "4"}), make_pod("a", cpu="1", **{"amd.com__gpu": "1"}), settings=named)
    assert (amd.gpus, amd.gpus_used, amd.gpu_kind) == (4, 1.0, "mi300")
    assert show(make_node(), settings=named).gpu_kind == ""


def put(api: KubernetesApi, resource: str, document: Document, namespace: str = "") -> None:
    api.objects.create(Key("", resource, namespace), document)


def put_pod(api: KubernetesApi, document: Document, namespace: str = "default") -> None:
    put(api, "pods", document, namespace)
    api.pods.set_status(document["metadata"]["name"], document["status"], namespace)


def test_nodes_of_a_cluster(api: KubernetesApi, connection: Connection) -> None:
    put(api, "nodes", make_node("n2"))
    put(api, "nodes", make_node("n1"))
    other = make_node("n3")
    put(api, "nodes", {**other, "metadata": {"name": "n3", "labels": {"pool": "web"}}})
    put_pod(api, make_pod("a", "n1", cpu="2"))
    put_pod(api, make_pod("b", "n1", cpu="3"), "elsewhere")
    put_pod(api, make_pod("c", "n1", phase="Succeeded", cpu="1"))
    settings = Settings(name="lab", node_selector={"pool": "batch"})
    found = [(node.name, node.partition, node.state, node.cpus_used) for node in ask_nodes(connection, settings)]
    assert found == [("n1", "lab", "mixed", 5.0), ("n2", "lab", "idle", 0.0)]
    assert [node.name for node in ask_nodes(connection, Settings())] == ["n1", "n2", "n3"]
    assert {node.partition for node in ask_nodes(connection, settings.model_copy(update={"queue": "team"}))} == {"team"}


def test_without_the_right_to_see_other_namespaces(api: KubernetesApi, connection: Connection) -> None:
    put(api, "nodes", make_node("n1"))
    put_pod(api, make_pod("a", "n1", cpu="2"))
    put_pod(api, make_pod("b", "n1", cpu="3"), "elsewhere")
    api.refuse("GET", "^/api/v1/pods$", 403)
    assert [node.cpus_used for node in ask_nodes(connection, Settings())] == [2.0]


def test_without_the_right_to_see_nodes_the_quota_stands_for_them(api: KubernetesApi, connection: Connection) -> None:
    api.denied = {("list", "nodes")}
    assert ask_nodes(connection, Settings()) == []
    hard = {"requests.cpu": "10", "requests.memory": "64Gi", "requests.nvidia.com/gpu": "4", "pods": "50"}
    used = {"requests.cpu": "2500m", "requests.memory": "1Gi", "requests.nvidia.com/gpu": "1", "pods": "3"}
    put(api, "resourcequotas", {"metadata": {"name": "team"}, "status": {"hard": hard, "used": used}}, "default")
    [node] = ask_nodes(connection, Settings())
    assert (node.name, node.state, node.cpus, node.cpus_used) == ("team", "mixed", 10.0, 2.5)
    assert (node.memory, node.memory_used, node.gpus, node.gpus_used) == (65536, 1024, 4, 1.0)
    assert "quota" in node.reason


def test_a_quota_that_is_spent() -> None:
    spent = {"metadata": {"name": "few"}, "status": {"hard": {"pods": "3"}, "used": {"pods": "3"}}}
    assert read_quota(spent, "p", Settings()).state == "allocated"
    assert read_quota({"metadata": {"name": "new"}, "status": {"hard": {"pods": "3"}}}, "p", Settings()).state == "idle"


def test_a_cluster_that_does_not_answer(api: KubernetesApi, connection: Connection) -> None:
    api.refuse("GET", "nodes", 503)
    with pytest.raises(Unreachable):
        ask_nodes(connection, Settings())


def test_the_first_submission_knows_the_nodes(bench: Bench) -> None:
    async def story() -> None:
        put(bench.api, "nodes", make_node("n1"))
        async with bench.open() as cluster:
            assert await cluster.admit(solo()) is None
            assert [node.name for node in cluster.known_nodes()] == ["n1"]

    play(story)


def test_nobody_waits_long_or_twice_for_the_list_of_nodes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        put(bench.api, "nodes", make_node("n1"))
        held = bench.api.hold("GET", "/api/v1/nodes$")
        async with bench.open() as cluster:
            await cluster._node_cache.look_first(0.05)
            monkeypatch.setattr(cluster_module, "ASK_SECONDS", 1e6)
            assert await cluster.admit(solo()) is None
            assert cluster.known_nodes() == ()
            held.free.set()
            await bench.until(cluster, lambda: bool(cluster.known_nodes()), "the nodes")
            assert [node.name for node in cluster.known_nodes()] == ["n1"]
            assert await cluster.admit(solo()) is None
        assert bench.api.count("GET", "/api/v1/nodes$") == 1
        assert bench.api.count("GET", "^/api/v1/pods$") == 0

    play(story)


def test_an_autoscaler_may_make_larger_nodes(api: KubernetesApi, tmp_path: Path) -> None:
    async def story() -> None:
        put(api, "nodes", make_node("n1"))
        async with Bench(api, tmp_path, autoscaler=True).open() as cluster:
            assert await cluster.nodes()
            assert cluster.known_nodes() == ()

    play(story)
