"""Requeues by Slurm: whether a native job may run again, and which of its runs is a job's next launch. Pure.

A requeued job keeps its native id. Its count of restarts goes up with the requeue, while it still shows COMPLETING for
as long as the former run takes to end (KillWait, an epilog, a node that does not answer), and then PENDING (BeginTime,
or held) or SPECIAL_EXIT (measured on 22.05; squeue(1), JOB STATE CODES).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from overspan.adapters.slurm.commands.sacct import AccountingRecord
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.commands.states import NativeState
from overspan.adapters.slurm.observation.outcomes import FLAGS, Phase, judge

BACK = frozenset({"REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
"""Flags of a job that waits again, or is about to."""
FAILED_STARTS = frozenset({"LAUNCH_FAILED", "RECONFIG_FAIL"})
"""Flags of a failed start: with nodes the job has ended, without nodes it waits again, held."""
_HOLDS = ("JobHeld", "JobHoldMaxRequeue")


class Future(StrEnum):
    """What a native job may still do."""

    RUNS = "runs"
    """It waits, runs, or comes back."""
    UNCLEAR = "unclear"
    """A run is ending, and Slurm does not show yet whether there will be another."""
    OVER = "over"
    """It never runs again unless a user or an operator requeues it by hand."""


def foresee(state: NativeState, has_nodes: bool = False) -> Future:
    """What a native job in that state may still do."""
    if state.flags & BACK:
        return Future.RUNS
    if state.flags & FAILED_STARTS:
        return Future.OVER if has_nodes or state.base not in ("", "PENDING") else Future.RUNS
    ending = any(FLAGS[flag].phase is Phase.ENDING for flag in state.flags)
    if ending and state.base == "PENDING":
        # Requeued; its former run is ending.
        return Future.RUNS
    phase = judge(state).phase
    if phase is Phase.ENDING:
        return Future.UNCLEAR
    return Future.OVER if phase is Phase.ENDED else Future.RUNS


def is_held(reason: str) -> bool:
    """Whether a reason to wait is a hold, which lasts until a user or an operator releases the job."""
    return reason.startswith(_HOLDS)


def is_back(record: QueueRecord, run: int) -> bool:
    """Whether a job waits for that run or is about to, by its flags: the count of restarts may lag behind them."""
    flagged = record.state.flags & BACK or (record.state.flags & FAILED_STARTS and not record.nodes)
    return run > 0 and bool(flagged) and record.restarts <= run


@dataclass(frozen=True)
class Successor:
    """The native job that becomes a launch, and the number of its run; None while Slurm does not show it yet."""

    record: QueueRecord
    run: int | None


def find_successor(earlier: Iterable[tuple[int, Sequence[QueueRecord]]]) -> Successor | None:
    """The native job whose next run is the launch; None if every native job of the earlier launches is over.

    `earlier` are the launches before this one, newest first: how many launches ago each was, and the native jobs with
    its token. Each launch is one run, so a job with the token of the launch before last is in its third run. A run
    that started and ended between two queries is the launch too: what Slurm has run is not run again.
    """
    for run, records in earlier:
        for record in sorted(records, key=lambda one: (_foresee(one) is Future.OVER, one.raw)):
            future = _foresee(record)
            if record.restarts >= run or is_back(record, run):
                return Successor(record, run)
            if future is not Future.OVER:
                return Successor(record, record.restarts if future is Future.RUNS else None)
    return None


def list_alive(records: Iterable[QueueRecord]) -> list[QueueRecord]:
    """The records of jobs that run or may run again."""
    return [record for record in records if _foresee(record) is not Future.OVER]


def may_be_unstarted(record: QueueRecord, run: int) -> bool:
    """Whether a failed run of a requeued job may never have started its program.

    If it starts in the second in which the former run's credential is revoked, Slurm ends it at once with exit code 1
    (slurmctld: "Killing non-startable batch job: Job credential revoked"; measured on 22.05). A program that fails
    within a second looks the same; only the batch step tells the two apart (`is_unstarted`).
    """
    moments = {record.start, record.end}
    at_once = len(moments) == 1 and None not in moments
    return run > 0 and record.state.base == "FAILED" and record.exit == (1, 0) and at_once


def is_unstarted(record: QueueRecord, step: AccountingRecord | None) -> bool | None:
    """Whether such a run never started its program: its batch step was cancelled without an exit code.

    None while the accounting does not have the end of that step.
    """
    if step is None or (step.start or 0.0) < (record.start or 0.0) or foresee(step.state) is not Future.OVER:
        return None
    return step.state.base == "CANCELLED" and step.exit is None


def _foresee(record: QueueRecord) -> Future:
    return foresee(record.state, bool(record.nodes))
