"""A new process, and calls that break off in the middle: what is known again, and that nothing is made twice."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from tests.fakes.kubernetes_objects import Key
from tests.unit.adapters.kubernetes.bench import DEADLINE, INSTALLATION, Bench, make_job, play, solo
from tests.waiting import wait_until

from overspan.adapters.contract import Accepted, Refusal
from overspan.adapters.kubernetes import cluster as cluster_module
from overspan.adapters.kubernetes.cluster import KubernetesCluster
from overspan.adapters.kubernetes.launches.launches import parse_handle
from overspan.adapters.kubernetes.observation import projection
from overspan.bridge.model import events
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.events import NodeEnded, NodeStarted
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import TaskSpec


async def restart(bench: Bench, cluster: KubernetesCluster) -> str:
    """A job whose second attempt runs, and whose first pod is gone; gives its handle."""
    handle = await bench.start(cluster, solo())
    (first,) = bench.pods()
    bench.api.pods.finish(first, 1)
    await bench.until_told(cluster, handle, NodeEnded)
    await bench.order(cluster, handle, events.Launch(time.time(), "main", 1))
    (second,) = (name for name in bench.pods() if name != first)
    bench.place(second)
    told = bench.told[handle]
    await bench.until(cluster, lambda: isinstance(told[-1], NodeStarted) and told[-1].attempt == 1, "the second")
    await bench.until(cluster, lambda: bench.pods() == [second], "the first pod to go")
    return handle


def test_a_new_process_makes_no_pods_before_it_has_the_stored_cursors(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "TICK_SECONDS", 0.05)

    async def story() -> None:
        async with bench.open() as cluster:
            await restart(bench, cluster)
            await bench.start(cluster, solo(job_id=8))
            before = bench.pods()
        async with bench.open() as cluster:
            # One launch is known before the other.
            held = bench.api.hold("GET", "/configmaps/overspan-bench-8-0")
            look = asyncio.create_task(bench.step(cluster, 0.2))
            assert await asyncio.to_thread(held.met.wait, 60)
            await asyncio.wait([look], timeout=1.0)
            assert bench.pods() == before
            held.free.set()
            await look
            assert bench.pods() == before

    play(story)


@pytest.mark.parametrize("path", ["/configmaps/", "/pods/"], ids=["its anchor", "its pods"])
def test_a_launch_whose_removal_broke_off_is_made_again_as_new(bench: Bench, path: str) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            bench.api.objects.quotas["default"] = 2
            bench.api.drop("DELETE", path)
            with pytest.raises(OverspanError):
                await bench.submit(cluster, make_job())
            del bench.api.objects.quotas["default"]
            (answer,) = await bench.submit(cluster, make_job())
            while isinstance(answer, Refusal):
                assert answer.transient, answer
                (answer,) = await bench.submit(cluster, make_job())
            assert isinstance(answer, Accepted)
            for name in bench.pods():
                bench.place(name)
            await bench.until_told(cluster, answer.handle, events.Granted)
            await bench.order(cluster, answer.handle, events.Launch(time.time(), "trainer", 0))
            bench.api.pods.finish("demo-trainer-0-a0", 1)
            await bench.until_told(cluster, answer.handle, NodeEnded)
            assert await bench.order(cluster, answer.handle, events.Launch(time.time(), "trainer", 1)) is None
            assert "demo-trainer-0-a1" in bench.pods()

    play(story)


async def _break_off(bench: Bench, cluster: KubernetesCluster) -> list[str]:
    """Submit a group that is refused half-way; gives its pods, which have their nodes and are being removed."""
    bench.api.objects.quotas["default"] = 2
    held = bench.api.hold("DELETE", "/configmaps/")
    first = asyncio.create_task(bench.submit(cluster, make_job()))
    assert await asyncio.to_thread(held.met.wait, 60)
    left = bench.pods()
    for name in left:
        bench.place(name)
    held.free.set()
    (answer,) = await first
    assert isinstance(answer, Refusal) and answer.transient
    del bench.api.objects.quotas["default"]
    return left


def test_pods_of_an_earlier_try_on_dead_nodes_do_not_hold_the_next_one_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            left = await _break_off(bench, cluster)
            (answer,) = await bench.submit(cluster, make_job())
            # A node that answers ends them.
            assert isinstance(answer, Refusal) and "is being removed" in answer.message and bench.pods() == left
            monkeypatch.setattr(projection, "STUCK_SECONDS", -60.0)
            await _submit_until_accepted(bench, cluster, make_job())

    play(story)


async def _submit_until_accepted(bench: Bench, cluster: KubernetesCluster, job: Job) -> None:
    deadline = time.monotonic() + DEADLINE
    while not isinstance((await bench.submit(cluster, job))[0], Accepted):
        assert time.monotonic() < deadline, bench.pods()


def test_pods_of_a_launch_that_never_started_on_dead_nodes_do_not_hold_the_next_one_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection, "STUCK_SECONDS", -60.0)

    async def story() -> None:
        async with bench.open() as cluster:
            await bench.submit(cluster, make_job())
            bench.place(bench.pods()[0])
            await _submit_until_accepted(bench, cluster, replace(make_job(), launch=1))

    play(story)


def test_pods_that_an_earlier_try_left_behind_are_not_taken_for_new_ones(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            left = await _break_off(bench, cluster)
            # Their nodes are not done with them.
            (answer,) = await bench.submit(cluster, make_job())
            assert isinstance(answer, Refusal) and answer.transient and "is being removed" in answer.message
            for name in left:
                bench.api.pods.gone(name)
            (answer,) = await bench.submit(cluster, make_job())
            assert isinstance(answer, Accepted)
            assert len(bench.pods()) == 3
            await bench.step(cluster, 0.5)
            assert not any(isinstance(event, events.Granted) for event in bench.told[answer.handle])

    play(story)


def test_what_goes_with_an_earlier_try_is_made_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = bench.api.objects
    job = make_job(TaskSpec(name="rank", run="true", num_nodes=17, secrets={"KEY": "hush"}))

    async def story() -> None:
        async with bench.open() as cluster:
            with monkeypatch.context() as slow:
                # The garbage collector has not come yet to what the first try made.
                slow.setattr(objects, "_collect", lambda owner: None)
                objects.quotas["default"] = 2
                (answer,) = await bench.submit(cluster, job)
                assert isinstance(answer, Refusal) and answer.transient
                assert bench.names("secrets") and any("-env-" in name for name in bench.names("configmaps"))
                del objects.quotas["default"]
                (answer,) = await bench.submit(cluster, job)
                assert isinstance(answer, Accepted)
            kinds = [Key("", kind, "default") for kind in ("pods", "services", "secrets", "configmaps")]
            found = [one for kind in kinds for one in objects.select(kind, lambda _: True)[0]]
            owners = {one["uid"] for each in found for one in each["metadata"].get("ownerReferences") or ()}
            assert owners == {answer.native_id}
            assert len(found) == 17 + 1 + 1 + 2

    play(story)


@pytest.mark.parametrize("late", [False, True], ids=["the watch knows their end", "the watch is late"])
def test_pods_of_an_earlier_try_are_no_trace_of_a_start(bench: Bench, late: bool) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            # What is seen last of the first try: its pods wait at their start gates, or have gone.
            mark = bench.api.hold("PATCH", "/configmaps/")
            first = asyncio.create_task(bench.submit(cluster, make_job()))
            assert await asyncio.to_thread(mark.met.wait, 60)
            for name in bench.pods():
                bench.place(name)
            watch = cluster.launches.watch(parse_handle("default/bench-7-0"))
            await asyncio.to_thread(
                wait_until, lambda: sum(pod.started_at is not None for pod in watch.pods.values()) == 3
            )
            if late:
                bench.api.streams.silence()
            bench.api.objects.delete(Key("", "configmaps", "default", "overspan-bench-7-0"), {})
            mark.free.set()
            (answer,) = await first
            assert isinstance(answer, Refusal) and answer.transient
            for name in bench.pods():
                bench.api.pods.gone(name)
            if not late:
                await asyncio.to_thread(wait_until, lambda: not watch.pods)
                bench.api.streams.silence()
            (answer,) = await bench.submit(cluster, make_job())
            assert isinstance(answer, Accepted)
            for _ in range(3):
                await bench.step(cluster, 0.1)
            assert not any(isinstance(event, events.Granted) for event in bench.told[answer.handle])
            bench.api.streams.silence(False)
            for name in bench.pods():
                bench.place(name)
            await bench.until_told(cluster, answer.handle, events.Granted)

    play(story)


def test_a_mark_that_reaches_no_pod_is_made_again(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, solo())
            assert isinstance(answer, Accepted)
            (name,) = bench.pods()
            bench.place(name)
            await bench.until_told(cluster, answer.handle, events.Granted)
            # Somebody takes it away, finalizer and all, and the watch is late.
            bench.api.streams.silence()
            key = Key("", "pods", "default", name)
            bench.api.objects.replace(key, lambda pod: {**pod, "metadata": {**pod["metadata"], "finalizers": None}})
            bench.api.pods.gone(name)
            launch = events.Launch(time.time(), "main", 0)
            refusal = await bench.order(cluster, answer.handle, launch)
            assert refusal is not None and refusal.transient and name in refusal.message
            bench.api.streams.silence(False)
            await bench.until(cluster, lambda: not cluster.launches.watch(parse_handle(answer.handle)).pods, "news")
            assert await bench.order(cluster, answer.handle, launch) is None
            end = await bench.until_told(cluster, answer.handle, NodeEnded)
            assert end.cause == "node"

    play(story)


def test_of_launches_that_were_let_go_nothing_is_remembered(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            bench.api.streams.silence()
            for name in bench.pods():
                bench.api.pods.finish(name)
            del bench.cursors[handle]
            await cluster.release(INSTALLATION, (), ())
            assert bench.left() == []
            # The watch hears of it when all is over.
            bench.api.streams.silence(False)
            watch = cluster.launches.watch(parse_handle(handle))
            await bench.until(cluster, lambda: not watch.pods, "the watch")
            await bench.step(cluster)
            assert watch.gone("bench-7-0") == ()

    play(story)
