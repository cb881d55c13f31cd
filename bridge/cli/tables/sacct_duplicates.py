"""`sacct --duplicates`: a row for each run of a job that was requeued or restarted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from overspan.bridge.cli.tables.steps import StepLine
from overspan.bridge.client.records import JobFilter
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.slurm.hostlists import compress

REQUEUED = "REQUEUED"
UNKNOWN = "Unknown"
_BY_ORDER = ("requeue", "restart", "group_restart")
"""Causes of ends that were no failure: a user, or a restart of the group, ended the run."""


def has_runs(row: JobRow) -> bool:
    """Whether a row may have had a run before its present one."""
    return bool(row.restarts or row.attempt) and not row.array_waiting


def split_runs(row: JobRow, document: Mapping[str, Any]) -> list[JobRow]:
    """A row for each run of a row, oldest first; `document` is the whole job as the API shows it.

    Each run but the first was submitted when the one before it had ended, as in Slurm.
    """
    tasks: Sequence[Mapping[str, Any]] = document.get("tasks") or ()
    offset = row.task_offset or 0
    attempts = list(tasks[offset].get("attempts") or ()) if offset < len(tasks) else []
    if attempts and _is_present(attempts[-1], row):
        attempts.pop()
    runs, submitted = [], row.submitted_at
    for attempt in attempts:
        runs.append(_run_row(row, attempt)._replace(submitted_at=submitted))
        submitted = attempt.get("ended_at") or submitted
    return [*runs, row._replace(submitted_at=submitted)]


def _is_present(attempt: Mapping[str, Any], row: JobRow) -> bool:
    """Whether the row shows the last attempt. A job that waits again shows none yet."""
    return attempt.get("ended_at") is None or (row.ended_at is not None and row.started_at is not None)


def _run_row(row: JobRow, attempt: Mapping[str, Any]) -> JobRow:
    again = attempt.get("cause") in _BY_ORDER
    return row._replace(
        state=REQUEUED if again else str(attempt.get("state")),
        reason="None",
        node_list=_list_nodes(attempt) or UNKNOWN,
        started_at=attempt.get("started_at") or attempt.get("launched_at"),
        ended_at=attempt.get("ended_at"),
        exit_code=0 if again else int(attempt.get("exit_code") or 0),
        signal=0 if again else int(attempt.get("signal") or 0),
        attempt=int(attempt.get("number") or 0),
        paused=0.0,
        paused_at=None,
    )


def _list_nodes(attempt: Mapping[str, Any]) -> str:
    """The nodes it ran on; empty where they were not recorded."""
    return compress(dict.fromkeys(node["node"] for node in attempt.get("nodes") or () if node.get("node")))


def choose_runs(rows: Iterable[JobRow], wanted: JobFilter) -> list[JobRow]:
    """The runs within the requested states and times."""
    chosen = []
    for row in rows:
        late = wanted.until is not None and (row.started_at or row.submitted_at or 0) > wanted.until
        early = wanted.since is not None and row.ended_at is not None and row.ended_at < wanted.since
        if not (late or early) and (not wanted.states or row.state in wanted.states):
            chosen.append(row)
    return chosen


def is_of_run(row: JobRow, step: StepLine) -> bool:
    """Whether a step ran in that run of its job."""
    if step.batch:
        return True
    if row.started_at is None or step.started_at is None:
        return False
    return int(row.started_at) <= step.started_at <= (row.ended_at or step.started_at)
