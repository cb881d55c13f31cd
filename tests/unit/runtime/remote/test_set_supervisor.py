"""The supervisor of one task of a set: its start gate, its peers, and when it leaves. Nothing is started here."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from overspan.bridge.lifecycle.execution import execute
from overspan.bridge.model import events
from overspan.bridge.model.documents import encode
from overspan.bridge.model.events import Event, Launch, event_to_document
from overspan.bridge.model.job import Job, Placement, new_job
from overspan.bridge.model.spec import JobSpec, Need, NeedKind, RetryPolicy, Start, TaskSpec
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.core.supervised_launch import Services, SupervisedLaunch
from overspan.bridge.runtime.slurm.member_locations import (
    append_locations,
    locations_path,
    read_locations,
    render_locations,
)
from overspan.bridge.runtime.slurm.run_files import SharedFiles, lock_orders
from overspan.bridge.runtime.slurm.set_supervisor import START_SECONDS, SetSupervisor, exit_of, keep_until

SPEC = JobSpec(name="g", group=True, start_timeout=60, tasks=(TaskSpec(name="a", run="x"), TaskSpec(name="b", run="y")))
PEER = Placement("b", 0, "n9", "10.0.0.9")


class Bench:
    """The job of task a, which began at 0."""

    def __init__(self, folder: Path, *before: Event, **changes: Any) -> None:
        self.directory = RunDirectory(str(folder), 0, "members/a/0")
        os.makedirs(self.directory.own)
        job = play(*before, job=new_job(7, replace(SPEC, **changes), 1.0))
        plan = {"format": 1, "token": "t", "job": encode(job), "environment": {}, "cluster": "c", "decider": "daemon"}
        step = {"task": "a", "component": 0, "members": [0], "nodes": [0], "options": []}
        placement = {"format": 1, "token": "t", "components": [{"nodes": 1}], "steps": [step]}
        for name, document in (("plan", plan), ("placement", placement)):
            Path(self.directory.file(f"{name}.json")).write_text(json.dumps(document))
        variables = {"SLURM_JOB_ID": "101", "SLURM_JOB_NODELIST": "localhost", "SLURMD_NODENAME": "localhost"}
        variables["SLURM_JOB_PARTITION"] = "main"
        self.member = SetSupervisor(SharedFiles(self.directory), variables, "a")
        self.member._began = 0.0
        services = Services(self.member._grant, self.member._open_nodes, lambda text: None)
        self.run = SupervisedLaunch(self.directory, services, 0.0)

    def turn(self, now: float) -> None:
        self.member._prepare(self.run, now)
        self.run.advance((), now)
        self.member._attend(self.run, now)

    def order(self, event: Event) -> None:
        line = json.dumps({"seq": 1, "event": event_to_document(event)})
        Path(self.directory.file("orders.jsonl")).write_text(f"{line}\n")

    def seat_peer(self) -> None:
        append_locations(locations_path(self.directory.path, "b", 0), render_locations([PEER], "102"))

    @property
    def closed(self) -> bool:
        return os.path.exists(self.directory.file("closed"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_it_tells_where_it_is_and_learns_where_the_others_are(bench: Bench) -> None:
    (own,) = read_locations(locations_path(bench.directory.path, "a", 0))
    assert (own.task, own.node) == ("a", "localhost") and own.address
    bench.turn(1.0)
    assert list(bench.run.job.placements) == [own]
    assert '"partition":"main"' in Path(bench.directory.file("journal.jsonl")).read_text()
    bench.seat_peer()
    bench.turn(1.1)
    assert list(bench.run.job.placements) == [own, PEER]


def test_nodes_are_given_back_when_the_others_do_not_come(bench: Bench) -> None:
    bench.turn(59.0)
    assert not bench.run.done and not bench.closed
    bench.turn(61.0)
    assert bench.run.done and bench.closed
    assert bench.member._judge(bench.run.job) == 75
    assert Path(bench.directory.file("journal.jsonl")).read_text().endswith('{"end":true}\n')


def test_without_a_word_of_the_file_there_is_a_limit(tmp_path: Path) -> None:
    bench = Bench(tmp_path, start_timeout=None)
    bench.turn(START_SECONDS - 1.0)
    assert not bench.run.done
    bench.turn(START_SECONDS + 1.0)
    assert bench.run.done


def test_who_starts_by_himself_waits_for_nobody(tmp_path: Path) -> None:
    bench = Bench(tmp_path, start=Start.INDEPENDENT)
    bench.turn(1e6)
    assert not bench.run.done


def test_who_waits_for_another_task_is_patient_once_all_stand(tmp_path: Path) -> None:
    tasks = (replace(SPEC.tasks[0], needs=(Need("b"),)), SPEC.tasks[1])
    bench = Bench(tmp_path, tasks=tasks)
    bench.seat_peer()
    bench.turn(1e6)
    assert not bench.run.done


def test_nobody_waits_at_the_start_gate_for_a_deferred_task(tmp_path: Path) -> None:
    late = TaskSpec(name="c", run="z", needs=(Need("b", NeedKind.OK),))
    tasks = (replace(SPEC.tasks[0], needs=(Need("b", NeedKind.READY),)), SPEC.tasks[1], late)
    bench = Bench(tmp_path, tasks=tasks, start=Start.TURNS)
    bench.seat_peer()
    bench.turn(1e6)
    assert not bench.run.done


def test_an_order_at_the_last_moment_is_heard(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    bench.member._prepare(bench.run, 61.0)
    bench.run.advance((), 61.0)
    bench.order(Launch(61.0, "a", 0))
    bench.member._attend(bench.run, 61.0)
    attempt = bench.run.job.task("a").current
    assert attempt is not None and not bench.closed
    # There is no srun here: the attempt has failed, and what has no budget is not waited for.
    assert attempt.nodes[0].cause is not None
    bench.turn(62.0)
    assert bench.run.done and bench.closed


@pytest.mark.parametrize("cause", ["requeue", ""])
def test_an_attempt_of_the_launch_before_says_nothing_of_this_one(tmp_path: Path, cause: str) -> None:
    """It was lost or put back, its task has no budget: the nodes are kept for the start all the same."""
    stop = [events.Terminate(-8.0, "a", 0, cause, -5.0)] if cause else []
    bench = Bench(tmp_path, Launch(-10.0, "a", 0), *stop, events.NodeEnded(-6.0, "a", 0, 0, signal=9))
    bench.turn(1.0)
    assert not bench.closed
    bench.turn(61.0)
    assert bench.closed and bench.member._gave_up


def test_nobody_leaves_while_an_order_is_being_added(bench: Bench) -> None:
    with lock_orders(bench.directory.file("orders.jsonl")) as locked:
        assert locked
        bench.turn(61.0)
        assert not bench.run.done
    bench.turn(62.0)
    assert bench.run.done


KEPT = new_job(
    7,
    JobSpec(
        name="g",
        group=True,
        tasks=(
            TaskSpec(name="a", run="x", num_nodes=2, retry=RetryPolicy(max_restarts_on_errors=1)),
            TaskSpec(name="b", run="y", primary=False),
        ),
    ),
    1.0,
)
LAUNCH = Launch(10.0, "a", 3)


def play(*happened: Event, job: Job = KEPT) -> Job:
    for event in happened:
        job = execute(job, event)
    return job


def ended(*codes: int) -> list[Event]:
    return [events.NodeEnded(20.0 + node, "a", 3, node, exit_code=code) for node, code in enumerate(codes)]


@pytest.mark.parametrize(
    ("happened", "until", "status"),
    [
        ((), None, 0),
        ((LAUNCH,), None, 0),
        ((LAUNCH, *ended(0, 0)), 21.0, 0),
        ((LAUNCH, *ended(0, 4)), 51.0, 4),
        ((LAUNCH, events.Terminate(11.0, "a", 3, "primaries_done", 40.0), *ended(3, 143)), 21.0, 3),
        ((LAUNCH, events.Terminate(11.0, "a", 3, "restart", 40.0), *ended(0, 143)), 51.0, 143),
    ],
)
def test_nodes_are_kept_for_what_may_start_again(happened: Sequence[Event], until: float | None, status: int) -> None:
    job = play(*happened)
    assert keep_until(job, "a", 30) == until
    assert exit_of(job, "a") == status


@pytest.mark.parametrize(("keep", "until"), [(0, 20.0), (60, 80.0)])
def test_nodes_are_not_kept_for_what_has_no_budget(keep: int, until: float) -> None:
    job = replace(KEPT, spec=replace(KEPT.spec, hold_on_failure=keep))
    failed = play(events.Launch(10.0, "b", 0), events.NodeEnded(20.0, "b", 0, 0, exit_code=3), job=job)
    assert keep_until(failed, "b", 30) == until


def test_a_signal_tells_as_in_a_shell() -> None:
    assert exit_of(play(LAUNCH, events.NodeEnded(20.0, "a", 3, 0, signal=9)), "a") == 137
