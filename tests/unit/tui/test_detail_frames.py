"""Answers of a real daemon as the pane writes them: a failed job, a job that waits for another, an array."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.tui.detail_lines import write
from tests.unit.tui.fake_source import NOW

from overspan.bridge.client.messages import Transition
from overspan.bridge.listings.array_summary import ElementSummary
from overspan.bridge.model.ids import IndexRange
from overspan.tui.detail.answers import JobAnswers

FOLDER = Path(__file__).parent / "detail_answers"


def read(name: str) -> JobAnswers:
    """Recorded answers."""
    record = json.loads((FOLDER / f"{name}.json").read_text())
    elements = tuple(
        ElementSummary(state, code, number, tuple(IndexRange(*part) for part in indices), *times)
        for state, code, number, indices, *times in record["elements"]
    )
    timeline = tuple(Transition(*row) for row in record["timeline"])
    return JobAnswers(record["job"], timeline, record["script"], elements, record["submit_line"])


@pytest.mark.parametrize("width", [69, 79])
@pytest.mark.parametrize("name", ["failed", "waiting", "array"])
def test_the_recorded_answers_are_written_as_before(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Times of day depend on the zone.
    for module in ("tui.detail.sections", "bridge.listings.job_facts"):
        monkeypatch.setattr(f"overspan.{module}.format_timestamp", lambda at, missing="": "T" if at else missing)
    assert write(read(name), width) == (FOLDER / f"{name}.{width}.txt").read_text().splitlines()


def test_an_array_has_run_since_its_first_element_began() -> None:
    answers = read("array")
    job = {**answers.job, "state": "RUNNING", "started_at": NOW - 65, "ended_at": None}
    assert write(answers._replace(job=job))[0] == "State      RUNNING 1:05"
    assert write(answers._replace(job={**job, "ended_at": NOW - 35}))[0] == "State      RUNNING 0:30"
