"""Arrays summed up."""

from __future__ import annotations

from overspan.bridge.client import JobRow
from overspan.bridge.listings.array_summary import (
    ElementSummary,
    describe_summaries,
    failed_indices,
    summarize_elements,
    write_summaries,
)
from overspan.bridge.model.ids import IndexRange

_ROWS = [
    JobRow(id=9, array_id=7, array_index=1, state="COMPLETED", started_at=10, ended_at=15),
    JobRow(id=10, array_id=7, array_index=2, state="FAILED", exit_code=3, started_at=10, ended_at=12),
    JobRow(id=11, array_id=7, array_index=3, state="COMPLETED", started_at=10, ended_at=75, paused=5),
    JobRow(id=12, array_id=7, array_index=4, state="TIMEOUT", started_at=10, ended_at=70),
    JobRow(id=13, array_id=7, array_index=5, state="RUNNING", started_at=90),
    JobRow(id=7, array_id=7, state="CANCELLED", array_waiting="6-7"),
    JobRow(id=7, array_id=7, state="PENDING", array_waiting="8-9,11%2"),
]


def test_elements_are_counted_by_state_and_end_with_their_times() -> None:
    shares = summarize_elements(_ROWS, 100.0)
    assert [(share.state, share.size, share.shortest, share.longest) for share in shares] == [
        ("CANCELLED", 2, None, None),
        ("COMPLETED", 2, 5, 60),
        ("FAILED", 1, 2, 2),
        ("RUNNING", 1, 10, 10),
        ("TIMEOUT", 1, 60, 60),
        ("PENDING", 3, None, None),
    ]
    assert failed_indices(shares) == "2,4"
    lines = write_summaries(7, shares)
    assert lines[2].split() == ["2", "COMPLETED", "0:0", "0:05", "1:00", "1,3"]
    assert lines[6].split() == ["3", "PENDING", "0:0", "8-9,11"]
    assert lines[-1] == "failed: 2,4; `span resubmit 7 --failed` runs these again"
    assert describe_summaries(shares)["failed"] == "2,4"


def test_without_a_failure_nothing_is_advised() -> None:
    assert write_summaries(7, [ElementSummary("COMPLETED", 0, 0, (IndexRange(0, 9),))])[-1].split() == [
        "10",
        "COMPLETED",
        "0:0",
        "0-9",
    ]
