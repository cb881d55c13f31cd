"""Pods on the host network: the scheduler keeps their ports apart, and a container checks that they are free. Pure.

Pods that declare the same port of the host are not put on one node (kube-scheduler, plugin NodePorts). Of programs that
are in no pod it knows nothing: a container before the task's looks whether any of them listens.
"""

from __future__ import annotations

from typing import Any

from overspan.adapters.kubernetes.manifests.scripts import CHECK_PORTS, make_command
from overspan.adapters.kubernetes.observation.records import MAIN, PORT_CHECK
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.spec import TaskSpec

Document = dict[str, Any]

MOST_PORTS = 100
"""Ports of a task on the host network: each is an entry of its pods."""


def check_network(pod: Document, task: TaskSpec, settings: Settings) -> None:
    """Raise InvalidRequest for a pod that a restricted namespace refuses (Pod Security Standards, Baseline)."""
    if pod["spec"].get("hostNetwork"):
        raise InvalidRequest(
            f"{task.name}: its pods would be on the host network, which no restricted namespace allows",
            remedy=f"leave `host_network` out, or name another namespace than that of {settings.name}",
        )


def declare_ports(pod: Document, task: TaskSpec) -> Document:
    """The pod with the task's `ports` as ports of the host, if it has its node's addresses; else as it is.

    Raises InvalidRequest for too many.
    """
    ports = list_ports(task)
    if not pod["spec"].get("hostNetwork") or not ports:
        return pod
    entries = [{"containerPort": port, "hostPort": port, "protocol": "TCP"} for port in ports]
    containers = [
        {**item, "ports": _join_ports(item.get("ports", ()), entries)} if item["name"] == MAIN else item
        for item in pod["spec"]["containers"]
    ]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}


def _join_ports(given: Any, entries: list[Document]) -> list[Document]:
    known = {item.get("containerPort") for item in given}
    return [*given, *(entry for entry in entries if entry["containerPort"] not in known)]


def list_ports(task: TaskSpec) -> list[int]:
    """The single ports that a task names. Raises InvalidRequest for more than MOST_PORTS."""
    found: dict[int, None] = {}
    for text in task.ports:
        first, _, last = text.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        if len(found) + len(numbers) > MOST_PORTS:
            raise InvalidRequest(
                f"{task.name}: more than {MOST_PORTS} `ports` on the host network, where each is kept from other pods",
                remedy="name those that others connect to",
            )
        found.update(dict.fromkeys(numbers))
    return list(found)


def render_port_check(task: TaskSpec) -> list[Document]:
    """The container that looks whether a port is taken, without its image; none for a task that names no ports."""
    words = [f"{port:04X}={port}" for port in list_ports(task)]
    return [{"name": PORT_CHECK, **make_command(CHECK_PORTS, words)}] if words else []
