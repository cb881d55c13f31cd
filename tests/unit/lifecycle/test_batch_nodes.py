"""Batch scripts with several nodes: the body decides, step daemons only wait."""

from __future__ import annotations

import pytest
from tests.unit.lifecycle.world import World, group, kinds, primary

from overspan.bridge.model import events
from overspan.bridge.model.allocations import HOLD_SCRIPT, has_body, is_held, runs_daemon
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.spec import Form, TaskSpec
from overspan.bridge.model.states import State

BODY = TaskSpec("batch", form=Form.BATCH, run="#!/bin/sh\n", num_nodes=3)
COMPONENT = TaskSpec("het-1", form=Form.BATCH, num_nodes=2, primary=False)


def test_who_runs_what() -> None:
    assert [runs_daemon(BODY, node) for node in range(3)] == [False, True, True]
    assert [runs_daemon(COMPONENT, node) for node in range(2)] == [True, True]
    assert not runs_daemon(primary(num_nodes=2), 1)
    held = TaskSpec("batch", form=Form.BATCH, run=HOLD_SCRIPT)
    assert [has_body(spec) for spec in (BODY, COMPONENT, held, primary())] == [True, False, True, False]
    assert [is_held(spec) for spec in (BODY, COMPONENT, held)] == [False, False, True]


@pytest.mark.parametrize(("code", "state"), [(0, State.COMPLETED), (3, State.FAILED), (143, State.FAILED)])
def test_the_end_of_the_body_ends_the_daemons_and_decides(code: int, state: State) -> None:
    world = World(group(BODY)).run()
    assert [node.index for node in world.attempt("batch").nodes] == [0, 1, 2]
    world.now += 5
    world.end("batch", code, node=0)
    assert world.attempt("batch").stop is not None
    world.stop_all()
    assert world.job.state is state
    assert (world.job.exit_code, world.job.signal) == (code, 0)


def test_a_daemon_that_ends_first_is_a_lost_node() -> None:
    world = World(group(BODY)).run()
    world.now += 5
    world.end("batch", 0, node=2)
    stop = world.attempt("batch").stop
    assert stop is not None and stop.cause is Cause.NODE
    world.stop_all()
    assert world.job.task("batch").recoveries == 1


def test_a_cancel_while_all_live() -> None:
    world = World(group(BODY)).run()
    world.now += 5
    world.order(events.Cancel(world.now))
    world.stop_all()
    assert world.job.state is State.CANCELLED


def test_other_components_end_with_the_body() -> None:
    world = World(group(BODY, COMPONENT)).run()
    world.now += 5
    world.end("batch", 0, node=0)
    made = world.stop_all() + world.stop_all()
    assert "Terminate het-1" in kinds(made) or world.attempt("het-1").stop is not None
    assert world.job.state is State.COMPLETED
    assert [task.state for task in world.job.tasks] == [State.COMPLETED, State.COMPLETED]
