"""Submissions in doubt: sbatch's answer was lost, so it may have made a job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from overspan.adapters.contract import Accepted, Refusal
from overspan.adapters.slurm.commands.sacct import AccountingRecord
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.observation.outcomes import Phase, judge
from overspan.adapters.slurm.observation.requeues import is_held, list_alive
from overspan.adapters.slurm.submission.arrays import Native, native_of

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


class FoundNative(NamedTuple):
    """The native job that is the launch's, whether it waits for its release, and others that have to be cancelled."""

    native: Native
    held: bool = False
    surplus: tuple[Native, ...] = ()


def choose_native(records: Sequence[QueueRecord], index: int | None, together: bool = False) -> FoundNative | None:
    """The native job that counts among those of one token; None where there is none.

    What was submitted again is held until it is known to be the only one: it is surplus where another runs, or has run.
    `together`: the launch is of a set, all of whose native jobs are held at first. Those that were cancelled while
    waiting do not count there, because a set whose submission fails in part cancels the others.
    """
    counted = [record for record in records if not (together and was_taken_back(record))]
    held = sorted({native_of(record, index) for record in counted if _waits_held(record)})
    if not held:
        newest = find_newest(counted)
        return None if newest is None else FoundNative(native_of(newest, index))
    # A surplus one that was cancelled has not run.
    others = [one for one in counted if native_of(one, index) not in held and not was_taken_back(one)]
    newest = find_newest(others)
    if newest is not None:
        return FoundNative(native_of(newest, index), surplus=tuple(held))
    return FoundNative(held[0], True, tuple(held[1:]))


def find_newest(records: Sequence[QueueRecord]) -> QueueRecord | None:
    """A live native job if there is any, then one that has had nodes, then the one with the lowest id."""
    had_nodes = [record for record in records if not was_taken_back(record)]
    return min(list_alive(records) or had_nodes or records, key=lambda record: record.raw, default=None)


def _waits_held(record: QueueRecord) -> bool:
    """Whether a job has never run, and is held."""
    return judge(record.state).phase is Phase.QUEUED and is_held(record.reason) and not record.restarts


def was_taken_back(record: QueueRecord | AccountingRecord) -> bool:
    """Whether a job was cancelled before it got nodes."""
    return judge(record.state).phase is Phase.ENDED and not record.nodes
