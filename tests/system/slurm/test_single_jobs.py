"""Single jobs on a real Slurm: orders, requeues, ends that nobody watched, links that go away."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from tests.contract.conformance import Follower, handle_of
from tests.rigs.plugin import rig_or_skip
from tests.rigs.reach import open_access
from tests.rigs.slurm import Variant
from tests.system.slurm.conftest import Site
from tests.system.slurm.gates import Gate

from overspan.adapters.contract import Accepted, Launch, LogRequest, Order
from overspan.adapters.slurm import SlurmCluster
from overspan.adapters.slurm.handles import parse_handle
from overspan.adapters.slurm.transports.openssh import OpenSsh
from overspan.bridge.model import events
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.states import State

HOUR = 3600
DEAF = "trap '' TERM; echo up; while :; do sleep 0.1; done"


class TestCancel:
    def test_a_grace_longer_than_killwait_is_kept(self, site: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            run = "trap 'sleep 7; echo flushed; exit 0' TERM; echo up; while :; do sleep 0.1; done"
            handle, follower = await site.start(cluster, site.job(run, grace=30))
            await follower.until_state(handle, State.RUNNING)
            await wait_for_log(cluster, handle, b"up\n")
            await cluster.order([Order("grace", handle, events.Cancel(time.time()))])
            await follower.until_state(handle, State.CANCELLED)
            assert b"flushed\n" in (await cluster.logs(LogRequest(handle, "main"))).data

        site.play(story)

    def test_what_does_not_heed_term_is_ended_after_its_grace(self, site: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            handle, follower = await site.start(cluster, site.job(DEAF, grace=1))
            await follower.until_state(handle, State.RUNNING)
            await wait_for_log(cluster, handle, b"up\n")
            cancel = events.Cancel(time.time())
            await cluster.order([Order("deaf", handle, cancel)])
            await follower.until_state(handle, State.CANCELLED)
            job = follower.jobs[handle]
            assert job.ended_at is not None and job.ended_at >= int(cancel.at) + 1
            assert job.late == 0

        site.play(story)

    def test_the_end_of_a_grace_outlives_the_adapter(self, site: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            handle, follower = await site.start(cluster, site.job(DEAF, grace=2))
            await follower.until_state(handle, State.RUNNING)
            await wait_for_log(cluster, handle, b"up\n")
            await cluster.order([Order("left", handle, events.Cancel(time.time()))])
            await follower.until(lambda: follower.jobs[handle].ending is not None, "the order is told")
            await cluster.close()
            second = site.open()
            follower.adapter = second
            try:
                await follower.until_state(handle, State.CANCELLED)
            finally:
                await second.close()

        site.play(story)

    def test_a_waiting_job_is_cancelled_at_once(self, site: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            job = site.job("true", grace=HOUR, begin=time.time() + HOUR)
            handle, follower = await site.start(cluster, job)
            await follower.until(lambda: follower.jobs[handle].reason == "BeginTime", "it waits")
            began = time.monotonic()
            await cluster.order([Order(f"w{job.id}", handle, events.Cancel(time.time()))])
            await follower.until_state(handle, State.CANCELLED)
            assert time.monotonic() - began < HOUR / 10
            assert follower.jobs[handle].started_at is None

        site.play(story)


class TestChanges:
    def test_hold_release_and_numbers(self, site: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            handle, follower = await site.start(cluster, site.job("true", begin=time.time() + HOUR))
            await follower.step(2)
            native = str(parse_handle(handle).native)
            now = time.time()
            wanted: list[events.Event] = [
                events.SetTime(now, 5 * 60),
                events.SetNice(now, 7),
                # Last: a new nice value takes Slurm's hold away (22.05).
                events.Hold(now, "ada"),
            ]
            orders = [Order(f"c{native}{place}", handle, event) for place, event in enumerate(wanted)]
            assert await cluster.order(orders) == [None] * 3
            await follower.until(lambda: len(follower.told(handle)) == 3, "the orders are told")
            shown = site.slurm("scontrol", "show", "job", native)
            assert "Reason=JobHeldUser" in shown and "TimeLimit=00:05:00" in shown and "Nice=7" in shown
            assert follower.told(handle) == wanted
            assert follower.jobs[handle].held
            later: list[events.Event] = [events.Release(now + 1), events.SetBegin(now + 1, None)]
            assert await cluster.order([Order(f"d{native}{p}", handle, e) for p, e in enumerate(later)]) == [None] * 2
            await follower.until_state(handle, State.COMPLETED)
            assert follower.jobs[handle].late == 0

        site.play(story)

    def test_a_hold_that_was_given_to_slurm_itself(self, site: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            handle, follower = await site.start(cluster, site.job("true", begin=time.time() + HOUR))
            native = str(parse_handle(handle).native)
            site.slurm("scontrol", "hold", native)
            await follower.until(lambda: follower.jobs[handle].held, "the hold is seen")
            site.slurm("scontrol", "release", native)
            await follower.until(lambda: not follower.jobs[handle].held, "the release is seen")
            site.slurm("scancel", native)
            await follower.until_state(handle, State.CANCELLED)

        site.play(story)

    def test_what_the_user_may_not_do_is_refused_in_slurms_words(self, site: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            handle, follower = await site.start(cluster, site.job("sleep 3600"))
            await follower.until_state(handle, State.RUNNING)
            (refusal,) = await cluster.order([Order(f"s{handle}", handle, events.Suspend(time.time()))])
            assert refusal is not None and "denied" in refusal.message and not refusal.transient
            await cluster.order([Order(f"e{handle}", handle, events.Cancel(time.time(), grace=0))])
            await follower.until_state(handle, State.CANCELLED)

        site.play(story)

    def test_a_requeue_is_the_same_native_job(self, site: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            job = site.job("sleep 3600")
            handle, follower = await site.start(cluster, job)
            await follower.until_state(handle, State.RUNNING)
            await cluster.order([Order(f"r{job.id}", handle, events.Requeue(time.time()))])
            await follower.until(lambda: follower.jobs[handle].launch == 1, "it is back in the queue")
            again = follower.jobs[handle]
            assert (again.state, again.late, again.tasks[0].recoveries) == (State.PENDING, 0, 0)
            (answer,) = await cluster.submit([Launch(f"site-{job.id}-1", again)])
            assert isinstance(answer, Accepted)
            assert (parse_handle(answer.handle).native, parse_handle(answer.handle).run) == (
                parse_handle(handle).native,
                1,
            )
            second = Follower(cluster, {answer.handle: again})
            await second.until(lambda: second.jobs[answer.handle].reason == "BeginTime", "Slurm keeps it for a while")
            await cluster.order([Order(f"q{job.id}", answer.handle, events.Cancel(time.time()))])
            await second.until_state(answer.handle, State.CANCELLED)
            # The end of the first run is still told as it was.
            old = Follower(cluster, {handle: job})
            await old.until(lambda: old.jobs[handle].launch == 1, "the old story")

        site.play(story)


class TestLink:
    def test_a_dead_link_is_unreachable_and_comes_back(self, site: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            gate = Gate(site)
            handle, follower = await site.start(cluster, site.job(f"{gate.wait}; exit 4"))
            await follower.until_state(handle, State.RUNNING)
            site.rig.run(["pkill", "sshd"], user="root")
            with pytest.raises(Unreachable):
                for _ in range(100):
                    await cluster.observe({handle: follower.cursors[handle]}, 1.0)
            gate.open()
            assert site.rig.run(["/usr/sbin/sshd"], user="root").rc == 0
            while not follower.jobs[handle].over:
                try:
                    await follower.step(1.0)
                except Unreachable:
                    await asyncio.sleep(0.2)
            assert (follower.jobs[handle].state, follower.jobs[handle].exit_code) == (State.FAILED, 4)

        site.play(story)

    def test_paramiko_carries_a_job_too(self, site: Site) -> None:
        pytest.importorskip("paramiko")

        async def story(cluster: SlurmCluster) -> None:
            handle, follower = await site.start(cluster, site.job("echo it\\'s here; exit 6"))
            await follower.until_state(handle, State.FAILED)
            assert follower.jobs[handle].exit_code == 6
            assert (await cluster.logs(LogRequest(handle, "main"))).data == b"it's here\n"
            many = await asyncio.gather(*(cluster.nodes() for _ in range(20)))
            assert {frozenset(node.name for node in nodes) for nodes in many} == {
                frozenset(("node1", "node2", "node3"))
            }

        site.play(story, transport="paramiko")

    def test_a_master_that_was_killed_is_replaced(self, site: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            await cluster.nodes()
            transport = cluster.transport
            assert isinstance(transport, OpenSsh)
            words = transport.control_words("check")
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
            found = re.search(r"pid=(\d+)", done.stderr)
            assert found, done
            os.kill(int(found[1]), signal.SIGKILL)
            for _ in range(300):
                try:
                    assert await cluster.nodes()
                    return
                except Unreachable:
                    await asyncio.sleep(0.1)
            raise AssertionError("no new master")

        site.play(story)

    def test_one_question_a_tick_for_all(self, site: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            jobs = [site.job("true", begin=time.time() + HOUR) for _ in range(60)]
            answers = await cluster.submit([Launch(f"many-{job.id}-0", job) for job in jobs])
            handles = [handle_of(answer) for answer in answers]
            asked: list[tuple[str, ...]] = []
            run = cluster.transport.run

            async def count(argv, *rest, **more):  # type: ignore[no-untyped-def]
                asked.append(tuple(argv))
                return await run(argv, *rest, **more)

            cluster.transport.run = count  # type: ignore[method-assign]
            began = time.monotonic()
            cursors = dict.fromkeys(handles, "")
            while time.monotonic() - began < 4 or len(asked) < 3:
                for report in (await cluster.observe(cursors, 1.0)).reports:
                    cursors[report.handle] = report.cursor
            # A tick is a second; one question is asked at once.
            assert len(asked) <= time.monotonic() - began + 2
            assert all("squeue" in words for words in asked)
            cancels = [Order(f"m{handle}", handle, events.Cancel(time.time())) for handle in handles]
            assert await cluster.order(cancels) == [None] * len(handles)

        site.play(story, tick=1)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site without accounting."""
    lines = {"AccountingStorageType=": "AccountingStorageType=accounting_storage/none", "AccountingStorageHost=": ""}
    folder = tmp_path_factory.mktemp("ssh")
    with rig_or_skip(Variant("bare", lines)) as rig, open_access(rig, folder) as access:
        yield Site(access)


class TestWithoutAccounting:
    def test_ends_are_told_truly(self, bare: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            handle, follower = await bare.start(cluster, bare.job("exit 5"))
            native = str(parse_handle(handle).native)
            while "JobState=FAILED" not in bare.slurm("scontrol", "show", "job", native):
                await asyncio.sleep(0.1)
            await follower.until_state(handle, State.FAILED)
            assert follower.jobs[handle].exit_code == 5
            accounting = [finding for finding in await cluster.check() if finding.what == "accounting"]
            assert accounting[0].seen.startswith("none")

        bare.play(story)

    def test_a_requeue_is_told(self, bare: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            handle, follower = await bare.start(cluster, bare.job("sleep 3600"))
            await follower.until_state(handle, State.RUNNING)
            bare.slurm("scontrol", "requeue", str(parse_handle(handle).native))
            await follower.until(lambda: follower.jobs[handle].launch == 1, "it is back in the queue")
            assert follower.jobs[handle].late == 0

        bare.play(story)


async def wait_for_log(cluster: SlurmCluster, handle: str, text: bytes) -> None:
    """Wait until a job has written something."""
    async with asyncio.timeout(120):
        while True:
            try:
                if text in (await cluster.logs(LogRequest(handle, "main"))).data:
                    return
            except Exception:
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.1)
