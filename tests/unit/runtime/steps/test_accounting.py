"""What is kept of steps, and what is made of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.runtime.steps.plans import TWO, allocation, nodes, plan

from overspan.bridge.runtime.core.allocation import AllocatedComponent
from overspan.bridge.runtime.srun.accounting import (
    StepRecord,
    describe_step,
    finish_step,
    name_layout,
    note_end,
    note_start,
    read_steps,
)
from overspan.bridge.runtime.srun.sattach import describe_layout
from overspan.bridge.runtime.srun.srun import read_command_line
from overspan.bridge.runtime.srun.step_plan import plan_step

HET = (AllocatedComponent(nodes(1, "batch"), 0, 0, 0), AllocatedComponent(nodes(1, "b"), 0, 0, 0))


def _record(words: str, number: int = 0, *components: AllocatedComponent) -> StepRecord:
    parts = components or (TWO,)
    return describe_step(allocation(*parts), plan(words, *parts), number, ("srun", *words.split()), 100.0)


def test_a_step_is_read_as_it_was_kept(tmp_path: Path) -> None:
    record = _record("-n3 train 1")
    note_start(os.fspath(tmp_path), 0, record)
    assert read_steps(os.fspath(tmp_path), 0) == [record]
    assert record.running
    ended = finish_step(record, plan("-n3 train 1", TWO), {0: 0, 1: 5 << 8, 2: 9}, 107.5, False)
    note_end(os.fspath(tmp_path), 0, ended)
    assert read_steps(os.fspath(tmp_path), 0) == [ended]
    (part,) = ended.parts
    # A code counts more than a signal (measured on Slurm 22.05).
    assert (ended.running, part.status, part.ntasks, part.places, part.ranks) == (
        False,
        5 << 8,
        3,
        (0, 1),
        ("0-1", "2"),
    )
    assert (ended.name, ended.line) == ("train", "srun -n3 train 1")


def test_launches_have_steps_of_their_own(tmp_path: Path) -> None:
    note_start(os.fspath(tmp_path), 0, _record("a"))
    note_start(os.fspath(tmp_path), 1, _record("b"))
    assert [record.name for record in read_steps(os.fspath(tmp_path), 1)] == ["b"]
    assert read_steps(os.fspath(tmp_path), 2) == []


def test_torn_lines_and_ends_without_a_start_are_passed_over(tmp_path: Path) -> None:
    folder = os.fspath(tmp_path)
    first, second = _record("a", 0), _record("b", 1)
    note_start(folder, 0, first)
    with (tmp_path / "0.jsonl").open("a") as file:
        file.write('{"step":7,"started\nnull\n{"step":9,"ended_at":1,"statuses":[0],"cancelled":false}\n')
    note_start(folder, 0, second)
    with (tmp_path / "0.jsonl").open("a") as file:
        file.write('{"step":0,"ended_at":1,"stat')
    assert read_steps(folder, 0) == [first, second]


def test_a_step_whose_srun_is_gone_does_not_run() -> None:
    record = _record("a")
    assert record.running
    assert not record._replace(started_by=(os.getpid(), record.started_by[1] + 1)).running
    assert not record._replace(started_by=(2**22 + 1, 5)).running


def test_components_end_by_themselves() -> None:
    words = "--het-group=0,1 -n2 a"
    record = _record(words, 3, *HET)
    assert [(part.task, part.ntasks) for part in record.parts] == [("batch", 2), ("b", 2)]
    ended = finish_step(record, plan(words, *HET), {0: 0, 1: 15, 2: 1 << 8, 3: 0}, 9.0, True)
    assert [part.status for part in ended.parts] == [15, 1 << 8]
    assert ended.cancelled


@pytest.mark.parametrize(
    ("words", "name"), [(["-J", "mine", "a"], "mine"), (["/bin/a"], "a"), (["-J", "", "a"], "job")]
)
def test_names(words: list[str], name: str) -> None:
    held = allocation(TWO)
    command_line = read_command_line(words, {"SLURM_JOB_NAME": "not the step's"})
    planned = plan_step(held, command_line.components, TWO.nodes)
    assert describe_step(held, planned, 0, words, 1.0).name == name


@pytest.mark.parametrize(
    ("distribution", "ntasks", "count", "name"),
    [
        ("block", 2, 1, "Block"),
        ("block", 1, 1, "Cyclic"),
        ("block", 2, 2, "Cyclic"),
        ("block", 3, 2, "Block"),
        ("cyclic", 4, 2, "Cyclic"),
        ("plane=2", 4, 2, "Plane"),
        ("block:cyclic", 4, 2, "BCyclic"),
        ("*:*", 4, 2, "BCyclic"),
        ("block:block", 4, 2, "BBlock"),
        ("cyclic:block", 4, 2, "CBlock"),
        ("arbitrary", 4, 2, "Arbitrary"),
    ],
)
def test_layouts_have_slurms_names(distribution: str, ntasks: int, count: int, name: str) -> None:
    assert name_layout(distribution, ntasks, count) == name


def test_cpus_are_the_steps_own_where_it_asks_for_them_exactly() -> None:
    assert [_record(words).parts[0].cpus for words in ("a", "--exact -n2 a", "--exclusive -n2 -c3 a")] == [0, 2, 6]


def test_the_layout_of_sattach() -> None:
    """What Slurm 22.05 printed for three tasks on two nodes."""
    assert describe_layout(_record("-n3 a")) == (
        "Job step layout:\n"
        "\t3 tasks, 2 nodes (batch-[0-1])\n"
        "\n"
        "\tNode 0 (batch-0), 2 task(s): 0 1 \n"
        "\tNode 1 (batch-1), 1 task(s): 2 \n"
    )
