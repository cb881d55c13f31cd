"""Inventory of a namespace for `span fsck`: the objects of all launches, of any installation, and their removal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from overspan.adapters.abilities import Trace
from overspan.adapters.kubernetes.api.calls import finish_all
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.launches.launches import Handle, Launches
from overspan.adapters.kubernetes.launches.relabelled_pods import find_token, is_ours, label_again
from overspan.adapters.kubernetes.launches.releasing import Releaser
from overspan.adapters.kubernetes.manifests.names import MANAGED_BY, MANAGER, parse_token
from overspan.adapters.kubernetes.observation.projection import is_stuck
from overspan.adapters.kubernetes.observation.records import LAUNCH, PodRecord, read_pod

_KINDS = ("ConfigMap", "Pod", "Service")
"""What is looked for; a launch's other objects are owned by one of these, and go with it."""


@dataclass
class _LaunchObjects:
    """The objects of one launch."""

    installation: str
    objects: list[str] = field(default_factory=list)
    pods: list[PodRecord] = field(default_factory=list)


async def find_traces(launches: Launches, namespace: str, now: float) -> list[Trace]:
    """The launches of all installations in a namespace, by installation, job and launch. Raises Unreachable."""
    calls, found = launches.calls(namespace), dict[str, _LaunchObjects]()
    for kind in _KINDS:
        # Pods whose labels were changed stay for their finalizer: they are found by their owner.
        selector = "" if kind == "Pod" else f"{MANAGED_BY}={MANAGER},{LAUNCH}"
        for document in await calls.list(kind, selector):
            metadata = document["metadata"]
            token = find_token(document)
            if not token or (kind == "Pod" and not is_ours(document)):
                continue
            mine = found.setdefault(token, _LaunchObjects(parse_token(token).installation))
            mine.objects.append(f"{kind} {metadata['name']}")
            if kind == "Pod":
                mine.pods.append(read_pod(document))
    stuck = [pod for one in found.values() for pod in one.pods if is_stuck(pod, now)]
    nodes = {node: await _judge_node(launches.connection, node) for node in {pod.node for pod in stuck}}
    traces = [_trace(token, one, namespace, now, nodes) for token, one in found.items()]
    return sorted(traces, key=lambda trace: (trace.installation, trace.job, trace.launch))


def _trace(token: str, found: _LaunchObjects, namespace: str, now: float, nodes: Mapping[str, str]) -> Trace:
    _, job, launch = parse_token(token)
    stuck = [pod for pod in found.pods if is_stuck(pod, now)]
    return Trace(
        token=token,
        handle=str(Handle(namespace, token)),
        installation=found.installation,
        job=job,
        launch=launch,
        objects=tuple(found.objects),
        running=sum(1 for pod in found.pods if pod.node and not pod.ended),
        stuck=tuple(f"Pod {pod.name}: {nodes[pod.node]}" for pod in stuck),
    )


async def _judge_node(connection: Connection, name: str) -> str:
    """Why a pod that was deleted is still there: what its node does.

    A pod that its node may still run is never deleted by force (Kubernetes, "Force Delete StatefulSet Pods"): the
    cluster's own collector (pod-garbage-collector) does that when the node is known to be out of the way.
    """
    answer = await connection.call("GET", "/api/v1/nodes", query={"fieldSelector": f"metadata.name={name}"})
    if not answer.works:
        return f"its node {name} does not end it; it stays until that node answers or is removed"
    found = answer.document.get("items") or []
    if not found:
        return f"its node {name} is gone, and the cluster removes it soon"
    return f"its node {name} {_judge_conditions(found[0])}"


def _judge_conditions(document: Mapping[str, Any]) -> str:
    conditions = (document.get("status") or {}).get("conditions") or []
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    if ready:
        return "answers, and has not ended it yet"
    return (
        "does not answer; it stays until the node is back, or an administrator has removed the node "
        "or given it the taint node.kubernetes.io/out-of-service"
    )


async def remove_traces(launches: Launches, releaser: Releaser, namespace: str, traces: Sequence[Trace]) -> None:
    """Remove launches with all that they have, their running pods too. Raises Unreachable and Denied."""
    calls, going = launches.calls(namespace), {trace.token for trace in traces}
    pods = [(pod, find_token(pod)) for pod in await calls.list("Pod", "") if is_ours(pod)]
    await label_again(calls, ((pod, token) for pod, token in pods if token in going))
    await finish_all(releaser.remove(Handle(namespace, trace.token), wait=False) for trace in traces)
