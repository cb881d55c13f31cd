"""What Slurm has of jobs, as records for the tests of the Slurm adapter."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.adapters.slurm.samples import NOW

from overspan.adapters.slurm.commands.listings import TimeLimit
from overspan.adapters.slurm.commands.sacct import AccountingRecord
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.commands.states import read_state

ENDED = AccountingRecord(
    shown="42",
    raw=42,
    array_job=None,
    array_index=None,
    rest="",
    het_job=None,
    het_offset=None,
    step="",
    state=read_state("COMPLETED"),
    reason="None",
    exit=None,
    derived=None,
    name="train",
    partition="gpu",
    submit=NOW,
    start=NOW + 5,
    end=NOW + 9,
    elapsed=4,
    limit=TimeLimit(None),
    num_nodes=1,
    nodes=("n1",),
    user="ada",
    comment="",
)


def mark(token: str) -> str:
    """A submit line with a token."""
    return f"sbatch --parsable --comment=mine overspan={token}"


def run(line: str, state: str = "COMPLETED", at: float = NOW, comment: str = "") -> AccountingRecord:
    """One run of a job in the accounting."""
    return replace(ENDED, state=read_state(state), submit=at, submit_line=line, comment=comment)


def record(number: int, token: str, state: str, restarts: int) -> QueueRecord:
    """A job in the queue; the state HELD is PENDING by a hold of the user's."""
    held = state == "HELD"
    return QueueRecord(
        shown=str(number),
        raw=number,
        array_job=None,
        array_index=None,
        waiting=None,
        het_job=None,
        het_offset=None,
        state=read_state("PENDING" if held else state),
        reason="JobHeldUser" if held else "None",
        exit=None,
        restarts=restarts,
        user="ada",
        partition="main",
        nodes=(),
        batch_host="",
        num_nodes=1,
        submit=NOW,
        start=None,
        end=None,
        limit=TimeLimit(None),
        used=None,
        priority=1,
        name="x",
        comment=f"overspan={token}",
    )
