"""Partitions of a cluster: nodes by their labels, a queue and a limit under a name. Pure.

Refusals are in Slurm's words, which clients look for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from overspan.adapters.contract import Node
from overspan.adapters.kubernetes.settings import Partition, Settings
from overspan.adapters.script_options import list_script_options, refuse_nodes, refuse_partition, refuse_reservation
from overspan.bridge.model.job import Job
from overspan.bridge.model.slurm.hostlists import expand
from overspan.bridge.model.spec import TaskSpec


def list_partitions(settings: Settings) -> tuple[Partition, ...]:
    """The partitions, the default one first; without any in the settings the whole cluster is one.

    It is called as the cluster is, or as Kueue's queue.
    """
    return tuple(settings.partitions.values()) or (Partition(name=settings.queue or settings.name),)


def find_partition(settings: Settings, name: str) -> Partition | None:
    """The partition of that name, the default one for an empty name; None where there is none.

    With a queue and no partitions every LocalQueue counts as one: Kueue refuses a queue that does not exist.
    """
    known = list_partitions(settings)
    if not name:
        return known[0]
    found = next((one for one in known if one.name == name), None)
    return Partition(name=name, queue=name) if found is None and settings.queue and not settings.partitions else found


def settle_partition(settings: Settings, name: str) -> Settings:
    """The settings as they are for pods of a partition; of a list of names the first that is known."""
    chosen = next(filter(None, (find_partition(settings, one) for one in name.split(","))), None)
    if chosen is None:
        # It was renamed under a job that is there: its pods are made as of none.
        return settings
    longest = settings.default_time if chosen.time_limit is None else min(settings.default_time, chosen.time_limit)
    added = (one for one in chosen.tolerations if one not in settings.tolerations)
    changes = {
        "node_selector": {**settings.node_selector, **chosen.node_selector},
        "tolerations": (*settings.tolerations, *added),
        "queue": chosen.queue or settings.queue,
        "default_time": longest,
    }
    return settings.model_copy(update=changes)


def find_refusal(job: Job, settings: Settings) -> str:
    """Why the partition that a job names cannot have it, or what of it the cluster has not; '' for nothing."""
    refusals = map(refuse_reservation, list_script_options(job.spec.tasks))
    return refuse_partition(job, partial(find_partition, settings)) or next(filter(None, refusals), "")


def names_nodes(job: Job) -> bool:
    """Whether a batch script asks for nodes by their names."""
    return any(demands.get("nodelist") or demands.get("exclude") for demands in list_script_options(job.spec.tasks))


def find_unknown_node(job: Job, nodes: Iterable[Node]) -> str:
    """What is wrong with the nodes that a batch script names; '' for nothing."""
    known = {node.name for node in nodes}
    return next(filter(None, (refuse_nodes(demands, known) for demands in list_script_options(job.spec.tasks))), "")


def list_expressions(task: TaskSpec) -> Sequence[Mapping[str, Any]]:
    """What keeps the pods of a batch script to the nodes that it names, and away from those that it excludes."""
    keys = (("In", "nodelist"), ("NotIn", "exclude"))
    found = (
        (operator, _expand(demands.get(key))) for demands in list_script_options((task,)) for operator, key in keys
    )
    return [{"key": _HOST, "operator": operator, "values": names} for operator, names in found if names]


_HOST = "kubernetes.io/hostname"


def _expand(value: Any) -> list[str]:
    try:
        return expand(str(value or ""))
    except ValueError:
        return []
