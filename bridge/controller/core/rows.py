"""The rows of the queue and the history: what squeue and sacct print, encoded once a change."""

from __future__ import annotations

import functools
import os
import pwd
from collections.abc import Mapping
from typing import NamedTuple

from overspan.bridge.controller.core.dependency_resolver import describe_dependency
from overspan.bridge.controller.core.derived_fields import (
    given_spec,
    limit_of,
    node_list,
    sizes,
    started_at,
    stream_paths,
    work_dir,
)
from overspan.bridge.controller.core.packed_rows import MARK, encode_row, pack_row, unpack_row
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.lifecycle.arrays import find_reason
from overspan.bridge.lifecycle.members import elastic_of
from overspan.bridge.lifecycle.readiness import reason_of
from overspan.bridge.lifecycle.stages import is_carried
from overspan.bridge.listings.rows import EXTENTS, WHOLE, JobRow
from overspan.bridge.model.allocations import is_allocation
from overspan.bridge.model.ids import IndexRange, collapse, format_array_indices
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form, TaskSpec
from overspan.bridge.model.states import State

NO_ELEMENTS: Mapping[int, JobEntry] = {}


def send_rows(rows: list[bytes], extent: str) -> list[bytes]:
    """Rows as they are sent: as many values as the extent has."""
    if extent == WHOLE:
        return [b"[" + row + b"]" for row in rows]
    marks = list(EXTENTS).index(extent) + 1
    return [b"[" + b"".join(row.split(MARK, marks)[:marks]) + b"]" for row in rows]


def job_row(entry: JobEntry) -> bytes:
    """The encoded row of the whole job."""
    if entry.row is None:
        entry.row, entry.row_rest = pack_row(_whole(entry))
    return unpack_row(entry.row, entry.row_rest)


def task_rows(entry: JobEntry) -> tuple[bytes, ...]:
    """The encoded rows of the job's tasks, in order; one row for a job of one task."""
    if entry.task_rows is None:
        count = len(entry.job.tasks)
        if count == 1:
            entry.task_rows = (job_row(entry),)
        else:
            entry.task_rows = tuple(encode_row(_part(entry, offset)) for offset in range(count))
    return entry.task_rows


def waiting_row(entry: JobEntry, elements: Mapping[int, JobEntry]) -> bytes | None:
    """The row of an array's elements that wait or are pending; None when there are none."""
    if entry.task_rows is None:
        row = elements_row(entry, waiting_indices(entry, elements), elements)
        entry.task_rows = () if row is None else (row,)
    return entry.task_rows[0] if entry.task_rows else None


def elements_row(
    entry: JobEntry, indices: tuple[IndexRange, ...], elements: Mapping[int, JobEntry] = NO_ELEMENTS
) -> bytes | None:
    """The row of some of an array's elements that wait or are pending; None for none."""
    if not indices or entry.job.array is None:
        return None
    text = format_array_indices(indices, entry.job.array.throttle)
    return encode_row(_array(entry, State.PENDING, elements_reason(entry, elements), text))


def elements_reason(entry: JobEntry, elements: Mapping[int, JobEntry]) -> str:
    """Why an array's elements wait that are pending."""
    pending = min((index for index, part in elements.items() if is_folded(part)), default=None)
    first = "" if pending is None else _reason(elements[pending], elements[pending].job.reason)
    if entry.job.state is not State.PENDING:
        return first or "None"
    return find_reason(entry.job, sum(part.job.live for part in elements.values()), first)


def cancelled_row(entry: JobEntry) -> bytes | None:
    """The row of an array's elements that were cancelled before they became jobs; None when there are none."""
    array = entry.job.array
    if array is None or not array.cancelled:
        return None
    return encode_row(_array(entry, State.CANCELLED, "None", format_array_indices(array.cancelled)))


def waiting_indices(entry: JobEntry, elements: Mapping[int, JobEntry]) -> tuple[IndexRange, ...]:
    """The indices of an array that wait, with those of elements that are jobs but still pending like them."""
    array = entry.job.array
    if array is None:
        return ()
    pending = [index for index, part in elements.items() if is_folded(part)]
    if not pending:
        return array.waiting
    return collapse([*pending, *(index for part in array.waiting for index in part.values())])


def is_folded(element: JobEntry) -> bool:
    """Whether an array's row stands for this element: it is pending as the others are, not held by itself."""
    return element.job.state is State.PENDING and not element.job.held


def partition_of(entry: JobEntry) -> str:
    """The partition as the cluster calls it, else as the job does; until either is known, the cluster's name."""
    return entry.job.partition or entry.job.spec.partition or entry.cluster


def _partition(entry: JobEntry, part: _RowPart) -> str:
    """That of the job; once its cluster has told one, a task that names another has that, as in a hetjob."""
    named = part.specs[0].native.get("slurm", {}).get("partition")
    if named and entry.job.partition and part.offset is not None:
        return str(named)
    return partition_of(entry)


class _RowPart(NamedTuple):
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
    waiting: str = ""
    paused: float = 0.0


def _whole(entry: JobEntry) -> JobRow:
    job = entry.job
    attempt = max((task.attempts[-1].number for task in job.tasks if task.attempts), default=0)
    facts = (job.state.value, _reason(entry, job.reason), job.started_at, job.ended_at, job.exit_code, job.signal)
    # A pipeline has, or waits for, what its present stage asks for.
    specs = tuple(spec for spec in job.spec.tasks if job.over or is_carried(job, spec.name))
    return _row(entry, _RowPart(None, job.id, _name(job), specs, *facts, _longest(job), attempt, "", job.suspended))


def _array(entry: JobEntry, state: State, reason: str, waiting: str) -> JobRow:
    job = entry.job
    ended_at = job.ended_at if state is State.CANCELLED else None
    facts = (state.value, reason, None, ended_at, 0, 0)
    return _row(entry, _RowPart(None, job.id, _name(job), job.spec.tasks, *facts, _longest(job), 0, waiting))


def _part(entry: JobEntry, offset: int) -> JobRow:
    job = entry.job
    task = job.tasks[offset]
    last = task.current
    reason = _reason(entry, reason_of(job, task))
    exit_code, signal = (last.exit_code, last.signal) if last else (0, 0)
    facts = (task.state.value, reason, started_at(task), task.ended_at, exit_code, signal)
    limit = limit_of(job, task.name)
    specs = (job.spec_of(task.name),)
    name = task.name if _has_named_tasks(job) else _name(job)
    number, paused = (last.number, last.suspended) if last else (0, 0.0)
    return _row(entry, _RowPart(offset, job.id + offset, name, specs, *facts, limit, number, paused=paused))


def _reason(entry: JobEntry, reason: str) -> str:
    """Why a job waits: what hinders all that is owed to its cluster comes first."""
    return entry.obstacle or reason if entry.job.state is State.PENDING else reason


def _has_named_tasks(job: Job) -> bool:
    """Whether its tasks are shown by their names; the components of a script have none of their own."""
    return job.spec.group or (len(job.spec.tasks) > 1 and job.spec.tasks[0].form is Form.RUN)


def _group(job: Job) -> str:
    """The group's name, of its tasks and of the further members of these."""
    if job.spec.member is not None:
        return job.spec.member.domain
    return job.spec.name if _has_named_tasks(job) else ""


def _member_of(job: Job) -> str:
    member = job.spec.member
    return "" if member is None else f"{member.group}+{member.task}"


def _count_members(entry: JobEntry, part: _RowPart) -> str:
    """How many members an elastic task has on nodes, and its bounds; of a task that lives."""
    name = part.specs[0].name
    elastic = elastic_of(entry.job, name)
    if elastic is None or part.offset is None or part.ended_at is not None:
        return ""
    own = 0 if part.state == State.PENDING.value else entry.job.spec_of(name).num_nodes
    return f"{own + entry.further.get(name, 0)} of {elastic.least}-{elastic.most}"


def _name(job: Job) -> str:
    return job.labels.get("name", job.spec.name)


def _longest(job: Job) -> int | None:
    """The wall time of the primary task that has most."""
    limits = [limit_of(job, task.name) for task in job.tasks if job.spec_of(task.name).primary]
    return None if None in limits else max((limit for limit in limits if limit is not None), default=None)


def _row(entry: JobEntry, part: _RowPart) -> JobRow:
    job = entry.job
    nodes, cpus, memory, gpus = sizes(given_spec(job, spec) for spec in part.specs)
    row = JobRow(
        id=job.id,
        task_offset=part.offset,
        raw_id=part.raw_id,
        name=part.name,
        group=_group(job),
        user=entry.user,
        state=part.state,
        reason=part.reason,
        partition=_partition(entry, part),
        cluster=entry.cluster,
        nodes=nodes,
        cpus=cpus,
        memory=memory,
        gpus=gpus,
        node_list="" if part.waiting else node_list(job, part.specs),
        submitted_at=job.submitted_at,
        started_at=part.started_at,
        ended_at=part.ended_at,
        time_limit=part.limit,
        priority=job.priority,
        begin=job.begin,
        array_id=job.element.array if job.element is not None else job.id if job.array is not None else None,
        array_index=job.element.index if job.element is not None else None,
        array_waiting=part.waiting,
        paused=part.paused,
        paused_at=job.suspended_at if part.state == State.SUSPENDED.value else None,
        expected_start=job.expected_start if part.state == State.PENDING.value else None,
        member_of=_member_of(job),
        members=_count_members(entry, part),
        exit_code=part.exit_code,
        signal=part.signal,
        attempt=part.attempt,
        end_limit=_end_limit(part),
    )
    return _add_submission(_add_job(row, entry), entry, part.specs[0])


def _add_job(row: JobRow, entry: JobEntry) -> JobRow:
    """The row with what is the same for all tasks of the job."""
    job = entry.job
    spec, origin = job.spec, job.spec.origin
    return row._replace(
        account=spec.account,
        qos=spec.qos,
        comment=job.labels.get("comment", spec.comment),
        work_dir=work_dir(entry),
        command=os.path.join(origin.directory, origin.file) if origin.file else "",
        dependency=describe_dependency(job, entry.needed_arrays),
        restarts=job.restarts,
        tasks=len(job.tasks),
        uid=origin.uid,
        ended_by_uid=_uid(job.ending.by) if job.ending is not None and job.ending.by else None,
        nice=job.nice,
        parent=spec.parent,
        submit_line=" ".join(origin.command),
        deadline=spec.deadline,
        requeue=spec.requeue is not False,
        host=origin.host,
        gid=_gid(origin.uid),
        array_throttle=_throttle(job),
    )


def _add_submission(row: JobRow, entry: JobEntry, first: TaskSpec) -> JobRow:
    """The row with what its first task asked for."""
    job = entry.job
    stdout, stderr, stdin = stream_paths(entry, first.name)
    return row._replace(
        stdout=stdout,
        stderr=stderr,
        stdin=stdin,
        ntasks=first.ntasks,
        ntasks_per_node=first.ntasks_per_node,
        cpus_per_task=first.cpus_per_task,
        memory_per_cpu=first.resources.memory_mib_per_cpu,
        gpu_kind=given_spec(job, first).resources.need().gpu_kind,
        batch=first.form is Form.BATCH and not is_allocation(first),
        options={**job.spec.native.get("slurm", {}), **first.native.get("slurm", {})},
    )


def _throttle(job: Job) -> int | None:
    """How many elements may run at once: an array's own, an element's as submitted."""
    if job.array is not None:
        return job.array.throttle
    return job.spec.array.throttle if job.spec.array is not None else None


def _end_limit(part: _RowPart) -> float | None:
    """When the wall time of what runs is over."""
    if part.started_at is None or part.ended_at is not None or part.limit is None:
        return None
    return part.started_at + part.limit + part.paused


@functools.lru_cache(maxsize=1024)
def _uid(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return None


@functools.lru_cache(maxsize=1024)
def _gid(uid: int) -> int | None:
    try:
        return pwd.getpwuid(uid).pw_gid
    except (KeyError, ValueError, OverflowError):
        return None
