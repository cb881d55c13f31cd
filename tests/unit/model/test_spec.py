"""What was asked for, and the facts it begins with."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import Form, JobSpec, OnFailure, RetryPolicy, Start, TaskSpec
from overspan.bridge.model.states import State

SPEC = JobSpec("g", (TaskSpec("a", secrets={"TOKEN": "x1"}, env={"A": "1"}), TaskSpec("b")), hold=True, priority=3)


def test_tasks_are_found_by_name() -> None:
    assert SPEC.task("b") is SPEC.tasks[1]
    with pytest.raises(KeyError):
        SPEC.task("c")


def test_secrets_are_blanked_for_others() -> None:
    public = SPEC.public()
    assert public.task("a").secrets == {"TOKEN": "***"}
    assert public.task("a").env == {"A": "1"}
    assert public.task("b") is SPEC.task("b")
    assert SPEC.task("a").secrets == {"TOKEN": "x1"}
    assert "x1" not in repr(public)


def test_a_spec_never_changes() -> None:
    with pytest.raises(FrozenInstanceError):
        SPEC.name = "h"  # type: ignore[misc]


def test_defaults() -> None:
    task = TaskSpec("a")
    assert (task.form, task.primary, task.termination_delay, task.grace_period) == (Form.RUN, True, 0, 30)
    assert (task.on_failure, task.restart, task.time) == (OnFailure.IGNORE, None, None)
    assert task.retry == RetryPolicy(0, (), 20, 50)
    assert JobSpec("x", (task,)).start is Start.TOGETHER


def test_the_facts_of_a_new_job() -> None:
    job = new_job(42, SPEC, 1000.0)
    assert (job.id, job.state, job.reason, job.held, job.priority) == (42, State.PENDING, "JobHeldUser", True, 3)
    assert [(task.name, task.state, task.attempts) for task in job.tasks] == [
        ("a", State.PENDING, ()),
        ("b", State.PENDING, ()),
    ]
    assert not job.over and not job.live
    assert job.spec_of("a") is SPEC.task("a")
    assert job.task("b").current is None
    with pytest.raises(KeyError):
        job.task("c")
