"""Groups in a queue of Kueue, which is played: admitted as one or not at all, and let go of when they are given up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.kubernetes_api import KubernetesApi
from tests.fakes.kubernetes_kueue import GROUP, Kueue
from tests.fakes.kubernetes_objects import Key
from tests.unit.adapters.kubernetes.bench import INSTALLATION, Bench, make_job, play

from overspan.adapters.contract import Accepted
from overspan.bridge.model import events
from overspan.bridge.model.events import Expire, Granted, NodeEnded, Queued
from overspan.bridge.model.spec import TaskSpec

QUEUE = "research"
WORKLOADS = Key(GROUP, "workloads", "default")


class Queued3(Bench):
    """A bench whose cluster admits three pods at a time."""

    def __init__(self, api: KubernetesApi, folder: Path, **settings: Any) -> None:
        super().__init__(api, folder, **{"gang": "kueue", "queue": QUEUE, **settings})
        self.kueue = Kueue(api, QUEUE, 3)

    async def until(self, cluster: Any, fact: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            # Nothing goes while it is looked at.
            with self.api.objects.changed:
                self.kueue.work()
                return fact()

        await super().until(cluster, look, what)

    async def start_admitted(self, cluster: Any) -> tuple[str, str]:
        """Have a group admitted and started; gives its handle and the pod of its second rollout."""
        await self.submit(cluster, make_job())
        await self.until(cluster, lambda: not self.gated(), "its admission")
        handle = await self.start(cluster, make_job())
        (pod,) = (name for name in self.pods() if "rollout-1" in name)
        return handle, pod

    def gated(self) -> set[str]:
        """The jobs with pods that may not be scheduled, as the scheduler tells it."""
        found = set()
        with self.api.objects.changed:
            for name, pod in self.documents().items():
                if pod["spec"].get("schedulingGates"):
                    why = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
                    self.api.pods.set_status(name, {"conditions": [why]})
                    found.add(pod["metadata"]["labels"]["overspan.io/job"])
        return found


@pytest.fixture
def queued(api: KubernetesApi, tmp_path: Path, patient: None) -> Queued3:
    return Queued3(api, tmp_path)


def test_a_group_is_admitted_as_one_or_not_at_all(queued: Queued3) -> None:
    async def story() -> None:
        async with queued.open() as cluster:
            first, second = await queued.submit(cluster, make_job(job_id=1, name="one"), make_job(job_id=2, name="two"))
            assert isinstance(first, Accepted) and isinstance(second, Accepted)
            assert queued.gated() == {"1", "2"}
            await queued.until(cluster, lambda: len(queued.gated()) == 1, "one of them to be admitted")
            (waits,) = queued.gated()
            handle, other = (first.handle, second.handle) if waits == "2" else (second.handle, first.handle)
            # The other has all of its gates, and says why it waits.
            assert sum(bool(queued.pod(name)["spec"].get("schedulingGates")) for name in queued.pods()) == 3
            told = queued.told[other]
            text = "Resources"
            await queued.until(cluster, lambda: any(isinstance(e, Queued) and e.reason == text for e in told), "why")
            for name in queued.pods():
                if not queued.pod(name)["spec"].get("schedulingGates"):
                    queued.place(name)
            await queued.until_told(cluster, handle, Granted)
            assert not any(isinstance(event, Granted) for event in told)

    play(story)


@pytest.mark.parametrize("right", [True, False], ids=["may delete workloads", "by its marks alone"])
def test_a_group_that_failed_for_good_is_closed_and_its_quota_free(queued: Queued3, right: bool) -> None:
    if not right:
        queued.api.denied.add(("delete", "workloads"))

    async def story() -> None:
        async with queued.open() as cluster:
            (answer,) = await queued.submit(cluster, make_job())
            assert isinstance(answer, Accepted)
            await queued.until(cluster, lambda: not queued.gated(), "its admission")
            handle = await queued.start(cluster, make_job())
            for name in queued.pods():
                queued.api.pods.finish(name, 1)
            told = queued.told[handle]
            await queued.until(cluster, lambda: sum(isinstance(one, NodeEnded) for one in told) == 3, "its end")
            # Kueue holds pods that failed, for others to take their place.
            queued.kueue.work()
            assert len(queued.pods()) == 3
            await cluster.release(INSTALLATION, (), ())
            queued.kueue.work()
            queued.kueue.work()
            assert queued.left() == [] and queued.api.objects.select(WORKLOADS, lambda _: True)[0] == []

    play(story)


@pytest.mark.parametrize("how", ["cancel", "hold"])
def test_a_group_that_is_given_up_before_its_admission_leaves_nothing(queued: Queued3, how: str) -> None:
    async def story() -> None:
        async with queued.open() as cluster:
            answer, blocker = await queued.submit(cluster, make_job(), make_job(_wide(), job_id=9, name="wide"))
            assert isinstance(answer, Accepted) and isinstance(blocker, Accepted)
            await queued.until(cluster, lambda: queued.gated() == {"9"}, "the other's admission")
            handle, mine = blocker.handle, f"{INSTALLATION}-9-0"
            if how == "hold":
                await queued.insist(cluster, handle, events.Hold(time.time(), "me"))
            else:
                await cluster.release(INSTALLATION, (answer.handle,), ())

            def left() -> list[str]:
                return queued.pods(mine)

            await queued.until(cluster, lambda: not left(), "its pods to go")
            if how == "hold":
                await queued.insist(cluster, handle, events.Release(time.time(), "me"))
                await queued.until(cluster, lambda: len(left()) == 4 and queued.gated() == {"9"}, "its pods again")

    play(story)


def test_a_new_pod_comes_when_the_old_one_counts_no_more(queued: Queued3) -> None:
    def live() -> list[str]:
        found = queued.documents().items()
        return [name for name, pod in found if not pod["metadata"].get("deletionTimestamp")]

    async def story() -> None:
        async with queued.open() as cluster:
            handle, old = await queued.start_admitted(cluster)
            again = asyncio.create_task(
                queued.order(cluster, handle, events.NodeRelaunch(time.time(), "rollout", 0, 1, 1))
            )
            # Its log has told its end, and its node is late.
            await asyncio.wait([again], timeout=0.5)
            assert not again.done() and len(queued.pods()) == 3
            queued.api.pods.finish(old, 3)
            await queued.until(cluster, again.done, "the new pod")
            assert again.result() is None
            queued.kueue.work()
            (new,) = (name for name in live() if "rollout-1" in name and name != old)
            assert not queued.pod(new)["metadata"].get("deletionTimestamp")

    play(story)


def test_the_place_of_a_pod_that_succeeded_is_not_taken_again(queued: Queued3) -> None:
    async def story() -> None:
        async with queued.open() as cluster:
            handle, old = await queued.start_admitted(cluster)
            queued.api.pods.finish(old)
            refusal = await queued.order(cluster, handle, events.NodeRelaunch(time.time(), "rollout", 0, 1, 1))
            assert refusal is not None and refusal.transient and "span requeue" in refusal.message

    play(story)


def test_without_the_right_to_workloads_it_says_so_and_goes_on(
    queued: Queued3, caplog: pytest.LogCaptureFixture
) -> None:
    queued.api.denied.add(("delete", "workloads"))

    async def story() -> None:
        async with queued.open() as cluster:
            await queued.submit(cluster, make_job(_wide()))
            await cluster.release(INSTALLATION, (), ())
            assert queued.names("configmaps") == []
            assert "cannot be deleted" in caplog.text

    play(story)


def test_an_admission_that_takes_too_long_ends_the_job(api: KubernetesApi, tmp_path: Path) -> None:
    queued = Queued3(api, tmp_path, admission_timeout="1s")

    async def story() -> None:
        async with queued.open() as cluster:
            (answer,) = await queued.submit(cluster, make_job(_wide()))
            assert isinstance(answer, Accepted)
            queued.gated()
            over = await queued.until_told(cluster, answer.handle, Expire)
            assert over.cause == "never_started"

    play(story)


def _wide() -> TaskSpec:
    """A task that never fits."""
    return TaskSpec(name="worker", run="true", num_nodes=4)
