"""CPUs and memory of tasks with GPUs that name none: each cluster's `gpu_defaults`.

Job files only: a batch script keeps Slurm's own defaults. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from overspan.bridge.controller.core.clusters import Cluster, Clusters
from overspan.bridge.model.resources import GpuDefaults, Resources
from overspan.bridge.model.sizes import format_memory
from overspan.bridge.model.spec import Candidate, Demand, Form, JobSpec, demand_of

_CPU_OPTIONS = frozenset({"cpus-per-task", "cpus-per-gpu", "mincpus", "exclusive"})
_MEMORY_OPTIONS = frozenset({"mem", "mem-per-cpu", "mem-per-gpu", "exclusive"})
"""sbatch's options that say what the defaults would."""


def fill_gpu_defaults(spec: JobSpec, clusters: Clusters) -> JobSpec:
    """The spec with each cluster's defaults in what is asked for there."""
    if not any(task.form is Form.RUN and _has_gpus(spec, number) for number, task in enumerate(spec.tasks)):
        return spec
    places = spec.places or (Candidate(""),)
    filled = tuple(_fill(spec, place, clusters) for place in places)
    first = filled[0]
    kept = filled if spec.candidates or _differ(filled) else ()
    return replace(spec.take(first), candidates=kept)


def _has_gpus(spec: JobSpec, number: int) -> bool:
    """Whether a task may have GPUs somewhere."""
    demands = [candidate.demands[number] for candidate in spec.candidates if candidate.demands]
    return any(demand.resources.gpus for demand in (demand_of(spec.tasks[number]), *demands))


def note_gpu_defaults(spec: JobSpec, cluster: Cluster) -> tuple[str, ...]:
    """A sentence for each task with GPUs that names no CPUs or no memory."""
    notes = []
    for task in spec.tasks:
        resources, defaults = task.resources, task.resources.gpu_defaults
        if defaults is None or not resources.gpus:
            continue
        missing, given = [], []
        if resources.cpus is None and defaults.cpus_per_gpu:
            missing.append("CPUs")
            given.append(f"{defaults.cpus_per_gpu:g} CPUs for each GPU")
        if not _names_memory(resources) and defaults.memory_mib_per_cpu:
            missing.append("memory")
            given.append(f"{format_memory(defaults.memory_mib_per_cpu)} of memory for each CPU")
        if given:
            notes.append(
                f"{task.name} names no {' and no '.join(missing)}: it gets {' and '.join(given)}, at most its GPUs'"
                f" share of a node (gpu_defaults of the cluster {task.cluster or cluster.name})"
            )
    return tuple(notes)


def _fill(spec: JobSpec, place: Candidate, clusters: Clusters) -> Candidate:
    there = spec.take(place)
    demands = []
    for task in there.tasks:
        demand = demand_of(task)
        if task.form is Form.RUN and task.resources.gpus:
            # A task of a group across has a cluster of its own.
            name = task.cluster or place.cluster
            cluster = clusters.find(name) if name else clusters.get("")
            defaults = GpuDefaults() if cluster is None else cluster.gpu_defaults
            kind = "" if cluster is None else cluster.config.kind
            named = {*spec.native.get(kind, {}), *task.native.get(kind, {})}
            demand = _fill_demand(demand, defaults, named)
        demands.append(demand)
    return Candidate(place.cluster, tuple(demands), there.partition)


def _fill_demand(demand: Demand, defaults: GpuDefaults, options: set[str]) -> Demand:
    named = GpuDefaults(
        0.0 if options & _CPU_OPTIONS else defaults.cpus_per_gpu,
        0 if options & _MEMORY_OPTIONS else defaults.memory_mib_per_cpu,
    )
    if not named.cpus_per_gpu and not named.memory_mib_per_cpu:
        return demand
    return replace(demand, resources=replace(demand.resources, gpu_defaults=named))


def _differ(places: tuple[Candidate, ...]) -> bool:
    return any(place.demands != places[0].demands for place in places)


def _names_memory(resources: Resources) -> bool:
    return resources.memory_mib is not None or resources.memory_mib_per_cpu is not None
