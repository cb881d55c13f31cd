"""JSON of jobs and steps for sacct --json, by the schema of data parser v0.0.40."""

from __future__ import annotations

from collections.abc import Sequence

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.row_texts import group_name, is_held, priority
from overspan.bridge.cli.sacct_lines import AccountLine
from overspan.bridge.cli.slurm_json import Document, exit_status, number, write_document
from overspan.bridge.cli.steps import StepLine
from overspan.bridge.client.records import JobRow
from overspan.bridge.model.hostlists import expand

_NO_TIME = {"seconds": 0, "microseconds": 0}


def write_accounts(call: Invocation, lines: Sequence[AccountLine], now: float) -> None:
    """Write the document of a listing: steps stand behind their jobs."""
    jobs: list[tuple[AccountLine, list[AccountLine]]] = []
    for line in lines:
        if line.step is None:
            jobs.append((line, []))
        else:
            jobs[-1][1].append(line)
    documents = [account_document(line, steps, now) for line, steps in jobs]
    write_document(call, {"jobs": documents}, lines[0].row.cluster if lines else "")


def account_document(account: AccountLine, steps: Sequence[AccountLine], now: float) -> Document:
    """One job, element, task of a group, or the pending rest of an array, with its steps."""
    row = account.row
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
        "derived_exit_code": exit_status(*account.derived),
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
        "steps": [_step(line, line.step, now) for line in steps if line.step],
        "submit_line": row.submit_line,
        "time": {**_times(account, now), "limit": _limit(row), "submission": int(row.submitted_at or 0)},
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


def _times(account: AccountLine, now: float) -> Document:
    return {
        "elapsed": account.elapsed(now),
        "eligible": int(account.eligible_at or 0),
        "end": int(account.ended_at or 0),
        "start": int(account.started_at or 0),
        "suspended": 0,
        "system": _NO_TIME,
        "total": _NO_TIME,
        "user": _NO_TIME,
    }


def _limit(row: JobRow) -> Document:
    return number(None if row.time_limit is None else -(-row.time_limit // 60), row.time_limit is None)


def _step(line: AccountLine, step: StepLine, now: float) -> Document:
    state, _, user = step.state.partition(" by ")
    return {
        "time": {key: value for key, value in _times(line, now).items() if key != "eligible"},
        "exit_code": exit_status(step.exit_code, step.signal),
        "nodes": {"count": step.nodes, "range": step.node_list, "list": expand(step.node_list)},
        "tasks": {"count": step.ntasks},
        "pid": "",
        "CPU": {"requested_frequency": {"min": number(0), "max": number(0)}, "governor": "0"},
        "kill_request_user": user,
        "state": [state],
        "statistics": {"CPU": {"actual_frequency": 0}, "energy": {"consumed": number(None)}},
        "step": {"id": line.raw_id, "name": step.name},
        "task": {"distribution": step.layout},
        "tres": {"allocated": _tres(line)},
    }


def _tres(account: AccountLine) -> list[Document]:
    amounts = [("cpu", "", 1, account.cpus), ("mem", "", 2, account.row.memory * max(account.nodes, 1))]
    amounts.append(("node", "", 4, account.nodes))
    if account.row.gpus:
        amounts.append(("gres", "gpu", 1001, int(account.row.gpus)))
    return [{"type": kind, "name": name, "id": key, "count": count} for kind, name, key, count in amounts]
