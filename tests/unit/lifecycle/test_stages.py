"""Stages of a pipeline: each is a launch of its own, and holds nothing before its turn."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.lifecycle.world import StageWorld, World, kinds, lost, primary

from overspan.bridge.lifecycle.bids import list_rivals
from overspan.bridge.lifecycle.eligibility import judge
from overspan.bridge.lifecycle.failover import list_next
from overspan.bridge.lifecycle.readiness import describe_wait, reason_of
from overspan.bridge.lifecycle.stages import carry, split_stages
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.job import list_stages
from overspan.bridge.model.spec import JobSpec, Need, NeedKind, RetryPolicy, Start, TaskSpec
from overspan.bridge.model.states import State


def pipeline(*tasks: TaskSpec, **fields: Any) -> JobSpec:
    """Tasks that run one after the other."""
    chained = tuple(
        replace(task, needs=(*task.needs, Need(before.name, NeedKind.OK))) for before, task in itertools.pairwise(tasks)
    )
    return JobSpec("p", (tasks[0], *chained), start=Start.INDEPENDENT, **fields)


def start(*tasks: TaskSpec, **fields: Any) -> StageWorld:
    """A pipeline whose first stage runs."""
    world = StageWorld(pipeline(*(tasks or (primary("fit"), primary("judge"))), **fields))
    world.grant()
    world.begin()
    return world


def go_on(world: StageWorld, name: str) -> None:
    """The stage ends well, a minute later the next one runs."""
    world.end(name)
    world.now += 60
    world.grant()
    world.begin()


def test_a_launch_carries_one_stage() -> None:
    world = start()
    assert [task.name for task in carry(world.job).spec.tasks] == ["fit"]
    assert kinds(world.end("fit")) == []
    assert (world.job.state, world.job.granted_at, world.job.launch) == (State.PENDING, None, 1)
    assert [(task.name, task.needs) for task in carry(world.job).spec.tasks] == [("judge", ())]
    assert judge(world.job, world.now).now
    assert kinds(world.grant()) == ["Launch judge"]
    world.begin()
    assert world.job.state is State.RUNNING
    world.end("judge")
    assert world.states() == "COMPLETED/None fit=COMPLETED/None judge=COMPLETED/None"
    assert world.replayed() == world.job


def test_what_carries_the_stage_alone_comes_to_the_same_end() -> None:
    """The supervisor knows its launch only; its journal makes the daemon's facts."""
    world = StageWorld(pipeline(primary("fit", retry=RetryPolicy(max_restarts_on_errors=1)), primary("judge")))
    beside = StageWorld(pipeline(primary("fit"), primary("judge")))
    beside.job = carry(world.job)
    beside.run()
    beside.end("fit", 1)
    beside.advance(10)
    beside.begin()
    beside.end("fit")
    for event in beside.journal:
        assert world.apply(event)
    assert beside.job.state is State.COMPLETED
    assert world.job.task("fit") == beside.job.task("fit")
    assert world.states() == "PENDING/None fit=COMPLETED/None judge=PENDING/None"


def test_a_later_stage_waits_with_slurms_reason() -> None:
    world = StageWorld(pipeline(primary("fit"), primary("judge")))
    world.apply(events.Queued(world.now, "Resources"))
    assert [reason_of(world.job, task) for task in world.job.tasks] == ["Resources", "Dependency"]
    assert describe_wait(world.job, world.task("judge")) == "judge waits for fit to succeed"
    world.grant()
    world.begin()
    assert reason_of(world.job, world.task("judge")) == "Dependency"
    world.end("fit")
    world.apply(events.Queued(world.now, "Priority"))
    assert reason_of(world.job, world.task("judge")) == "Priority"


def test_the_failure_of_a_stage_skips_those_behind_it() -> None:
    world = start(primary("fit"), primary("judge"), primary("report"))
    world.end("fit", 3)
    assert world.states() == (
        "FAILED/NonZeroExitCode fit=FAILED/NonZeroExitCode judge=CANCELLED/PrimaryFailed report=CANCELLED/PrimaryFailed"
    )
    assert (world.job.exit_code, world.job.launch) == (3, 0)


def test_a_stage_in_its_back_off_keeps_its_launch() -> None:
    world = start(primary("fit", retry=RetryPolicy(max_restarts_on_errors=1)), primary("judge"))
    world.end("fit", 1)
    assert (world.job.launch, world.job.granted_at is not None) == (0, True)
    assert kinds(world.advance(10)) == ["Launch fit"]


def test_a_lost_launch_repeats_its_stage_alone() -> None:
    world = start()
    go_on(world, "fit")
    world.apply(lost(world, Cause.NODE))
    assert world.states() == "PENDING/BeginTime fit=COMPLETED/None judge=PENDING/None"
    assert (world.task("judge").recoveries, world.task("fit").recoveries) == (1, 0)
    assert (world.job.launch, world.job.restarts, world.job.relaunches, carry(world.job).restarts) == (2, 1, 1, 1)
    assert kinds(world.grant()) == ["Launch judge"]


def test_a_requeue_repeats_the_stage_that_runs() -> None:
    world = start()
    go_on(world, "fit")
    world.order(events.Requeue(world.now))
    world.stop_all()
    assert world.states() == "PENDING/None fit=COMPLETED/None judge=PENDING/None"
    assert [task.name for task in carry(world.job).tasks] == ["judge"]


def test_a_requeue_after_the_end_repeats_all_of_it() -> None:
    world = start()
    go_on(world, "fit")
    world.end("judge")
    world.order(events.Requeue(world.now))
    assert world.states() == "PENDING/None fit=PENDING/None judge=PENDING/None"
    assert [task.name for task in carry(world.job).tasks] == ["fit"]
    assert (world.job.relaunches, carry(world.job).restarts) == (0, 1)
    go = world.grant()
    assert kinds(go) == ["Launch fit"]


def test_stages_are_no_restarts() -> None:
    world = start(primary("fit"), primary("judge"), primary("report"))
    world.order(events.Requeue(world.now))
    world.stop_all()
    world.grant()
    world.begin()
    assert carry(world.job).restarts == 1
    go_on(world, "fit")
    go_on(world, "judge")
    assert (world.job.launch, world.job.restarts, carry(world.job).restarts, world.job.relaunches) == (3, 1, 0, 0)


def test_a_cancel_between_two_stages_ends_the_job() -> None:
    world = start()
    world.end("fit")
    world.order(events.Cancel(world.now))
    assert world.states() == "CANCELLED/None fit=COMPLETED/None judge=CANCELLED/None"


def test_a_hold_between_two_stages_keeps_the_next_one() -> None:
    world = start()
    world.end("fit")
    world.order(events.Hold(world.now))
    assert not judge(world.job, world.now).now
    world.order(events.Release(world.now))
    assert judge(world.job, world.now).now


def test_a_stage_that_ended_keeps_its_nodes_name() -> None:
    world = start()
    go_on(world, "fit")
    assert [(place.task, place.node) for place in world.job.placements] == [("fit", "n-fit"), ("judge", "n-judge")]
    assert [place.task for place in carry(world.job).placements] == ["judge"]


def test_a_pipeline_stays_on_the_cluster_of_its_first_stage() -> None:
    world = StageWorld(pipeline(primary("fit"), primary("judge"), clusters=("a", "b"), race=True))
    world.job = replace(world.job, cluster="a", racers=("a", "b"))
    assert list_rivals(world.job) == ("b",)
    alone = replace(world.job, racers=())
    assert [place.cluster for place in list_next(alone)] == ["b"]
    world.grant()
    world.begin()
    world.end("fit")
    assert list_rivals(world.job) == () == list_next(replace(world.job, racers=()))
    assert carry(world.job).racers == ()


def test_only_what_runs_can_be_restarted() -> None:
    world = start()
    go_on(world, "fit")
    assert not world.apply(events.Restart(world.now, "fit"))
    world.order(events.Restart(world.now))
    assert world.task("fit").state is State.COMPLETED


@pytest.mark.parametrize(
    "spec",
    [
        replace(pipeline(primary("a"), primary("b")), start=Start.TOGETHER),
        pipeline(primary("a"), primary("b", share="a")),
        JobSpec("p", (primary("a"), primary("b")), start=Start.INDEPENDENT),
        JobSpec("p", (primary("a"),), start=Start.INDEPENDENT),
    ],
    ids=["together", "shared nodes", "no chain", "one task"],
)
def test_what_is_no_pipeline_is_launched_as_a_whole(spec: JobSpec) -> None:
    world = World(spec)
    assert list_stages(spec) == () and world.job.stage is None
    assert carry(world.job) is world.job and split_stages(world.job) == (world.job,)


def test_a_launch_of_the_version_before_carries_all_tasks_to_its_end() -> None:
    world = World(pipeline(primary("fit"), primary("judge")))
    world.job = replace(world.job, stage=None)
    world.run()
    assert kinds(world.end("fit")) == ["Launch judge"]
    world.begin()
    world.order(events.Requeue(world.now))
    world.stop_all()
    # Its next launch is of this version.
    assert [task.name for task in carry(world.job).tasks] == ["fit"]
