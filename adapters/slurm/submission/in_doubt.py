"""Submissions in doubt: sbatch's answer was lost, so it may have made a job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from overspan.adapters.contract import Accepted, Refusal
from overspan.adapters.slurm.commands.sacct import AccountingRecord
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.observation.outcomes import Phase, judge
from overspan.adapters.slurm.observation.requeues import list_alive
from overspan.adapters.slurm.submission.arrays import Native

SubmissionAnswer = Accepted | Refusal
WANTED_SECONDS = 120.0
"""Seconds after the daemon's last call for which a missing answer is reported."""


@dataclass
class InDoubt:
    """A submission in doubt: since when and why, and how many look-ups in Slurm have not found it."""

    since: float
    job: int = 0
    looks: int = 0
    looked_at: float = 0.0
    why: str = ""
    held: bool = False
    """Whether it was submitted again, held until it is known to be the only one."""
    asked_at: float = 0.0
    """When the daemon last asked for its answer (monotonic time)."""


def describe_in_doubt(in_doubt: Iterable[InDoubt], now: float) -> str:
    """The message about submissions in doubt whose answers are wanted; empty where there are none."""
    wanted = [each for each in in_doubt if now - each.asked_at < WANTED_SECONDS]
    if not wanted:
        return ""
    why = next((f" ({each.why})" for each in wanted if each.why), "")
    others = f" and {len(wanted) - 1} more" if len(wanted) > 1 else ""
    return (
        f"submission unknown: Slurm has not said whether it has job {wanted[0].job}{others}{why}; "
        "it is looked up, and submitted again only when Slurm certainly does not have it"
    )


def read_native(answer: SubmissionAnswer) -> Native:
    """The native job of an accepted launch."""
    name = answer.native_id if isinstance(answer, Accepted) else ""
    job, _, index = name.partition("_")
    return Native(int(job), int(index) if index else None)


def find_newest(records: Sequence[QueueRecord], together: bool = False) -> QueueRecord | None:
    """The native job that counts among those of one token: a live one if there is any, then the one with the lowest id.

    `together`: the launch is of a set. Its native jobs that were cancelled while waiting do not count, because a set
    whose submission fails in part cancels the others.
    """
    counted = [record for record in records if not (together and was_taken_back(record))]
    alive = list_alive(counted) or counted
    return min(alive, key=lambda record: record.raw, default=None)


def was_taken_back(record: QueueRecord | AccountingRecord) -> bool:
    """Whether a job was cancelled before it got nodes."""
    return judge(record.state).phase is Phase.ENDED and not record.nodes
