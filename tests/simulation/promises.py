"""What has to be so of every job, whatever cluster it ran on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from overspan.bridge.model.job import Job
from overspan.bridge.model.states import State, is_legal
from overspan.bridge.store.records import TimelineRow


def check_whole(answered: Mapping[int, str], jobs: Mapping[int, Job]) -> None:
    """No answered submission is lost, and none made two jobs."""
    assert set(answered) <= set(jobs), "an answered submission is lost"
    for job_id, name in answered.items():
        assert jobs[job_id].spec.name == name, f"{job_id} is {jobs[job_id].spec.name}, not {name}"
    names = [job.spec.name for job in jobs.values() if job.element is None]
    assert len(names) == len(set(names)), f"one submission made two jobs: {names}"


def check_timeline(job: Job, rows: Iterable[TimelineRow]) -> None:
    """Each state follows from the one before by a legal move, and the last one is the job's."""
    states = {"": State.PENDING.value, **{task.name: State.PENDING.value for task in job.tasks}}
    seq = 0
    for row in rows:
        assert row.seq > seq
        seq = row.seq
        if not row.end or row.cause == "Submitted":
            continue
        assert row.start == states[row.task], f"job {job.id} {row} after {states[row.task]}"
        assert is_legal(State(row.start), State(row.end)), row
        if row.task == "" and State(row.start).terminal and row.start != row.end:
            assert row.cause == "Requeue", f"a terminal state was left: {row}"
        states[row.task] = row.end
    assert states == {"": job.state.value, **{task.name: task.state.value for task in job.tasks}}
