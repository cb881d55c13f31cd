"""Logs that are followed: which are, the ends that they tell, and that nothing depends on them."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from tests.fakes.kubernetes_faults import Fault, Kind
from tests.unit.adapters.kubernetes.bench import Bench, make_job, play, read_log_request, solo
from tests.unit.adapters.kubernetes.conftest import list_followers
from tests.waiting import wait_until

from overspan.adapters.kubernetes.cluster import KubernetesCluster
from overspan.adapters.kubernetes.logs import live_logs as subject
from overspan.adapters.kubernetes.logs.end_marks import make_mark
from overspan.bridge.model import events
from overspan.bridge.model.events import NodeEnded, NodeStarted

TRAINER = "demo-trainer-0-a0"
PATH = f"/pods/{TRAINER}/log"
END = f"\036overspan-end {make_mark('bench-7-0', 'trainer', 0, 0, 0)} 0"
FAILURE = END[:-1] + "3"


def await_quiet() -> None:
    """Until nobody follows a log: a thread ends a moment after its last word."""
    wait_until(lambda: not list_followers(), 20, "nobody follows")


async def until_followed(bench: Bench, cluster: KubernetesCluster, times: int = 1) -> None:
    await bench.until(cluster, lambda: bench.api.count("GET", PATH) >= times, "the log is followed")


def test_an_end_in_the_log_is_told_before_the_pod_s_status(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            bench.api.streams.write_log(TRAINER, "trained")
            await until_followed(bench, cluster)
            before = time.time()
            bench.api.streams.write_log(TRAINER, END)
            end = await bench.until_told(cluster, handle, NodeEnded)
            assert (end.task, end.exit_code, end.cause) == ("trainer", 0, "")
            assert before <= end.at <= time.time()
            await_quiet()
            # The others' logs are not followed.
            assert bench.api.count("GET", "/log") == bench.api.count("GET", PATH) == 1
            # The pod's status comes later, and tells nothing new.
            bench.api.pods.finish(TRAINER)
            await bench.step(cluster, 0.3)
            assert sum(isinstance(event, NodeEnded) for event in bench.told[handle]) == 1
            assert (await cluster.logs(read_log_request(handle, "trainer"))).data == b"trained\n"

    play(story)


def test_a_failure_is_told_by_the_status_alone(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            await until_followed(bench, cluster)
            bench.api.streams.write_log(TRAINER, FAILURE)
            await bench.step(cluster, 0.3)
            bench.api.pods.finish(TRAINER, 3, "OOMKilled")
            end = await bench.until_told(cluster, handle, NodeEnded)
            assert (end.exit_code, end.cause) == (3, "memory")

    play(story)


def test_a_log_that_breaks_is_followed_again_and_one_that_is_refused_is_not(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            await bench.until(cluster, lambda: bench.api.streams.followed > 0, "the log is followed")
            bench.api.streams.cut()
            await until_followed(bench, cluster, 2)
            bench.api.streams.write_log(TRAINER, END)
            await bench.until_told(cluster, handle, NodeEnded)

    play(story)


def test_without_the_right_to_read_logs_the_status_tells_the_end(bench: Bench) -> None:
    async def story() -> None:
        bench.api.denied.add(("get", "pods/log"))
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            await until_followed(bench, cluster)
            await_quiet()
            bench.api.pods.finish(TRAINER)
            await bench.until_told(cluster, handle, NodeEnded)
            assert bench.api.count("GET", PATH) == 1

    play(story)


def test_what_prints_too_much_is_left_to_its_status(bench: Bench, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(subject, "MOST_HEARD", 100)

    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            await until_followed(bench, cluster)
            bench.api.streams.write_log(TRAINER, "much\n" * 1000)
            await_quiet()
            bench.api.streams.write_log(TRAINER, END)
            await bench.step(cluster, 0.2)
            assert not any(isinstance(event, NodeEnded) for event in bench.told[handle])
            bench.api.pods.finish(TRAINER)
            await bench.until_told(cluster, handle, NodeEnded)

    play(story)


def test_so_many_are_followed_and_none_whose_end_ends_nobody(bench: Bench, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(subject, "HEARD", 0)

    async def story() -> None:
        async with bench.open() as cluster:
            group, alone = await bench.start(cluster, make_job()), await bench.start(cluster, solo(job_id=8))
            for name in bench.pods():
                bench.api.pods.finish(name)
            for handle in (group, alone):
                await bench.until_told(cluster, handle, NodeEnded)
            # Ended pods' logs are read when they go.
            assert not [one for _, one in bench.sent("GET", "/log") if "follow" in one.query]

    play(story)


def test_one_stream_brings_the_ends_and_the_last_lines_of_a_pod(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            bench.api.streams.write_log(TRAINER, "up")
            uid = bench.pod(TRAINER)["metadata"]["uid"]
            await bench.until(cluster, lambda: bool(cluster._live.read(uid)), "its first line is heard")
            await terminate(bench, cluster, handle)
            # What was printed until then is read.
            await until_followed(bench, cluster, 2)
            await bench.until(cluster, lambda: cluster._live.goes_on(uid), "its last lines are kept")
            bench.api.streams.write_log(TRAINER, "got TERM")
            # The node removes the log with the container.
            bench.api.faults.add(Fault(Kind.REFUSE, "GET", PATH, 1000, 404, "NotFound"))
            bench.api.pods.finish(TRAINER, 143)
            await bench.until_told(cluster, handle, NodeEnded)
            await bench.until(cluster, lambda: not cluster._live.goes_on(uid), "all of it is heard")
            await cluster.release("bench", (), ())
            log = await cluster.logs(read_log_request(handle, "trainer"))
            assert log.data == b"up\ngot TERM\n"
            followed = [one for _, one in bench.sent("GET", PATH) if "follow" in one.query]
            assert len(followed) == 1
            await_quiet()

    play(story)


def test_a_pod_whose_end_is_not_heard_is_followed_while_it_ends(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            await until_followed(bench, cluster)
            await terminate(bench, cluster, handle, "rollout")
            await bench.until(cluster, lambda: len(list_followers()) == 3, "the last lines are followed")
        await_quiet()

    play(story)


async def terminate(bench: Bench, cluster: KubernetesCluster, handle: str, task: str = "trainer") -> None:
    now = time.time()
    await bench.order(cluster, handle, events.Terminate(now, task, 0, "cancel", now + 5))


def test_nothing_is_followed_after_the_end_of_the_launch_or_of_the_daemon(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            await until_followed(bench, cluster)
            assert list_followers() == [f"log of {TRAINER}"]
            for name in bench.pods():
                bench.api.pods.finish(name, 3)
            await bench.until_told(cluster, handle, NodeEnded)
            await bench.until(cluster, lambda: not list_followers(), "its log is let go")
            await bench.start(cluster, make_job(name="other", job_id=8))
            await bench.until(cluster, lambda: bool(list_followers()), "the other one's is followed")
        await_quiet()

    play(story)


def test_a_log_is_whole_before_the_pod_goes_whose_end_it_told(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            await until_followed(bench, cluster)
            bench.api.streams.write_log(TRAINER, END)
            await bench.until_told(cluster, handle, NodeEnded)
            # Everything has ended for the daemon; the node has not told it yet, and has some output left.
            bench.api.pods.finish("demo-rollout-0-a0")
            bench.api.pods.finish("demo-rollout-1-a0")
            try:
                await cluster.release("bench", (), ())
            except Exception as error:
                assert "cannot be read yet" in str(error)
            assert TRAINER in bench.pods()
            bench.api.streams.write_log(TRAINER, "last words")
            bench.api.pods.finish(TRAINER)
            await cluster.release("bench", (), ())
            assert bench.left() == []
            assert (await cluster.logs(read_log_request(handle, "trainer"))).data == b"last words\n"

    play(story)


def test_the_last_lines_are_followed_before_the_watch_tells_that_a_pod_is_deleted(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            name = "demo-rollout-0-a0"
            bench.api.streams.write_log(name, "up")
            await bench.until(cluster, lambda: len(bench.facts(handle)) == 4, "all starts")
            bench.api.streams.silence()
            await terminate(bench, cluster, handle, "rollout")
            await asyncio.to_thread(wait_until, lambda: f"log of {name}" in list_followers(), 20, "its last lines")

    play(story)


def test_where_no_thread_can_begin_the_status_tells_the_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("log of"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)

    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            await bench.until_told(cluster, handle, NodeStarted)
            assert cluster._live.count() == 0
            bench.api.pods.finish(TRAINER)
            await bench.until_told(cluster, handle, NodeEnded)

    play(story)
