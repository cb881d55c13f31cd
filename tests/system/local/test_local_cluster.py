"""The local cluster with real processes: its queue, its supervisors, and what survives whom."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract.conformance import Follower, handle_of, start
from tests.system.local.machine import end_supervisors, list_supervisors

from overspan.adapters.contract import ClusterConfig, Launch, LogRequest, Order, Refusal
from overspan.adapters.local import LocalCluster, launches, open_cluster, rundir, supervisors
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.events import (
    Cancel,
    Event,
    Hold,
    LaunchLost,
    Queued,
    Release,
    SetBegin,
    SetNice,
    SetPriority,
    SetTime,
)
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.resources import Gpus, Resources
from overspan.bridge.model.spec import JobSpec, Need, NeedKind, Origin, TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.supervisor import kernel

Story = Callable[[LocalCluster], Coroutine[Any, Any, None]]
HOLD = "while [ ! -e go ]; do sleep 0.02; done; echo went; exit 5"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "cluster"
    yield folder
    end_supervisors(folder)


def open_on(root: Path, **settings: Any) -> LocalCluster:
    return open_cluster(ClusterConfig("local", "local", {"cpus": 1, "gpus": 0, **settings}, str(root)))


def play(cluster: LocalCluster, story: Story) -> None:
    async def tell() -> None:
        try:
            async with asyncio.timeout(100):
                await story(cluster)
        finally:
            await cluster.close()

    asyncio.run(tell())


def make_job(root: Path, number: int, run: str = HOLD, *, group: bool = False, **task: Any) -> Job:
    spec = TaskSpec("main", run=run, workdir=str(root.parent), **task)
    origin = Origin(directory=str(root.parent))
    return new_job(number, JobSpec("test", (spec,), group=group, origin=origin), float(number))


def list_pids(root: Path) -> list[int]:
    return sorted(process.pid for process in list_supervisors(root))


def order_of(token: str, handle: str, event: Event) -> Order:
    return Order(token, handle, event)


def reasons(follower: Follower, handle: str) -> list[str]:
    return [event.reason for event in follower.events[handle] if isinstance(event, Queued)]


async def submit(cluster: LocalCluster, *jobs: Job) -> Follower:
    answers = await cluster.submit([Launch(f"token-{job.id}.{job.launch}", job) for job in jobs])
    return Follower(cluster, {handle_of(answer): job for answer, job in zip(answers, jobs, strict=True)})


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
    stubborn = "trap '' TERM; while [ ! -e go ]; do sleep 0.02; done"

    def make_jobs() -> list[Job]:
        low, high = make_job(root, 1, stubborn), make_job(root, 2, "true")
        return [low, replace(high, priority=5)]

    async def first(cluster: LocalCluster) -> None:
        jobs = make_jobs()
        follower = await submit(cluster, jobs[0])
        await follower.until_state("1.0", State.RUNNING)
        follower = await submit(cluster, *jobs)
        await follower.until_state("1.0", State.COMPLETING)

    async def second(cluster: LocalCluster) -> None:
        jobs = make_jobs()
        follower = Follower(cluster, {f"{job.id}.0": job for job in jobs})
        await follower.until_state("2.0", State.COMPLETED)
        low = follower.jobs["1.0"]
        assert (low.state, low.launch, low.tasks[0].attempts[0].state) == (State.PENDING, 1, State.PREEMPTED)
        orders = (root / "runs" / "1" / "orders.0.jsonl").read_text().splitlines()
        assert len(orders) == 1

    settings = {"preempt": "requeue", "preempt_grace": 1}
    play(open_on(root, **settings), first)
    play(open_on(root, **settings), second)


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


def test_a_wait_goes_on_after_a_restart(root: Path) -> None:
    async def first(cluster: LocalCluster) -> None:
        follower = await submit(cluster, *(make_job(root, number) for number in (1, 2, 3, 4)))
        await follower.until_state("1.0", State.RUNNING)
        now = time.time()
        await cluster.order([order_of("h", "2.0", Hold(now)), order_of("p", "4.0", SetPriority(now, 7))])
        # Forgotten between the plan and the ticket's last byte.
        (root / "tickets" / "3.0").write_text("{")

    async def second(cluster: LocalCluster) -> None:
        jobs = {f"{number}.0": make_job(root, number) for number in (1, 2, 3, 4)}
        follower = Follower(cluster, jobs)
        await follower.until_state("1.0", State.RUNNING)
        await follower.until(lambda: follower.jobs["4.0"].reason == "Resources", "4 is next")
        assert follower.jobs["2.0"].held and follower.jobs["3.0"].reason == "Priority"
        # The orders that were given before are known.
        await cluster.order([order_of("h", "2.0", Hold(1.0)), order_of("p", "4.0", SetPriority(1.0, 0))])
        await follower.step(0.0)
        assert follower.jobs["4.0"].priority == 7
        assert await cluster.submit([Launch("token-3.0", jobs["3.0"])]) != []
        (root.parent / "go").touch()
        await follower.until(lambda: follower.jobs["3.0"].over, "3 ran")
        assert (follower.jobs["4.0"].granted_at or 0) < (follower.jobs["3.0"].granted_at or 0)
        await cluster.order([order_of("c", "2.0", Cancel(time.time()))])
        await follower.until_state("2.0", State.CANCELLED)

    play(open_on(root), first)
    play(open_on(root), second)


def test_a_killed_supervisor_is_started_again(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1), make_job(root, 2, group=True))
        await follower.until_state("1.0", State.RUNNING)
        await follower.until_state("2.0", State.RUNNING)
        before = list_pids(root)
        assert len(before) == 2
        for process in list_supervisors(root):
            assert kernel.signal_process(process, signal.SIGKILL)
        await follower.until(lambda: len(set(list_pids(root)) - set(before)) == 2, "new supervisors")
        (root.parent / "go").touch()
        for handle in ("1.0", "2.0"):
            await follower.until_state(handle, State.FAILED)
            job = follower.jobs[handle]
            assert (job.exit_code, len(job.tasks[0].attempts)) == (5, 1)
            assert (await cluster.logs(LogRequest(handle, "main"))).data == b"went\n"

    play(open_on(root, cpus=2), story)


def test_supervisors_of_an_earlier_daemon_are_found(root: Path) -> None:
    known: list[int] = []

    async def first(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1), make_job(root, 2, group=True))
        await follower.until_state("1.0", State.RUNNING)
        await follower.until_state("2.0", State.RUNNING)
        known.extend(list_pids(root))

    async def second(cluster: LocalCluster) -> None:
        jobs = {"1.0": make_job(root, 1), "2.0": make_job(root, 2, group=True)}
        follower = Follower(cluster, jobs)
        await follower.until_state("2.0", State.RUNNING)
        assert list_pids(root) == known
        assert (await cluster.nodes())[0].cpus_used == 2.0
        await cluster.order([order_of("c", "2.0", Cancel(time.time()))])
        await follower.until_state("2.0", State.CANCELLED)
        # A single job of the new daemon goes to the same supervisor.
        follower.jobs["3.0"] = make_job(root, 3, "exit 0")
        await cluster.submit([Launch("token-3", follower.jobs["3.0"])])
        follower.cursors["3.0"], follower.events["3.0"] = "", []
        await follower.until_state("3.0", State.COMPLETED)
        (root.parent / "go").touch()
        await follower.until_state("1.0", State.FAILED)
        await follower.until(lambda: not (root / "hosts" / "2.0").exists(), "the group's folder is removed")
        assert len(list_supervisors(root)) == 1

    play(open_on(root, cpus=2), first)
    play(open_on(root, cpus=2), second)


def test_orders_are_carried_out_at_once(root: Path) -> None:
    """Supervisors read their orders every second in any case; the signal makes it sooner."""

    async def give(cluster: LocalCluster, first: int) -> None:
        follower = Follower(cluster, {"1.0": make_job(root, 1)})
        await follower.until_state("1.0", State.RUNNING)
        began = time.monotonic()
        for limit in range(first, first + 5):
            await cluster.order([order_of(f"t{limit}", "1.0", SetTime(time.time(), limit))])
            await follower.until(lambda limit=limit: follower.jobs["1.0"].tasks[0].time == limit, "the limit")  # type: ignore[misc]
        assert time.monotonic() - began < 2.5

    async def first(cluster: LocalCluster) -> None:
        await submit(cluster, make_job(root, 1))
        await give(cluster, 1000)

    async def second(cluster: LocalCluster) -> None:
        await give(cluster, 2000)

    play(open_on(root), first)
    play(open_on(root), second)


def test_a_supervisor_that_died_with_the_daemon_is_replaced(root: Path) -> None:
    async def first(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1))
        await follower.until_state("1.0", State.RUNNING)

    async def second(cluster: LocalCluster) -> None:
        follower = Follower(cluster, {"1.0": make_job(root, 1)})
        (root.parent / "go").touch()
        await follower.until_state("1.0", State.FAILED)
        assert follower.jobs["1.0"].exit_code == 5

    play(open_on(root), first)
    for process in list_supervisors(root):
        kernel.signal_process(process, signal.SIGKILL)
        os.waitpid(process.pid, 0)
    play(open_on(root), second)


def test_after_a_reboot_what_ran_is_lost_and_what_waited_runs(root: Path) -> None:
    async def first(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1), make_job(root, 2))
        await follower.until_state("1.0", State.RUNNING)

    async def second(cluster: LocalCluster) -> None:
        follower = Follower(cluster, {"1.0": make_job(root, 1), "2.0": make_job(root, 2)})
        await follower.until(lambda: any(isinstance(event, LaunchLost) for event in follower.events["1.0"]), "1 lost")
        assert follower.jobs["1.0"].launch == 1
        await follower.until_state("2.0", State.FAILED)

    play(open_on(root), first)
    end_supervisors(root)
    grant = root / "runs" / "1" / "grant.0.json"
    grant.write_text(json.dumps(json.loads(grant.read_text()) | {"boot_id": "another"}))
    (root.parent / "go").touch()
    play(open_on(root), second)


def test_a_lost_wake_up_costs_a_second(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1))
        await follower.until_state("1.0", State.RUNNING)
        (root / "wake").unlink()
        (root.parent / "go").touch()
        began = time.monotonic()
        await follower.until_state("1.0", State.FAILED)
        assert time.monotonic() - began < 10

    play(open_on(root), story)


def test_a_supervisor_that_never_starts_is_given_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisors, "_FIRST_DELAY", 0.001)

    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1), make_job(root, 2, group=True))
        for handle in ("1.0", "2.0"):
            await follower.until_state(handle, State.FAILED)
            assert follower.jobs[handle].reason == "JobLaunchFailure"
        assert (await cluster.nodes())[0].cpus_used == 0

    play(open_on(root, cpus=2, python="/nonexistent/python3"), story)


def test_without_pidfds_ends_are_found_by_looking(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "open_pidfd", lambda pid: None)

    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1))
        await follower.until_state("1.0", State.RUNNING)
        (killed,) = list_pids(root)
        os.kill(killed, signal.SIGKILL)
        await follower.until(lambda: list_pids(root) not in ([], [killed]), "another supervisor")
        await cluster.order([order_of("c", "1.0", Cancel(time.time()))])
        await follower.until_state("1.0", State.CANCELLED)

    play(open_on(root), story)


def test_a_full_disk_refuses_or_keeps_waiting(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = True
    write = rundir.write_document

    def write_if_there_is_room(path: str, document: rundir.Document) -> None:
        if full and blocked in path:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, document)

    monkeypatch.setattr(launches, "write_document", write_if_there_is_room)
    blocked = "plan."

    async def story(cluster: LocalCluster) -> None:
        nonlocal blocked, full
        job = make_job(root, 1, "exit 0")
        (answer,) = await cluster.submit([Launch("token-1.0", job)])
        assert isinstance(answer, Refusal) and answer.transient and "No space left" in answer.message
        blocked = "grant."
        follower = await submit(cluster, job)
        await follower.step(0.5)
        assert follower.jobs["1.0"].state is State.PENDING
        full = False
        await follower.until_state("1.0", State.COMPLETED)

    play(open_on(root), story)


def test_a_group_finds_its_members_and_devices(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        server = TaskSpec("server", run="sleep 300", primary=False, resources=Resources(cpus=0.5, gpus=(Gpus(1),)))
        text = 'echo "$OVERSPAN_SERVER_ADDRS $CUDA_VISIBLE_DEVICES"; getent hosts server-0.duo'
        needs = (Need("server", NeedKind.STARTED),)
        client = TaskSpec("client", run=text, needs=needs, resources=Resources(cpus=0.5, gpus=(Gpus(1),)))
        spec = JobSpec("duo", (server, client), group=True, origin=Origin(directory=str(root.parent)))
        follower = await submit(cluster, new_job(1, spec, 1.0))
        await follower.until_state("1.0", State.COMPLETED)
        placed = {place.task: place for place in follower.jobs["1.0"].placements}
        assert sorted(place.gpus for place in placed.values()) == [(0,), (1,)]
        lines = (await cluster.logs(LogRequest("1.0", "client"))).data.decode().splitlines()
        assert lines[0] == f"{placed['server'].address} {placed['client'].gpus[0]}"
        method = json.loads((root / "runs" / "1" / "grant.0.json").read_text())["isolation"]
        if method != "env":
            assert lines[1].split()[0] == placed["server"].address

    play(open_on(root, gpus=2), story)


def test_a_time_limit_set_while_waiting_holds_when_it_runs(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1), make_job(root, 2, "exec sleep 300"))
        await follower.until_state("1.0", State.RUNNING)
        await cluster.order([order_of("t", "2.0", SetTime(time.time(), 1))])
        await follower.until(lambda: follower.jobs["2.0"].tasks[0].time == 1, "the limit is told")
        (root.parent / "go").touch()
        await follower.until_state("2.0", State.TIMEOUT)

    play(open_on(root), story)


def test_a_job_is_launched_again_beside_its_earlier_launch(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        job = make_job(root, 1, "echo run; exit 0")
        handle, follower = await start(cluster, job)
        await follower.until_state(handle, State.COMPLETED)
        again = replace(make_job(root, 1, "echo again; exit 0"), launch=1)
        follower = await submit(cluster, again)
        assert list(follower.jobs) == ["1.1"]

    play(open_on(root), story)


def test_a_root_that_cannot_be_used_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def story(cluster: LocalCluster) -> None:
        for _ in range(2):
            with pytest.raises(Unreachable, match="cannot be used"):
                await cluster.observe({}, 0.0)

    play(open_on(tmp_path / "file" / "root"), story)


def test_a_closed_cluster_says_so(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        await cluster.close()
        with pytest.raises(Unreachable, match="closed"):
            await cluster.nodes()

    play(open_on(root), story)


def test_many_waiting_launches_are_light(root: Path) -> None:
    """No step may look at every waiting launch for each of them: a thousand cost about ten times a hundred."""

    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1))
        await follower.until_state("1.0", State.RUNNING)
        waiting = [make_job(root, number) for number in range(2, 1002)]
        follower = await submit(cluster, *waiting)
        reports = await follower.step(0.0)
        assert len(reports) == 1000
        began = time.perf_counter()
        for _ in range(100):
            assert not await follower.step(0.0)
        assert time.perf_counter() - began < 1.0
        orders = [order_of(f"c{number}", f"{number}.0", Cancel(time.time())) for number in range(2, 1002)]
        assert set(await cluster.order(orders)) == {None}
        await follower.until(lambda: all(job.over for job in follower.jobs.values()), "all are cancelled")
        assert len(list((root / "tickets").iterdir())) == 1

    play(open_on(root), story)


def test_it_says_what_works_here(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        found = {finding.what: finding for finding in await cluster.check()}
        assert found["state folder"].works and found["supervisor's python"].works and found["loopback addresses"].works
        assert {"names", "user namespaces", "nss_wrapper", "CPUs and memory", "GPUs", "cgroup", "free disk"} <= set(
            found
        )

    play(open_on(root), story)


def test_a_missing_python_is_found_by_the_check(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        found = {finding.what: finding for finding in await cluster.check()}
        assert not found["supervisor's python"].works
        assert "Python 3.9" in found["supervisor's python"].remedy

    play(open_on(root, python="/nonexistent/python3"), story)
