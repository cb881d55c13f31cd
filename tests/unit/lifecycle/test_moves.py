"""A later grant tells where single members run now."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.lifecycle.world import auxiliary, group, primary

from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model import events
from overspan.bridge.model.job import Placement, new_job

JOB = new_job(7, group(primary(), auxiliary()), 1.0)
GRANT = events.Granted(5.0, (("trainer", 0, "n1", "10.0.0.1", ()), ("server", 0, "n2", "10.0.0.2", ())))
MOVE = events.Granted(9.0, (("server", 0, "n3", "10.0.0.3", ()),))


def test_a_later_grant_moves_its_members_alone() -> None:
    job = reduce(reduce(JOB, GRANT), MOVE)
    assert job.granted_at == 5.0 and job.late == 0
    assert job.placements == (Placement("trainer", 0, "n1", "10.0.0.1"), Placement("server", 0, "n3", "10.0.0.3"))


def test_members_that_come_later_are_placed_in_the_order_of_the_file() -> None:
    late = events.Granted(9.0, GRANT.members[:1])
    job = reduce(reduce(JOB, MOVE), late)
    assert [place.task for place in job.placements] == ["trainer", "server"]


def test_the_same_grant_again_changes_nothing() -> None:
    job = reduce(JOB, GRANT)
    assert reduce(job, GRANT) == replace(job, late=1)


def test_what_is_over_is_not_moved() -> None:
    job = reduce(reduce(JOB, GRANT), events.LaunchLost(6.0, 0, "time"))
    assert job.over
    assert reduce(job, MOVE).placements == job.placements
