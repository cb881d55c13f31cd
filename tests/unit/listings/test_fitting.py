"""The queue's table on a terminal: whole names where there is room, Slurm's widths where there is none."""

from __future__ import annotations

from overspan.bridge.listings.fields import FIELDS
from overspan.bridge.listings.fitting import QUEUE, cut_widths, fit_queue
from overspan.bridge.listings.layout import render
from overspan.bridge.listings.rows import JobRow

NOW = 1_700_000_000.0
TRAIN = JobRow(
    id=42, raw_id=42, name="train-llama-70b", user="researcher", state="RUNNING", partition="debug", nodes=2,
    node_list="node[1-2]", started_at=NOW - 60,
)  # fmt: skip
TASK = JobRow(id=44, task_offset=1, raw_id=45, name="rollout", group="rlhf", user="ann", partition="debug")


def _lines(*rows: JobRow, room: int) -> list[str]:
    return render(fit_queue(rows, NOW, room), rows, NOW).splitlines()


def test_names_are_whole_where_there_is_room() -> None:
    assert _lines(TRAIN, room=120) == [
        "JOBID PARTITION            NAME       USER ST TIME NODES NODELIST(REASON)",
        "   42     debug train-llama-70b researcher  R 1:00     2 node[1-2]",
    ]
    assert _lines(TRAIN, room=0) == _lines(TRAIN, room=120)


def test_a_groups_name_stands_beside_its_tasks() -> None:
    assert _lines(TASK, room=80) == [
        "JOBID PARTITION    NAME GROUP USER ST TIME NODES NODELIST(REASON)",
        " 44+1     debug rollout  rlhf  ann PD 0:00     1 (None)",
    ]
    # A group in one line has its own name alone.
    assert "GROUP" not in _lines(TASK._replace(task_offset=None), room=80)[0]


def test_a_narrow_terminal_cuts_down_to_slurms_widths() -> None:
    (_, line) = _lines(TRAIN._replace(partition="a-long-partition"), room=40)
    assert line == "   42 a-long-pa train-ll research  R 1:00     2 node[1-2]"
    wide = len(_lines(TRAIN, room=0)[0])
    # Two letters short: the longest name loses them.
    assert "train-llama-7 " in _lines(TRAIN, room=wide - 2)[1]
    # What scripts and people copy is never cut.
    assert "1234567890123456_[1-99]" in _lines(JobRow(array_id=1234567890123456, array_waiting="1-99"), room=10)[1]


def test_widths_are_cut_evenly_and_no_further_than_their_least() -> None:
    assert cut_widths([10, 20, 5], [4, 4, 5], 35) == [10, 20, 5]
    assert cut_widths([10, 20, 5], [4, 4, 5], 25) == [10, 10, 5]
    assert cut_widths([10, 20, 5], [4, 4, 5], 1) == [4, 4, 5]
    assert all(FIELDS[name].extent == "core" for name in QUEUE)
