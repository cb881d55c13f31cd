"""Letting go: logs first, then finalizers; orphans too; and what a second process goes on from."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.fakes.kubernetes_objects import Key, merge
from tests.unit.adapters.kubernetes.bench import (
    DEADLINE,
    INSTALLATION,
    Bench,
    body_of,
    make_job,
    play,
    read_log_request,
    solo,
)

from overspan.adapters.contract import Accepted
from overspan.bridge.model import events
from overspan.bridge.model.errors import NotFound, OverspanError, Unreachable
from overspan.bridge.model.events import NodeEnded, NodeStarted
from overspan.bridge.model.job import Job


def test_a_log_is_kept_before_the_finalizer_goes(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo())
            (name,) = bench.pods()
            bench.api.streams.write_log(name, "one\ntwo\n")
            bench.api.pods.finish(name)
            await bench.until_told(cluster, handle, NodeEnded)
            await cluster.release(INSTALLATION, (), ())
            assert bench.left() == []
            read = min(place for place, _ in bench.sent("GET", f"/pods/{name}/log"))
            stripped = min(place for place, one in bench.sent("PATCH", name) if "finalizers" in str(body_of(one)))
            assert read < stripped
            part = await cluster.logs(read_log_request(handle, "main"))
            assert (part.data, part.size, part.gap) == (b"one\ntwo\n", 8, 0)
        async with bench.open() as cluster:
            # The daemon's own file is all that there is now.
            assert (await cluster.logs(read_log_request(handle, "main", offset=4))).data == b"two\n"

    play(story)


def test_a_pod_that_still_has_time_to_send_data_goes_with_its_launch(bench: Bench) -> None:
    """As after `scancel --no-flush`: its grace is that of its data, and it would keep its node for so long."""

    async def story() -> None:
        async with bench.open() as cluster:
            await bench.start(cluster, solo("sleep 60"))
            (name,) = bench.pods()
            bench.api.objects.delete(Key("", "pods", "default", name), {"gracePeriodSeconds": 1830})
            await bench.until(cluster, lambda: bool(cluster.launches.watched), "the launch")
            await cluster.release(INSTALLATION, (), ())
            (pod,) = bench.documents().values()
            assert pod["metadata"]["deletionGracePeriodSeconds"] == 1
            assert not pod["metadata"].get("finalizers")

    play(story)


def test_a_live_log_is_read_when_somebody_reads(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo("sleep 60"))
            (name,) = bench.pods()
            await bench.until_told(cluster, handle, NodeStarted)
            bench.api.streams.write_log(name, "one\n")
            assert not list(bench.sent("GET", "/log"))
            assert (await cluster.logs(read_log_request(handle, "main"))).data == b"one\n"
            bench.api.streams.write_log(name, "two\n")
            part = await cluster.logs(read_log_request(handle, "main", offset=4))
            assert (part.data, part.offset, part.size) == (b"two\n", 4, 8)
            with pytest.raises(NotFound):
                await cluster.logs(read_log_request(handle, "main", node=3))

    play(story)


def test_no_earlier_attempt_speaks_for_the_present_one(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo())
            (name,) = bench.pods()
            bench.api.streams.write_log(name, "the first attempt\n")
            bench.api.pods.finish(name, 1)
            await bench.until_told(cluster, handle, NodeEnded)
            assert (await cluster.logs(read_log_request(handle, "main"))).data == b"the first attempt\n"
            assert await bench.order(cluster, handle, events.Launch(time.time(), "main", 1)) is None
            second = next(one for one in bench.pods() if one != name)
            bench.place(second)
            bench.api.streams.write_log(second, "the second\n")
        present = read_log_request(handle, "main", begun=1)
        async with bench.open() as cluster:
            # A new daemon, whose cluster does not answer.
            bench.api.stop()
            with pytest.raises(Unreachable):
                await cluster.logs(present)
            earlier = await cluster.logs(read_log_request(handle, "main", attempt=0))
            assert earlier.data == b"the first attempt\n"
            bench.api.start()
            assert (await cluster.logs(present)).data == b"the second\n"

    play(story)


def test_a_log_that_its_node_does_not_give_is_asked_for_again(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo())
            (name,) = bench.pods()
            bench.api.streams.write_log(name, "precious\n")
            bench.api.pods.finish(name)
            await bench.until_told(cluster, handle, NodeEnded)
            bench.api.refuse("GET", "/log", 500, "the node does not answer", times=1)
            with pytest.raises(OverspanError, match="log"):
                await cluster.release(INSTALLATION, (), ())
            assert bench.pods() == [name]
            await cluster.release(INSTALLATION, (), ())
            assert bench.left() == []
            assert (await cluster.logs(read_log_request(handle, "main"))).data == b"precious\n"

    play(story)


def test_only_what_is_not_wanted_is_released(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            answers = await bench.submit(cluster, *(solo(job_id=number) for number in (1, 2, 3)))
        handles = [answer.handle for answer in answers if isinstance(answer, Accepted)]
        async with bench.open() as cluster:
            # Another process: nothing of it was submitted just now.
            await cluster.release(INSTALLATION, [handles[0]], [f"{INSTALLATION}-2-0"])
            names = {bench.pod(name)["metadata"]["labels"]["overspan.io/job"] for name in bench.pods()}
            assert names == {"1", "2"}
            await cluster.release("somebody-else", (), ())
            assert len(bench.pods()) == 2
            await cluster.release(INSTALLATION, (), ())
            assert bench.left() == []

    play(story)


def test_a_pod_goes_by_two_requests(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            await bench.start(cluster, solo())
            (name,) = bench.pods()
            before = len(bench.api.requests)
            await cluster.release(INSTALLATION, (), ())
            asked = [one.method for one in bench.api.requests[before:] if one.path.endswith(f"/pods/{name}")]
            assert asked == ["DELETE", "PATCH"]
            assert bench.pod(name)["metadata"]["deletionTimestamp"]
            assert not bench.pod(name)["metadata"].get("finalizers")

    play(story)


def test_a_launch_that_is_over_is_removed_without_a_list(bench: Bench) -> None:
    async def story(job: Job, asked: list[str]) -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, job)
            for name in bench.pods():
                bench.api.pods.finish(name)
            await bench.until(cluster, lambda: len(ends(handle)) == len(bench.pods()), "the ends")
            # The first one of a daemon looks for launches that it does not know.
            await cluster.release("somebody-else", (), ())
            await cluster.release(INSTALLATION, [handle], ())
            before = len(bench.api.requests)
            await cluster.release(INSTALLATION, (), ())
            gets = [one.path for one in bench.api.requests[before:] if one.method == "GET" and "/log" not in one.path]
            assert gets == asked
            assert bench.left() == []

    def ends(handle: str) -> list[events.Event]:
        return [event for event in bench.told[handle] if isinstance(event, NodeEnded)]

    play(lambda: story(solo(), []))
    play(lambda: story(make_job(job_id=8), ["/api/v1/namespaces/default/services/demo"]))


def test_pods_that_the_watch_may_not_know_are_asked_for(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, solo())
            assert isinstance(answer, Accepted)
            # It runs, and nobody has looked at it yet.
            await cluster.release(INSTALLATION, (), ())
            assert bench.api.count("GET", "/pods$") > 0
            assert bench.pods() == [] or bench.pod(*bench.pods())["metadata"]["deletionTimestamp"]

    play(story)


def test_a_pod_that_others_change_meanwhile_goes_too(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            await bench.start(cluster, solo())
            (name,) = bench.pods()
            held = bench.api.hold("PATCH", f"pods/{name}$")
            releasing = asyncio.create_task(cluster.release(INSTALLATION, (), ()))
            assert await asyncio.to_thread(held.met.wait, 60.0)
            change = {"metadata": {"finalizers": [*bench.pod(name)["metadata"]["finalizers"], "other/x"]}}
            bench.api.objects.replace(Key("", "pods", "default", name), lambda now: merge(now, change))
            held.free.set()
            await releasing
            assert bench.pod(name)["metadata"]["finalizers"] == ["other/x"]

    play(story)


def test_what_is_submitted_during_a_release_stays(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            releasing = asyncio.create_task(cluster.release(INSTALLATION, (), ()))
            await asyncio.sleep(0)
            (answer,) = await bench.submit(cluster, solo())
            assert isinstance(answer, Accepted)
            await releasing
            assert len(bench.pods()) == 1
            await cluster.release(INSTALLATION, (), ())
            assert bench.left() == []

    play(story)


def test_pods_without_an_anchor_are_released_too(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            await bench.start(cluster, make_job())
        (anchor,) = [name for name in bench.names("configmaps") if name.endswith("-7-0")]
        bench.api.objects.delete(Key("", "configmaps", "default", anchor), {})
        async with bench.open() as cluster:
            await cluster.release(INSTALLATION, (), ())
        for name in bench.pods():
            bench.api.pods.gone(name)
        assert bench.left() == []

    play(story)


def test_ended_pods_of_a_live_launch_go_once_their_end_is_stored(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            bench.api.pods.finish("demo-trainer-0-a0")
            await bench.until_told(cluster, handle, NodeEnded)
            assert "demo-trainer-0-a0" in bench.pods()
            await bench.until(cluster, lambda: "demo-trainer-0-a0" not in bench.pods(), "the ended pod goes")
            assert len(bench.pods()) == 2
            assert not await bench.step(cluster, 0.3)

    play(story)


def test_a_second_process_tells_nothing_twice(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            await bench.until(cluster, lambda: len(bench.facts(handle)) == 4, "all starts")
        before = list(bench.told[handle])
        bench.api.pods.finish("demo-trainer-0-a0", 3)
        async with bench.open() as cluster:
            await bench.until_told(cluster, handle, NodeEnded)
            assert not await bench.step(cluster, 0.3)
        (end,) = bench.told[handle][len(before) :]
        assert isinstance(end, NodeEnded) and end.exit_code == 3

    play(story)


def test_a_launch_that_somebody_removed_is_gone(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, solo())
            assert isinstance(answer, Accepted)
            await cluster.release(INSTALLATION, (), ())
            await bench.step(cluster)
            await cluster.release(INSTALLATION, (), ())
        async with bench.open() as cluster:
            (report,) = await bench.step(cluster)
            assert report.gone and report.handle == answer.handle

    play(story)


def test_a_cluster_that_does_not_answer_tells_nothing(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            await bench.until(cluster, lambda: len(bench.facts(handle)) == 4, "all starts")
            bench.api.stop()
            deadline = time.monotonic() + DEADLINE
            while time.monotonic() < deadline:
                try:
                    assert not await bench.step(cluster, 0.2)
                except OverspanError as error:
                    assert error.transient
                    break
            else:
                raise AssertionError("nobody said that the cluster does not answer")
            bench.api.start()
            deadline = time.monotonic() + DEADLINE
            bench.api.pods.finish("demo-trainer-0-a0")
            while not any(isinstance(event, NodeEnded) for event in bench.told[handle]):
                assert time.monotonic() < deadline
                try:
                    await bench.step(cluster, 0.2)
                except OverspanError as error:
                    assert error.transient
            assert not any(isinstance(event, events.LaunchLost) for event in bench.told[handle])

    play(story)


def test_pods_that_are_just_being_made_are_not_left_behind(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            await bench.submit(cluster, solo())
            (followed,) = cluster.launches.watched.values()
            followed.busy += 1
            releasing = asyncio.create_task(cluster.release(INSTALLATION, (), ()))
            while not followed.gone:
                await asyncio.sleep(0.01)
            assert len(bench.pods()) == 1
            followed.busy -= 1
            await releasing
            assert bench.left() == []

    play(story)
