"""Steps as the listings show them."""

from __future__ import annotations

from typing import Any

import pytest

from overspan.bridge.cli.slurm.sacct import OPTIONS, choose_lines
from overspan.bridge.cli.slurm.scontrol_records import step_record, write_records
from overspan.bridge.cli.tables.sacct_lines import AccountLine, as_lines
from overspan.bridge.cli.tables.steps import (
    STEP_FORMAT,
    STEP_LETTERS,
    choose_steps,
    derived_exit,
    list_steps,
    order_by_number,
    running_steps,
)
from overspan.bridge.client import JobRow, StepRow
from overspan.bridge.listings.layout import parse_letters, render
from overspan.bridge.listings.rows import steps_from_document
from overspan.bridge.model.options.getopt import parse

NOW = 1000.0
JOB = JobRow(
    id=7, raw_id=7, name="train", user="ada", uid=1000, state="RUNNING", partition="main", cpus=3, nodes=2, memory=100,
    node_list="node[1-2]", started_at=900.0,
)  # fmt: skip
RUNS = StepRow(
    job_id=7, number=3, name="sh", started_at=950.0, running=True, ntasks=3, nodes=2, node_list="node[1-2]",
    layout="Block", submit_line="srun sh", host="node1", pid=35,
)  # fmt: skip
ENDED = RUNS._replace(number=0, running=False, ended_at=960.0, nodes=1, node_list="node2")
PART = JOB._replace(task_offset=1, raw_id=8)


@pytest.mark.parametrize(
    ("facts", "state", "text"),
    [
        ({}, "COMPLETED", "0:0"),
        ({"exit_code": 3}, "FAILED", "3:0"),
        ({"signal": 11}, "CANCELLED", "0:11"),
        ({"signal": 9, "cancelled": True}, "CANCELLED by 1000", "0:9"),
        ({"ended_at": None}, "CANCELLED", "0:9"),
        ({"ended_at": None, "running": True}, "RUNNING", "0:0"),
    ],
)
def test_states_and_exit_codes(facts: dict[str, Any], state: str, text: str) -> None:
    (_, step) = list_steps(JOB, {7: [ENDED._replace(**facts)]})
    assert (step.state, step.exit_text) == (state, text)


def test_what_was_killed_unseen_ends_with_its_job() -> None:
    lost = ENDED._replace(ended_at=None)
    (_, step) = list_steps(JOB._replace(state="COMPLETED", ended_at=980.0), {7: [lost]})
    assert (step.ended_at, step.elapsed(NOW)) == (980.0, 30)


def test_a_steps_size_is_that_of_its_nodes() -> None:
    (_, whole, half, exact) = list_steps(JOB, {7: [RUNS, ENDED, ENDED._replace(cpus=2)]})
    assert [(step.nodes, step.cpus) for step in (whole, half, exact)] == [(2, 3), (1, 1), (1, 2)]


def test_allocations_have_no_batch_step_and_tasks_their_own_steps() -> None:
    held = JOB._replace(batch=False)
    assert [step.id for step in list_steps(held, {7: [RUNS]})] == ["3"]
    steps = {7: [RUNS._replace(task_offset=0), ENDED._replace(task_offset=1)]}
    lines = as_lines([JOB._replace(task_offset=0), PART], steps)
    assert [line.id for line in lines] == ["7+0", "7+0.batch", "7+0.3", "7+1", "7+1.0"]
    assert [line.raw_id for line in lines[2:]] == ["7.3", "8", "8.0"]
    several = list_steps(JOB, {7: [RUNS._replace(component=0), RUNS._replace(component=1)]})
    assert [step.ref for step in several[1:]] == ["7.3+0", "7.3+1"]


def test_the_highest_end_of_steps_is_the_jobs_derived_one() -> None:
    ends = [ENDED._replace(exit_code=3), ENDED._replace(signal=9), ENDED._replace(exit_code=2)]
    assert derived_exit(list_steps(JOB, {7: ends})) == (3, 0)
    over = JOB._replace(state="COMPLETED", ended_at=990.0)
    assert as_lines([over], {7: ends}, jobs_only=True) == [AccountLine(over, None, "", (3, 0))]
    # While it runs nothing is derived yet (measured on Slurm 22.05).
    assert as_lines([JOB], {7: ends})[0].derived == (0, 0)


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ("-j 7", ["7", "7.batch", "7.3", "7.0"]),
        ("-j 7.0", ["7.0"]),
        ("-j 7.batch,7.3", ["7.batch", "7.3"]),
        ("-j 7.0 --json", ["7", "7.0"]),
        ("-N node1", ["7", "7.batch", "7.3"]),
    ],
)
def test_steps_are_named_and_chosen_by_node(words: str, ids: list[str]) -> None:
    lines = choose_lines(as_lines([JOB], {7: [RUNS, ENDED]}), parse(words.split(), OPTIONS))
    assert [line.id for line in lines] == ids


def test_the_tables_of_running_steps() -> None:
    """As Slurm 22.05 printed them for such a step."""
    steps = order_by_number(running_steps([JOB], {7: [RUNS, ENDED]}))
    assert render(parse_letters(STEP_FORMAT, STEP_LETTERS), steps, NOW, header=True) == (
        "         STEPID     NAME PARTITION     USER      TIME NODELIST\n"
        "            7.3       sh      main      ada      0:50 node[1-2]\n"
        "        7.batch    batch      main      ada      1:40 node1\n"
    )
    record = write_records([step_record(steps[0])], False).splitlines()
    assert record[1:7] == [
        "   State=RUNNING Partition=main NodeList=node[1-2]",
        "   Nodes=2 CPUs=3 Tasks=3 Name=sh Network=(null)",
        "   TRES=cpu=3,mem=200M,node=2",
        "   ResvPorts=(null)",
        "   CPUFreqReq=Default Dist=Block",
        "   SrunHost:Pid=node1:35",
    ]


def test_running_tasks_of_a_group_are_steps() -> None:
    trainer = JOB._replace(task_offset=0, group="rl", name="trainer", batch=False)
    server = trainer._replace(task_offset=1, raw_id=8, name="server", nodes=1, cpus=1, node_list="node3")
    waits = trainer._replace(task_offset=2, raw_id=9, name="eval", state="PENDING", started_at=None)
    over = trainer._replace(task_offset=3, raw_id=10, name="prep", state="COMPLETED", ended_at=950.0)
    rows, own = [trainer, server, waits, over], {7: [RUNS._replace(task_offset=0)]}
    steps = order_by_number(running_steps(rows, own))
    assert render(parse_letters(STEP_FORMAT, STEP_LETTERS), steps, NOW, header=False) == (
        "            7.3       sh      main      ada      0:50 node[1-2]\n"
        "        7.batch  trainer      main      ada      1:40 node[1-2]\n"
        "        8.batch   server      main      ada      1:40 node3\n"
    )
    assert [(step.ntasks, step.nodes, step.cpus) for step in steps] == [(3, 2, 3), (2, 2, 3), (1, 1, 1)]
    assert [step.ref for step in choose_steps(steps, ["8"])] == ["8.batch"]
    # A task has a line of its own in sacct.
    assert [line.id for line in as_lines([trainer, server], own)] == ["7+0", "7+0.3", "7+1"]


def test_columns_of_a_newer_daemon_are_left_out() -> None:
    assert steps_from_document(["job_id", "colour", "pid"], [[7, "red", 5]]) == [StepRow(job_id=7, pid=5)]
