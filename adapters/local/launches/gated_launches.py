"""Launches that wait at a start gate: parts of groups over several clusters, about which the daemon decides.

They are booked and granted like others. Their supervisors decide nothing, and end when the daemon no longer wants them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence

from overspan.adapters.contract import Order
from overspan.adapters.local.launches.launches import LocalLaunch
from overspan.adapters.local.settings import Settings
from overspan.bridge.model.events import Granted
from overspan.bridge.model.job import Job, Placement
from overspan.bridge.model.parts import list_own_tasks

_BY_THEMSELVES = "its launches start by themselves"


def find_obstacle(job: Job, settings: Settings) -> str:
    """Why a job cannot wait at a start gate; empty where it can."""
    if not job.spec.across:
        return _BY_THEMSELVES
    if not settings.address:
        return (
            "its members would have loopback addresses alone: set `address` of the cluster to the address at which the "
            "other clusters' nodes reach this machine"
        )
    for task in list_own_tasks(job):
        if task.storage:
            return f"{task.name} mounts object stores, which is not done there for jobs across clusters"
    return _find_clash(job, settings.address)


def list_unwanted(runs: Iterable[LocalLaunch], handles: Collection[str], tokens: Collection[str]) -> list[LocalLaunch]:
    """The gated launches that are neither watched nor about to be, and were not told to end yet."""
    return [
        run
        for run in runs
        if run.ticket.gated and not run.leaving and run.handle not in handles and run.ticket.token not in tokens
    ]


def write_places(handle: str, members: Sequence[Placement]) -> Order:
    """The order that tells a launch where members of its group are that run elsewhere."""
    rows = tuple((member.task, member.index, member.node, member.address, ()) for member in members)
    return Order(f"place-{time.time_ns()}", handle, Granted(time.time(), rows))


def _find_clash(job: Job, address: str) -> str:
    """Two members that name the same port: all of them have this machine's address."""
    owners: dict[int, str] = {}
    for task in list_own_tasks(job):
        for port in _list_ports(task.ports):
            other = owners.setdefault(port, task.name)
            if other != task.name or task.num_nodes > 1:
                who = f"{other} and {task.name}" if other != task.name else f"the nodes of {task.name}"
                return f"{who} name port {port}, and all members on this machine have its address {address}"
    return ""


def _list_ports(texts: Iterable[str]) -> Iterator[int]:
    """The single ports of a task's list of ports and ranges."""
    for text in texts:
        first, _, last = text.partition("-")
        yield from range(int(first), int(last or first) + 1)
