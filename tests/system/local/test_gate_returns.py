"""Parts of groups across that give back what they have booked at their start gates, with real supervisors."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.conformance import Follower
from tests.system.local.stories import list_pids, make_job, make_launches, open_on, order_of, play, submit

from overspan.adapters.contract import Launch
from overspan.adapters.local import LocalCluster
from overspan.adapters.local.files.launch_files import LaunchFiles, remove
from overspan.adapters.local.launches import gate_returns, launches
from overspan.adapters.local.launches.dispatch import Dispatch
from overspan.bridge.controller.core.across.projection import LaunchCursor, LaunchHandle, project
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model import events
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.parts import take_part
from overspan.bridge.model.ranks import rank_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.model.states import State

ADDRESS = "10.0.0.5"


def make_part(root: Path) -> Job:
    tasks = (
        TaskSpec("here", run="echo ran >> ran", workdir=str(root.parent), cluster="local"),
        TaskSpec("there", run="true", cluster="leo"),
    )
    origin = Origin(directory=str(root.parent))
    return take_part(new_job(1, JobSpec("g", tasks, group=True, origin=origin), 1.0), "local")


async def insist(cluster: LocalCluster, follower: Follower, event: Event) -> int:
    """Give an order until it is carried out, as the daemon does; how often."""
    tries, deadline = 0, time.monotonic() + 60
    while True:
        tries += 1
        (answer,) = await cluster.order([order_of(f"order-{time.time_ns()}", "1.0", event)])
        if answer is None:
            return tries
        assert answer.transient and time.monotonic() < deadline, answer
        # What it still tells of its grant is not stored.
        await cluster.observe({"1.0": ""}, 0.2)


def begin_anew(follower: Follower, root: Path) -> None:
    """Follow the launch from its first cursor."""
    follower.cursors["1.0"], follower.events["1.0"], follower.jobs["1.0"] = "", [], make_part(root)


def is_granted(follower: Follower) -> Callable[[], bool]:
    return lambda: any(isinstance(event, events.Granted) for event in follower.told("1.0"))


async def finish(cluster: LocalCluster, follower: Follower, root: Path) -> None:
    """Ask for it again, and run it."""
    begin_anew(follower, root)
    await insist(cluster, follower, events.Release(time.time()))
    await follower.until(is_granted(follower), "its second grant")
    assert not any(isinstance(event, events.LaunchLost) for event in follower.told("1.0"))
    await insist(cluster, follower, events.Launch(time.time(), "here", 0))
    await follower.until(
        lambda: any(isinstance(event, events.NodeEnded) for event in follower.told("1.0")), "its program's end"
    )
    assert (root.parent / "ran").read_text() == "ran\n"


def test_a_part_at_its_gate_gives_back_its_booking_and_is_granted_again(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_part(root))
        await follower.until(is_granted(follower), "its grant")
        assert await insist(cluster, follower, events.Hold(time.time())) > 1
        # What it had is another's, and nothing of it is left.
        other = await submit(cluster, make_job(root, 2, "exit 0"))
        await other.until_state("2.0", State.COMPLETED)
        assert not (root / "tickets" / "1.0").exists() and not (root.parent / "ran").exists()
        await finish(cluster, follower, root)

    play(open_on(root, address=ADDRESS), story)


def test_a_part_whose_program_may_run_keeps_what_it_has(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_part(root))
        await follower.until(is_granted(follower), "its grant")
        await insist(cluster, follower, events.Launch(time.time(), "here", 0))
        assert await insist(cluster, follower, events.Hold(time.time())) == 1
        await follower.until(
            lambda: any(isinstance(event, events.NodeEnded) for event in follower.told("1.0")), "its program's end"
        )
        assert not any(isinstance(event, events.LaunchLost) for event in follower.told("1.0"))

    play(open_on(root, address=ADDRESS), story)


@pytest.mark.parametrize("cut", ["before", "supervisor", 0, 1, 2, 3, 4, 5, 6])
def test_a_daemon_that_dies_anywhere_in_it_goes_on(root: Path, cut: str | int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers are how many of its files were removed."""
    part = make_part(root)

    async def begin(cluster: LocalCluster) -> None:
        follower = await submit(cluster, part)
        await follower.until(is_granted(follower), "its grant")
        if cut == "before":
            return
        (answer,) = await cluster.order([order_of("h", "1.0", events.Hold(time.time()))])
        assert answer is not None and answer.transient
        deadline = time.monotonic() + 60
        while list_pids(root):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        if isinstance(cut, int):
            place = LaunchFiles(str(root), 1, 0)
            for path in gate_returns.list_files(place)[:cut]:
                remove(path)

    async def go_on(cluster: LocalCluster) -> None:
        follower = Follower(cluster, {"1.0": part})
        await insist(cluster, follower, events.Hold(time.time()))
        await finish(cluster, follower, root)

    play(open_on(root, address=ADDRESS), begin)
    play(open_on(root, make_launches(part), address=ADDRESS), go_on)


def test_a_users_hold_before_the_grant_was_told_ends_nothing(root: Path) -> None:
    """The daemon takes the part for one that asks: the loss of its launch would be the job's end."""

    async def story(cluster: LocalCluster) -> None:
        job = make_part(root)
        await cluster.submit(make_launches(job))
        handle = LaunchHandle({"local": "1.0", "leo": "7"}, {"local": ("here",), "leo": ("there",)})
        cursor, told = LaunchCursor(), {"1.0": ""}
        (answer,) = await cluster.order([order_of("user", "1.0", events.Hold(time.time(), "me"))])
        assert answer is None
        deadline = time.monotonic() + 60
        while not cursor.list_members():
            assert time.monotonic() < deadline
            for report in (await cluster.observe(told, 0.2)).reports:
                told["1.0"] = report.cursor
                news = project(handle, cursor, [("local", report)], time.time())
                cursor = news.cursor
                for event in news.events:
                    job = reduce(job, event) or job
            assert not job.over and not cursor.over

    play(open_on(root, address=ADDRESS), story)


def test_a_part_is_given_back_once_its_end_can_be_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_part(root))
        await follower.until(is_granted(follower), "its grant")

        def fail(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as full:
            full.setattr(launches, "write_orders", fail)
            (answer,) = await cluster.order([order_of("h", "1.0", events.Hold(time.time()))])
            assert answer is not None and answer.transient
        await insist(cluster, follower, events.Hold(time.time()))
        await finish(cluster, follower, root)

    play(open_on(root, address=ADDRESS), story)


def test_a_part_that_is_looked_at_while_its_files_go_is_not_lost(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_part(root))
        await follower.until(is_granted(follower), "its grant")
        dispatch = cluster._dispatch
        real = gate_returns._take_again

        async def take_late(_: Dispatch, place: LaunchFiles, launch: Launch) -> None:
            await dispatch.reports.collect({"1.0": ""})
            assert dispatch.reports.suspects
            await real(dispatch, place, launch)

        monkeypatch.setattr(gate_returns, "_take_again", take_late)
        await insist(cluster, follower, events.Hold(time.time()))
        dispatch.attention.set()
        deadline = time.monotonic() + 60
        while dispatch.reports.suspects:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        await asyncio.sleep(0)
        assert "1.0" not in dispatch.lost_launches
        await finish(cluster, follower, root)

    play(open_on(root, address=ADDRESS), story)


def test_a_part_keeps_the_place_in_the_queue_that_it_was_given_meanwhile(root: Path) -> None:
    part = make_part(root)
    waiting = make_launches(part)
    later = replace(part, priority=77)

    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, part)
        await follower.until(is_granted(follower), "its grant")
        waiting[:] = make_launches(later)
        await insist(cluster, follower, events.Hold(time.time()))
        assert cluster._dispatch.runs["1.0"].rank == rank_job(later)
        await finish(cluster, follower, root)

    play(open_on(root, waiting, address=ADDRESS), story)
