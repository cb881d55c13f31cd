"""The row of a job: the daemon fills each column that a row has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from overspan.bridge.controller.core import rows
from overspan.bridge.controller.core.history_rows import read_row
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.listings.rows import COLUMNS
from overspan.bridge.model.job import Job, new_job
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


def test_the_partition_is_the_clusters_own_word_before_the_jobs() -> None:
    tasks = (TaskSpec("a", run="x"), TaskSpec("b", run="x", native={"slurm": {"partition": "short"}}))
    job = new_job(1, JobSpec("g", tasks, group=True, partition="main,short", origin=Origin(user="me")), 5.0)
    place = COLUMNS.index("partition")

    def shown(job: Job) -> list[Any]:
        entry = JobEntry(job, "rig", "me")
        return [read_row(row)[place] for row in (rows.job_row(entry), *rows.task_rows(entry))]

    assert shown(job) == ["main,short", "main,short", "main,short"]
    assert shown(replace(job, partition="main")) == ["main", "main", "short"]
    assert shown(replace(job, spec=replace(job.spec, partition=""))) == ["rig", "rig", "rig"]
