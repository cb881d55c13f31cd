"""A list of clusters that begins with a real Slurm: what that has queued is had back, and never runs twice."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.fillers import fill
from tests.system.slurm.gates import Gate
from tests.system.slurm.groups import connect
from tests.waiting import WaitUntil

from overspan.adapters.contract import Order
from overspan.adapters.slurm import SlurmCluster
from overspan.adapters.slurm.transports.transport import Call, Done
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.states import State

SINGLE = "name: {name}\ncluster: [rig, local]\nfailover_after: 15s\nresources: {{memory: 50M}}\nrun: echo ran once\n"
GROUP = (
    "name: {name}\nexecution: parallel\ncluster: [rig, local]\nfailover_after: 15s\n"
    "---\nname: a\nresources: {{memory: 50M}}\nrun: echo ran once\n"
    "---\nname: b\nresources: {{memory: 50M}}\nrun: sleep 0.1\n"
)


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


@pytest.fixture
def full(site: Site, wait_until: WaitUntil) -> Iterator[str]:
    """All nodes are somebody else's."""
    with fill(site, wait_until, "--exclusive", "--nodes=3") as busy:
        yield busy


def show(site: Site, native: str, form: str) -> str:
    return site.slurm("squeue", "-ht", "all", "-j", native, "-o", form).strip()


def submit(span: Span, site: Site, text: str) -> tuple[int, str]:
    """A job that begins in Slurm's queue, and its native id, which Slurm tells also when it is elsewhere already."""
    name = f"moved-{time.time_ns()}"
    job = span.submit(text.format(name=name))
    queued = ("squeue", "-ht", "all", "-n", name, "-o", "%A")
    (native,) = set(span.wait_until(lambda: site.slurm(*queued).split(), 20, "its place in Slurm's queue"))
    return job, native


@pytest.mark.parametrize(("text", "task"), [(SINGLE, ""), (GROUP, "a")])
def test_a_full_cluster_is_left_for_the_next(remote: Span, site: Site, full: str, text: str, task: str) -> None:
    job, native = submit(remote, site, text)
    assert set(show(site, native, "%T").split()) <= {"PENDING", "CANCELLED"}
    ended = remote.until(job, "COMPLETED", timeout=40)
    assert (ended["cluster"], ended["restarts"]) == ("local", 0)
    assert [(each["cluster"], each["refused"]) for each in ended["passed"]] == [("rig", False)]
    assert remote.log(job, task) == "ran once\n"
    # Slurm has let go of it, without ever having given it a node.
    assert set(show(site, native, "%T|%N").split()) == {"CANCELLED|"}
    assert "goes to the cluster local: it did not start in time" in [row["text"] for row in remote.timeline(job)]


def test_a_daemon_that_was_dead_at_the_time_goes_on(remote: Span, site: Site, full: str) -> None:
    job, native = submit(remote, site, SINGLE)
    remote.kill_daemon()
    ended = remote.until(job, "COMPLETED", timeout=40)
    assert ended["cluster"] == "local" and show(site, native, "%T") == "CANCELLED"


def test_what_starts_just_before_stays(site: Site, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil) -> None:
    async def story(cluster: SlurmCluster) -> None:
        gate = Gate(site)
        job = site.job(f"{gate.wait}; echo done", begin=time.time() + 3600)
        handle, follower = await site.start(cluster, job)
        native = handle.split(".")[1]
        whole = cluster.transport.run_all

        async def run_all(calls: Sequence[Call], timeout: float = 60.0) -> list[Done | None]:
            if any("withdraw" in call.argv for call in calls):
                site.slurm("scontrol", "update", f"JobId={native}", "StartTime=now")
                wait_until(lambda: show(site, native, "%T") == "RUNNING", 30, "the start")
            return await whole(calls, timeout)

        monkeypatch.setattr(cluster.transport, "run_all", run_all)
        order = Order(f"w{native}", handle, events.Expire(time.time(), Cause.FAILOVER.value, "local"))
        assert await cluster.order([order]) == [None]
        gate.open()
        await follower.until_state(handle, State.COMPLETED)
        assert not any(isinstance(event, events.Expire) for event in follower.told(handle))

    site.play(story)


def test_it_is_told_only_when_it_is_gone(site: Site) -> None:
    async def story(cluster: SlurmCluster) -> None:
        job = site.job("true", begin=time.time() + 3600)
        handle, follower = await site.start(cluster, job)
        await follower.until(lambda: follower.jobs[handle].reason == "BeginTime", "it waits")
        expire = events.Expire(time.time(), Cause.FAILOVER.value, "local")
        assert await cluster.order([Order(f"g{handle}", handle, expire)]) == [None]
        await follower.until(lambda: expire in follower.told(handle), "it is told")
        assert show(site, handle.split(".")[1], "%T|%N") == "CANCELLED|"

    site.play(story)
