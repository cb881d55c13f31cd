"""Steps from the run directory to the rows that clients read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from overspan.adapters.abilities import Step
from overspan.adapters.local.files.launch_files import LaunchFiles
from overspan.adapters.local.files.steps import list_steps
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.views.steps import StepListing
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.job import Placement, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.runtime.srun.accounting import ComponentRecord, StepRecord, note_end, note_start

PART = ComponentRecord("b", ("b-0", "b-1"), (0, 1), ("0-1", "2"), 3, "Block", 0)
RECORD = StepRecord(4, "train", "srun train", 100.0, (os.getpid(), 1), "login", (PART,))
TASKS = (TaskSpec("a", run="true"), TaskSpec("b", run="true", num_nodes=2))
PLACES = tuple(Placement(name, index, node) for name, index, node in (("a", 0, "n1"), ("b", 0, "n2"), ("b", 1, "n3")))


def _keep(tmp_path: Path, *records: StepRecord) -> LaunchFiles:
    place = LaunchFiles(str(tmp_path), 7, 1)
    folder = tmp_path / "runs" / "7" / "steps"
    folder.mkdir(parents=True, exist_ok=True)
    for record in records:
        note_start(str(folder), 1, record)
        if record.ended_at is not None:
            note_end(str(folder), 1, record)
    return place


def test_a_launch_tells_its_steps(tmp_path: Path) -> None:
    ended = RECORD._replace(ended_at=130.0, parts=(PART._replace(status=3 << 8),), cancelled=True)
    (step,) = list_steps([LaunchFiles(str(tmp_path), 8, 0), _keep(tmp_path, ended)])
    assert (step.handle, step.number, step.component, step.task, step.nodes) == ("7.1", 4, None, "b", (0, 1))
    assert (step.exit_code, step.signal, step.cancelled, step.running, step.ended_at) == (3, 0, True, False, 130.0)


def test_components_of_one_task_are_numbered(tmp_path: Path) -> None:
    killed = PART._replace(status=9)
    both = list_steps([_keep(tmp_path, RECORD._replace(parts=(PART, killed), ended_at=1.0))])
    assert [(step.component, step.exit_code, step.signal) for step in both] == [(0, 0, 0), (1, 0, 9)]
    other = list_steps([_keep(tmp_path, RECORD._replace(number=5, parts=(PART, PART._replace(task="a"))))])
    assert [(step.component, step.running) for step in other if step.number == 5] == [(None, False)] * 2


class _Cluster:
    def __init__(self, steps: Sequence[Step] | None) -> None:
        self.told = steps
        self.asked: list[str] = []

    async def steps(self, handles: Sequence[str]) -> list[Step]:
        self.asked += handles
        if self.told is None:
            raise Unreachable("gone")
        return list(self.told)


def _rows(adapters: dict[str, Any], *entries: JobEntry) -> list[dict[str, Any]]:
    clusters: Any = SimpleNamespace(
        find=lambda name: SimpleNamespace(adapter=adapters[name]) if name in adapters else None
    )
    rows = asyncio.run(StepListing(clusters).rows(entries))
    return [row._asdict() for row in rows]


def test_rows_have_the_jobs_own_names_of_nodes(tmp_path: Path) -> None:
    job = replace(new_job(7, JobSpec("g", TASKS), 5.0), placements=PLACES, launch=1)
    adapter = _Cluster(list_steps([_keep(tmp_path, RECORD)]))
    (row,) = _rows({"local": adapter}, JobEntry(job, "local", "me", "7.1", 1))
    assert (row["job_id"], row["task_offset"], row["number"], row["ntasks"]) == (7, 1, 4, 3)
    assert (row["nodes"], row["node_list"], row["submit_line"]) == (2, "n[2-3]", "srun train")
    # A launch that is over has nothing to say of the next.
    assert _rows({"local": adapter}, JobEntry(replace(job, launch=2), "local", "me", "7.1", 1)) == []
    assert adapter.asked == ["7.1"]


def test_clusters_that_cannot_tell_have_no_steps() -> None:
    job = new_job(7, JobSpec("g", TASKS), 5.0)
    entries = [JobEntry(job, name, "me", "7.0", 0) for name in ("mute", "gone", "unknown")]
    assert _rows({"mute": object(), "gone": _Cluster(None)}, *entries) == []
