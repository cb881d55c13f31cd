"""Members of elastic tasks: which come and go, and what a launch knows of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.lifecycle.decision import decide
from overspan.bridge.lifecycle.execution import execute
from overspan.bridge.lifecycle.members import (
    JoinedMember,
    MemberChanges,
    list_peers,
    may_grow,
    plan_members,
    takes_members,
    wanted_size,
)
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model import events
from overspan.bridge.model.elastic import SCALED, Elastic, MemberOf, Peer
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.states import State

ELASTIC = Elastic(2, 6, 3)


def make_group(elastic: Elastic = ELASTIC) -> Job:
    """A group that runs: a trainer, and the workers that it needs."""
    workers = TaskSpec("rollout", num_nodes=elastic.least, primary=False, elastic=elastic, termination_delay=5)
    job = new_job(7, JobSpec("rl", (TaskSpec("trainer"), workers), group=True), 1.0)
    places = [("trainer", 0, "n1", "10.0.0.1", ()), *(("rollout", i, "n1", f"10.0.1.{i}", ()) for i in range(2))]
    job = reduce(job, events.Granted(2.0, tuple(places)))
    for event in decide(job, 2.0).events:
        job = reduce(job, event)
    for task, nodes in (("trainer", 1), ("rollout", 2)):
        for node in range(nodes):
            job = reduce(job, events.NodeStarted(3.0, task, 0, node))
    return job


def join(*indices: int) -> list[JoinedMember]:
    return [JoinedMember(100 + index, index) for index in indices]


def test_the_lowest_free_index_comes_first_and_the_highest_goes_first() -> None:
    assert plan_members(ELASTIC, 4, join()) == MemberChanges((2, 3))
    assert plan_members(ELASTIC, 5, join(2, 4)) == MemberChanges((3,))
    assert plan_members(ELASTIC, 3, join(2, 3, 5)) == MemberChanges((), (105, 103))
    assert plan_members(ELASTIC, 3, join(5)) == MemberChanges()


def test_the_index_of_a_member_that_leaves_is_taken_until_it_has_left() -> None:
    leaving = JoinedMember(102, 2, leaves=True)
    assert plan_members(ELASTIC, 4, [leaving]) == MemberChanges((3, 4))
    assert plan_members(ELASTIC, 2, [leaving]) == MemberChanges()


def test_what_ended_by_itself_is_not_started_again() -> None:
    assert plan_members(ELASTIC, 4, join(3), given_up={2}) == MemberChanges()
    assert plan_members(ELASTIC, 5, join(3), given_up={2}) == MemberChanges((4,))
    # Where the index was given again since, nothing is missing.
    assert plan_members(ELASTIC, 4, join(2, 3), given_up={2}) == MemberChanges()


@given(st.integers(2, 6), st.sets(st.integers(2, 5)), st.sets(st.integers(2, 5)), st.sets(st.integers(2, 5)))
def test_a_plan_brings_the_task_to_its_size_and_never_beyond_its_bounds(
    target: int, present: set[int], leaving: set[int], given_up: set[int]
) -> None:
    joined = [JoinedMember(100 + index, index, index in leaving) for index in present]
    changes = plan_members(ELASTIC, target, joined, given_up)
    staying = present - leaving
    after = (staying - {job - 100 for job in changes.ended}) | set(changes.added)
    assert not (changes.added and changes.ended)
    assert not set(changes.added) & (present | given_up)
    assert all(ELASTIC.least <= index < ELASTIC.most for index in changes.added)
    if len(staying) + ELASTIC.least > target:
        # Those that ended by themselves cost no member that runs its place.
        assert len(after) + ELASTIC.least == target and max(after, default=0) <= max(staying)
    else:
        free = ELASTIC.most - ELASTIC.least - len(present | given_up)
        missing = target - ELASTIC.least - len(staying) - len(given_up - staying)
        assert len(changes.added) == max(0, min(missing, free))


def test_an_order_changes_the_size_and_none_gives_it_back_to_the_file() -> None:
    job = make_group()
    assert (wanted_size(job, "rollout"), may_grow(job, "rollout")) == (3, True)
    scaled = reduce(job, events.Scale(4.0, "rollout", 5, "ana"))
    assert (wanted_size(scaled, "rollout"), may_grow(scaled, "rollout")) == (5, False)
    assert reduce(scaled, events.Scale(4.5, "rollout", 5)).task("rollout").sized_at == 4.5
    assert scaled.task("trainer") == job.task("trainer") and scaled.state is State.RUNNING
    back = reduce(scaled, events.Scale(5.0, "rollout", None))
    assert (wanted_size(back, "rollout"), may_grow(back, "rollout")) == (3, True)
    assert reduce(job, events.Scale(4.0, "trainer", 2)).late == 1
    never = make_group(Elastic(2, 6, 3, scale_up_after=None))
    assert not may_grow(never, "rollout")


def test_members_join_a_task_that_runs_and_that_nobody_ends() -> None:
    job = make_group()
    assert takes_members(job, "rollout")
    waiting = new_job(7, job.spec, 1.0)
    assert not takes_members(waiting, "rollout")
    assert not takes_members(reduce(job, events.Suspend(4.0)), "rollout")
    assert not takes_members(reduce(job, events.Restart(4.0, "rollout")), "rollout")
    assert not takes_members(reduce(job, events.Cancel(4.0)), "rollout")


def test_a_launch_lists_its_members_with_their_states() -> None:
    job = make_group()
    assert list_peers(job)[0] == Peer("trainer", 0, "n1", "10.0.0.1", "RUNNING")
    lost = reduce(job, events.NodeEnded(4.0, "rollout", 0, 1))
    assert [(peer.task, peer.index) for peer in list_peers(lost)] == [("trainer", 0), ("rollout", 0)]
    member = MemberOf(7, "rl", 0, "rollout", 4)
    own = new_job(9, JobSpec("rollout-4", (TaskSpec("rollout"),), member=member, parent=7), 1.0)
    own = reduce(own, events.Granted(2.0, (("rollout", 0, "n2", "10.0.2.4", ()),)))
    own = reduce(own, events.Launch(2.0, "rollout", 0))
    assert list_peers(own) == (Peer("rollout", 4, "n2", "10.0.2.4", "CONFIGURING"),)


def test_the_list_of_the_highest_generation_counts_whoever_decides() -> None:
    job = make_group()
    second = events.SetPeers(4.0, 2, (("rollout", 4, "n2", "10.0.2.4", "RUNNING"),))
    for told in (reduce(job, second), execute(job, second)):
        assert told.peers == (Peer("rollout", 4, "n2", "10.0.2.4", "RUNNING"),) and told.generation == 2
        for step in (reduce, execute):
            assert step(told, events.SetPeers(5.0, 1, ())).peers == told.peers


def test_a_member_that_is_to_go_gets_a_notice_its_delay_and_then_term() -> None:
    job = make_group()
    ended = reduce(job, events.Cancel(10.0, by="scale", done=SCALED, delayed=True))
    told = ended
    for event in decide(ended, 10.0).events:
        told = reduce(told, event)
    assert events.Notice(10.0, "rollout", 15.0, "scaled_down") in decide(ended, 10.0).events
    due = decide(told, 15.0).events
    assert [type(event) for event in due if getattr(event, "task", "") == "rollout"] == [events.Terminate]
    # Whoever cancels it meanwhile ends the delay.
    now = reduce(told, events.Cancel(11.0))
    assert any(isinstance(event, events.Terminate) for event in decide(now, 11.0).events)
