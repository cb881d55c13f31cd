"""A waiting job's way along its list of clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from overspan.bridge.lifecycle.candidates import CandidateRef
from overspan.bridge.lifecycle.decision import decide
from overspan.bridge.lifecycle.failover import failover_time, list_next, read_withdrawal, word_refusals
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.lifecycle.timeline import transitions
from overspan.bridge.model import events
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Departure, Job, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.states import State

MEMBERS = (("work", 0, "node", "127.0.0.1", ()),)
EXPIRE = events.Expire(70.0, "failover", "b")
MOVE = events.Move(70.0, "b", "down")


def make_job(*told: Event, cluster: str = "a") -> Job:
    """A job with three clusters, after these events."""
    spec = JobSpec("job", (TaskSpec("work", run="true"),), clusters=("a", "b", "c"), failover_after=60, begin=5.0)
    job = replace(new_job(1, spec, 1.0), cluster=cluster)
    for event in (events.Offer(10.0, cluster), *told):
        job = reduce(job, event)
    return job


def test_the_time_counts_from_the_offer() -> None:
    job = make_job()
    assert (failover_time(job), list_next(job)) == (70.0, (CandidateRef(1, "b"), CandidateRef(2, "c")))
    # A supervisor that replays the job has nothing to decide about it.
    assert decide(job, 1000.0).events == ()


@pytest.mark.parametrize("event", [EXPIRE, MOVE])
def test_the_next_launch_is_the_next_clusters(event: Event) -> None:
    job = make_job(event)
    assert (job.cluster, job.launch, job.state, job.offered_at, job.begin) == ("b", 1, State.PENDING, None, 5.0)
    assert (failover_time(job), list_next(job), job.restarts) == (None, (CandidateRef(2, "c"),), 0)
    assert [(each.cluster, each.launch) for each in job.passed] == [("a", 0)]
    (row,) = transitions(make_job(), job, event)
    assert row.text.startswith("goes to the cluster b: ")


@pytest.mark.parametrize("event", [EXPIRE, MOVE])
@pytest.mark.parametrize(
    "before", [events.Granted(65.0, MEMBERS), events.Cancel(65.0), events.Refused(65.0, "no"), EXPIRE]
)
def test_what_has_started_ended_or_gone_stays(before: Event, event: Event) -> None:
    job = make_job(before)
    after = reduce(job, event)
    assert replace(after, late=job.late) == job and after.late == job.late + 1


def test_an_end_while_it_is_taken_back_is_that() -> None:
    lost = events.LaunchLost(80.0, 0, "cancel", "CANCELLED by 1000")
    orders: list[Event] = [events.Hold(60.0), EXPIRE]
    assert read_withdrawal(make_job(), lost, orders) == EXPIRE._replace(at=80.0)
    assert read_withdrawal(make_job(), lost, orders[:1]) == lost
    assert read_withdrawal(make_job(), lost, [events.Expire(70.0, "deadline")]) == lost
    assert read_withdrawal(make_job(events.Granted(65.0, MEMBERS)), lost, orders) == lost
    assert read_withdrawal(make_job(cluster="c"), lost, orders) == lost
    others: list[Event] = [lost._replace(cause="node"), lost._replace(launch=1), events.Queued(80.0, "None")]
    for other in others:
        assert read_withdrawal(make_job(), other, orders) == other


def test_only_a_cluster_further_on_takes_over() -> None:
    job = make_job()
    for name in ("a", "d", ""):
        assert reduce(job, events.Expire(70.0, "failover", name)).launch == 0
        assert reduce(job, events.Move(70.0, name, "down")).launch == 0
    assert reduce(job, events.Move(70.0, "c", "down")).cluster == "c"


def test_the_last_cluster_and_a_single_one_are_never_left() -> None:
    assert failover_time(make_job(cluster="c")) is None
    assert failover_time(make_job(cluster="")) is None
    assert list_next(make_job(cluster="")) == ()


def test_a_hold_stops_the_time_and_goes_along() -> None:
    held = make_job(events.Hold(20.0, "me"))
    assert failover_time(held) is None
    assert failover_time(reduce(held, events.Release(500.0, "me"))) == 560.0
    moved = reduce(held, MOVE)
    assert (moved.held, moved.reason, moved.cluster) == (True, "JobHeldUser", "b")


def test_refusals_are_named_where_there_are_several() -> None:
    job = make_job()
    assert word_refusals(job, "no such account") == "no such account"
    down = replace(job, passed=(Departure(1.0, "z", "no answer"),))
    assert word_refusals(down, "no such account") == "no such account"
    refused = make_job(events.Move(20.0, "b", "no such qos", refused=True))
    assert word_refusals(refused, "no such account") == "a: no such qos\nb: no such account"
