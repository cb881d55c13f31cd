"""Gang start, needs and serial pipelines."""

from __future__ import annotations

import pytest
from tests.unit.lifecycle.world import World, auxiliary, causes, group, kinds, primary

from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event
from overspan.bridge.model.spec import JobSpec, Need, NeedKind, OnFailure, RestartScope, RetryPolicy
from overspan.bridge.model.states import State


def test_nothing_starts_before_the_grant() -> None:
    world = World(group(primary(), auxiliary()))
    assert world.decide() == []
    assert world.wake_at is None
    assert world.states() == "PENDING/None trainer=PENDING/None server=PENDING/None"


def test_all_tasks_start_in_one_decision() -> None:
    world = World(group(primary(), auxiliary(), primary("actor", num_nodes=2)))
    assert kinds(world.grant()) == ["Launch trainer", "Launch server", "Launch actor"]
    assert {event.at for event in world.journal} == {world.now}
    assert world.job.state is State.CONFIGURING
    assert len(world.attempt("actor").nodes) == 2


def test_a_job_runs_once_any_task_has_started_on_all_its_nodes() -> None:
    world = World(group(primary(num_nodes=2), auxiliary()))
    world.grant()
    world.apply(events.NodeStarted(1001, "trainer", 0, 1))
    assert (world.job.state, world.attempt("trainer").state) == (State.CONFIGURING, State.CONFIGURING)
    world.apply(events.NodeStarted(1002, "trainer", 0, 0))
    assert world.states() == "RUNNING/None trainer=RUNNING/None server=CONFIGURING/None"
    assert world.job.started_at == world.attempt("trainer").started_at == 1002


def test_the_grant_places_members() -> None:
    world = World(group(primary(num_nodes=2)))
    world.grant()
    assert [(p.task, p.index, p.node, p.address) for p in world.job.placements] == [
        ("trainer", 0, "n0", "127.0.0.1"),
        ("trainer", 1, "n1", "127.0.0.2"),
    ]


def _fulfil(world: World, kind: NeedKind) -> list[Event]:
    """Make the need of that kind on `a` true; what is decided then."""
    if kind is NeedKind.READY:
        assert world.apply(events.TaskReady(world.now, "a", 0))
        return world.decide()
    if kind is NeedKind.STARTED:
        assert world.apply(events.NodeStarted(world.now, "a", 0, 0))
        return world.decide()
    return world.end("a", 3 if kind is NeedKind.NOT_OK else 0)


@pytest.mark.parametrize("kind", list(NeedKind))
def test_a_task_starts_when_its_need_is_true(kind: NeedKind) -> None:
    world = World(group(auxiliary("a"), primary("b", needs=(Need("a", kind),))))
    assert kinds(world.grant()) == ["Launch a"]
    if kind is not NeedKind.STARTED:
        world.begin("a")
    assert world.task("b").state is State.PENDING
    assert kinds(_fulfil(world, kind)) == ["Launch b"]


def test_every_need_has_to_be_true() -> None:
    needs = (Need("a", NeedKind.READY), Need("c", NeedKind.STARTED))
    world = World(group(auxiliary("a"), primary("b", needs=needs), auxiliary("c")))
    world.grant()
    world.apply(events.TaskReady(world.now, "a", 0))
    assert world.decide() == []
    world.apply(events.NodeStarted(world.now, "c", 0, 0))
    assert kinds(world.decide()) == ["Launch b"]


def test_starts_before_a_requeue_do_not_meet_needs() -> None:
    world = World(group(auxiliary("a"), primary("b", needs=(Need("a"),)))).run()
    world.begin()
    world.order(events.Requeue(world.now))
    world.stop_all()
    assert world.job.state is State.PENDING
    assert kinds(world.grant()) == ["Launch a"]


def test_readiness_is_of_one_attempt() -> None:
    retry = RetryPolicy(max_restarts_on_errors=1)
    world = World(group(auxiliary("a", retry=retry), primary("b", needs=(Need("a", NeedKind.READY),)))).run()
    world.end("a", 1)
    world.advance(5)
    assert not world.apply(events.TaskReady(world.now, "a", 0)), "the probe of the first attempt came late"
    assert world.apply(events.TaskReady(world.now, "a", 1))
    assert kinds(world.decide()) == ["Launch b"]


def test_a_server_between_attempts_is_not_ready() -> None:
    retry = RetryPolicy(max_restarts_on_errors=1)
    trainer = primary("b", needs=(Need("a", NeedKind.READY),), retry=retry)
    world = World(group(auxiliary("a", retry=retry), trainer)).run()
    _fulfil(world, NeedKind.READY)
    world.begin()
    world.end("a", 1)
    world.end("b", 1)
    assert kinds(world.advance(10)) == ["Launch a"]
    world.apply(events.TaskReady(world.now, "a", 1))
    assert kinds(world.decide()) == ["Launch b"]


def _pipeline() -> JobSpec:
    return group(
        primary("prepare"),
        primary("train", needs=(Need("prepare", NeedKind.OK),)),
        primary("report", needs=(Need("train", NeedKind.OK),)),
    )


def test_a_pipeline_runs_one_stage_after_the_other() -> None:
    world = World(_pipeline())
    assert kinds(world.grant()) == ["Launch prepare"]
    world.begin()
    assert kinds(world.end("prepare")) == ["Launch train"]
    assert world.job.state is State.RUNNING
    world.begin()
    assert kinds(world.end("train")) == ["Launch report"]
    world.begin()
    world.end("report")
    assert world.states() == "COMPLETED/None prepare=COMPLETED/None train=COMPLETED/None report=COMPLETED/None"


def test_a_pipeline_skips_what_follows_a_failure() -> None:
    world = World(_pipeline()).run()
    world.end("prepare", 3)
    assert world.states() == (
        "FAILED/NonZeroExitCode prepare=FAILED/NonZeroExitCode train=CANCELLED/PrimaryFailed "
        "report=CANCELLED/PrimaryFailed"
    )
    assert world.job.exit_code == 3
    assert world.task("train").attempts == ()


def test_what_waits_for_the_impossible_is_skipped_in_a_chain() -> None:
    world = World(
        group(
            primary(),
            auxiliary("a"),
            auxiliary("b", needs=(Need("a", NeedKind.OK),)),
            auxiliary("c", needs=(Need("b", NeedKind.OK),)),
            auxiliary("d", needs=(Need("b", NeedKind.ENDED),)),
        )
    ).run()
    assert kinds(world.end("a", 1)) == ["Launch d"]
    assert [world.task(name).reason for name in "bc"] == ["DependencyNeverSatisfied"] * 2
    assert world.task("b").state is State.CANCELLED
    assert world.job.state is State.RUNNING


def test_a_primary_that_can_never_start_ends_the_job() -> None:
    world = World(group(auxiliary("a"), primary("b", needs=(Need("a", NeedKind.READY),)), auxiliary("c"))).run()
    assert causes(world.end("a", 0)) == {"c": "primary_failed"}
    world.stop_all()
    assert (world.job.state, world.job.reason) == (State.CANCELLED, "DependencyNeverSatisfied")


@pytest.mark.parametrize("kind", [NeedKind.OK, NeedKind.READY])
def test_the_failure_of_what_a_primary_needs_to_start_is_the_jobs(kind: NeedKind) -> None:
    tasks = (auxiliary("a"), auxiliary("b", needs=(Need("a", kind),)), primary("c", needs=(Need("b", kind),)))
    world = World(group(*tasks, auxiliary("d"))).run()
    assert causes(world.end("a", 3)) == {"d": "auxiliary_failed"}
    world.stop_all()
    assert (world.job.state, world.job.reason, world.job.exit_code) == (State.FAILED, "AuxiliaryFailed", 3)
    assert world.task("c").state is State.CANCELLED and world.task("c").reason == "DependencyNeverSatisfied"


def test_a_cancelled_task_that_a_primary_needs_is_no_failure() -> None:
    world = World(group(auxiliary("a"), primary("b", needs=(Need("a", NeedKind.READY),)))).run()
    world.order(events.Cancel(world.now, "a"))
    world.stop_all()
    assert (world.job.state, world.job.reason) == (State.CANCELLED, "DependencyNeverSatisfied")


def test_a_task_that_never_started_cannot_meet_started() -> None:
    world = World(group(auxiliary("a"), primary("b", needs=(Need("a"),))))
    world.grant()
    world.end("a", cause=Cause.LAUNCH.value)
    assert (world.job.state, world.job.reason) == (State.FAILED, "AuxiliaryFailed")


def test_a_rescue_that_is_not_needed_is_no_failure() -> None:
    world = World(group(primary("train"), primary("rescue", needs=(Need("train", NeedKind.NOT_OK),)))).run()
    world.end("train")
    assert world.states() == "COMPLETED/None train=COMPLETED/None rescue=CANCELLED/DependencyNeverSatisfied"


def test_nothing_starts_in_the_round_of_an_end_that_ends_the_job() -> None:
    server = auxiliary(
        num_nodes=2,
        on_failure=OnFailure.IGNORE,
        restart=RestartScope.NODE,
        retry=RetryPolicy(max_recoveries=1, max_restarts=1),
    )
    world = World(group(server, primary(needs=(Need("server", NeedKind.READY),))))
    world.grant()
    for node in (0, 1):
        world.apply(events.NodeStarted(world.now, "server", 0, node))
    world.apply(events.TaskReady(world.now, "server", 0))
    for node in (0, 1):
        # The first is to be started again; the second costs more than there is.
        world.apply(events.NodeEnded(world.now, "server", 0, node, cause=Cause.NODE.value))
    assert kinds(world.decide()) == ["Terminate server"]
    assert world.job.over and world.task("trainer").reason == "DependencyNeverSatisfied"
