"""The simulated lab: time, capacity, reasons, ends, and that a seed decides everything."""

from __future__ import annotations

from collections import Counter

import pytest

from overspan.tui.demo.lab import DemoLab
from overspan.tui.demo.machines import GIB
from overspan.tui.demo.records import DemoJob, JobWish, Life, TaskWish
from overspan.tui.demo.scenario import open_lab

NOW = 1_800_000_000.0


def wish(name: str = "fit", *tasks: TaskWish, gpus: int = 8, seconds: float = 600, end: str = "success") -> JobWish:
    """A job on the cluster leo, of one task that takes a machine, or of these."""
    single = TaskWish("batch", 1, 8, 8 * GIB, gpus, True, "training", (Life(seconds, end),))
    return JobWish(name, "ana", "leo", "gpu", tasks or (single,), 7200, group=bool(tasks))


def play(*wishes: JobWish) -> tuple[DemoLab, list[DemoJob]]:
    """A quiet lab with these jobs."""
    lab = DemoLab(1, NOW)
    return lab, [lab.submit(each) for each in wishes]


def look(lab: DemoLab) -> list[tuple[int, str, str, str, float | None]]:
    """The jobs as they stand, and their machines."""
    machines = {job.id: str([run.nodes for task in job.tasks for run in task.attempts]) for job in lab.jobs.values()}
    return [(job.id, job.name, job.state, machines[job.id], job.ended_at) for job in lab.jobs.values()]


def test_the_same_seed_is_the_same_lab_however_its_time_is_cut() -> None:
    one, other, third = open_lab(NOW), open_lab(NOW), open_lab(NOW, seed=8)
    one.advance(NOW + 900)
    for second in range(0, 901, 7):
        other.advance(NOW + second)
    other.advance(NOW + 900)
    assert look(one) == look(other)
    third.advance(NOW + 900)
    assert look(one) != look(third)


def test_the_lab_is_busy_and_has_every_kind_of_end() -> None:
    lab = open_lab(NOW)
    states = Counter(job.state for job in lab.jobs.values())
    assert states["RUNNING"] >= 20 and 8 <= states["PENDING"] <= 40
    ends = {"COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL", "CONFIGURING", "SUSPENDED"}
    assert ends <= states.keys()
    reasons = {job.reason.partition(":")[0] for job in lab.live.values() if job.state == "PENDING"}
    wanted = {"Resources", "Priority", "Dependency", "JobHeldUser", "BeginTime", "AssocGrpGRES", "JobArrayTaskLimit"}
    assert wanted <= reasons
    assert {job.wish.cluster for job in lab.live.values()} == {"leo", "alps", "orbit", "local"}


def test_no_machine_ever_has_more_work_than_room() -> None:
    lab = open_lab(NOW)
    for minute in range(0, 600, 10):
        lab.advance(NOW + 60 * minute)
        for name, usage in lab.capacity.usages.items():
            running = [
                task.wish
                for job in lab.jobs.values()
                for task in job.tasks
                for run in task.attempts
                for node in run.nodes
                if run.live and node.node == name
            ]
            assert usage.gpus == sum(each.gpus for each in running) <= usage.machine.partition.gpus
            assert usage.cpus == sum(each.cpus for each in running) <= usage.machine.partition.cpus
            assert usage.memory == sum(each.memory for each in running) <= usage.machine.partition.memory


def test_a_job_waits_for_room_starts_and_ends() -> None:
    lab, jobs = play(*(wish(f"fit-{number}") for number in range(9)))
    assert [job.state for job in jobs[:7]] == ["CONFIGURING"] * 7
    assert [(job.state, job.reason) for job in jobs[7:]] == [("PENDING", "Resources"), ("PENDING", "Priority")]
    lab.advance(NOW + 5)
    assert jobs[0].state == "RUNNING" and jobs[0].started_at == NOW + 3
    lab.advance(NOW + 610)
    assert jobs[0].state == "COMPLETED" and jobs[8].state == "RUNNING"
    texts = [(each.task, each.end, each.cause) for each in jobs[0].timeline]
    assert texts[:3] == [
        ("", "PENDING", "Submitted"), ("", "CONFIGURING", "Granted"), ("batch", "CONFIGURING", "Launch"),
    ]  # fmt: skip
    assert texts[-2:] == [("batch", "COMPLETED", "NodeEnded"), ("", "COMPLETED", "NodeEnded")]


@pytest.mark.parametrize(
    ("end", "state", "reason"),
    [
        ("exit", "FAILED", "NonZeroExitCode"),
        ("memory", "OUT_OF_MEMORY", "OutOfMemory"),
        ("node", "NODE_FAIL", "NodeDown"),
        ("signal", "FAILED", "RaisedSignal"),
    ],
)
def test_a_run_ends_as_its_life_says(end: str, state: str, reason: str) -> None:
    lab, (job,) = play(wish(end=end))
    lab.advance(NOW + 700)
    assert (job.state, job.reason) == (state, reason)


def test_a_time_limit_ends_what_would_go_on() -> None:
    lab, (job,) = play(wish(seconds=99_999))
    lab.advance(NOW + 7190)
    assert job.state == "RUNNING"
    lab.advance(NOW + 7300)
    assert job.state == "TIMEOUT"


def test_a_group_waits_for_its_server_and_ends_with_its_primary() -> None:
    server = TaskWish("rollout", 2, 8, GIB, 4, False, "rollout", (Life(99_999),), ready_after=30)
    trainer = TaskWish("trainer", 1, 8, GIB, 4, True, "policy", (Life(300),), waits_for="rollout")
    lab, (job,) = play(wish("rl", trainer, server))
    lab.advance(NOW + 10)
    assert [(task.state, task.reason) for task in job.tasks] == [("PENDING", "Dependency"), ("RUNNING", "None")]
    lab.advance(NOW + 40)
    assert [task.state for task in job.tasks] == ["RUNNING", "RUNNING"]
    lab.advance(NOW + 335)
    assert job.state == "COMPLETING"
    lab.advance(NOW + 340)
    assert [(task.state, task.reason) for task in job.tasks] == [("COMPLETED", "None"), ("COMPLETED", "PrimariesDone")]
    assert all(not usage.gpus for usage in lab.capacity.usages.values())


def test_a_task_that_lost_its_machine_starts_again() -> None:
    lives = (Life(60, "node", detail="no heartbeat for 60 s"), Life(60))
    lab, (job,) = play(wish("rl", TaskWish("trainer", 1, 8, GIB, 8, True, "policy", lives)))
    lab.advance(NOW + 70)
    task = job.tasks[0]
    assert (job.state, task.state, task.restarts) == ("RUNNING", "RUNNING", 1)
    assert [(run.state, run.detail) for run in task.attempts] == [("NODE_FAIL", lives[0].detail), ("RUNNING", "")]
    lab.advance(NOW + 200)
    assert job.state == "COMPLETED"


def test_an_array_runs_so_many_elements_at_once_and_ends_with_the_last() -> None:
    lab, (array,) = play(wish(gpus=1)._replace(array=tuple(range(5)), throttle=2))
    assert (array.waiting, array.reason, array.state) == ([2, 3, 4], "JobArrayTaskLimit", "PENDING")
    for second in range(60, 6000, 60):
        lab.advance(NOW + second)
        assert sum(each.holds for each in lab.list_elements(array)) <= 2
    assert array.over and len(lab.list_elements(array)) == 5


def test_a_job_that_needs_another_waits_for_its_good_end() -> None:
    lab, (first,) = play(wish())
    second = lab.submit(wish("next")._replace(after=first.id))
    assert second.reason == "Dependency"
    lab.advance(NOW + 605)
    assert second.holds
    failing = lab.submit(wish(end="exit"))
    never = lab.submit(wish()._replace(after=failing.id))
    lab.advance(NOW + 1300)
    assert (never.state, never.reason) == ("PENDING", "DependencyNeverSatisfied")
