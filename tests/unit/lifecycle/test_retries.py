"""Budgets, backoff and what starts again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.lifecycle.world import World, auxiliary, causes, group, kinds, primary

from overspan.bridge.lifecycle.retries import backoff_delay
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.spec import Backoff, OnFailure, RestartScope, RetryPolicy, TaskSpec
from overspan.bridge.model.states import State

STEADY = Backoff(first=10, factor=2, limit=60, jitter=0)


def _fail(world: World, times: int, code: int = 1, name: str = "trainer", cause: Cause | None = None) -> None:
    """Let a task fail so often, and start again where it may."""
    for _ in range(times):
        # A negative code is a signal.
        world.end(name, max(code, 0), signal=max(-code, 0), cause=cause.value if cause else "")
        world.advance(400)
        world.begin()


@pytest.mark.parametrize(
    ("policy", "cause", "code", "attempts"),
    [
        (RetryPolicy(), None, 1, 1),
        (RetryPolicy(max_restarts_on_errors=2), None, 1, 3),
        (RetryPolicy(max_restarts_on_errors=2), Cause.MEMORY, 137, 3),
        (RetryPolicy(max_restarts_on_errors=2), Cause.SETUP, 1, 3),
        (RetryPolicy(max_restarts_on_errors=9, max_restarts=4), None, 1, 5),
        (RetryPolicy(max_restarts_on_errors=1, recover_on_exit_codes=(42,), max_restarts=4), None, 42, 5),
        (RetryPolicy(max_restarts_on_errors=1, recover_on_exit_codes=(42,), max_restarts=4), None, 41, 2),
        (RetryPolicy(recover_on_exit_codes=(137,), max_restarts=4), None, -9, 5),
        (RetryPolicy(recover_on_exit_codes=(137,), max_restarts=4), None, -15, 1),
        (RetryPolicy(max_recoveries=2), Cause.NODE, 0, 3),
        (RetryPolicy(max_recoveries=2), Cause.PREEMPTION, 0, 3),
        (RetryPolicy(max_recoveries=2), Cause.BOOT, 0, 3),
        (RetryPolicy(max_recoveries=9, max_restarts=4), Cause.NODE, 0, 5),
        (RetryPolicy(max_recoveries=0, max_restarts_on_errors=5), Cause.NODE, 0, 1),
        (RetryPolicy(max_restarts_on_errors=9), Cause.TIME, 0, 1),
        (RetryPolicy(max_restarts_on_errors=9), Cause.CANCEL, 0, 1),
    ],
)
def test_budgets(policy: RetryPolicy, cause: Cause | None, code: int, attempts: int) -> None:
    world = World(group(primary(retry=policy))).run()
    while not world.job.over:
        _fail(world, 1, code, cause=cause)
    assert len(world.task("trainer").attempts) == attempts
    assert [attempt.number for attempt in world.task("trainer").attempts] == list(range(attempts))


def test_each_budget_counts_its_own() -> None:
    policy = RetryPolicy(max_restarts_on_errors=3, max_recoveries=3, recover_on_exit_codes=(42,))
    world = World(group(primary(retry=policy))).run()
    _fail(world, 1)
    _fail(world, 2, cause=Cause.NODE)
    _fail(world, 1, 42)
    task = world.task("trainer")
    assert (task.errors, task.recoveries, task.restarts) == (1, 2, 4)


def test_between_attempts_the_job_waits_with_its_next_start_known() -> None:
    world = World(group(primary(retry=RetryPolicy(max_restarts_on_errors=5, backoff=STEADY)))).run()
    for delay in (10, 20, 40, 60, 60):
        world.end("trainer", 1)
        assert world.states() == "PENDING/BeginTime trainer=PENDING/BeginTime"
        assert world.task("trainer").next_start == world.wake_at == world.now + delay
        assert world.advance(delay - 1) == []
        assert kinds(world.advance(1)) == ["Launch trainer"]
        assert world.task("trainer").next_start is None
        world.begin()


def test_a_retry_in_place_leaves_the_others_alone() -> None:
    world = World(group(primary(), auxiliary(retry=RetryPolicy(max_restarts_on_errors=1, backoff=STEADY)))).run()
    assert world.end("server", 1) == []
    assert world.states() == "RUNNING/None trainer=RUNNING/None server=PENDING/BeginTime"
    assert kinds(world.advance(10)) == ["Launch server"]
    assert world.job.launch == 0


def test_the_exit_code_of_any_node_counts_for_recovery() -> None:
    world = World(group(primary(num_nodes=2, retry=RetryPolicy(recover_on_exit_codes=(42,))))).run()
    world.end("trainer", 1, node=0)
    world.now += 1
    world.end("trainer", 42, node=1)
    assert world.task("trainer").state is State.PENDING
    assert world.task("trainer").errors == 0


def test_a_replay_finds_the_same_next_start() -> None:
    world = World(group(primary(retry=RetryPolicy(max_restarts_on_errors=3)))).run()
    _fail(world, 2)
    world.end("trainer", 1)
    due = world.task("trainer").next_start
    assert due is not None and due != world.now + 4.0, "there is jitter"
    assert world.replayed() == world.job


def _group_of(restart: RestartScope | None, on_job: RestartScope | None) -> World:
    tasks: tuple[TaskSpec, ...] = (primary(restart=restart), primary("actor"), auxiliary(), auxiliary("b"))
    return World(group(*tasks, restart=on_job)).run()


@pytest.mark.parametrize(
    ("restart", "on_job", "regroups"),
    [
        (None, None, False),
        (RestartScope.GROUP, None, True),
        (None, RestartScope.GROUP, True),
        (RestartScope.TASK, RestartScope.GROUP, False),
    ],
)
def test_a_lost_node_restarts_its_task_or_the_group(
    restart: RestartScope | None, on_job: RestartScope | None, regroups: bool
) -> None:
    world = _group_of(restart, on_job)
    made = world.end("trainer", cause=Cause.NODE.value)
    others = {"actor": "group_restart", "server": "group_restart", "b": "group_restart"}
    assert causes(made) == (others if regroups else {})


def test_a_group_restarts_together_once_all_have_ended() -> None:
    policy = RetryPolicy(backoff=STEADY)
    spec = group(primary(retry=policy), primary("actor"), auxiliary(), restart=RestartScope.GROUP)
    world = World(spec).run()
    world.end("trainer", cause=Cause.NODE.value)
    world.now += 2
    world.end("actor", signal=15)
    assert world.advance(3) == [], "the actor waits for the server's end, and for the trainer's backoff"
    world.end("server", signal=15)
    assert world.advance(4) == []
    assert kinds(world.advance(1)) == ["Launch trainer", "Launch actor", "Launch server"]
    assert [task.recoveries for task in world.job.tasks] == [1, 0, 0]
    assert [task.restarts for task in world.job.tasks] == [1, 0, 0]
    assert {attempt.number for attempt in map(world.attempt, ("trainer", "actor", "server"))} == {1}


def test_a_slow_end_keeps_the_whole_group_waiting() -> None:
    policy = RetryPolicy(backoff=STEADY)
    world = World(group(primary(retry=policy), auxiliary(grace_period=100), restart=RestartScope.GROUP)).run()
    world.end("trainer", cause=Cause.NODE.value)
    assert world.advance(50) == []
    assert kinds(world.end("server", signal=15)) == ["Launch trainer", "Launch server"]


def test_two_tasks_on_the_lost_node_restart_the_group_once() -> None:
    tasks = (primary(retry=RetryPolicy(backoff=STEADY)), primary("actor"), auxiliary())
    world = World(group(*tasks, restart=RestartScope.GROUP)).run()
    for name in ("trainer", "actor"):
        world.apply(events.NodeEnded(world.now, name, 0, 0, cause=Cause.NODE.value))
    assert causes(world.decide()) == {"server": "group_restart"}
    world.stop_all()
    assert kinds(world.advance(400)) == ["Launch trainer", "Launch actor", "Launch server"]
    world.begin()
    assert world.advance(400) == []
    assert sum(task.recoveries for task in world.job.tasks) == 1


def test_what_is_over_stays_over_when_the_group_restarts() -> None:
    world = World(group(primary(), primary("actor"), auxiliary(), restart=RestartScope.GROUP)).run()
    world.end("actor")
    world.end("server", 1)
    world.end("trainer", cause=Cause.NODE.value)
    assert kinds(world.advance(400)) == ["Launch trainer"]


def test_user_errors_never_restart_the_group() -> None:
    retry = RetryPolicy(max_restarts_on_errors=1)
    world = World(group(primary(retry=retry), auxiliary(), restart=RestartScope.GROUP)).run()
    assert world.end("trainer", 1) == []
    assert kinds(world.advance(400)) == ["Launch trainer"]


def test_a_restarting_auxiliary_is_bounded_by_infrastructure_too() -> None:
    retry = RetryPolicy(max_recoveries=1)
    world = World(group(primary(), auxiliary(on_failure=OnFailure.RESTART, retry=retry))).run()
    _fail(world, 1, name="server", cause=Cause.NODE)
    assert causes(world.end("server", cause=Cause.NODE.value)) == {"trainer": "auxiliary_failed"}


# --- backoff ---------------------------------------------------------------------------------------------------------


@given(
    st.builds(
        Backoff,
        first=st.floats(0, 1e6),
        factor=st.floats(1, 1e300),
        limit=st.floats(0, 1e6),
        jitter=st.floats(0, 1),
    ),
    st.integers(0, 10**6),
    st.text(max_size=5),
)
def test_backoff_is_bounded_and_the_same_for_the_same_seed(backoff: Backoff, retries: int, seed: str) -> None:
    delay = backoff_delay(backoff, retries, seed)
    assert 0 <= delay <= backoff.limit * (1 + backoff.jitter)
    assert delay == backoff_delay(backoff, retries, seed)


def test_backoff_varies_with_the_seed() -> None:
    delays = {backoff_delay(Backoff(), 3, f"7.trainer.{number}") for number in range(50)}
    assert len(delays) == 50
    assert 6.4 <= min(delays) < 7.2 < 8.8 < max(delays) <= 9.6
