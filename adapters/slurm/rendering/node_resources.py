"""The resources of one node of a task, rounded to Slurm's units, and rendered as options of sbatch and srun."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from overspan.adapters.gpu_defaults import Sized
from overspan.bridge.model.resources import MILLI, Gpus, NodeNeed
from overspan.bridge.model.spec import TaskSpec

EXACT_SINCE = (20, 11, 3)


class NodeResources(NamedTuple):
    """Whole CPUs, MiB (None: no request, 0: all of the node), GPUs, and other generic resources in --gres syntax."""

    cpus: int
    memory: int | None = None
    gpus: int = 0
    gpu_kind: str = ""
    gres: tuple[str, ...] = ()


class RoundedResources(NamedTuple):
    """Rounded resources, and a note for each request that Slurm cannot fulfil exactly."""

    need: NodeResources
    notes: tuple[str, ...] = ()


def count_processes(task: TaskSpec) -> int:
    """Slurm's tasks on one node."""
    if task.ntasks_per_node:
        return task.ntasks_per_node
    return -(-task.ntasks // task.num_nodes) if task.ntasks else 1


def round_resources(task: TaskSpec, choice: int = 0, kinds: Sequence[str] = ()) -> RoundedResources:
    """The resources of one node with the accelerators at index `choice`; `kinds` are the cluster's GPU types.

    Slurm allocates whole CPUs and GPUs: fractions are rounded up, GPUs with a note. Raises IndexError for a wrong
    choice.
    """
    named = task.resources.cpus or count_processes(task) * (task.cpus_per_task or 1)
    booked: NodeNeed = task.resources.need(choice, default_cpus=named)
    cpus = max(1, -(-booked.cpu_milli // MILLI))
    memory = booked.memory_mib
    if task.resources.memory_mib_per_cpu is not None:
        memory = task.resources.memory_mib_per_cpu * cpus
    gpus = -(-booked.gpu_milli // MILLI)
    notes = []
    if booked.gpu_milli % MILLI:
        notes.append(f"the task {task.name!r} gets {gpus} whole GPU{'s' * (gpus > 1)}: Slurm gives no fractions")
    kind = match_kind(booked.gpu_kind, kinds)
    if booked.gpu_kind and kinds and not kind:
        notes.append(f"this cluster has no GPUs of type {booked.gpu_kind}; it has {', '.join(sorted(set(kinds)))}")
        kind = booked.gpu_kind
    gres = tuple(str(entry) for entry in booked.gres)
    return RoundedResources(NodeResources(cpus, memory, gpus, kind if kinds else booked.gpu_kind, gres), tuple(notes))


def match_kind(asked: str, kinds: Sequence[str]) -> str:
    """The cluster's name of a GPU type: equal except for upper case, or with a suffix (`a100-80gb` for `A100`)."""
    wanted = asked.lower()
    same = [kind for kind in kinds if kind.lower() == wanted]
    longer = sorted(kind for kind in kinds if wanted and kind.lower().startswith((f"{wanted}-", f"{wanted}_")))
    return (same or longer or [""])[0]


def choose_gpus(task: TaskSpec, kinds: Sequence[str], most: Mapping[str, int] | None = None) -> int:
    """The index of the first alternative that a node can hold; 0 if the nodes are not known.

    `most` is the largest number of GPUs of one node, by type. If no node has enough, the first of a known type.
    """
    known = []
    for place, gpus in enumerate(task.resources.gpus):
        kind = match_kind(gpus.kind, kinds)
        if not kinds or not gpus.kind or kind:
            known.append(place)
            room = max((most or {}).values(), default=0) if not kind else (most or {}).get(kind, 0)
            if not most or gpus.count <= room:
                return place
    return known[0] if known else 0


def count_gpus(nodes: Iterable[Sized]) -> dict[str, int]:
    """The largest number of GPUs of one node, by type."""
    most: dict[str, int] = {}
    for node in nodes:
        if node.gpus:
            most[node.gpu_kind] = max(most.get(node.gpu_kind, 0), node.gpus)
    return most


def own_cpus(version: tuple[int, ...]) -> str:
    """The option that limits a step to the CPUs that it asks for, in that version of srun.

    --exact came with 20.11.3, when a step's default became all of the job's CPUs again; before, --exclusive had that
    meaning for a step (srun(1) of each). An unknown version counts as a new one.
    """
    return "--exclusive" if () < version < EXACT_SINCE else "--exact"


def render_gres(need: NodeResources) -> str:
    """The --gres value, `gpu:TYPE:N` first; empty for none."""
    parts = [f"gpu:{Gpus(need.gpus, need.gpu_kind)}"] if need.gpus else []
    return ",".join([*parts, *need.gres])


def render_memory(mib: int) -> str:
    """A --mem value."""
    return f"{mib}M" if mib else "0"
