"""JSON of jobs and steps for sacct --json, by the schema of data parser v0.0.40."""

from __future__ import annotations

from collections.abc import Sequence

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.tables.sacct_lines import AccountLine
from overspan.bridge.cli.tables.slurm_json import write_document
from overspan.bridge.cli.tables.steps import StepLine
from overspan.bridge.listings.fields import account_documents
from overspan.bridge.listings.values import Document, exit_status, number
from overspan.bridge.model.slurm.hostlists import expand


def write_accounts(call: Invocation, lines: Sequence[AccountLine], now: float) -> None:
    """Write the document of a listing: steps stand behind their jobs."""
    jobs: list[tuple[AccountLine, list[AccountLine]]] = []
    for line in lines:
        if line.step is None:
            jobs.append((line, []))
        else:
            jobs[-1][1].append(line)
    documents = account_documents((line for line, _ in jobs), now)
    for document, (_, steps) in zip(documents, jobs):
        document["steps"] = [_step(line, line.step, now) for line in steps if line.step]
    write_document(call, {"jobs": documents}, lines[0].row.cluster if lines else "")


def _step(line: AccountLine, step: StepLine, now: float) -> Document:
    state, _, user = step.state.partition(" by ")
    return {
        "time": {key: value for key, value in line.times(now).items() if key != "eligible"},
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
        "tres": {"allocated": line.tres_amounts()},
    }
