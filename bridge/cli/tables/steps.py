"""Job steps as squeue -s, sacct, sstat and scontrol show them: the batch step of a script, and what srun ran. Pure.

A group's task that runs is a step for squeue, sstat and scontrol; sacct has a line for it anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from overspan.bridge.listings.layout import Column
from overspan.bridge.listings.rows import JobRow, StepRow
from overspan.bridge.listings.texts import first_node, format_time, seconds_used, time_used, user_id
from overspan.bridge.model.durations import format_elapsed

BATCH = "batch"
STEP_FORMAT = "%.15i %.8j %.9P %.8u %.9M %N"
RUNNING = "RUNNING"
_RUNS = frozenset({RUNNING, "SUSPENDED", "COMPLETING"})
_TERM, _KILL = 15, 9


class StepLine(NamedTuple):
    """A step of a row: the batch step, the program of a group's task, or what srun ran."""

    row: JobRow
    id: str = BATCH
    """The part of the id after the dot."""
    name: str = BATCH
    state: str = RUNNING
    exit_code: int = 0
    signal: int = 0
    ntasks: int = 1
    nodes: int = 1
    cpus: int = 1
    node_list: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    layout: str = "Unknown"
    submit_line: str = ""
    srun: str = "(null):0"
    """Host and process of its srun."""

    @property
    def ref(self) -> str:
        """`N.S`, `N_i.S`; in a group N is the task's own number."""
        return f"{self.row.ref if self.row.task_offset is None else self.row.raw_id}.{self.id}"

    @property
    def batch(self) -> bool:
        """Whether it is the script."""
        return self.id == BATCH

    @property
    def exit_text(self) -> str:
        """CODE:SIGNAL."""
        return f"{self.exit_code}:{self.signal}"

    def elapsed(self, now: float) -> int:
        """Wall seconds."""
        if self.batch:
            return int(seconds_used(self.row, now))
        end = now if self.ended_at is None else self.ended_at
        return max(0, int(end - (self.started_at or end)))


StepsByJob = dict[int, list[StepRow]]
"""The steps of srun by their jobs."""


def gather_steps(steps: Iterable[StepRow]) -> StepsByJob:
    """Group the steps of a listing by job."""
    found: StepsByJob = {}
    for step in steps:
        found.setdefault(step.job_id, []).append(step)
    return found


def list_steps(row: JobRow, found: StepsByJob) -> list[StepLine]:
    """The steps of a row: the script first, as sacct has them."""
    own = [step for step in found.get(row.id, ()) if row.task_offset in (None, step.task_offset)]
    return [*([batch_step(row)] if has_batch_step(row) else []), *(srun_step(row, step) for step in own)]


def running_steps(rows: Iterable[JobRow], found: StepsByJob) -> list[StepLine]:
    """The steps of rows that run."""
    running = (row for row in rows if row.state in _RUNS)
    steps = (step for row in running for step in [*_task_steps(row), *list_steps(row, found)])
    return [step for step in steps if step.state in _RUNS]


def choose_steps(steps: Iterable[StepLine], chosen: Collection[str]) -> list[StepLine]:
    """The steps that ids of jobs or steps name; no ids name all."""
    return [step for step in steps if not chosen or any(is_named(step.row, step.id, ref) for ref in chosen)]


def is_named(row: JobRow, step: str, ref: str) -> bool:
    """Whether an id is that of the row, or of this step of it."""
    job, _, own = ref.partition(".")
    return job in {row.ref, str(row.raw_id), str(row.array_id or row.id)} and own in ("", step)


def has_batch_step(row: JobRow) -> bool:
    """Whether a batch step of the row has started: the script runs in the first part of a job."""
    return row.batch and row.started_at is not None and not row.task_offset


def batch_step(row: JobRow) -> StepLine:
    """The batch step of a row that has one. A script that a signal ended is CANCELLED (measured on Slurm 22.05)."""
    stopped = row.state in ("TIMEOUT", "CANCELLED", "PREEMPTED", "REQUEUED")
    code, signal = (0, row.signal or _TERM) if stopped else (row.exit_code, row.signal)
    if row.state == "OUT_OF_MEMORY":
        code, signal = 0, 125
    return StepLine(
        row,
        state="CANCELLED" if row.state in ("TIMEOUT", "CANCELLED", "REQUEUED") or row.signal else row.state,
        exit_code=code,
        signal=signal,
        cpus=_cpus_of(row, 1),
        node_list=first_node(row),
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def _task_steps(row: JobRow) -> list[StepLine]:
    """The step of a group's task that has started: its program, once on each of its nodes."""
    if not row.group or row.task_offset is None or row.batch or row.started_at is None:
        return []
    step = StepLine(row, name=row.name, state=row.state, node_list=row.node_list, started_at=row.started_at)
    return [step._replace(ntasks=row.nodes, nodes=row.nodes, cpus=row.cpus)]


def srun_step(row: JobRow, step: StepRow) -> StepLine:
    """A step of srun. What was killed unseen ended with its job, at the latest."""
    lost = step.ended_at is None and not step.running
    code, signal = (0, _KILL) if lost else (step.exit_code, step.signal)
    state = "SUSPENDED" if row.state == "SUSPENDED" else RUNNING
    if step.ended_at is not None or lost:
        # Slurm calls every step CANCELLED that a signal ended, its own too.
        state = "CANCELLED" if signal else "FAILED" if code else "COMPLETED"
    if step.cancelled and row.uid is not None:
        state = f"CANCELLED by {row.uid}"
    return StepLine(
        row,
        id=str(step.number) if step.component is None else f"{step.number}+{step.component}",
        name=step.name,
        state=state,
        exit_code=code,
        signal=signal,
        ntasks=step.ntasks,
        nodes=step.nodes,
        cpus=step.cpus or _cpus_of(row, step.nodes),
        node_list=step.node_list,
        started_at=step.started_at,
        ended_at=row.ended_at if lost else step.ended_at,
        layout=step.layout,
        submit_line=step.submit_line,
        srun=f"{step.host or '(null)'}:{step.pid}",
    )


def _cpus_of(row: JobRow, nodes: int) -> int:
    return row.cpus if nodes == row.nodes else max(1, row.cpus // max(row.nodes, 1)) * nodes


def derived_exit(steps: Sequence[StepLine]) -> tuple[int, int]:
    """The exit code and signal of a job that come from its steps: the highest as wait(2) has them, 0:0 for none."""
    ends = [(step.exit_code, step.signal) for step in steps if not step.batch and step.ended_at is not None]
    return max(ends, default=(0, 0))


def order_by_number(steps: Iterable[StepLine]) -> list[StepLine]:
    """squeue's order: within a row the script comes last."""
    lines: dict[str, list[StepLine]] = {}
    for step in steps:
        lines.setdefault(step.row.ref, []).append(step)
    return [step for line in lines.values() for step in sorted(line, key=lambda step: step.batch)]


def _time(step: StepLine, now: float) -> str:
    return time_used(step.row, now) if step.batch else format_elapsed(step.elapsed(now))


STEP_LETTERS: dict[str, Column] = {
    "A": Column("TASKS", 0, lambda step, now: str(step.ntasks)),
    "b": Column("TRES_PER_JOB", 0, lambda step, now: "(null)"),
    "i": Column("STEPID", 0, lambda step, now: step.ref),
    "j": Column("NAME", 0, lambda step, now: step.name),
    "l": Column("TIME_LIMIT", 0, lambda step, now: "UNLIMITED", cut=False),
    "M": Column("TIME", 0, _time, cut=False),
    "N": Column("NODELIST", 0, lambda step, now: step.node_list, cut=False, cut_header=False),
    "P": Column("PARTITION", 0, lambda step, now: step.row.partition),
    "S": Column("START_TIME", 0, lambda step, now: format_time(step.started_at)),
    "u": Column("USER", 0, lambda step, now: step.row.user),
    "U": Column("UID", 0, lambda step, now: user_id(step.row)),
}
