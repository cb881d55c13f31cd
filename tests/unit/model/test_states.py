"""The states, the table of moves, and the page that is made from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from overspan.bridge.model.state_words import CODES, FOREIGN
from overspan.bridge.model.states import LIVE, MOVES, TERMINAL, State, diagram, is_legal, move, page

DOCS = Path(__file__).parents[3] / "docs" / "states.md"


def test_codes_are_slurm_s() -> None:
    """squeue(1), JOB STATE CODES."""
    assert {state.value: state.code for state in State} == {
        "PENDING": "PD",
        "CONFIGURING": "CF",
        "RUNNING": "R",
        "SUSPENDED": "S",
        "COMPLETING": "CG",
        "COMPLETED": "CD",
        "FAILED": "F",
        "CANCELLED": "CA",
        "TIMEOUT": "TO",
        "NODE_FAIL": "NF",
        "PREEMPTED": "PR",
        "OUT_OF_MEMORY": "OOM",
        "BOOT_FAIL": "BF",
        "DEADLINE": "DL",
    }
    assert set(CODES) == set(State.__members__)
    assert len({*CODES.values(), *FOREIGN.values()}) == len(CODES) + len(FOREIGN)


def test_every_state_is_waiting_live_or_terminal() -> None:
    assert {State.PENDING} | LIVE | TERMINAL == set(State)
    assert not LIVE & TERMINAL
    assert all(state.terminal == (state in TERMINAL) for state in State)


def test_each_move_is_listed_once() -> None:
    pairs = [(made.start, made.end) for made in MOVES]
    assert len(pairs) == len(set(pairs))
    assert all(made.by in ("operator", "decider", "work", "cluster") and made.why for made in MOVES)


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_only_an_operator_leads_out_of_a_terminal_state(state: State) -> None:
    assert [(made.end, made.by) for made in MOVES if made.start is state] == [(State.PENDING, "operator")]


def test_every_state_but_the_first_can_be_reached_and_left() -> None:
    reached = {State.PENDING}
    while True:
        more = {made.end for made in MOVES if made.start in reached} | reached
        if more == reached:
            break
        reached = more
    assert reached == set(State)
    assert {made.start for made in MOVES} == set(State)


def test_move_applies_the_table_and_refuses_the_rest() -> None:
    legal = {(made.start, made.end) for made in MOVES}
    for start in State:
        for end in State:
            if start is end or (start, end) in legal:
                assert is_legal(start, end)
                assert move(start, end) is end
            else:
                assert not is_legal(start, end)
                with pytest.raises(ValueError, match=f"from {start.value} to {end.value}"):
                    move(start, end)


def test_the_diagram_has_every_move() -> None:
    lines = diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert len(lines) == 2 + len(MOVES) + len(TERMINAL)
    assert "    CONFIGURING --> RUNNING: work: every node started" in lines


def test_the_page_lists_each_state_once() -> None:
    rows = [
        line.split(" | ")
        for line in page().splitlines()
        if line.startswith("| ") and line.endswith((" yes |", " no |"))
    ]
    assert [row[0].lstrip("| ") for row in rows] == [state.value for state in State]
    assert all(len(row) == 5 and all(row) for row in rows)


def test_the_docs_are_what_the_table_says() -> None:
    assert DOCS.read_text(encoding="utf-8") == page(), "run `make states`"


def test_the_module_prints_the_page() -> None:
    command = [sys.executable, "-W", "error", "-m", "overspan.bridge.model.states"]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout == page()
