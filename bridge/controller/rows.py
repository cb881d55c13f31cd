"""The rows of the queue and the history: what squeue and sacct print, encoded once a change."""

from __future__ import annotations

import functools
import json
import math
import pwd
from collections.abc import Iterable
from typing import Any

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


def _whole(entry: Entry) -> list[Any]:
    job = entry.job
    name = job.labels.get("name", job.spec.name)
    attempt = max((task.attempts[-1].number for task in job.tasks if task.attempts), default=0)
    specs = job.spec.tasks
    facts = (job.state.value, job.reason, job.started_at, job.ended_at, job.exit_code, job.signal)
    limits = [limit_of(job, task.name) for task in job.tasks if job.spec_of(task.name).primary]
    limit = None if None in limits else max((limit for limit in limits if limit is not None), default=None)
    first = job.tasks[0].name
    return _row(entry, (None, job.id, name), specs, facts, limit, attempt, first)


def _part(entry: Entry, offset: int) -> list[Any]:
    job = entry.job
    task = job.tasks[offset]
    last = task.current
    reason = task.reason if task.state.terminal or task.attempts else job.reason
    exit_code, signal = (last.exit_code, last.signal) if last else (0, 0)
    facts = (task.state.value, reason, started_at(task), task.ended_at, exit_code, signal)
    identity = (offset, job.id + offset, task.name)
    limit = limit_of(job, task.name)
    return _row(entry, identity, (job.spec_of(task.name),), facts, limit, last.number if last else 0, task.name)


def _row(
    entry: Entry,
    identity: tuple[int | None, int, str],
    specs: tuple[TaskSpec, ...],
    facts: tuple[str, str, float | None, float | None, int, int],
    limit: int | None,
    attempt: int,
    task_name: str,
) -> list[Any]:
    job = entry.job
    spec, origin = job.spec, job.spec.origin
    state, reason, started, ended, exit_code, signal = facts
    nodes, cpus, memory, gpus = sizes(specs)
    names = {task.name for task in specs}
    stdout, stderr = stream_paths(entry, task_name)
    end_limit = started + limit if started is not None and limit is not None and ended is None else None
    return [
        job.id,
        *identity,
        spec.name if spec.group else "",
        entry.user,
        state,
        reason,
        spec.partition,
        entry.cluster,
        nodes,
        cpus,
        compress(dict.fromkeys(place.node for place in job.placements if place.task in names and place.node)),
        job.submitted_at,
        started,
        ended,
        limit,
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
        exit_code,
        signal,
        job.launch,
        attempt,
        stdout,
        stderr,
        len(job.tasks),
        origin.uid,
        _uid(job.ending.by) if job.ending is not None and job.ending.by else None,
        end_limit,
    ]


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
