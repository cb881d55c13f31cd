"""Parts of groups across on this machine: what keeps them away, what is booked for them, and how they end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from overspan.adapters.contract import ClusterConfig
from overspan.adapters.local.launches.gated_launches import find_obstacle
from overspan.adapters.local.queue.booking import Capacity, list_variants
from overspan.adapters.local.settings import Settings, read_settings
from overspan.bridge.lifecycle.rules import RULES
from overspan.bridge.model import events
from overspan.bridge.model.deciders import Decider
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.parts import take_part
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.spec import JobSpec, TaskSpec

HERE = TaskSpec("a", run="true", cluster="local", ports=("8000",), resources=Resources(cpus=1), grace_period=5)
ALSO = replace(HERE, name="b", ports=("8001-8002",))
AWAY = replace(HERE, name="c", cluster="leo", resources=Resources(cpus=64))
OPEN = Settings(address="10.0.0.5")


def make_part(*tasks: TaskSpec) -> Job:
    return take_part(new_job(1, JobSpec("g", (*tasks, AWAY), group=True), 0.0), "local")


def test_only_parts_wait_at_a_start_gate_and_only_where_others_reach_this_machine() -> None:
    assert find_obstacle(make_part(HERE, ALSO), OPEN) == ""
    assert "set `address`" in find_obstacle(make_part(HERE), Settings())
    alone = new_job(1, JobSpec("g", (replace(HERE, cluster=""),), group=True), 0.0)
    assert find_obstacle(alone, OPEN) == "its launches start by themselves"


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ((HERE, replace(ALSO, ports=("7999-8001",))), "a and b name port 8000"),
        ((replace(HERE, num_nodes=2),), "the nodes of a name port 8000"),
    ],
)
def test_a_port_that_two_members_name_is_told_before_the_start(tasks: tuple[TaskSpec, ...], words: str) -> None:
    obstacle = find_obstacle(make_part(*tasks), OPEN)
    assert words in obstacle and "10.0.0.5" in obstacle


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "here"])
def test_an_address_that_nobody_else_reaches_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequest, match=r"10\.0\.0\.5"):
        read_settings(ClusterConfig("local", "local", {"address": address}))


def test_tasks_elsewhere_take_nothing_of_this_machine() -> None:
    (variant,) = list_variants(make_part(HERE, ALSO), Capacity(4000, 1000))
    assert [member.task for member in variant] == ["a", "b"]


def test_a_part_that_nobody_wants_gets_term_and_after_its_grace_kill() -> None:
    rules, job = RULES[Decider.DAEMON], make_part(HERE)
    job = rules.reduce(job, events.Launch(1.0, "a", 0))
    job = rules.reduce(job, events.NodeStarted(2.0, "a", 0, 0, 0))
    assert rules.decide(job, 3.0) == ((), None)
    job = rules.reduce(job, events.LaunchLost(4.0, 0, "CANCEL"))
    (term,) = rules.decide(job, 4.0).events
    assert isinstance(term, events.Terminate) and term.kill_at == 9.0
    job = rules.reduce(job, term)
    assert rules.decide(job, 5.0) == ((), 9.0)
    (kill,) = rules.decide(job, 9.0).events
    assert isinstance(kill, events.Kill)
    job = rules.reduce(job, kill)
    assert rules.decide(job, 10.0) == ((), None)
