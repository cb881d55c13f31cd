"""Bids of a job that races: which it is to have, and what becomes of its launch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from overspan.bridge.lifecycle.bids import find_bid, find_launch, list_rivals, note_bid, plan_bids
from overspan.bridge.lifecycle.failover import failover_time, list_next
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.lifecycle.timeline import transitions
from overspan.bridge.model import events
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.events import Event, event_from_document, event_to_document
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec

MEMBERS = (("work", 0, "node", "127.0.0.1", ()),)
GRANT = events.Granted(50.0, MEMBERS)


def make_job(*told: Event, cluster: str = "a") -> Job:
    """A job that races on three clusters, with its bids, after these events."""
    spec = JobSpec("job", (TaskSpec("work", run="true"),), clusters=("a", "b", "c"), race=True)
    job = replace(new_job(1, spec, 1.0), cluster=cluster, racers=("a", "b", "c"))
    for event in (events.Offer(10.0, cluster), events.Enter(10.0, "b"), events.Enter(10.0, "c"), *told):
        job = reduce(job, event)
    return job


def test_a_bid_on_each_rival_and_no_number_twice() -> None:
    job = make_job()
    assert [(bid.cluster, bid.launch) for bid in job.bids] == [("b", 1), ("c", 2)]
    assert (job.launch, job.newest, job.restarts) == (0, 2, 0)
    assert plan_bids(job, 20.0) == ((), (), None)
    assert plan_bids(replace(job, bids=()), 20.0).entered == ("b", "c")
    # It is on all of them already.
    assert (list_next(job), failover_time(job)) == ((), None)


@pytest.mark.parametrize("event", [events.Hold(20.0), events.Cancel(20.0), GRANT, events.SetBegin(20.0, 99.0)])
def test_only_a_job_that_may_start_has_bids(event: Event) -> None:
    job = make_job(event)
    plan = plan_bids(job, 20.0)
    assert plan.entered == () and (plan.withdrawn == ("b", "c") or job.bids == ())


def test_a_grant_ends_the_bids_and_a_requeue_takes_the_next_number() -> None:
    job = make_job(GRANT)
    assert (job.bids, job.launch, job.restarts) == ((), 0, 0)
    again = reduce(job, events.LaunchLost(60.0, 0, "node"))
    assert (again.launch, again.restarts) == (3, 1)
    assert plan_bids(again, again.begin or 0.0).entered == ("b", "c")


@pytest.mark.parametrize(("cluster", "number"), [("b", 1), ("c", 2)])
def test_the_winner_is_the_launch(cluster: str, number: int) -> None:
    before = note_bid(make_job(), cluster, reason="Priority")
    event = events.Promote(40.0, cluster)
    job = reduce(before, event)
    assert (job.cluster, job.launch, job.reason, job.restarts) == (cluster, number, "Priority", 0)
    assert find_bid(job, cluster) is None and len(job.bids) == 1
    assert transitions(before, job, event)[-1].text == f"goes to the cluster {cluster}: it is the first to have room"
    won = reduce(job, GRANT)
    assert (won.bids, reduce(won, events.LaunchLost(60.0, number, "node")).restarts) == ((), 1)


@pytest.mark.parametrize("before", [GRANT, events.Cancel(20.0), events.Withdraw(20.0, "b")])
def test_a_bid_that_is_gone_takes_no_place(before: Event) -> None:
    job = make_job(before)
    after = reduce(job, events.Promote(60.0, "b"))
    assert replace(after, late=job.late) == job and after.late == job.late + 1


def test_a_refusal_is_for_ever_and_a_loss_for_a_while() -> None:
    refused = make_job(events.Withdraw(20.0, "b", "no such account", refused=True))
    assert list_rivals(refused) == ("c",) and plan_bids(refused, 1e9) == ((), (), None)
    job = make_job(events.Withdraw(20.0, "b", "its nodes are gone"))
    assert plan_bids(job, 79.0) == ((), (), 80.0)
    assert plan_bids(job, 80.0).entered == ("b",)
    for number in range(2, 6):
        job = reduce(reduce(job, events.Enter(20.0, "b")), events.Withdraw(20.0 * number, "b", "again"))
    assert list_rivals(job) == ("c",)


def test_a_launch_that_is_refused_gives_its_place_away() -> None:
    job = make_job(events.Promote(20.0, "b", "no such account", refused=True))
    assert (job.cluster, list_rivals(job)) == ("b", ("c",))
    assert [(each.cluster, each.refused, each.launch) for each in job.passed] == [("a", True, None)]


def test_each_launch_is_a_job_of_its_own() -> None:
    job = make_job()
    mine, other = find_launch(job, 0), find_launch(job, 2)
    assert mine is not None and (mine.bids, mine.launch) == ((), 0)
    assert other is not None and (other.cluster, other.launch, other.bids, other.restarts) == ("c", 2, (), 0)
    assert find_launch(job, 3) is None


def test_who_does_not_race_has_no_bids() -> None:
    job = replace(make_job(), racers=(), bids=())
    assert plan_bids(job, 20.0) == ((), (), None)
    assert reduce(job, events.Enter(20.0, "b")).bids == ()


def test_bids_are_kept_in_documents() -> None:
    job = note_bid(make_job(), "b", handle="h", native_id="7", cursor="3")
    document = encode(job)
    assert decode(Job, document) == job
    for event in (events.Enter(1.0, "b"), events.Withdraw(1.0, "b", "no", True), events.Promote(1.0, "b", "no", True)):
        assert event_from_document(event_to_document(event)) == event


def test_a_clusters_own_patience_counts_while_there_is_a_reason_to_wait() -> None:
    spec = JobSpec("job", (TaskSpec("work", run="true"),), clusters=("a", "b"))
    job = reduce(replace(new_job(1, spec, 1.0), cluster="a"), events.Offer(10.0, "a", 12.5))
    assert failover_time(job) is None
    full = reduce(job, events.Queued(11.0, "Resources"))
    assert failover_time(full) == 22.5
    assert failover_time(reduce(full, events.Queued(12.0, "None"))) is None
    moved = reduce(full, events.Expire(22.5, "failover", "b"))
    assert (moved.cluster, failover_time(moved)) == ("b", None)
    told = replace(full, spec=replace(spec, failover_after=5))
    assert failover_time(told) == 15.0
