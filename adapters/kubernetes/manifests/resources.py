"""What a task needs of each node: requests and limits of a container, and terms of the pod's node affinity. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from overspan.adapters.kubernetes.settings import GpuKind, Settings
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.resources import MILLI, Gpus, NodeNeed
from overspan.bridge.model.spec import Form, TaskSpec

Document = dict[str, Any]


class Needs(NamedTuple):
    """Requests and limits in Kubernetes' quantities, and the nodes that have them."""

    requests: dict[str, str]
    limits: dict[str, str]
    expressions: tuple[Document, ...] = ()
    """Terms of node affinity that all have to hold."""
    tolerations: tuple[Document, ...] = ()
    gpus: int = 0


class _GpuChoice(NamedTuple):
    """One GPU alternative as the cluster has it."""

    gpus: Gpus
    resource: str
    label: str
    values: tuple[str, ...]


def render_needs(task: TaskSpec, settings: Settings) -> Needs:
    """The needs of one pod of a task. Raises InvalidRequest for what the cluster does not have, with the remedy.

    CPUs are requested and not limited, since a limit only throttles; memory is both, unless more is welcome (`16+`).
    """
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    cpu_milli = _count_cpus(task, settings)
    if cpu_milli:
        requests["cpu"] = render_cpus(cpu_milli)
    memory = _choose_need(task, settings, max(cpu_milli, 1) / MILLI).memory_mib
    if memory is None:
        memory = settings.memory
    if memory:
        requests["memory"] = f"{memory}Mi"
        if not task.resources.memory_at_least:
            limits["memory"] = f"{memory}Mi"
    choice = _choose_gpus(task, settings)
    devices = [(entry.name, str(entry), entry.amount) for entry in task.resources.gres]
    extended = {_find_gres(task, name, text, settings): amount for name, text, amount in devices}
    expressions: tuple[Document, ...] = ()
    if choice is not None:
        extended[choice.resource] = extended.get(choice.resource, 0) + int(choice.gpus.count)
        if choice.values:
            expressions = ({"key": choice.label, "operator": "In", "values": list(choice.values)},)
    if is_mounted(task, settings):
        extended.setdefault(settings.data_fuse, 1)
    for name, amount in extended.items():
        requests[name] = limits[name] = str(amount)
    # Nodes with devices are mostly kept for those who ask for them, by a taint of the resource's name.
    tolerations = tuple({"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in extended)
    return Needs(requests, limits, expressions, tolerations, int(choice.gpus.count) if choice else 0)


def is_mounted(task: TaskSpec, settings: Settings) -> bool:
    """Whether the pods of a task read folders of stores through mounts of their own."""
    return bool(settings.data_fuse) and any(mount.read_through for mount in task.storage)


def render_cpus(milli: int) -> str:
    """CPUs as a quantity: whole ones as a number, others in thousandths."""
    return f"{milli}m" if milli % MILLI else str(milli // MILLI)


def note_needs(task: TaskSpec, settings: Settings) -> list[str]:
    """A sentence for each need that the cluster can carry out in part only."""
    notes = []
    if task.resources.memory_mib == 0:
        notes.append(f"{task.name}: pods cannot ask for all memory of a node; none is asked for")
    kept = _choose_gpus(task, settings)
    if kept is not None:
        left = [gpus for gpus in task.resources.gpus if not _is_covered(gpus, kept, settings)]
        if left:
            listed = ", ".join(map(str, left))
            notes.append(f"{task.name}: a pod asks for one kind of GPU; {kept.gpus} counts, and not {listed}")
    return notes


def _count_cpus(task: TaskSpec, settings: Settings) -> int:
    """Thousandths of CPUs; 0 where neither the task nor the cluster's settings name any, except for a batch script."""
    if task.resources.cpus is None and (task.ntasks or task.ntasks_per_node or task.cpus_per_task):
        each = task.ntasks_per_node or -(-(task.ntasks or 1) // task.num_nodes)
        return each * (task.cpus_per_task or 1) * MILLI
    # A script that names none has one in Slurm; a pod that asks for nothing is the first that a full node evicts.
    usual = 1.0 if task.form is Form.BATCH else 0.0
    return _choose_need(task, settings, usual if settings.cpus is None else settings.cpus).cpu_milli


def _choose_need(task: TaskSpec, settings: Settings, default_cpus: float) -> NodeNeed:
    """What a node is asked for beside the GPUs that were chosen; `default_cpus` where nothing names any."""
    choice = _choose_gpus(task, settings)
    place = 0 if choice is None else task.resources.gpus.index(choice.gpus)
    return task.resources.need(place, default_cpus)


def _choose_gpus(task: TaskSpec, settings: Settings) -> _GpuChoice | None:
    """The first alternative that the cluster has, with all later ones that a node label can tell beside it."""
    found: _GpuChoice | None = None
    for gpus in task.resources.gpus:
        choice = _find_gpus(gpus, settings)
        if choice is None:
            continue
        if found is None:
            found = choice
        elif _joins(choice, found):
            found = found._replace(values=tuple(dict.fromkeys((*found.values, *choice.values))))
    if found is None and task.resources.gpus:
        raise _unknown_kind(task, settings)
    if found is not None and found.gpus.count != int(found.gpus.count):
        raise InvalidRequest(
            f"{task.name}: Kubernetes gives whole GPUs, and {found.gpus} is none",
            remedy="ask for a whole number, or let the tasks of a group `share` a node",
        )
    return found


def _joins(choice: _GpuChoice, found: _GpuChoice) -> bool:
    """Whether an alternative can be asked for together with the first: the same number, told apart by the label."""
    same = (choice.gpus.count, choice.resource, choice.label) == (found.gpus.count, found.resource, found.label)
    return same and bool(choice.values) and bool(found.values)


def _is_covered(gpus: Gpus, kept: _GpuChoice, settings: Settings) -> bool:
    choice = _find_gpus(gpus, settings)
    return choice is not None and (gpus == kept.gpus or _joins(choice, kept))


def _find_gpus(gpus: Gpus, settings: Settings) -> _GpuChoice | None:
    """How one alternative is asked for; None for a kind that the settings do not know."""
    if not gpus.kind:
        return _GpuChoice(gpus, settings.gpus.resource, "", ())
    kind: GpuKind | None = settings.gpus.types.get(gpus.kind.lower())
    if kind is None:
        return None
    return _GpuChoice(gpus, kind.resource or settings.gpus.resource, kind.label or settings.gpus.label, kind.values)


def _unknown_kind(task: TaskSpec, settings: Settings) -> InvalidRequest:
    kinds = ", ".join(dict.fromkeys(gpus.kind for gpus in task.resources.gpus))
    known: Sequence[str] = sorted(settings.gpus.types)
    return InvalidRequest(
        f"{task.name}: the cluster's settings know no GPU of the kind {kinds}"
        + (f"; they know {', '.join(known)}" if known else ""),
        remedy=f"ask for a number alone, or set `gpus.types` of the cluster to the values of the node label"
        f" {settings.gpus.label}",
    )


def _find_gres(task: TaskSpec, name: str, text: str, settings: Settings) -> str:
    resource = settings.gres.get(text.rpartition(":")[0]) or settings.gres.get(name)
    if resource is None:
        raise InvalidRequest(
            f"{task.name}: the cluster's settings know no resource {name!r} (--gres={text})",
            remedy=f"set `gres` of the cluster to the resource of its nodes, such as {{{name}: example.com/{name}}}",
        )
    return resource
