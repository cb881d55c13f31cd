"""A store of its own for each test, and plain jobs to put into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from overspan.bridge.lifecycle.timeline import Transition
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.store.records import NewJob, OutboxRow
from overspan.bridge.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store in the test's folder."""
    opened = Store.open(tmp_path / "span.db")
    yield opened
    opened.close()


@pytest.fixture
def make_job() -> Callable[..., Job]:
    """`make_job(id, tasks=1, user='ada', name='train', at=1000.0)`."""

    def make(job_id: int, tasks: int = 1, user: str = "ada", name: str = "train", at: float = 1000.0) -> Job:
        parts = tuple(TaskSpec(name=f"t{k}", run="python train.py") for k in range(tasks))
        return new_job(job_id, JobSpec(name=name, tasks=parts, group=tasks > 1, origin=Origin(user=user)), at)

    return make


@pytest.fixture
def start_of() -> Callable[[Job], NewJob]:
    """A job with the outbox row and the transition of its submission."""

    def start(job: Job) -> NewJob:
        row = OutboxRow(f"{job.id}.0", job.id, "local", "submit", {"launch": 0}, job.submitted_at)
        moved = Transition(job.submitted_at, "", "", "PENDING", "None", "", "submitted")
        return NewJob(job, "local", outbox=(row,), timeline=(moved,))

    return start
