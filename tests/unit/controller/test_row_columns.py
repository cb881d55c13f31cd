"""The row of a job: the daemon fills each column that a row has."""

from __future__ import annotations

from typing import Any

import pytest

from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.views import rows
from overspan.bridge.listings.rows import COLUMNS
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec


def test_every_column_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    filled: set[str] = set()

    class NotedRow(list[Any]):
        """Stands for a row, and notes the names of its values."""

        def __init__(self, **values: Any) -> None:
            filled.update(values)

        def _replace(self, **values: Any) -> NotedRow:
            return NotedRow(**values)

    monkeypatch.setattr(rows, "JobRow", NotedRow)
    job = new_job(1, JobSpec("one", (TaskSpec("batch", run="true"),), origin=Origin(user="me")), 5.0)
    rows.job_row(JobEntry(job, "local", "me"))
    assert filled == set(COLUMNS)
