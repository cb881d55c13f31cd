"""The queue of the local cluster with real processes: who is next, why the others wait, what orders change."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract.conformance import Follower, handle_of
from tests.system.local.stories import make_job, make_launches, open_on, order_of, play, reasons, submit

from overspan.adapters.local import LocalCluster
from overspan.adapters.local.launches import launches
from overspan.adapters.local.launches.launches import GrantFacts, LocalLaunch
from overspan.bridge.model.events import (
    Cancel,
    Hold,
    Preempt,
    Queued,
    Release,
    SetBegin,
    SetNice,
    SetPriority,
    SetTime,
)
from overspan.bridge.model.job import Job
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.states import State


def test_the_queue_is_strict_and_says_why(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        jobs = [make_job(root, number) for number in (1, 2, 3)]
        small = make_job(root, 4, resources=Resources(cpus=0.001))
        follower = await submit(cluster, *jobs, small)
        await follower.until_state("1.0", State.RUNNING)
        await follower.step(0.0)
        assert reasons(follower, "1.0") == []
        assert reasons(follower, "2.0")[-1] == "Resources"
        assert reasons(follower, "3.0")[-1] == "Priority"
        assert reasons(follower, "4.0")[-1] == "Priority"
        (node,) = await cluster.nodes()
        assert (node.state, node.cpus, node.cpus_used) == ("allocated", 1.0, 1.0)
        (root.parent / "go").touch()
        await follower.until(lambda: all(job.over for job in follower.jobs.values()), "all ran")
        granted = [job.granted_at or 0.0 for job in follower.jobs.values()]
        assert granted == sorted(granted)
        await follower.until(lambda: not list((root / "tickets").iterdir()), "everything is given back")
        (node,) = await cluster.nodes()
        assert (node.state, node.cpus_used) == ("idle", 0.0)

    play(open_on(root), story)


def test_the_first_in_the_queue_is_told_when_it_starts_at_the_latest(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        jobs = [make_job(root, 1, time=500), make_job(root, 2), make_job(root, 3)]
        follower = await submit(cluster, *jobs)
        await follower.until_state("1.0", State.RUNNING)
        await follower.step(0.0)
        told = {
            handle: [e.until for e in follower.events[handle] if isinstance(e, Queued)] for handle in ("2.0", "3.0")
        }
        assert told["2.0"][-1] == pytest.approx((follower.jobs["1.0"].granted_at or 0) + 500, abs=1)
        assert told["3.0"] == [None]
        now = time.time()
        await cluster.order([order_of("longer", "1.0", SetTime(now, 900)), order_of("nice", "3.0", SetNice(now, -1))])
        await follower.until(lambda: follower.jobs["3.0"].reason == "Resources", "3 is the first")
        (last,) = [e for e in follower.events["3.0"] if isinstance(e, Queued) and e.reason == "Resources"]
        assert last.until == pytest.approx((follower.jobs["1.0"].granted_at or 0) + 900, abs=1)
        (root.parent / "go").touch()
        await follower.until(lambda: all(job.over for job in follower.jobs.values()), "all ran")

    play(open_on(root), story)


def test_what_cannot_be_granted_on_a_full_disk_is_told_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    write = launches.write_grant

    def fail(run: LocalLaunch, facts: GrantFacts) -> None:
        tried.append(run.handle)
        if len(tried) < 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(run, facts)

    async def story(cluster: LocalCluster) -> None:
        monkeypatch.setattr(launches, "write_grant", fail)
        follower = await submit(cluster, make_job(root, 1))
        await follower.until_state("1.0", State.RUNNING)
        assert reasons(follower, "1.0") == ["Resources: No space left on device"]
        (root.parent / "go").touch()
        await follower.until(lambda: follower.jobs["1.0"].over, "it ran")

    play(open_on(root), story)
    assert len(tried) == 4


def test_a_launch_that_has_to_wait_for_something_else_is_given_back(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, *(make_job(root, number) for number in (1, 2)))
        await follower.until_state("1.0", State.RUNNING)
        now = time.time()
        assert await cluster.order([order_of("begin", "2.0", SetBegin(now, now + 1000))]) == [None]
        await follower.until(lambda: follower.jobs["2.0"].launch == 1, "2 is back")
        assert (follower.jobs["2.0"].state, follower.jobs["2.0"].held) == (State.PENDING, False)
        assert [path.name for path in (root / "tickets").iterdir()] == ["1.0"]
        (root.parent / "go").touch()
        await follower.until(lambda: follower.jobs["1.0"].over, "1 ran")

    play(open_on(root), story)


def test_a_preemption_goes_on_after_a_restart(root: Path) -> None:
    stubborn = "trap '' TERM; touch up; while [ ! -e go ]; do sleep 0.02; done"

    def make_jobs() -> list[Job]:
        low, high = make_job(root, 1, stubborn), make_job(root, 2, "true")
        return [low, replace(high, priority=5)]

    async def first(cluster: LocalCluster) -> None:
        jobs = make_jobs()
        follower = await submit(cluster, jobs[0])
        await follower.until((root.parent / "up").exists, "1 does not hear of TERM any more")
        follower = await submit(cluster, *jobs)
        # A state that passes may be over when its news is read.
        await follower.until(lambda: any(isinstance(e, Preempt) for e in follower.events["1.0"]), "1 has to leave")

    async def second(cluster: LocalCluster) -> None:
        jobs = make_jobs()
        follower = Follower(cluster, {f"{job.id}.0": job for job in jobs})
        await follower.until_state("2.0", State.COMPLETED)
        low = follower.jobs["1.0"]
        assert (low.state, low.launch, low.tasks[0].attempts[0].state) == (State.PENDING, 1, State.PREEMPTED)
        orders = (root / "runs" / "1" / "orders.0.jsonl").read_text().splitlines()
        assert len(orders) == 1

    settings: dict[str, Any] = {"preempt": "requeue", "preempt_grace": 1}
    play(open_on(root, **settings), first)
    play(open_on(root, make_launches(*make_jobs()), **settings), second)


def test_orders_change_the_queue(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, *(make_job(root, number) for number in (1, 2, 3, 4)))
        await follower.until_state("1.0", State.RUNNING)
        now = time.time()
        orders = [
            order_of("hold", "2.0", Hold(now)),
            order_of("first", "4.0", SetPriority(now, 10)),
            order_of("never", "3.0", Cancel(now, by="me")),
            order_of("never", "3.0", Cancel(now, by="me")),
        ]
        for _ in range(2):
            assert await cluster.order(orders) == [None] * 4
        await follower.until_state("3.0", State.CANCELLED)
        await follower.until(lambda: follower.jobs["4.0"].priority == 10, "4 has its priority")
        assert follower.jobs["2.0"].reason == "JobHeldUser"
        assert follower.jobs["4.0"].reason == "Resources"
        assert all(job.late == 0 for job in follower.jobs.values())
        (root.parent / "go").touch()
        await follower.until_state("4.0", State.FAILED)
        assert follower.jobs["2.0"].state is State.PENDING
        await cluster.order([order_of("release", "2.0", Release(now))])
        await follower.until_state("2.0", State.FAILED)

    play(open_on(root), story)


def test_a_launch_that_is_submitted_held_starts_at_its_release(root: Path) -> None:
    """So is one whose submission was in doubt when somebody held it."""

    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, replace(make_job(root, 1), held=True), make_job(root, 2))
        await follower.until_state("2.0", State.RUNNING)
        (root.parent / "go").touch()
        await follower.until_state("2.0", State.FAILED)
        assert follower.jobs["1.0"].state is State.PENDING
        await cluster.order([order_of("hold", "1.0", Hold(time.time()))])
        await cluster.order([order_of("release", "1.0", Release(time.time()))])
        await follower.until_state("1.0", State.FAILED)

    play(open_on(root), story)


def test_a_wait_goes_on_after_a_restart(root: Path) -> None:
    async def first(cluster: LocalCluster) -> None:
        follower = await submit(cluster, *(make_job(root, number) for number in (1, 2, 3, 4)))
        await follower.until_state("1.0", State.RUNNING)
        # What a crash in the midst of a grant leaves.
        (root / "tickets" / "3.0").write_text("{")

    def make_jobs() -> list[Job]:
        one, two, three, four = (make_job(root, number) for number in (1, 2, 3, 4))
        # What was ordered meanwhile is stored.
        return [one, replace(two, held=True), three, replace(four, priority=7)]

    async def second(cluster: LocalCluster) -> None:
        jobs = {f"{job.id}.0": job for job in make_jobs()}
        follower = Follower(cluster, jobs, dict.fromkeys(jobs, "q:0123:1"))
        await follower.until_state("1.0", State.RUNNING)
        await follower.until(lambda: follower.jobs["4.0"].reason == "Resources", "4 is next")
        assert follower.jobs["2.0"].held and follower.jobs["3.0"].reason == "Priority"
        assert not (root / "tickets" / "3.0").exists()
        # A submission whose answer was lost finds it.
        (answer,) = await cluster.submit(make_launches(jobs["3.0"]))
        assert handle_of(answer) == "3.0"
        (root.parent / "go").touch()
        await follower.until(lambda: follower.jobs["3.0"].over, "3 ran")
        assert (follower.jobs["4.0"].granted_at or 0) < (follower.jobs["3.0"].granted_at or 0)
        await cluster.order([order_of("c", "2.0", Cancel(time.time()))])
        await follower.until_state("2.0", State.CANCELLED)

    play(open_on(root), first)
    play(open_on(root, make_launches(*make_jobs())), second)


def test_a_time_limit_set_while_waiting_holds_when_it_runs(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1), make_job(root, 2, "exec sleep 300"))
        await follower.until_state("1.0", State.RUNNING)
        await cluster.order([order_of("t", "2.0", SetTime(time.time(), 1))])
        await follower.until(lambda: follower.jobs["2.0"].tasks[0].time == 1, "the limit is told")
        (root.parent / "go").touch()
        await follower.until_state("2.0", State.TIMEOUT)

    play(open_on(root), story)


def test_a_partition_limits_what_names_no_time(root: Path) -> None:
    """As Slurm's, which is told when the job has its nodes; what an order gives or takes away while it waits stays."""

    async def story(cluster: LocalCluster) -> None:
        sleeps = "exec sleep 300"
        jobs = [make_job(root, 1, sleeps), make_job(root, 2, sleeps), make_job(root, 3), make_job(root, 4, time=2)]
        follower = await submit(cluster, *jobs)
        await follower.until_state("1.0", State.RUNNING)
        assert [follower.jobs[f"{number}.0"].time_of("main") for number in (1, 2, 3, 4)] == [3, None, None, 2]
        await cluster.order([order_of("t", "3.0", SetTime(time.time(), None))])
        await follower.until_state("1.0", State.TIMEOUT)
        await follower.until_state("2.0", State.TIMEOUT)
        await follower.until_state("3.0", State.RUNNING)
        assert follower.jobs["3.0"].time_of("main") is None
        (root.parent / "go").touch()
        await follower.until_state("4.0", State.FAILED)
        assert follower.jobs["4.0"].time_of("main") == 2

    play(open_on(root, partitions={"short": {"time": "3s"}}), story)


def test_many_waiting_launches_are_light(root: Path) -> None:
    """No step may look at every waiting launch for each of them: a thousand cost about ten times a hundred."""

    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1))
        await follower.until_state("1.0", State.RUNNING)
        waiting = [make_job(root, number) for number in range(2, 1002)]
        follower = await submit(cluster, *waiting)
        reports = await follower.step(0.0)
        assert len(reports) == 1000
        # What this process does itself: a machine that is busy with others lengthens no more than the wall's time.
        began = time.process_time()
        for _ in range(100):
            assert not await follower.step(0.0)
        assert time.process_time() - began < 1.0
        orders = [order_of(f"c{number}", f"{number}.0", Cancel(time.time())) for number in range(2, 1002)]
        assert set(await cluster.order(orders)) == {None}
        await follower.until(lambda: all(job.over for job in follower.jobs.values()), "all are cancelled")
        assert len(list((root / "tickets").iterdir())) == 1

    play(open_on(root), story)
