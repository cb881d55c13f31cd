"""Accounts as sacct --json writes them, in the shape of data parser v0.0.40."""

from __future__ import annotations

from collections.abc import Sequence

from overspan.bridge.cli.accounts import Account
from overspan.bridge.cli.call import Call
from overspan.bridge.cli.column_names import eligible_at
from overspan.bridge.cli.documents import Document, exit_status, number, write_document
from overspan.bridge.cli.row_texts import first_node, group_name, is_held, priority
from overspan.bridge.cli.steps import has_batch_step
from overspan.bridge.client.records import JobRow

_NO_TIME = {"seconds": 0, "microseconds": 0}


def write_accounts(call: Call, rows: Sequence[JobRow], now: float) -> None:
    """Write the document of a listing."""
    write_document(call, {"jobs": [account_document(row, now) for row in rows]}, rows[0].cluster if rows else "")


def account_document(row: JobRow, now: float) -> Document:
    """One job, element, task of a group, or the pending rest of an array, with its batch step."""
    account = Account(row)
    het = row.task_offset is not None
    return {
        "account": row.account,
        "allocation_nodes": row.nodes if account.started else 0,
        "array": _array(row),
        "association": {"account": row.account, "cluster": row.cluster, "partition": "", "user": row.user, "id": 0},
        "block": "",
        "cluster": row.cluster,
        "comment": {"administrator": "", "job": row.comment, "system": ""},
        "constraints": row.options.get("constraint") or "",
        "container": "",
        "derived_exit_code": exit_status(0, 0),
        "exit_code": exit_status(row.exit_code, row.signal),
        "extra": "",
        "failed_node": "",
        "flags": [],
        "group": group_name(row),
        "het": {"job_id": row.id if het else 0, "job_offset": number(row.task_offset)},
        "hold": is_held(row),
        "job_id": row.raw_id,
        "kill_request_user": str(row.ended_by_uid) if row.ended_by_uid is not None else "",
        "licenses": row.options.get("licenses") or "",
        "mcs": {"label": ""},
        "name": row.name,
        "nodes": row.node_list or "None assigned",
        "partition": row.partition,
        "priority": number(priority(row)),
        "qos": row.qos or "normal",
        "required": _required(row),
        "reservation": {"id": 0, "name": row.options.get("reservation") or ""},
        "script": "",
        "state": {"current": [row.state], "reason": row.reason},
        "steps": [_step(row, now)] if has_batch_step(row) else [],
        "submit_line": row.submit_line,
        "time": {**_times(row, now), "limit": _limit(row), "submission": int(row.submitted_at or 0)},
        "tres": {"allocated": _tres(account) if account.started else [], "requested": _tres(account)},
        "used_gres": "",
        "user": row.user,
        "wckey": {"wckey": row.options.get("wckey") or "", "flags": []},
        "working_directory": row.work_dir,
    }


def _array(row: JobRow) -> Document:
    indices, _, throttle = row.array_waiting.partition("%")
    return {
        "job_id": row.array_id or 0,
        "limits": {"max": {"running": {"tasks": int(throttle or 0)}}},
        "task_id": number(row.array_index),
        "task": indices,
    }


def _required(row: JobRow) -> Document:
    return {
        "CPUs": row.cpus,
        "memory_per_cpu": number(row.memory_per_cpu),
        "memory_per_node": number(None if row.memory_per_cpu else row.memory),
    }


def _times(row: JobRow, now: float) -> Document:
    return {
        "elapsed": Account(row).elapsed(now),
        "eligible": int(eligible_at(row) or 0),
        "end": int(row.ended_at or 0),
        "start": int(row.started_at or 0),
        "suspended": 0,
        "system": _NO_TIME,
        "total": _NO_TIME,
        "user": _NO_TIME,
    }


def _limit(row: JobRow) -> Document:
    return number(None if row.time_limit is None else -(-row.time_limit // 60), row.time_limit is None)


def _step(row: JobRow, now: float) -> Document:
    step = Account(row, True)
    code, _, signal = step.exit_text.partition(":")
    return {
        "time": {key: value for key, value in _times(row, now).items() if key != "eligible"},
        "exit_code": exit_status(int(code), int(signal)),
        "nodes": {"count": 1, "range": first_node(row), "list": [first_node(row)]},
        "tasks": {"count": 1},
        "pid": "",
        "CPU": {"requested_frequency": {"min": number(0), "max": number(0)}, "governor": "0"},
        "kill_request_user": "",
        "state": [step.state],
        "statistics": {"CPU": {"actual_frequency": 0}, "energy": {"consumed": number(None)}},
        "step": {"id": step.raw_id, "name": "batch"},
        "task": {"distribution": "Unknown"},
        "tres": {"allocated": _tres(step)},
    }


def _tres(account: Account) -> list[Document]:
    amounts = [("cpu", "", 1, account.cpus), ("mem", "", 2, account.row.memory * max(account.nodes, 1))]
    amounts.append(("node", "", 4, account.nodes))
    if account.row.gpus:
        amounts.append(("gres", "gpu", 1001, int(account.row.gpus)))
    return [{"type": kind, "name": name, "id": key, "count": count} for kind, name, key, count in amounts]
