"""Admission: whether a job could ever run on this machine, in Slurm's words. Pure, except for the machine's name."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence

from overspan.adapters.local.queue.booking import Bookings, Variant, is_kind, list_variants
from overspan.adapters.local.queue.capacity import Capacity
from overspan.adapters.local.settings import Settings
from overspan.adapters.script_options import list_script_options, refuse_nodes, refuse_partition, refuse_reservation
from overspan.bridge.model.job import Job
from overspan.bridge.model.resources import MILLI, NodeNeed
from overspan.bridge.model.slurm.words import BAD_GRES, TOO_MUCH_MEMORY
from overspan.bridge.model.spec import TaskSpec

NEVER_FITS = "Requested node configuration is not available"
MEMORY_NEVER_FITS = f"{TOO_MUCH_MEMORY}\n{NEVER_FITS}"
"""Slurm mentions memory in a line of its own (measured on 22.05)."""

GPUS_UNKNOWN = "nvidia-smi has not told this machine's GPUs yet"
"""Of a job that can run if the machine has the GPUs: no refusal, it waits for that answer."""

GPU = "gpu"
"""The only generic resource of the local cluster."""


def find_refusal(job: Job, settings: Settings, capacity: Capacity) -> str:
    """Why the job can never run here; empty when it can, GPUS_UNKNOWN when that depends on GPUs nobody knows yet."""
    refusal = refuse_partition(job, settings.partition)
    if refusal:
        return refusal
    if any(gres.name != GPU for task in job.spec.tasks for gres in task.resources.gres):
        return BAD_GRES
    refusal = _find_node_fault(job.spec.tasks)
    if refusal:
        return refusal
    return find_misfit(list_variants(job, capacity), capacity)


def find_misfit(variants: Sequence[Variant], capacity: Capacity) -> str:
    """Why no variant fits on the machine, as `find_refusal` says it; empty when one does."""
    if Bookings(capacity).fits(variants):
        return ""
    if not capacity.gpus_known and Bookings(capacity).fits(map(_drop_gpus, variants)):
        return GPUS_UNKNOWN
    return MEMORY_NEVER_FITS if _needs_more_memory(variants, capacity) else NEVER_FITS


def _drop_gpus(variant: Variant) -> Variant:
    return tuple(member._replace(need=member.need._replace(gpu_milli=0)) for member in variant)


def describe_misfit(job: Job, capacity: Capacity) -> str:
    """What the job asks for and what the machine has, for each resource that is too small; empty if none is.

    Of alternatives the preferred one counts, of members that run one after the other the largest phase.
    """
    phases: dict[int, list[NodeNeed]] = {}
    for member in list_variants(job, capacity)[0]:
        phases.setdefault(member.phase, []).append(member.need)
    words = [_describe_cpus(phases.values(), capacity), _describe_memory(phases.values(), capacity)]
    words.append(_describe_gpus(phases.values(), capacity))
    return "; ".join(filter(None, words))


def _describe_cpus(phases: Iterable[Sequence[NodeNeed]], capacity: Capacity) -> str:
    wanted = max(sum(need.cpu_milli for need in phase) for phase in phases)
    return _compare(wanted / MILLI, "CPU", f"{capacity.cpu_milli / MILLI:g}", wanted > capacity.cpu_milli)


def _describe_memory(phases: Iterable[Sequence[NodeNeed]], capacity: Capacity) -> str:
    wanted = max(sum(need.memory_mib or 0 for need in phase) for phase in phases)
    return _compare(wanted, "MiB of memory", str(capacity.memory_mib), wanted > capacity.memory_mib)


def _describe_gpus(phases: Iterable[Sequence[NodeNeed]], capacity: Capacity) -> str:
    most = max(phases, key=lambda phase: sum(need.gpu_milli for need in phase))
    wanted = sum(need.gpu_milli for need in most)
    kinds = sorted({need.gpu_kind for need in most if need.gpu_milli and need.gpu_kind})
    fitting = [device for device in capacity.gpus if not kinds or any(is_kind(kind, device) for kind in kinds)]
    return _compare(
        wanted / MILLI, " ".join([*kinds, "GPU"]), str(len(fitting) or "none"), wanted > len(fitting) * MILLI
    )


def _compare(wanted: float, unit: str, there: str, too_little: bool) -> str:
    if not too_little:
        return ""
    plural = "s" if unit.endswith("PU") and wanted > 1 else ""
    return f"{wanted:.15g} {unit}{plural} {'are' if wanted > 1 else 'is'} wanted, {name_machine()} has {there}"


def name_machine() -> str:
    """The name of this machine's node: its host name without the domain."""
    return socket.gethostname().partition(".")[0]


def _find_node_fault(tasks: Sequence[TaskSpec]) -> str:
    """The error of --nodelist, --exclude and --reservation: the machine is one node, and has no reservations."""
    own = {name_machine(), socket.gethostname(), "localhost"}
    for demands in list_script_options(tasks):
        refusal = refuse_reservation(demands) or refuse_nodes(demands, own)
        if refusal or demands.get("exclude"):
            return refusal or NEVER_FITS
    return ""


def _needs_more_memory(variants: Iterable[Variant], capacity: Capacity) -> bool:
    """Whether every variant has a node that asks for more memory than the machine has."""
    return all(any((member.need.memory_mib or 0) > capacity.memory_mib for member in members) for members in variants)
