"""An attempt that does not start after the grant: its task and the job tell why, until it runs."""

from __future__ import annotations

from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model import events
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec

WHY = "JobLaunchFailure: its image cannot be pulled (ErrImagePull)"


def _play(*news: Event) -> Job:
    tasks = (TaskSpec(name="a", run="true"), TaskSpec(name="b", run="true", primary=False))
    job = new_job(1, JobSpec(name="g", tasks=tasks, group=True), 0.0)
    granted = events.Granted(1.0, (("a", 0, "n", "", ()), ("b", 0, "n", "", ())))
    for event in (granted, events.Launch(1.0, "a", 0), events.Launch(1.0, "b", 0), *news):
        job = reduce(job, event)
    return job


def test_the_reason_is_the_task_s_and_the_job_s() -> None:
    job = _play(events.Queued(2.0, WHY, task="a"))
    assert (job.state.value, job.reason) == ("CONFIGURING", WHY)
    assert (job.task("a").reason, job.task("b").reason) == (WHY, "None")


def test_it_passes_with_the_start() -> None:
    job = _play(events.Queued(2.0, WHY, task="a"), events.NodeStarted(3.0, "a", 0, 0))
    assert (job.state.value, job.reason, job.task("a").reason) == ("RUNNING", "None", "None")


def test_a_job_that_runs_keeps_its_state_and_the_task_says_why() -> None:
    job = _play(events.NodeStarted(2.0, "a", 0, 0), events.Queued(3.0, WHY, task="b"))
    assert (job.state.value, job.reason, job.task("b").reason) == ("RUNNING", "None", WHY)


def test_of_a_task_that_runs_it_is_late() -> None:
    job = _play(events.NodeStarted(2.0, "a", 0, 0))
    assert reduce(job, events.Queued(3.0, WHY, task="a")).late == job.late + 1
    assert reduce(job, events.Queued(3.0, WHY, task="nobody")).late == job.late + 1
