"""Decisions on a fake API server: what is sent, in which order, and what comes of it."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace

import pytest
from tests.unit.adapters.kubernetes.bench import Bench, body_of, make_job, play, solo

from overspan.adapters import first_observation
from overspan.adapters.contract import Accepted, Order, Refusal, SomeUnanswered
from overspan.adapters.kubernetes.api.calls import Calls
from overspan.adapters.kubernetes.launches import ordering
from overspan.adapters.kubernetes.launches.pod_actions import LEAVE_SECONDS
from overspan.adapters.kubernetes.launches.start_gates import OPEN
from overspan.adapters.kubernetes.observation.records import read_time
from overspan.bridge.model import events
from overspan.bridge.model.errors import Conflict, Denied
from overspan.bridge.model.events import NodeEnded, NodeStarted
from overspan.bridge.model.spec import TaskSpec


def test_nothing_is_told_before_the_pods_may_go(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, solo())
            (name,) = bench.pods()
            bench.api.pods.bind(name)
            bench.api.pods.run(name)
            bench.api.pods.finish(name)
            handle = f"default/{answer.token}"
            await bench.until_told(cluster, handle, events.Granted)
            assert not await bench.step(cluster, 0.3)
            await bench.order(cluster, handle, events.Launch(time.time(), "main", 0))
            await bench.until_told(cluster, handle, NodeEnded)
            assert [type(event) for event in bench.facts(handle)] == [events.Granted, NodeStarted, NodeEnded]

    play(story)


def test_an_end_has_the_uid_and_what_is_left_of_the_grace(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            now = time.time()
            await bench.order(cluster, handle, events.Terminate(now, "trainer", 0, "cancel", now + 4.5))
            least = max(1, math.ceil(now + 4.5 - time.time()))
            ((_, request),) = bench.sent("DELETE", "/pods/")
            body = body_of(request)
            assert body["preconditions"] == {"uid": bench.pod("demo-trainer-0-a0")["metadata"]["uid"]}
            assert least <= body["gracePeriodSeconds"] <= 5
            await bench.order(cluster, handle, events.Kill(now + 4.5, "trainer", 0))
            assert body_of(list(bench.sent("DELETE", "/pods/"))[-1][1])["gracePeriodSeconds"] == 1
            bench.api.pods.finish("demo-trainer-0-a0", 143)
            end = await bench.until_told(cluster, handle, NodeEnded)
            assert (end.exit_code, end.signal, end.cause) == (0, 15, "") and end.at >= now

    play(story)


def test_an_end_that_loses_against_other_changes_is_given_again(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo())
            await bench.until_told(cluster, handle, NodeStarted)
            (name,) = bench.pods()
            text = (
                "Operation cannot be fulfilled on pods: the object has been modified; please apply your changes again"
            )
            bench.api.refuse("DELETE", "/pods/", 409, text, reason="Conflict")
            end = events.Terminate(time.time(), "main", 0, "cancel", time.time() + 5)
            with pytest.raises(Conflict, match="has been modified"):
                await bench.order(cluster, handle, end, "the-end")
            assert await bench.order(cluster, handle, end, "the-end") is None
            assert bench.pod(name)["metadata"].get("deletionTimestamp")

    play(story)


def test_a_hold_that_loses_against_other_changes_does_not_lose_its_launch(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, solo())
            assert isinstance(answer, Accepted)
            text = "Operation cannot be fulfilled on configmaps: the object has been modified"
            bench.api.refuse("PATCH", "/configmaps/", 409, text, reason="Conflict")
            with pytest.raises(Conflict, match="has been modified"):
                await bench.insist(cluster, answer.handle, events.Hold(time.time()))
            await bench.insist(cluster, answer.handle, events.Hold(time.time()))
            await bench.until(cluster, lambda: not bench.pods(), "the held launch's pods to be given back")

    play(story)


def test_a_node_that_hangs_keeps_no_order_of_other_launches(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "WAIT_SECONDS", 0.2)

    async def story() -> None:
        async with bench.open() as cluster:
            hung = await bench.start(cluster, solo("sleep 60", job_id=8))
            other = await bench.start(cluster, solo("sleep 60", job_id=9))
            held = bench.api.hold("GET", "/exec")
            now = time.time()
            signalled = Order("the-signal", hung, events.Signal(now, signal.SIGUSR1))
            ended = Order("the-end", other, events.Terminate(now, "main", 0, "cancel", now + 5))
            with pytest.raises(SomeUnanswered) as caught:
                await cluster.order([signalled, ended])
            assert caught.value.answers == {"the-end": None}
            # Asked again while it hangs, it is not sent a second time.
            with pytest.raises(SomeUnanswered):
                await cluster.order([signalled])
            held.free.set()
            while True:
                with suppress(SomeUnanswered):
                    assert await cluster.order([signalled]) == [None]
                    break
            assert [one.words[-1] for one in bench.api.exec.runs].count("kill -s USR1 -1") == 1

    play(story)


def test_an_end_of_another_pod_of_that_name_is_none(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo())
            await bench.until_told(cluster, handle, NodeStarted)
            (name,) = bench.pods()
            bench.api.refuse("DELETE", "/pods/", 409, "Precondition failed: UID in precondition", reason="Conflict")
            now = time.time()
            assert await bench.order(cluster, handle, events.Terminate(now, "main", 0, "cancel", now + 5)) is None
            assert not bench.pod(name)["metadata"].get("deletionTimestamp")

    play(story)


def test_a_lost_member_leaves_the_names_before_its_successor_is_made(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            bench.api.pods.finish("demo-trainer-0-a0", 1)
            await bench.until_told(cluster, handle, NodeEnded)
            before = len(bench.api.requests)
            await bench.order(cluster, handle, events.Launch(time.time(), "trainer", 1))
            left = min(place for place, request in bench.sent("PATCH", "/pods/demo-trainer-0-a0") if place >= before)
            made = min(place for place, request in bench.sent("POST", "/pods") if place >= before)
            assert left < made
            old, new = bench.pod("demo-trainer-0-a0"), bench.pod("demo-trainer-0-a1")
            assert "overspan.io/member" not in old["metadata"]["labels"]
            assert new["metadata"]["labels"]["overspan.io/member"] == "bench-7-0"
            assert new["spec"]["hostname"] == old["spec"]["hostname"] == "trainer-0"
            assert new["metadata"]["annotations"]["overspan.io/go"]
            # The same order again makes no second one.
            await bench.order(cluster, handle, events.Launch(time.time(), "trainer", 1))
            assert sum(name.startswith("demo-trainer") for name in bench.pods()) == 2

    play(story)


def test_a_node_alone_has_a_run_of_its_own(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            bench.api.pods.finish("demo-rollout-1-a0", 1)
            await bench.until_told(cluster, handle, NodeEnded)
            await bench.order(cluster, handle, events.NodeRelaunch(time.time(), "rollout", 0, 1, 1))
            bench.place("demo-rollout-1-a0-r1")
            bench.api.pods.run("demo-rollout-1-a0-r1")
            told = bench.told[handle]
            await bench.until(
                cluster, lambda: any(isinstance(event, NodeStarted) and event.run == 1 for event in told), "run 1"
            )

    play(story)


def test_a_pod_that_others_delete_is_a_loss(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo("sleep 60"))
            (name,) = bench.pods()
            from tests.fakes.kubernetes_objects import Key

            bench.api.objects.delete(Key("", "pods", "default", name), {})
            bench.api.pods.finish(name, 143)
            end = await bench.until_told(cluster, handle, NodeEnded)
            assert (end.cause, end.exit_code, end.signal) == ("node", 0, 15)

    play(story)


def test_a_pod_that_can_never_be_made_ends_its_attempt(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo())
            (name,) = bench.pods()
            bench.api.pods.finish(name, 1)
            await bench.until_told(cluster, handle, NodeEnded)
            bench.api.refuse("POST", "pods$", 422, "spec.nodeName: Invalid value", reason="Invalid")
            assert await bench.order(cluster, handle, events.Launch(time.time(), "main", 1)) is None
            told = bench.told[handle]
            await bench.until(cluster, lambda: isinstance(told[-1], NodeEnded) and told[-1].attempt == 1, "the end")
            end = told[-1]
            assert isinstance(end, NodeEnded)
            assert end.cause == "launch" and "Invalid value" in end.detail

    play(story)


def test_a_quota_that_is_full_at_a_restart_is_waited_for(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo())
            bench.api.objects.quotas["default"] = 1
            launch = events.Launch(time.time(), "main", 1)
            refusal = await bench.order(cluster, handle, launch)
            assert isinstance(refusal, Refusal) and refusal.transient
            bench.api.objects.quotas["default"] = 5
            assert await bench.order(cluster, handle, launch) is None

    play(story)


def test_what_never_came_to_be_can_be_ended(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo())
            now = time.time()
            await bench.order(cluster, handle, events.Terminate(now, "main", 1, "cancel", now + 5))
            told = bench.told[handle]
            await bench.until(
                cluster, lambda: any(isinstance(event, NodeEnded) and event.attempt == 1 for event in told), "its end"
            )

    play(story)


def test_a_notice_is_an_annotation_and_its_signal_an_exec(bench: Bench) -> None:
    async def story() -> None:
        tasks = (
            TaskSpec(name="trainer", run="true"),
            TaskSpec(name="server", run="sleep 60", primary=False, notice_signal="USR1"),
        )
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job(*tasks))
            notice = events.Notice(time.time(), "server", time.time() + 10)
            await bench.order(cluster, handle, notice, "the-notice")
            await bench.order(cluster, handle, notice, "the-notice")
            assert '"primaries_done"' in bench.pod("demo-server-0-a0")["metadata"]["annotations"]["overspan.io/notice"]
            # Its node ends it in time, whatever becomes of the daemon; and the daemon is the first.
            pod = bench.pod("demo-server-0-a0")
            since = read_time(pod["status"]["startTime"])
            assert since is not None
            assert 0 <= since + pod["spec"]["activeDeadlineSeconds"] - notice.deadline - LEAVE_SECONDS <= 1
            signals = [one.words[-1] for one in bench.api.exec.runs if one.words[-1].startswith("kill")]
            assert signals == ["kill -s USR1 -1"]

    play(story)


def test_a_deadline_that_may_not_be_lowered_keeps_no_order(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*words: object) -> None:
        raise Denied("the policy forbids changes of pods")

    async def story() -> None:
        monkeypatch.setattr(Calls, "limit_pod", refuse)
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            now = time.time()
            assert await bench.order(cluster, handle, events.Notice(now, "rollout", now + 10)) is None
            # It is ended as before: by the daemon.
            assert await bench.order(cluster, handle, events.Terminate(now, "rollout", 0, "cancel", now + 5)) is None
            assert bench.pod("demo-rollout-0-a0")["metadata"]["deletionTimestamp"]

    play(story)


@pytest.mark.parametrize("verb", ["create", "get"])
def test_a_signal_that_may_not_be_sent_is_refused_with_the_way_to_the_right(bench: Bench, verb: str) -> None:
    async def story() -> None:
        bench.api.denied.add((verb, "pods/exec"))
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo())
            answer = await bench.order(cluster, handle, events.Signal(time.time(), signal.SIGUSR1))
            assert isinstance(answer, Refusal) and not answer.transient
            assert "kill -s USR1" in answer.message and "forbidden" in answer.message and "span check" in answer.message

    play(story)


@pytest.mark.parametrize(("reply", "words"), [((127, "sh: not found"), "ended with 127"), (None, "is not known")])
def test_a_signal_that_did_not_arrive_for_sure_is_told(bench: Bench, reply: tuple[int, str] | None, words: str) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo())
            bench.api.exec.reply = lambda run: reply
            answer = await bench.order(cluster, handle, events.Signal(time.time(), signal.SIGUSR1))
            assert isinstance(answer, Refusal) and not answer.transient and words in answer.message

    play(story)


def test_a_suspension_is_refused_with_a_sentence(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo())
            answer = await bench.order(cluster, handle, events.Suspend(time.time()))
            assert isinstance(answer, Refusal) and not answer.transient and "cannot be suspended" in answer.message

    play(story)


def test_the_barriers_of_a_small_group_are_opened_from_here(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            await bench.start(cluster, make_job())
        # To close is to be done with it.
        marks = {name: bench.pod(name)["metadata"]["annotations"]["overspan.io/go"] for name in bench.pods()}
        opened = {run.pod: (run.words[2], run.words[-1]) for run in bench.api.exec.runs}
        assert opened == {name: (OPEN, mark) for name, mark in marks.items()}

    play(story)


def test_the_tasks_of_a_group_start_together(bench: Bench) -> None:
    """Each start is a request to the API server: in turn, the last task of a large group would start much later."""

    async def story() -> None:
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, make_job())
            for name in bench.pods():
                bench.place(name)
            handle = f"default/{answer.token}"
            await bench.until_told(cluster, handle, events.Granted)
            held = bench.api.hold("PATCH", "pods/.*trainer")
            starts = [
                Order(f"start-{task}", handle, events.Launch(time.time(), task, 0)) for task in ("trainer", "rollout")
            ]
            given = asyncio.create_task(cluster.order(starts))
            assert await asyncio.to_thread(held.met.wait, 60)
            await bench.until(cluster, lambda: "overspan.io/go" in read_marks("rollout"), "the start of the rollouts")
            held.free.set()
            while True:
                with suppress(SomeUnanswered):
                    assert await given == [None] * len(starts)
                    break
                given = asyncio.create_task(cluster.order(starts))
            assert "overspan.io/go" in read_marks("trainer")

    def read_marks(task: str) -> dict[str, str]:
        (pod,) = (pod for name, pod in bench.documents().items() if f"{task}-0" in name)
        found: dict[str, str] = pod["metadata"]["annotations"]
        return found

    play(story)


def test_a_pod_without_a_barrier_is_sent_nothing_at_its_start(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            await bench.start(cluster, solo())
        assert list(bench.sent("GET", "/exec")) == []

    play(story)


def test_without_the_right_to_exec_the_kubelets_open_the_barriers(bench: Bench) -> None:
    async def story() -> None:
        bench.api.denied.add(("create", "pods/exec"))
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            await bench.until_told(cluster, handle, NodeStarted)
        assert bench.api.exec.runs == []

    play(story)


def test_large_groups_are_opened_by_their_kubelets(bench: Bench) -> None:
    async def story() -> None:
        tasks = (TaskSpec(name="w", run="true", num_nodes=17), TaskSpec(name="x", run="true", primary=False))
        async with bench.open() as cluster:
            await bench.start(cluster, make_job(*tasks))
        assert bench.api.exec.runs == []

    play(story)


def test_an_image_that_cannot_be_had_is_the_reason(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, solo())
            (name,) = bench.pods()
            bench.api.pods.bind(name)
            waiting = {"reason": "ErrImagePull", "message": "no such image"}
            bench.api.pods.set_status(name, {"containerStatuses": [{"name": "main", "state": {"waiting": waiting}}]})
            told = bench.told[f"default/{answer.token}"]

            def reasons() -> list[str]:
                return [event.reason for event in told if isinstance(event, events.Queued)]

            await bench.until(cluster, lambda: any("no such image" in text for text in reasons()), "the reason")
            assert reasons()[-1].startswith("JobLaunchFailure: ")

    play(story)


def test_what_the_scheduler_says_is_the_reason(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, solo())
            (name,) = bench.pods()
            why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            lacks = {**why, "message": "0/2 nodes are available: 2 Insufficient cpu."}
            bench.api.pods.set_status(name, {"conditions": [lacks]})
            queued = await bench.until_told(cluster, f"default/{answer.token}", events.Queued)
            assert queued.reason in ("None", "Resources")
            told = bench.told[f"default/{answer.token}"]
            await bench.until(
                cluster, lambda: isinstance(told[-1], events.Queued) and told[-1].reason == "Resources", "Resources"
            )

    play(story)


def test_a_new_process_orders_nothing_before_it_has_the_stored_cursor(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
        before = bench.pods()
        async with bench.open() as cluster:
            refusal = await bench.order(cluster, handle, events.Launch(time.time(), "trainer", 1))
            assert refusal is not None and refusal.transient
            assert bench.pods() == before
            for _ in range(100):
                await bench.step(cluster, 0.2)
                if await bench.order(cluster, handle, events.Launch(time.time(), "trainer", 1)) is None:
                    return
            raise AssertionError("never looked at")

    play(story)


def test_the_orders_of_a_launch_wait_for_its_first_look_together(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a group that is cancelled just after a restart would keep those of all other launches waiting."""
    clock, pauses = [time.monotonic()], list[float]()

    async def pause(seconds: float) -> None:
        clock[0] += seconds
        pauses.append(seconds)

    monkeypatch.setattr(first_observation, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(first_observation, "asyncio", SimpleNamespace(sleep=pause))

    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
        async with bench.open() as cluster:
            now = time.time()
            end = events.Terminate(now, "trainer", 0, "cancel", now + 5)
            answers = await cluster.order([Order(f"early-{number}", handle, end) for number in range(20)])
            assert all(answer is not None and answer.transient for answer in answers)

    play(story)
    assert first_observation.SECONDS <= sum(pauses) < 10 * first_observation.SECONDS


def test_one_pod_that_can_never_be_made_keeps_no_other_from_it(bench: Bench) -> None:
    async def story() -> None:
        tasks = (TaskSpec(name="w", run="true", num_nodes=20), TaskSpec(name="x", run="true", primary=False))
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job(*tasks))
            bench.api.refuse("POST", "pods$", 422, "spec.nodeName: Invalid value", times=2, reason="Invalid")
            assert await bench.order(cluster, handle, events.Launch(time.time(), "w", 1)) is None
            assert sum(name.endswith("-a1") for name in bench.pods()) == 18
            told = bench.told[handle]

            def ends() -> list[NodeEnded]:
                return [event for event in told if isinstance(event, NodeEnded) and event.attempt == 1]

            await bench.until(cluster, lambda: len(ends()) == 2, "the ends of two")
            assert {end.cause for end in ends()} == {"launch"}

    play(story)


def test_a_pod_whose_quota_others_are_changing_is_made_later(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo())
            text = "Operation cannot be fulfilled on resourcequotas: the object has been modified"
            bench.api.refuse("POST", "pods$", 409, text, reason="Conflict")
            launch = events.Launch(time.time(), "main", 1)
            refusal = await bench.order(cluster, handle, launch)
            assert isinstance(refusal, Refusal) and refusal.transient
            assert await bench.order(cluster, handle, launch) is None

    play(story)


def test_a_node_that_hangs_has_no_thread_of_the_whole_process(bench: Bench) -> None:
    async def story() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        async with bench.open() as cluster:
            held = bench.api.hold("GET", "/exec", times=100)
            await bench.start(cluster, make_job())
            assert await asyncio.to_thread(held.met.wait, 60)
            await asyncio.wait_for(asyncio.to_thread(int), 60)
            held.free.set()

    play(story)
