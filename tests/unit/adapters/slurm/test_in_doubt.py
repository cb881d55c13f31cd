"""Which of the native jobs with one token is the launch's, and which of them are surplus."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.adapters.slurm.records import record

from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.submission.arrays import Native
from overspan.adapters.slurm.submission.in_doubt import FoundNative, choose_native

TOKEN = "inst-1-0"


def ran(number: int, state: str) -> QueueRecord:
    """One that had a node."""
    return replace(record(number, TOKEN, state, 0), nodes=("node1",))


HELD = record(5, TOKEN, "HELD", 0)


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([], None),
        ([HELD], FoundNative(Native(5), True)),
        ([ran(6, "RUNNING"), HELD], FoundNative(Native(6), surplus=(Native(5),))),
        ([record(6, TOKEN, "PENDING", 0), HELD], FoundNative(Native(6), surplus=(Native(5),))),
        ([ran(6, "COMPLETED"), HELD], FoundNative(Native(6), surplus=(Native(5),))),
        ([record(7, TOKEN, "HELD", 0), HELD], FoundNative(Native(5), True, (Native(7),))),
        ([record(4, TOKEN, "CANCELLED", 0), HELD], FoundNative(Native(5), True)),
        ([record(5, TOKEN, "CANCELLED", 0), ran(6, "COMPLETED")], FoundNative(Native(6))),
        ([record(5, TOKEN, "CANCELLED", 0)], FoundNative(Native(5))),
    ],
    ids=["none", "alone", "runs", "waits", "has-run", "two-held", "surplus-is-gone", "cancelled-beside", "cancelled"],
)
def test_what_runs_or_has_run_counts_before_what_is_held(records: list[QueueRecord], found: FoundNative | None) -> None:
    assert choose_native(records, None) == found
    assert choose_native(records[::-1], None) == found


def test_what_a_set_took_back_does_not_count() -> None:
    gone = record(5, TOKEN, "CANCELLED", 0)
    assert choose_native([gone], None, together=True) is None
    assert choose_native([gone, record(6, TOKEN, "HELD", 0)], None, together=True) == FoundNative(Native(6), True)
