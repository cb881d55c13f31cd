"""A launch that waits gives back what it holds: on a hold, and for good when it has waited too long."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import replace

import pytest
from tests.unit.adapters.kubernetes.bench import Bench, make_job, play, solo, token_of
from tests.unit.adapters.kubernetes.pods import T, group, placed, pod, running

from overspan.adapters.contract import Accepted
from overspan.adapters.kubernetes.cluster import KubernetesCluster
from overspan.adapters.kubernetes.launches import soft_gang
from overspan.adapters.kubernetes.launches.soft_gang import SoftGang, WaitAction
from overspan.adapters.kubernetes.launches.start_timeouts import GATED, judge_wait
from overspan.adapters.kubernetes.observation import projection
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.projection import Cursor, take_snapshot
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.events import Expire, Granted, LaunchLost, NodeEnded, NodeStarted


async def _submit(bench: Bench, cluster: KubernetesCluster) -> str:
    job = make_job()
    (answer,) = await bench.submit(cluster, job)
    assert isinstance(answer, Accepted)
    # Nothing is ordered before that.
    await bench.until(cluster, lambda: cluster.launches.watched[token_of(job)].cursor_known, "its first look")
    return answer.handle


def test_a_held_launch_holds_nothing_and_starts_after_its_release(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await _submit(bench, cluster)
            first, *others = bench.pods()
            bench.place(first)
            await bench.insist(cluster, handle, events.Hold(time.time(), "me"))
            bench.api.pods.gone(first)
            await bench.until(cluster, lambda: not bench.pods(), "its pods to be withdrawn")
            # Nothing brings them back, and what was withdrawn is no end of anything.
            await bench.step(cluster, 1.5)
            assert bench.pods() == [] and not any(isinstance(one, Granted) for one in bench.told[handle])
            await bench.insist(cluster, handle, events.Release(time.time(), "me"))
            await bench.until(cluster, lambda: bench.pods() == [first, *others], "its pods to be made again")
            for name in bench.pods():
                bench.place(name)
            await bench.until_told(cluster, handle, Granted)

    play(story)


def test_a_pod_on_a_dead_node_holds_nobody_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "STUCK_SECONDS", 0.0)

    async def story() -> None:
        async with bench.open() as cluster:
            handle = await _submit(bench, cluster)
            first = bench.pods()[0]
            bench.place(first)
            await bench.insist(cluster, handle, events.Hold(time.time(), "me"))
            # No kubelet tells its end.
            await bench.until(cluster, lambda: not bench.pods(), "its pods to be withdrawn")
            await bench.insist(cluster, handle, events.Release(time.time(), "me"))
            await bench.until(cluster, lambda: len(bench.pods()) == 3, "its pods to be made again")

    play(story)


def test_a_pod_that_somebody_deletes_while_it_waits_for_a_node_has_ended(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, solo())
            assert isinstance(answer, Accepted)
            await bench.step(cluster)
            (name,) = bench.pods()
            # It stays for its finalizer.
            bench.api.pods.gone(name)
            assert bench.pods() == [name]
            await bench.until_told(cluster, answer.handle, Granted)
            assert await bench.order(cluster, answer.handle, events.Launch(time.time(), "main", 0)) is None
            end = await bench.until_told(cluster, answer.handle, NodeEnded)
            assert end.cause == Cause.NODE.value
            await bench.until(cluster, lambda: not bench.pods(), "the pod to be let go")

    play(story)


def test_a_pod_that_cannot_be_made_again_at_once_is_made_later(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await _submit(bench, cluster)
            await bench.insist(cluster, handle, events.Hold(time.time(), "me"))
            await bench.until(cluster, lambda: not bench.pods(), "its pods to be withdrawn")
            bench.api.refuse("POST", "pods$", 503, "not now", times=1)
            await bench.insist(cluster, handle, events.Release(time.time(), "me"))
            await bench.until(cluster, lambda: len(bench.pods()) == 3, "its pods to be made again")

    play(story)


def test_a_hold_outlives_the_daemon(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await _submit(bench, cluster)
            await bench.insist(cluster, handle, events.Hold(time.time(), "me"))
            await bench.until(cluster, lambda: not bench.pods(), "its pods to be withdrawn")
        async with bench.open() as cluster:
            await bench.step(cluster, 2.5)
            assert bench.pods() == []
            await bench.insist(cluster, handle, events.Release(time.time(), "me"))
            await bench.until(cluster, lambda: len(bench.pods()) == 3, "its pods to be made again")
        async with bench.open() as cluster:
            # They were made: a third process must not take them for given back.
            for name in bench.pods():
                bench.place(name)
            await bench.until_told(cluster, handle, Granted)

    play(story)


def test_a_withdrawal_that_was_cut_short_is_finished_by_the_next_process(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await _submit(bench, cluster)
            bench.api.refuse("DELETE", "/pods/", 500, "not now", times=1)
            with pytest.raises(Unreachable):
                await bench.insist(cluster, handle, events.Hold(time.time(), "me"))
        async with bench.open() as cluster:
            await bench.until(cluster, lambda: not bench.pods(), "its pods to be withdrawn")

    play(story)


def test_a_launch_that_has_started_is_not_held(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo("sleep 60"))
            await bench.step(cluster)
            assert await bench.order(cluster, handle, events.Hold(time.time(), "me")) is None
            (name,) = bench.pods()
            assert not bench.pod(name)["metadata"].get("deletionTimestamp")

    play(story)


@pytest.mark.parametrize("stored", [True, False])
def test_a_grant_that_may_be_stored_is_not_taken_back(bench: Bench, stored: bool) -> None:
    """The daemon has been told the grant and stores it, or does not, while the hold is under way."""

    async def story() -> None:
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, solo())
            assert isinstance(answer, Accepted)
            (name,) = bench.pods()
            bench.place(name)
            cursor = await _look_until_granted(bench, cluster)
            hold = asyncio.create_task(bench.order(cluster, answer.handle, events.Hold(time.time(), "me")))
            while not cluster.launches.watched[token_of(solo())].again_at:
                await asyncio.sleep(0)
            assert not list(bench.sent("DELETE", "/pods/")) and not hold.done()
            if stored:
                bench.cursors[answer.handle] = cursor
            told = await bench.step(cluster)
            assert await hold is None
            assert not any(isinstance(event, Granted) for report in told for event in report.events)
            assert bool(bench.pod(name)["metadata"].get("deletionTimestamp")) is not stored
            if stored:
                assert await bench.order(cluster, answer.handle, events.Launch(time.time(), "main", 0)) is None
                await bench.until_told(cluster, answer.handle, NodeStarted)

    play(story)


async def _look_until_granted(bench: Bench, cluster: KubernetesCluster) -> str:
    """Observe until the grant is told, and store nothing; gives the cursor behind it."""
    while True:
        for report in (await cluster.observe(bench.cursors, 0.2)).reports:
            if any(isinstance(event, Granted) for event in report.events):
                return report.cursor


def test_a_group_whose_grant_may_be_stored_gives_nothing_back(
    bench: Bench, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            await bench.submit(cluster, solo())
            bench.place(*bench.pods())
            await _look_until_granted(bench, cluster)
            monkeypatch.setattr(soft_gang, "choose_action", lambda *_: WaitAction.GIVE_BACK)
            (found,) = cluster.launches.watched.values()
            await SoftGang(cluster.launches, settings).look([found], time.time())
            assert not list(bench.sent("DELETE", "/pods/"))

    play(story)


def test_no_grant_is_told_while_the_pods_are_being_given_back(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await _submit(bench, cluster)
            bench.api.refuse("PATCH", "configmaps/", 503, "not now", times=1)
            with pytest.raises(Unreachable):
                await bench.order(cluster, handle, events.Hold(time.time(), "me"))
            # Whether the anchor says so is not known; the pods have their places, and nobody is told.
            for name in bench.pods():
                bench.place(name)
            await bench.step(cluster, 0.5)
            assert not any(isinstance(one, Granted) for one in bench.told[handle])
            await bench.insist(cluster, handle, events.Release(time.time(), "me"))
            await bench.until(cluster, lambda: _place_all(bench) and bool(bench.cursors[handle]), "its grant")

    play(story)


def _place_all(bench: Bench) -> bool:
    """Place the pods that have no node, and end those that are deleted, as nodes do."""
    for name, document in bench.documents().items():
        if document["metadata"].get("deletionTimestamp"):
            bench.api.pods.gone(name)
        elif not document["spec"].get("nodeName"):
            bench.place(name)
    return True


def test_a_launch_that_waits_too_long_is_told_once_and_for_all(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            job = make_job()
            job = replace(job, spec=replace(job.spec, start_timeout=1))
            (answer,) = await bench.submit(cluster, job)
            assert isinstance(answer, Accepted)
            await bench.step(cluster, 2.0)
            assert not any(isinstance(one, LaunchLost) for one in bench.told[answer.handle])
            bench.place(bench.pods()[0])
            lost = await bench.until_told(cluster, answer.handle, LaunchLost)
            assert (lost.launch, lost.cause) == (0, "never_started")
            # It may not start any more, whatever comes.
            for name in bench.pods():
                bench.place(name)
            await bench.step(cluster, 1.5)
            assert not any(isinstance(one, Granted) for one in bench.told[answer.handle])

    play(story)


HALF = (placed(), pod("rollout", 0), pod("rollout", 1))
GATES = (pod(waiting_reason=GATED), pod("rollout", 0, waiting_reason=GATED))


@pytest.mark.parametrize(
    ("limit", "pods", "age", "verdict"),
    [
        (10, HALF, 9, None),
        (10, HALF, 10, LaunchLost),
        (None, HALF, 10_000, None),
        # Nothing is held: the queue may be long.
        (10, (pod(), pod("rollout", 0)), 10_000, None),
        (10, (running(), running("rollout", 0), running("rollout", 1)), 10_000, None),
        (10, GATES, 99, None),
        (10, GATES, 100, Expire),
    ],
)
def test_patience(limit: int | None, pods: tuple[PodRecord, ...], age: float, verdict: type | None) -> None:
    story = WatchedLaunch("lab/inst-7-0", replace(group(), start_timeout=limit), "uid", "lab")
    assert judge_wait(story, take_snapshot(pods), 100, T, T) is None
    found = judge_wait(story, take_snapshot(pods), 100, T + age, T + age)
    assert found is None if verdict is None else isinstance(found, verdict)
    assert judge_wait(story, take_snapshot(GATES), None, T + 10**6, T + 10**6) is None


@pytest.mark.parametrize("jump", [-21600.0, 10800.0])
def test_a_clock_that_is_set_moves_no_start_timeout(jump: float) -> None:
    story = WatchedLaunch("lab/inst-7-0", replace(group(), start_timeout=10), "uid", "lab")
    assert judge_wait(story, take_snapshot(HALF), None, T, 5.0) is None
    assert judge_wait(story, take_snapshot(HALF), None, T + jump, 14.9) is None
    assert judge_wait(story, take_snapshot(HALF), None, T + jump, 15.0) is not None


def test_what_was_given_back_holds_nothing() -> None:
    story = WatchedLaunch("lab/inst-7-0", replace(group(), start_timeout=10), "uid", "lab")
    assert judge_wait(story, take_snapshot(HALF), None, T, T) is None
    story.again_at = math.inf
    assert judge_wait(story, take_snapshot(HALF), None, T + 20, T + 20) is None
    story.again_at = 0.0
    assert judge_wait(story, take_snapshot(HALF), None, T + 21, T + 21) is None
    assert judge_wait(story, take_snapshot(HALF), None, T + 31, T + 31) is not None


def test_a_verdict_comes_in_the_place_of_a_grant_only() -> None:
    verdict = LaunchLost(T, 0, "never_started")
    story = WatchedLaunch("lab/inst-7-0", group(), "uid", "lab", expiry=verdict)
    snapshot = take_snapshot([placed(), placed("rollout", 0), placed("rollout", 1)])
    report = story.project(snapshot, "", T)
    assert report is not None and report.events == (verdict,)
    story.cursor = Cursor(True)
    report = story.project(snapshot, "1", T)
    assert report is None


@pytest.mark.parametrize("restarted", [False, True])
def test_a_grant_that_is_asked_for_from_the_first_cursor_again_is_given_back_and_told_anew(
    bench: Bench, restarted: bool
) -> None:
    """`Traits.returns_grants`: a part of a group across that waits at its start gate."""

    async def take_back(cluster: KubernetesCluster, handle: str) -> None:
        # Before the first look from there the hold means nothing.
        bench.cursors[handle] = ""
        await bench.step(cluster)
        bench.cursors[handle] = ""
        while (refusal := await bench.order(cluster, handle, events.Hold(time.time(), "me"))) is not None:
            assert refusal.transient, refusal
            await bench.step(cluster, 0.2)
            # A grant that is told meanwhile is not stored.
            bench.cursors[handle] = ""
        for name in bench.pods():
            bench.api.pods.gone(name)
        await bench.until(cluster, lambda: not bench.pods(), "its pods to be withdrawn")

    async def story() -> None:
        async with bench.open() as cluster:
            handle = await _submit(bench, cluster)
            for name in bench.pods():
                bench.place(name)
            await bench.until_told(cluster, handle, Granted)
            await bench.step(cluster)
            if not restarted:
                await take_back(cluster, handle)
        async with bench.open() as cluster:
            if restarted:
                await take_back(cluster, handle)
            bench.told[handle].clear()
            await bench.step(cluster, 1.5)
            assert bench.pods() == [] and not bench.facts(handle)
            await bench.insist(cluster, handle, events.Release(time.time(), "me"))
            await bench.until(cluster, lambda: len(bench.pods()) == 3, "its pods to be made again")
            for name in bench.pods():
                bench.place(name)
            await bench.until_told(cluster, handle, Granted)

    play(story)
