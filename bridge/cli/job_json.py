"""JSON of jobs for squeue --json and scontrol show job --json, by the schema of data parser v0.0.40."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.row_texts import (
    cpus_per_node,
    describe_gpus,
    first_node,
    group_name,
    is_held,
    planned_start,
    priority,
    reason_word,
    shortest_time,
    tres,
)
from overspan.bridge.cli.slurm_json import Document, exit_status, number, write_document
from overspan.bridge.cli.squeue_fields import eligible_at, tasks_of
from overspan.bridge.client.records import JobRow
from overspan.bridge.model.hostlists import expand


def write_jobs(call: Invocation, rows: Sequence[JobRow], now: float) -> None:
    """Write the document of a listing."""
    content = {
        "jobs": [job_document(row, now) for row in rows],
        "last_backfill": number(int(now)),
        "last_update": number(int(now)),
    }
    write_document(call, content, rows[0].cluster if rows else "")


def job_document(row: JobRow, now: float) -> Document:
    """One job, element, task of a group, or the pending rest of an array."""
    return {**_identity(row), **_standing(row, now), **_times(row), **_resources(row), **_absent(row)}


def _identity(row: JobRow) -> Document:
    array, het = row.array_id is not None, row.task_offset is not None
    waiting, _, throttle = row.array_waiting.partition("%")
    return {
        "account": row.account,
        "allocating_node": row.host,
        "array_job_id": number(row.array_id or 0),
        "array_task_id": number(row.array_index if array else None),
        "array_max_tasks": number(int(throttle or 0)),
        "array_task_string": waiting,
        "batch_flag": row.batch,
        "cluster": row.cluster,
        "command": row.command,
        "comment": row.comment,
        "current_working_directory": row.work_dir,
        "group_id": row.gid or 0,
        "group_name": group_name(row),
        "het_job_id": number(row.id if het else 0),
        "het_job_id_set": f"{row.id}-{row.id + row.tasks - 1}" if het else "",
        "het_job_offset": number(row.task_offset or 0),
        "job_id": row.raw_id,
        "name": row.name,
        "partition": row.partition,
        "qos": row.qos or "normal",
        "standard_error": row.stderr or row.stdout,
        "standard_input": row.stdin or "/dev/null",
        "standard_output": row.stdout,
        "user_id": row.uid or 0,
        "user_name": row.user,
    }


def _standing(row: JobRow, now: float) -> Document:
    return {
        "dependency": row.dependency,
        "derived_exit_code": exit_status(0, 0),
        "exit_code": exit_status(row.exit_code, row.signal),
        "flags": [],
        "hold": is_held(row),
        "job_state": [row.state],
        "nice": row.nice,
        "priority": number(priority(row)),
        "requeue": row.requeue,
        "restart_cnt": row.restarts,
        "state_description": "",
        "state_reason": reason_word(row),
    }


def _times(row: JobRow) -> Document:
    begin = planned_start(row)
    end = row.ended_at or row.end_limit
    return {
        "accrue_time": number(_whole(eligible_at(row))),
        "deadline": number(_whole(row.deadline)),
        "delay_boot": number(0),
        "eligible_time": number(_whole(eligible_at(row))),
        "end_time": number(_whole(end)),
        "last_sched_evaluation": number(_whole(row.started_at or row.submitted_at)),
        "pre_sus_time": number(0),
        "preempt_time": number(0),
        "preemptable_time": number(0),
        "resize_time": number(0),
        "start_time": number(_whole(begin if row.state == "PENDING" else row.started_at)),
        "submit_time": number(_whole(row.submitted_at)),
        "suspend_time": number(_whole(row.paused_at)),
        "time_limit": number(None if row.time_limit is None else -(-row.time_limit // 60), row.time_limit is None),
        "time_minimum": number((shortest_time(row) or 0) // 60),
    }


def _resources(row: JobRow) -> Document:
    alloc = tres(row) if row.started_at is not None and row.state != "PENDING" else ""
    return {
        "batch_host": first_node(row) if row.node_list else "",
        "billable_tres": number(row.cpus),
        "cpus": number(row.cpus),
        "cpus_per_task": number(row.cpus_per_task or 1),
        "excluded_nodes": row.options.get("exclude") or "",
        "features": row.options.get("constraint") or "",
        "job_resources": _job_resources(row),
        "job_size_str": [],
        "licenses": row.options.get("licenses") or "",
        "max_cpus": number(0),
        "max_nodes": number(0),
        "memory_per_cpu": number(row.memory_per_cpu),
        "memory_per_node": number(None if row.memory_per_cpu else row.memory),
        "minimum_cpus_per_node": number(int(cpus_per_node(row))),
        "minimum_tmp_disk_per_node": number(0),
        "node_count": number(row.nodes),
        "nodes": row.node_list,
        "required_nodes": row.options.get("nodelist") or "",
        "resv_name": row.options.get("reservation") or "",
        "scheduled_nodes": "",
        "shared": ["none"] if "exclusive" in row.options else [],
        "tasks": number(tasks_of(row)),
        "tasks_per_node": number(row.ntasks_per_node or 0),
        "tres_alloc_str": alloc,
        "tres_per_node": describe_gpus(row) if row.gpus else "",
        "tres_req_str": tres(row),
        "wckey": row.options.get("wckey") or "",
    }


def _job_resources(row: JobRow) -> Document | None:
    """Resources on each node; empty while the job waits."""
    if not row.node_list:
        return None
    names = expand(row.node_list)
    share = row.cpus // max(len(names), 1)
    nodes = [
        {"nodename": name, "cpus_used": share, "memory_used": 0, "memory_allocated": row.memory, "sockets": {}}
        for name in names
    ]
    return {
        "nodes": row.node_list,
        "allocated_cores": row.cpus,
        "allocated_cpus": row.cpus,
        "allocated_hosts": len(names),
        "allocated_nodes": nodes,
    }


def _absent(row: JobRow) -> Document:
    """Constants for fields of the schema that no job has here."""
    texts = "admin_comment batch_features burst_buffer burst_buffer_state cluster_features container container_id"
    texts += " cpus_per_tres cron extra failed_node federation_origin federation_siblings_active"
    texts += " federation_siblings_viable mail_user mcs_label memory_per_tres network prefer selinux_context"
    texts += " system_comment tres_bind tres_freq tres_per_job tres_per_socket tres_per_task"
    numbers = "cores_per_socket cpu_frequency_governor cpu_frequency_maximum cpu_frequency_minimum sockets_per_node"
    numbers += " tasks_per_board tasks_per_core tasks_per_socket tasks_per_tres threads_per_core"
    lists = ("gres_detail", "mail_type", "profile", "show_flags", "exclusive")
    values: dict[str, Any] = {
        **dict.fromkeys(texts.split(), ""),
        **{name: number(None) for name in numbers.split()},
        **{name: [] for name in lists},
    }
    return {
        **values,
        "association_id": 0,
        "contiguous": "contiguous" in row.options,
        "core_spec": 0,
        "thread_spec": 0,
        "maximum_switch_wait_time": 0,
        "minimum_switches": 0,
        "oversubscribe": "exclusive" not in row.options,
        "power": {"flags": []},
        "reboot": False,
        "sockets_per_board": 0,
    }


def _whole(epoch: float | None) -> int:
    """Seconds; 0 where Slurm knows no time."""
    return int(epoch or 0)
