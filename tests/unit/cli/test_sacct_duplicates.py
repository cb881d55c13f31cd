"""Every run of a requeued job, each with its own time and end."""

from __future__ import annotations

from typing import Any

from overspan.bridge.cli.tables.sacct_duplicates import choose_runs, has_runs, is_of_run, split_runs
from overspan.bridge.cli.tables.steps import StepLine, batch_step
from overspan.bridge.client.records import JobFilter
from overspan.bridge.listings.rows import JobRow

ROW = JobRow(7, None, 7, "train", state="RUNNING", node_list="n3", submitted_at=10.0, started_at=50.0, restarts=2)
PENDING = ROW._replace(state="PENDING", started_at=None, node_list="", reason="JobHeldUser")
ENDED = ROW._replace(state="FAILED", ended_at=60.0, exit_code=3)


def attempt(number: int, start: float, end: float | None, cause: str = "", **more: Any) -> dict[str, Any]:
    return {"number": number, "launched_at": start - 1, "started_at": start, "ended_at": end, "cause": cause, **more}


FIRST = attempt(0, 20.0, 30.0, "requeue", state="CANCELLED", exit_code=0, signal=15)
SECOND = attempt(1, 35.0, 40.0, "node", state="NODE_FAIL", exit_code=1, signal=0)
THIRD = attempt(2, 50.0, None, state="RUNNING")


def facts(row: JobRow) -> tuple[Any, ...]:
    return row.state, row.submitted_at, row.started_at, row.ended_at, row.exit_code, row.signal, row.node_list


def runs(row: JobRow, *attempts: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [facts(run) for run in split_runs(row, {"tasks": [{"attempts": list(attempts)}]})]


EARLIER = [
    ("REQUEUED", 10.0, 20.0, 30.0, 0, 0, "Unknown"),
    ("NODE_FAIL", 30.0, 35.0, 40.0, 1, 0, "Unknown"),
]


def test_each_run_has_the_nodes_that_it_ran_on() -> None:
    nodes = [{"index": 0, "node": "n1"}, {"index": 1, "node": "n2"}, {"index": 2, "node": "n1"}]
    first, last = split_runs(ROW, {"tasks": [{"attempts": [{**FIRST, "nodes": nodes}, THIRD]}]})
    assert (first.node_list, batch_step(first).node_list, last.node_list) == ("n[1-2]", "n1", "n3")
    lost = {**FIRST, "nodes": [{"index": 0, "node": ""}]}
    assert split_runs(ROW, {"tasks": [{"attempts": [lost, THIRD]}]})[0].node_list == "Unknown"


def test_a_row_tells_of_the_last_run_or_of_none_yet() -> None:
    assert runs(ROW, FIRST, SECOND, THIRD) == [*EARLIER, ("RUNNING", 40.0, 50.0, None, 0, 0, "n3")]
    ended = {**THIRD, "ended_at": 60.0, "state": "FAILED", "exit_code": 3}
    assert runs(ENDED, FIRST, SECOND, ended) == [*EARLIER, ("FAILED", 40.0, 50.0, 60.0, 3, 0, "n3")]
    assert runs(PENDING, FIRST, SECOND) == [*EARLIER, ("PENDING", 40.0, None, None, 0, 0, "")]
    cancelled = PENDING._replace(state="CANCELLED", ended_at=45.0)
    assert runs(cancelled, FIRST) == [EARLIER[0], ("CANCELLED", 30.0, None, 45.0, 0, 0, "")]
    # The next one has its nodes, and no attempt yet.
    assert len(runs(PENDING._replace(state="CONFIGURING"), FIRST)) == 2


def test_of_a_group_each_task_has_its_own_runs() -> None:
    document = {"tasks": [{"attempts": [THIRD]}, {"attempts": [FIRST, THIRD]}]}
    assert len(split_runs(ROW._replace(task_offset=0), document)) == 1
    assert len(split_runs(ROW._replace(task_offset=1), document)) == 2
    assert split_runs(ROW, {}) == [ROW]


def test_only_what_may_have_run_before_is_asked_about() -> None:
    assert has_runs(ROW) and has_runs(ROW._replace(restarts=0, attempt=1))
    assert not has_runs(ROW._replace(restarts=0))
    assert not has_runs(ROW._replace(array_waiting="0-3"))


def test_each_run_is_in_its_own_state_and_time() -> None:
    found = split_runs(ROW, {"tasks": [{"attempts": [FIRST, SECOND, THIRD]}]})
    states = [run.state for run in choose_runs(found, JobFilter(since=35.0))]
    assert states == ["NODE_FAIL", "RUNNING"]
    assert [run.state for run in choose_runs(found, JobFilter(until=45.0))] == ["REQUEUED", "NODE_FAIL"]
    assert [run.state for run in choose_runs(found, JobFilter(states=("NODE_FAIL",)))] == ["NODE_FAIL"]


def test_a_step_is_of_the_run_in_which_it_began() -> None:
    first, _, last = split_runs(ROW, {"tasks": [{"attempts": [FIRST, SECOND, THIRD]}]})
    step = StepLine(first, "0", started_at=21.0)
    assert is_of_run(first, step) and not is_of_run(last, step) and not is_of_run(PENDING, step)
    assert is_of_run(last, StepLine(last, "1", started_at=70.0)) and is_of_run(PENDING, StepLine(PENDING))


def test_the_script_of_a_requeued_run_was_cancelled() -> None:
    first, *_ = split_runs(ROW, {"tasks": [{"attempts": [FIRST, THIRD]}]})
    assert (batch_step(first).state, batch_step(first).exit_text) == ("CANCELLED", "0:15")
