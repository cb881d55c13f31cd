"""One job in full, as `span show` and `scontrol show job` need it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from overspan.bridge.controller.core.dependency_resolver import describe_dependency
from overspan.bridge.controller.core.derived_fields import (
    element_paths,
    given_spec,
    limit_of,
    sizes,
    started_at,
    stream_paths,
    work_dir,
)
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.lifecycle.members import elastic_of, may_grow, wanted_size
from overspan.bridge.lifecycle.readiness import describe_wait, reason_of
from overspan.bridge.model.ids import IndexRange, format_array_indices
from overspan.bridge.model.job import Attempt, Job, NodeRun, Placement, Task
from overspan.bridge.model.slurm.hostlists import compress
from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.model.storage import MountMode

Document = dict[str, Any]


def describe_job(entry: JobEntry, joined: Sequence[int] = (), waiting: Sequence[IndexRange] = ()) -> Document:
    """Everything that people may see of a job; secrets are not in it. `joined` are the jobs that joined the group.

    `waiting` are the elements of an array that are meant, where these are no jobs yet.
    """
    job = entry.job
    spec, origin = job.spec, job.spec.origin
    next_starts = [task.next_start for task in job.tasks if task.next_start is not None]
    return {
        "id": job.id,
        "name": job.labels.get("name", spec.name),
        "group": spec.group,
        "user": entry.user,
        "uid": origin.uid,
        "cluster": entry.cluster,
        "clusters": list(spec.clusters),
        "passed": [
            {"cluster": each.cluster, "at": each.at, "why": each.text, "refused": each.refused} for each in job.passed
        ],
        "bids": [
            {"cluster": bid.cluster, "native_id": bid.native_id, "reason": bid.reason, "since": bid.at}
            for bid in job.bids
        ],
        "native_id": entry.native_id,
        "partition": job.partition or spec.partition,
        "account": spec.account,
        "qos": spec.qos,
        "comment": job.labels.get("comment", spec.comment),
        "work_dir": work_dir(entry),
        "command": shlex.join(origin.command) if not origin.file else shlex.quote(origin.file),
        "host": origin.host,
        "state": job.state.value,
        "reason": job.reason,
        "refusal": entry.refusal,
        "held": job.held,
        "expected_start": job.expected_start,
        "suspended": job.suspended,
        "suspended_at": job.suspended_at,
        "priority": job.priority,
        "nice": job.nice,
        "dependency": describe_dependency(job, entry.needed_arrays),
        "parent": spec.parent,
        "joined": list(joined),
        "array": _describe_array(entry, waiting),
        "element": None if job.element is None else job.element.ref,
        "submitted_at": job.submitted_at,
        "begin": job.begin,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "restarts": job.restarts,
        "requeue": spec.requeue is not False,
        "next_start": entry.retry_at if entry.retry_at is not None else min(next_starts, default=None),
        "notes": [
            *spec.notes,
            *(f"left {each.cluster}: {each.text}" for each in job.passed if each.launch is not None or each.raced),
        ],
        "tasks": [_describe_task(entry, offset) for offset in range(len(job.tasks))],
    }


def _describe_array(entry: JobEntry, wanted: Sequence[IndexRange]) -> Document | None:
    """Which elements of an array are no jobs yet, and never will be; those that are jobs are in the listings.

    `stdout` and `stderr` are where the wanted one, or each, will write.
    """
    array = entry.job.array
    if array is None:
        return None
    indices = [index for part in wanted[:1] for index in part.values()[:2]]
    stdout, stderr = element_paths(entry, indices[0] if len(indices) == len(wanted) == 1 else None)
    return {
        "stdout": stdout,
        "stderr": stderr,
        "waiting": format_array_indices(array.waiting),
        "throttle": array.throttle,
        "cancelled": format_array_indices(array.cancelled),
    }


def _describe_task(entry: JobEntry, offset: int) -> Document:
    job = entry.job
    task = job.tasks[offset]
    spec = job.spec_of(task.name)
    nodes, cpus, memory, gpus = sizes((given_spec(job, spec),))
    stdout, stderr, _ = stream_paths(entry, task.name)
    places = {place.index: place for place in job.placements if place.task == task.name}
    last = task.current
    return {
        "name": task.name,
        "offset": offset if len(job.tasks) > 1 else None,
        "raw_id": job.id + offset,
        "state": task.state.value,
        "reason": reason_of(job, task),
        "waits": describe_wait(job, task),
        "primary": spec.primary,
        "elastic": _describe_elastic(job, task.name),
        "nodes": nodes,
        "cpus": cpus,
        "memory": memory,
        "gpus": gpus,
        "node_list": compress(dict.fromkeys(place.node for place in places.values() if place.node)),
        "time_limit": limit_of(job, task.name),
        "started_at": started_at(task),
        "ended_at": task.ended_at,
        "suspended": last.suspended if last else 0.0,
        "exit_code": last.exit_code if last else 0,
        "signal": last.signal if last else 0,
        "restarts": task.restarts,
        "attempt": last.number if last else 0,
        "next_start": task.next_start,
        "ready_at": task.ready_at,
        "stdout": stdout,
        "stderr": stderr,
        "termination_delay": spec.termination_delay,
        "grace_period": spec.grace_period,
        "storage": _describe_storage(spec, last, places),
        "attempts": [_describe_attempt(attempt, places, attempt is last) for attempt in task.attempts],
    }


def _describe_elastic(job: Job, name: str) -> Document | None:
    """The bounds of an elastic task, how many members are wanted, and whether room adds more."""
    elastic = elastic_of(job, name)
    if elastic is None:
        return None
    sizes = {"min": elastic.least, "max": elastic.most, "wanted": wanted_size(job, name)}
    return {**sizes, "grows": may_grow(job, name)}


def _describe_storage(spec: TaskSpec, attempt: Attempt | None, places: dict[int, Placement]) -> list[Document]:
    """How programs of the newest attempt see each folder of an object store, and on which nodes.

    A folder that some nodes mount and others have a copy of is there twice; `state` is empty before the start.
    """
    rows: list[Document] = []
    started = [node for node in attempt.nodes if node.started_at is not None] if attempt else []
    for mount in spec.storage:
        usual = "cached" if mount.written else "copied"
        groups: dict[str, list[str]] = {}
        for node in started:
            groups.setdefault(node.storage if mount.read_through else usual, []).append(_name_node(node, places))
        mode = (MountMode.MOUNT if mount.read_through else mount.mode).value
        for words, names in (groups or {"": []}).items():
            state, _, why = words.partition(": ")
            # The query of a web address may be a signature.
            row = {"target": mount.target, "url": mount.url.partition("?")[0], "mode": mode}
            rows.append({**row, "state": state, "why": why, "nodes": list(dict.fromkeys(filter(None, names)))})
    return rows


def _describe_attempt(attempt: Attempt, places: dict[int, Placement], newest: bool) -> Document:
    return {
        "number": attempt.number,
        "state": attempt.state.value,
        "cause": attempt.cause.value if attempt.cause else None,
        "detail": attempt.detail,
        "launched_at": attempt.launched_at,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "exit_code": attempt.exit_code,
        "signal": attempt.signal,
        "nodes": [
            {
                "index": node.index,
                # Addresses and devices are those of the present grant alone.
                "node": _name_node(node, places if newest else {}),
                "address": places[node.index].address if newest and node.index in places else "",
                "gpus": list(places[node.index].gpus) if newest and node.index in places else [],
                "started_at": node.started_at,
                "ended_at": node.ended_at,
                "exit_code": node.exit_code,
                "signal": node.signal,
                "detail": node.detail,
            }
            for node in attempt.nodes
        ],
    }


def _name_node(node: NodeRun, places: dict[int, Placement]) -> str:
    """Where a node run is or was; empty where that is not known."""
    return node.node or (places[node.index].node if node.index in places else "")


def describe_end(job: Job, task: Task | None) -> Document:
    """Whether the job, or one task of it, is over, and how it ended."""
    if task is None:
        return {"over": job.over, "state": job.state.value, "exit_code": job.exit_code, "signal": job.signal}
    last = task.current
    # A task's end is final only when nothing can restart it any more.
    return {
        "over": task.over,
        "state": task.state.value,
        "exit_code": last.exit_code if last else 0,
        "signal": last.signal if last else 0,
    }
