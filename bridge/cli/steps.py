"""Job steps as squeue -s, sacct and scontrol show them: the batch step of each script. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from overspan.bridge.cli.layout import Column
from overspan.bridge.cli.row_texts import first_node, format_time, time_used, user_id
from overspan.bridge.client.records import JobRow

BATCH = "batch"
STEP_FORMAT = "%.15i %.8j %.9P %.8u %.9M %N"
_RUNS = frozenset({"RUNNING", "SUSPENDED", "COMPLETING"})


def has_batch_step(row: JobRow) -> bool:
    """Whether a batch step of the row has started: the script runs in the first part of a job."""
    return row.batch and row.started_at is not None and not row.task_offset


def batch_steps(rows: Iterable[JobRow], chosen: Collection[str] = ()) -> list[JobRow]:
    """The rows whose batch step runs; `chosen` are ids of jobs or steps, none for all."""
    wanted = {ref.partition(".")[0] for ref in chosen}
    rows = [row for row in rows if row.state in _RUNS and has_batch_step(row)]
    return [row for row in rows if not wanted or wanted & {row.ref, str(row.raw_id)}]


def step_id(row: JobRow, now: float = 0) -> str:
    """The batch step's id: `N.batch`, `N_i.batch`; of a group N is its number."""
    return f"{row.id if row.task_offset is not None else row.ref}.{BATCH}"


STEP_LETTERS: dict[str, Column] = {
    "A": Column("TASKS", 0, lambda row, now: "1"),
    "b": Column("TRES_PER_JOB", 0, lambda row, now: "(null)"),
    "i": Column("STEPID", 0, step_id),
    "j": Column("NAME", 0, lambda row, now: BATCH),
    "l": Column("TIME_LIMIT", 0, lambda row, now: "UNLIMITED", cut=False),
    "M": Column("TIME", 0, time_used, cut=False),
    "N": Column("NODELIST", 0, first_node, cut=False, cut_header=False),
    "P": Column("PARTITION", 0, lambda row, now: row.partition),
    "S": Column("START_TIME", 0, lambda row, now: format_time(row.started_at)),
    "u": Column("USER", 0, lambda row, now: row.user),
    "U": Column("UID", 0, user_id),
}
