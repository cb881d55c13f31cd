"""The rows of the queue and the history: what squeue and sacct print, encoded once a change."""

from __future__ import annotations

import functools
import json
import math
import pwd
from collections.abc import Iterable
from typing import Any, NamedTuple

from overspan.bridge.controller.book import Entry
from overspan.bridge.model.hostlists import compress
from overspan.bridge.model.job import Job, Task
from overspan.bridge.model.patterns import FilenameFields, expand_filename
from overspan.bridge.model.spec import TaskSpec

COLUMNS: tuple[str, ...] = (
    "id",
    "task_offset",
    "raw_id",
    "name",
    "group",
    "user",
    "state",
    "reason",
    "partition",
    "cluster",
    "nodes",
    "cpus",
    "node_list",
    "submitted_at",
    "started_at",
    "ended_at",
    "time_limit",
    "priority",
    "account",
    "qos",
    "comment",
    "work_dir",
    "command",
    "memory",
    "gpus",
    "dependency",
    "begin",
    "exit_code",
    "signal",
    "restarts",
    "attempt",
    "stdout",
    "stderr",
    "tasks",
    "uid",
    "ended_by_uid",
    "end_limit",
)
"""Times are epoch seconds, limits seconds (null: none), memory MiB on one node; `cpus` and `gpus` are the row's all."""


def job_row(entry: Entry) -> bytes:
    """The encoded row of the whole job."""
    if entry.row is None:
        entry.row = _encode(_whole(entry))
    return entry.row


def task_rows(entry: Entry) -> tuple[bytes, ...]:
    """The encoded rows of the job's tasks, in order; one row for a job of one task."""
    if entry.task_rows is None:
        count = len(entry.job.tasks)
        if count == 1:
            entry.task_rows = (job_row(entry),)
        else:
            entry.task_rows = tuple(_encode(_part(entry, offset)) for offset in range(count))
    return entry.task_rows


def _encode(row: list[Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


class _Part(NamedTuple):
    """What a row is about: a whole job (no offset), or one of its tasks."""

    offset: int | None
    raw_id: int
    name: str
    specs: tuple[TaskSpec, ...]
    state: str
    reason: str
    started_at: float | None
    ended_at: float | None
    exit_code: int
    signal: int
    limit: int | None
    attempt: int


def _whole(entry: Entry) -> list[Any]:
    job = entry.job
    name = job.labels.get("name", job.spec.name)
    attempt = max((task.attempts[-1].number for task in job.tasks if task.attempts), default=0)
    limits = [limit_of(job, task.name) for task in job.tasks if job.spec_of(task.name).primary]
    limit = None if None in limits else max((limit for limit in limits if limit is not None), default=None)
    facts = (job.state.value, job.reason, job.started_at, job.ended_at, job.exit_code, job.signal)
    return _row(entry, _Part(None, job.id, name, job.spec.tasks, *facts, limit, attempt))


def _part(entry: Entry, offset: int) -> list[Any]:
    job = entry.job
    task = job.tasks[offset]
    last = task.current
    reason = task.reason if task.state.terminal or task.attempts else job.reason
    exit_code, signal = (last.exit_code, last.signal) if last else (0, 0)
    facts = (task.state.value, reason, started_at(task), task.ended_at, exit_code, signal)
    limit = limit_of(job, task.name)
    specs = (job.spec_of(task.name),)
    return _row(entry, _Part(offset, job.id + offset, task.name, specs, *facts, limit, last.number if last else 0))


def _row(entry: Entry, part: _Part) -> list[Any]:
    """The values in the order of COLUMNS."""
    job = entry.job
    spec, origin = job.spec, job.spec.origin
    nodes, cpus, memory, gpus = sizes(part.specs)
    stdout, stderr = stream_paths(entry, part.specs[0].name)
    return [
        job.id,
        part.offset,
        part.raw_id,
        part.name,
        spec.name if spec.group else "",
        entry.user,
        part.state,
        part.reason,
        spec.partition,
        entry.cluster,
        nodes,
        cpus,
        _node_list(job, part.specs),
        job.submitted_at,
        part.started_at,
        part.ended_at,
        part.limit,
        job.priority,
        spec.account,
        spec.qos,
        job.labels.get("comment", spec.comment),
        origin.directory,
        " ".join(origin.command) if not origin.file else origin.file,
        memory,
        gpus,
        "",
        job.begin,
        part.exit_code,
        part.signal,
        job.launch,
        part.attempt,
        stdout,
        stderr,
        len(job.tasks),
        origin.uid,
        _uid(job.ending.by) if job.ending is not None and job.ending.by else None,
        _end_limit(part),
    ]


def _end_limit(part: _Part) -> float | None:
    """When the wall time of what runs is over."""
    if part.started_at is None or part.ended_at is not None or part.limit is None:
        return None
    return part.started_at + part.limit


def _node_list(job: Job, specs: tuple[TaskSpec, ...]) -> str:
    names = {spec.name for spec in specs}
    return compress(dict.fromkeys(place.node for place in job.placements if place.task in names and place.node))


def started_at(task: Task) -> float | None:
    """When the task's newest attempt started."""
    return task.attempts[-1].started_at if task.attempts else None


def limit_of(job: Job, task_name: str) -> int | None:
    """The wall time in force for a task, seconds."""
    changed = job.task(task_name).time
    return job.spec_of(task_name).time if changed is None else changed or None


def sizes(specs: Iterable[TaskSpec]) -> tuple[int, int, int, float]:
    """Nodes, CPUs and GPUs of these tasks together, and the memory (MiB) of their largest node."""
    nodes = cpus = memory = 0
    gpus = 0.0
    for spec in specs:
        need = spec.resources.need()
        # A task that shares another's nodes brings none of its own.
        nodes += 0 if spec.share else spec.num_nodes
        cpus += math.ceil(need.cpu_milli * spec.num_nodes / 1000)
        memory = max(memory, need.memory_mib or 0)
        gpus += need.gpu_milli * spec.num_nodes / 1000
    return nodes, cpus, memory, int(gpus) if gpus == int(gpus) else gpus


def stream_paths(entry: Entry, task_name: str) -> tuple[str, str]:
    """Where a task's output and errors go by its own words; empty where they go to the run directory."""
    job = entry.job
    spec = job.spec_of(task_name)
    if not spec.streams.output and not spec.streams.error:
        return "", ""
    offset = next(index for index, task in enumerate(job.tasks) if task.name == task_name)
    fields = FilenameFields(
        job=job.id + offset,
        name=job.spec.name,
        user=entry.user,
        host=next((place.node for place in job.placements if place.task == task_name), ""),
        restarts=job.launch,
    )
    output = _path(spec.streams.output, job, fields)
    return output, _path(spec.streams.error, job, fields) or output


def _path(pattern: str, job: Job, fields: FilenameFields) -> str:
    if not pattern:
        return ""
    path = expand_filename(pattern, fields)
    return path if path.startswith("/") else f"{job.spec.origin.directory.rstrip('/')}/{path}"


@functools.lru_cache(maxsize=1024)
def _uid(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return None
