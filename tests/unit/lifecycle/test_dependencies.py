"""What of a dependency is not met, and whether a job may be sent that somebody else keeps waiting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from overspan.bridge.lifecycle.dependencies import list_unmet
from overspan.bridge.lifecycle.eligibility import judge
from overspan.bridge.model.job import Job, Resolution, new_job
from overspan.bridge.model.spec import Dependency, DependencyKind, JobNeed, JobSpec, TaskSpec

A, B = JobNeed(DependencyKind.AFTEROK, 1), JobNeed(DependencyKind.AFTER, 2, delay=60)
NOW = 100.0


def make_job(*resolved: tuple[int, float | None], either: bool = False, **facts: object) -> Job:
    """A job that waits for A and B, of which this is settled: place, and when it is met."""
    job = new_job(9, JobSpec("job", (TaskSpec("work", run="true"),)), 1.0)
    known = tuple(Resolution(*one) for one in resolved)
    return replace(job, dependency=Dependency((A, B), either), resolved=known, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("resolved", "all_of", "any_of"),
    [
        ((), ((A, True), (B, True)), ((A, True), (B, True))),
        (((0, 90.0),), ((B, True),), ()),
        (((0, None),), ((A, False), (B, True)), ((B, True),)),
        (((1, 130.0),), ((A, True), (B, False)), ((A, True), (B, False))),
        (((0, 90.0), (1, 95.0)), (), ()),
    ],
)
def test_what_is_not_met(
    resolved: tuple[tuple[int, float | None], ...],
    all_of: tuple[tuple[JobNeed, bool], ...],
    any_of: tuple[tuple[JobNeed, bool], ...],
) -> None:
    assert list_unmet(make_job(*resolved), NOW) == all_of
    assert list_unmet(make_job(*resolved, either=True), NOW) == any_of


def test_who_is_kept_waiting_elsewhere_may_be_sent() -> None:
    assert judge(make_job(), NOW) == (False, "Dependency", None)
    assert judge(make_job(), NOW, waited_for=True) == (True, "Dependency", None)
    # Nobody waits for what never comes, and a time to begin is kept here.
    assert judge(make_job((0, None)), NOW, waited_for=True) == (False, "DependencyNeverSatisfied", None)
    assert judge(make_job(begin=200.0), NOW, waited_for=True) == (False, "Dependency", 200.0)
    assert judge(make_job((0, 90.0), (1, 95.0), begin=200.0), NOW, waited_for=True) == (False, "BeginTime", 200.0)
    assert not judge(make_job(held=True), NOW, waited_for=True).now
