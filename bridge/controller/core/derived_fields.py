"""Fields of listings that are derived from a job's facts: sizes, limits, nodes and paths."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.model.job import Job, Task
from overspan.bridge.model.patterns import FilenameFields, expand_filename, keep_fields
from overspan.bridge.model.resources import Gpus
from overspan.bridge.model.slurm.hostlists import compress
from overspan.bridge.model.spec import Form, TaskSpec


def node_list(job: Job, specs: Iterable[TaskSpec]) -> str:
    """The nodes of these tasks as a host list."""
    names = {spec.name for spec in specs}
    return compress(dict.fromkeys(place.node for place in job.placements if place.task in names and place.node))


def started_at(task: Task) -> float | None:
    """When the task's newest attempt started."""
    return task.attempts[-1].started_at if task.attempts else None


def limit_of(job: Job, task_name: str) -> int | None:
    """The wall time in force for a task, seconds."""
    changed = job.task(task_name).time
    return job.spec_of(task_name).time if changed is None else changed or None


def given_spec(job: Job, spec: TaskSpec) -> TaskSpec:
    """The task with the GPUs that it was given, where it has alternatives and its cluster has told the devices.

    The kind is left open where several alternatives have that count.
    """
    choices = spec.resources.gpus
    counts = {len(place.gpus) for place in job.placements if place.task == spec.name}
    count = counts.pop() if len(choices) > 1 and len(counts) == 1 else 0
    kinds = {choice.kind for choice in choices if choice.count == count}
    if not kinds:
        return spec
    given = Gpus(count, kinds.pop() if len(kinds) == 1 else "")
    return replace(spec, resources=replace(spec.resources, gpus=(given,)))


def sizes(specs: Iterable[TaskSpec]) -> tuple[int, int, int, float]:
    """Nodes, CPUs and GPUs of these tasks together, and the memory (MiB) of their largest node."""
    specs = tuple(specs)
    names = {spec.name for spec in specs}
    nodes = cpus = memory = 0
    gpus = 0.0
    for spec in specs:
        need = spec.resources.need()
        # The nodes of a task that shares another's are counted with those.
        nodes += 0 if spec.share in names else spec.num_nodes
        cpus += math.ceil(need.cpu_milli * spec.num_nodes / 1000)
        memory = max(memory, need.memory_mib or 0)
        gpus += need.gpu_milli * spec.num_nodes / 1000
    return nodes, cpus, memory, int(gpus) if gpus == int(gpus) else gpus


def work_dir(entry: JobEntry) -> str:
    """The folder on its cluster, where that tells one; else what a batch script says, or the submission's."""
    job = entry.job
    first = job.spec.tasks[0]
    if entry.written.folder:
        return entry.written.folder
    return first.workdir if first.form is Form.BATCH and first.workdir else job.spec.origin.directory


def stream_paths(entry: JobEntry, task_name: str) -> tuple[str, str, str]:
    """Where a task's output and errors go and its input comes from, as its cluster tells, else by its own words.

    Output and errors are empty where they go to the run directory, input where there is none.
    """
    written = entry.written_of(task_name)
    if written.output:
        return written.output, written.error or written.output, _expand_streams(entry, task_name)[2]
    return _expand_streams(entry, task_name)


def element_paths(entry: JobEntry, index: int | None) -> tuple[str, str]:
    """Where elements of an array that are no jobs yet will write: the one of that index, or all of them.

    What is not known before an element is a job stays as it was written: its id (`%j`), and of all their index (`%a`).
    """
    task = entry.job.tasks[0].name
    fields = _fill_fields(entry, task)._replace(element=index)
    streams = entry.job.spec.tasks[0].streams
    kept = "jJ" if index is not None else "jJab"
    output, error = (_path(entry, keep_fields(pattern, kept), fields) for pattern in (streams.output, streams.error))
    return output, error or output


def _expand_streams(entry: JobEntry, task_name: str) -> tuple[str, str, str]:
    streams = entry.job.spec_of(task_name).streams
    if not streams.output and not streams.error and not streams.input:
        return "", "", ""
    fields = _fill_fields(entry, task_name)
    output = _path(entry, streams.output, fields)
    return output, _path(entry, streams.error, fields) or output, _path(entry, streams.input, fields)


def _fill_fields(entry: JobEntry, task_name: str) -> FilenameFields:
    job = entry.job
    return FilenameFields(
        job=job.id + next(index for index, task in enumerate(job.tasks) if task.name == task_name),
        name=job.spec.name,
        user=entry.user,
        host=next((place.node for place in job.placements if place.task == task_name), ""),
        array_job=job.id if job.array is not None else job.element.array if job.element is not None else None,
        element=job.element.index if job.element is not None else None,
        restarts=job.relaunches,
    )


def _path(entry: JobEntry, pattern: str, fields: FilenameFields) -> str:
    """A stream's path; what is below the folder of the submission is below the one that the job works in."""
    if not pattern:
        return ""
    path, submitted = expand_filename(pattern, fields), entry.job.spec.origin.directory
    here, there = (folder.rstrip("/") for folder in (submitted, entry.written.folder or submitted))
    below = path.removeprefix(f"{here}/") if path.startswith("/") else path
    return path if below.startswith("/") else f"{there}/{below}"
