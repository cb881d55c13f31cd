"""The place that two clusters are together: where each call goes, and who is told of members elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from overspan.adapters.contract import (
    Accepted,
    ClusterConfig,
    Launch,
    LogPart,
    LogRequest,
    Order,
    Refusal,
    Report,
    SomeUnanswered,
)
from overspan.adapters.traits import Traits
from overspan.bridge.controller.core.across import gate_orders
from overspan.bridge.controller.core.across.cluster import AcrossCluster
from overspan.bridge.controller.core.across.projection import GateStage, parse_cursor, parse_handle
from overspan.bridge.controller.core.clusters import Cluster
from overspan.bridge.controller.core.shared_paths import SharedPaths
from overspan.bridge.model import events
from overspan.bridge.model.errors import Denied, Unreachable
from overspan.bridge.model.job import Job, Placement, new_job
from overspan.bridge.model.resources import Gpus, Resources
from overspan.bridge.model.spec import JobSpec, TaskSpec

SPEC = JobSpec("g", (TaskSpec("a", run="true", cluster="leo"), TaskSpec("b", run="true", cluster="kube")), group=True)
JOB = new_job(3, SPEC, 0.0)


class Part:
    """One of the clusters; `said` is what it was asked to do."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.traits = Traits(keeps_limits=lambda handle: name == "leo", returns_grants=name == "kube")
        self.limits: list[int | None] = []
        self.said: list[Any] = []
        self.told: list[tuple[str, dict[str, str]]] = []
        self.further: list[list[tuple[str, int, str]]] = []
        self.access: list[str] = []
        self.answer: Refusal | None = None
        self.trouble: Exception | None = None
        self.silent = False

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        if self.silent:
            raise Unreachable("no route")
        self.said += [tuple(task.name for task in launch.job.tasks if not task.over) for launch in launches]
        self.access += [launch.access for launch in launches]
        self.limits += [launch.job.spec.start_timeout for launch in launches]
        return [self.answer or Accepted(launch.token, f"{self.name}-handle", "17") for launch in launches]

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        if self.silent:
            raise Unreachable("no route")
        self.said += [(order.handle, type(order.event).__name__) for order in orders]
        return [self.answer for _ in orders]

    async def tell_members(self, handle: str, members: Sequence[Placement], further: Sequence[Placement]) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.told.append((handle, {place.task: place.address for place in members}))
        self.further.append([(place.task, place.index, place.address) for place in further])

    async def logs(self, request: LogRequest) -> LogPart:
        return LogPart(request.handle.encode(), 0, 0)

    def find_obstacle(self, job: Job) -> str:
        return ""

    def plan(self, job: Job) -> str:
        return "\n".join(f"starts {task.name}" for task in job.tasks if not task.over)


class Scene:
    """Two clusters, and the place that they are together, which may be made anew as by another daemon."""

    def __init__(self) -> None:
        self.parts = {name: Part(name) for name in ("leo", "kube")}
        self.woken: list[str] = []
        self.leaving: set[str] = set()
        self.hindrance: Refusal | None = None
        self.further: tuple[Placement, ...] = ()
        self.now = 1000.0
        self.restart()

    def restart(self) -> None:
        self.clusters = {
            name: Cluster(ClusterConfig(name, "fake"), lambda kind, part=part: lambda config: part)  # type: ignore
            for name, part in self.parts.items()
        }
        self.across = AcrossCluster(
            "leo+kube",
            self.clusters,
            SharedPaths(),
            self.woken.append,
            lambda job, name: f"{job.id} on {name}",
            lambda job, names: f"it is being ended on {left}" if (left := self.leaving.intersection(names)) else "",
            lambda job: self.hindrance,
            lambda place, handle: self.further,
            lambda: self.now,
        )

    async def submit(self) -> str:
        (answer,) = await self.across.submit([Launch("inst-3-0", JOB)])
        assert isinstance(answer, Accepted)
        return answer.handle

    async def hear(self, handle: str, cursor: str, **told: Report) -> tuple[str, list[Any]]:
        """What is reported after the parts' clusters have told this; with the cursor behind it."""
        observing = asyncio.ensure_future(self.across.observe({handle: cursor}, 0.05))
        await asyncio.sleep(0.01)
        for name, report in told.items():
            subscription = self.clusters[name].open_subscription("leo+kube")
            subscription.take([report], subscription.list_cursors())
        observation = await observing
        reports = observation.reports
        return (reports[0].cursor, list(reports[0].events)) if reports else (cursor, [])

    async def grant(self, handle: str) -> str:
        cursor, _ = await self.hear(
            handle, "", leo=granted("leo", "a", "10.0.0.1"), kube=granted("kube", "b", "10.9.0.1")
        )
        return cursor


def granted(cluster: str, task: str, address: str, cursor: str = "1") -> Report:
    return Report(f"{cluster}-handle", (events.Granted(1.0, ((task, 0, "n1", address, ()),)),), cursor)


def play(story: Callable[[Scene], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(Scene()), 30))


def test_no_launch_is_sent_beside_what_is_left_of_the_one_before() -> None:
    async def story(scene: Scene) -> None:
        scene.leaving = {"kube"}
        (answer,) = await scene.across.submit([Launch("inst-3-1", JOB)])
        assert isinstance(answer, Refusal) and answer.transient
        assert answer.waiting_reason == "Cleaning: it is being ended on {'kube'}"
        assert not scene.parts["leo"].said and not scene.parts["kube"].said
        scene.leaving = set()
        await scene.submit()

    play(story)


def test_each_cluster_is_given_its_own_tasks() -> None:
    async def story(scene: Scene) -> None:
        handle = await scene.submit()
        assert dict(parse_handle(handle).parts) == {"leo": "leo-handle", "kube": "kube-handle"}
        assert scene.parts["leo"].said == [("a",)] and scene.parts["kube"].said == [("b",)]
        part = await scene.across.logs(LogRequest(handle, "b"))
        assert part.data == b"kube-handle"

    play(story)


def test_each_part_is_given_the_way_to_the_daemon_from_its_own_cluster() -> None:
    async def story(scene: Scene) -> None:
        await scene.submit()
        assert scene.parts["leo"].access == [f"{JOB.id} on leo"]
        assert scene.parts["kube"].access == [f"{JOB.id} on kube"]

    play(story)


def test_what_one_cluster_refuses_is_refused_in_its_words() -> None:
    async def story(scene: Scene) -> None:
        scene.parts["kube"].answer = Refusal("", "exceeded quota", transient=True)
        (answer,) = await scene.across.submit([Launch("inst-3-0", JOB)])
        assert answer == Refusal("inst-3-0", "kube: exceeded quota", transient=True)
        scene.parts["leo"].answer = Refusal("", "no such partition")
        (answer,) = await scene.across.submit([Launch("inst-3-0", JOB)])
        assert answer == Refusal("inst-3-0", "leo: no such partition")

    play(story)


def test_the_side_with_gpus_is_asked_when_the_other_has_taken_its_part() -> None:
    """What hangs is not to keep GPUs of the other cluster waiting at a start gate."""

    async def story(scene: Scene) -> None:
        dear, cheap = SPEC.tasks
        gpus = replace(dear, resources=Resources(gpus=(Gpus(8),)))
        launch = Launch("inst-3-0", new_job(3, replace(SPEC, tasks=(gpus, cheap)), 0.0))
        scene.parts["kube"].silent = True
        with pytest.raises(Unreachable, match="kube: no route") as caught:
            await scene.across.submit([launch])
        assert type(caught.value) is Unreachable
        assert scene.parts["leo"].said == []
        scene.parts["kube"].silent, scene.parts["kube"].answer = False, Refusal("", "exceeded quota", transient=True)
        await scene.across.submit([launch])
        assert scene.parts["leo"].said == []
        # One that only looks for what there is asks all.
        await scene.across.submit([replace(launch, wanted=False)])
        assert scene.parts["leo"].said == [("a",)]

    play(story)


def test_a_task_starts_when_its_cluster_knows_the_members_elsewhere() -> None:
    async def story(scene: Scene) -> None:
        handle = await scene.submit()
        start = Order("t1", handle, events.Launch(2.0, "a", 0))
        (refusal,) = await scene.across.order([start])
        assert refusal is not None and refusal.transient
        await scene.grant(handle)
        scene.parts["leo"].trouble = Denied("may not write there")
        (refusal,) = await scene.across.order([start])
        assert refusal == Refusal("t1", "leo: may not write there")
        scene.parts["leo"].trouble = None
        # The other side could not start: this one is not to run alone.
        scene.parts["kube"].trouble = Denied("no right")
        (refusal,) = await scene.across.order([start])
        assert refusal == Refusal("t1", "kube: no right") and ("leo-handle", "Launch") not in scene.parts["leo"].said
        # One that does not answer now keeps nothing back.
        scene.parts["kube"].trouble = Unreachable("no route")
        assert await scene.across.order([start]) == [None]
        assert scene.parts["leo"].told == [("leo-handle", {"b": "10.9.0.1"})]
        assert scene.parts["leo"].said[-1] == ("leo-handle", "Launch")
        assert scene.parts["kube"].said == [("b",)]

    play(story)


def test_a_member_that_moved_is_told_of_by_a_daemon_that_came_later_too() -> None:
    async def story(scene: Scene) -> None:
        handle = await scene.submit()
        cursor = await scene.grant(handle)
        scene.restart()
        cursor, told = await scene.hear(handle, cursor, kube=granted("kube", "b", "10.9.0.2", "2"))
        assert [type(event) for event in told] == [events.Granted]
        await scene.hear(handle, cursor)
        await scene.hear(handle, cursor)
        assert [address for _, address in scene.parts["leo"].told] == [{"b": "10.9.0.1"}, {"b": "10.9.0.2"}]
        assert [address for _, address in scene.parts["kube"].told] == [{"a": "10.0.0.1"}]

    play(story)


def test_further_members_of_elastic_tasks_are_told_to_the_other_side_alone() -> None:
    """JG41: with each new list, by a daemon that came later too, and when they are gone."""

    async def story(scene: Scene) -> None:
        handle = await scene.submit()
        cursor = await scene.grant(handle)
        scene.further = (Placement("a", 1, "n2", "10.0.0.2"),)
        await scene.across.order([Order("inst-3-o1", handle, events.SetPeers(2.0, 1, ()))])
        assert scene.parts["kube"].further[-1] == [("a", 1, "10.0.0.2")]
        assert scene.parts["leo"].further[-1] == []
        assert ("kube-handle", "SetPeers") in scene.parts["kube"].said
        scene.restart()
        await scene.hear(handle, cursor)
        assert scene.parts["kube"].further[1:] == [[("a", 1, "10.0.0.2")]]
        scene.further = ()
        await scene.hear(handle, cursor)
        assert scene.parts["kube"].further[-1] == []

    play(story)


def test_orders_on_the_whole_job_go_to_all_and_new_limits_to_those_that_keep_them() -> None:
    async def story(scene: Scene) -> None:
        handle = await scene.submit()
        (early,) = await scene.across.order([Order("t", handle, events.Hold(1.0))])
        assert early is not None and early.transient
        await scene.hear(handle, "")
        for event in (events.Hold(1.0), events.SetTime(1.0, 60)):
            assert await scene.across.order([Order("t", handle, event)]) == [None]
        assert scene.parts["leo"].said[1:] == [("leo-handle", "Hold"), ("leo-handle", "SetTime")]
        assert scene.parts["kube"].said[1:] == [("kube-handle", "Hold")]
        (refusal,) = await scene.across.order([Order("t", handle, events.Suspend(1.0))])
        assert refusal is not None and "not suspended" in refusal.message and not refusal.transient

    play(story)


def test_orders_for_a_side_that_does_not_answer_keep_none_of_the_other() -> None:
    async def story(scene: Scene) -> None:
        handle = await scene.submit()
        await scene.grant(handle)
        scene.parts["kube"].silent = True
        ends = [Order(task, handle, events.Terminate(2.0, task, 0, "cancel", 3.0)) for task in ("b", "a")]
        with pytest.raises(SomeUnanswered, match="no route") as caught:
            await scene.across.order([*ends, Order("b2", handle, events.Kill(2.0, "b", 0))])
        assert caught.value.answers == {"a": None}
        assert scene.parts["leo"].said[-1] == ("leo-handle", "Terminate")

    play(story)


def test_two_places_hear_of_their_own_parts_on_one_cluster() -> None:
    async def story(scene: Scene) -> None:
        one, other = (
            scene.clusters["leo"].open_subscription("leo+kube"),
            scene.clusters["leo"].open_subscription("leo+far"),
        )
        one.follow({"x": ""})
        other.follow({"y": "1"})
        assert (one.list_cursors(), other.list_cursors()) == ({"x": ""}, {"y": "1"})

    play(story)


def test_a_silent_cluster_is_told_beside_the_news_of_the_other() -> None:
    async def story(scene: Scene) -> None:
        handle = await scene.submit()
        scene.clusters["kube"].failed(5.0, Unreachable("no route"))
        observation = await scene.across.observe({handle: ""}, 0.01)
        assert observation.reports == () and "kube has not answered" in observation.trouble
        scene.clusters["leo"].failed(5.0, Unreachable("no route"))
        with pytest.raises(Unreachable, match="leo has not answered"):
            await scene.across.observe({handle: ""}, 0.01)
        assert "leo" in scene.woken and "kube" in scene.woken

    play(story)


def test_what_a_later_version_wrote_is_left_alone_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(scene: Scene) -> None:
        handle = await scene.submit()
        strange = {handle: '{"format":9}', '{"format":9}': "", '{"format": 9}': "torn"}
        for _ in range(2):
            assert (await scene.across.observe(strange, 0.01)).reports == ()
        assert len(caplog.messages) == 3 and "has format 9; this version reads 1" in caplog.messages[0]
        # Another launch goes on beside it.
        other = handle.replace("leo-handle", "other-handle")
        observing = asyncio.ensure_future(scene.across.observe({**strange, other: ""}, 5))
        await asyncio.sleep(0.01)
        waits = replace(
            granted("leo", "a", "10.0.0.1"), handle="other-handle", events=(events.Queued(1.0, "Priority"),)
        )
        subscription = scene.clusters["leo"].open_subscription("leo+kube")
        subscription.take([waits], subscription.list_cursors())
        assert [report.handle for report in (await observing).reports] == [other]

    play(story)


def test_a_start_that_an_earlier_daemon_may_have_sent_is_in_doubt_until_the_members_are_known() -> None:
    """A refusal would say that nothing of it runs."""

    async def story(scene: Scene) -> None:
        handle = await scene.submit()
        order = Order("t", handle, events.Launch(1.0, "a", 0))
        (answer,) = await scene.across.order([order])
        assert isinstance(answer, Refusal) and answer.transient
        with pytest.raises(SomeUnanswered):
            await scene.across.order([replace(order, again=True)])

    play(story)


def test_a_part_at_its_gate_is_held_while_the_other_queues_and_released_when_that_can_start() -> None:
    async def story(scene: Scene) -> None:
        kube = scene.parts["kube"]
        handle = await scene.submit()
        # The daemon keeps the time of what it can take back; a part on Slurm gives up by itself.
        assert (scene.parts["leo"].limits, kube.limits) == ([600], [None])
        granted_at, _ = await scene.hear(handle, "", kube=granted("kube", "b", "10.9.0.1"))
        scene.now += 600
        away, (reason,) = await scene.hear(handle, granted_at)
        assert reason.reason == "Resources: leo: given back meanwhile: kube"
        assert kube.said[1:] == [], "it is not stored yet"
        again, news = await scene.hear(handle, away)
        assert (again, news) == (away, []) and kube.said[1:] == [("kube-handle", "Hold")]
        # A user's hold and release pass it over.
        for event in (events.Hold(1.0), events.Release(1.0)):
            assert await scene.across.order([Order("u", handle, event)]) == [None]
        assert kube.said[1:] == [("kube-handle", "Hold")]
        scene.restart()
        assert (await scene.hear(handle, away))[1] == []
        assert kube.said[2:] == [("kube-handle", "Hold")], "the next daemon cannot know whether it arrived"
        # It came before the cluster was asked from its first cursor, and so it still tells its grant.
        await scene.hear(handle, away, kube=granted("kube", "b", "10.9.0.1"))
        await scene.hear(handle, away)
        assert kube.said[3:] == [("kube-handle", "Hold")]
        returns, _ = await scene.hear(handle, away, leo=granted("leo", "a", "10.0.0.1"))
        asked, news = await scene.hear(handle, returns)
        assert kube.said[4:] == [("kube-handle", "Release")]
        (held,) = await scene.across.order([Order("u", handle, events.Hold(1.0))])
        assert held is None or held.transient
        asked, _ = await scene.hear(handle, asked)
        _, news = await scene.hear(handle, asked, kube=granted("kube", "b", "10.9.0.2"))
        (grant,) = (one for one in news if isinstance(one, events.Granted))
        assert {member[3] for member in grant.members} == {"10.0.0.1", "10.9.0.2"}

    play(story)


def test_a_cluster_that_does_not_answer_a_hold_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_orders, "PAUSES", (0.001,) * 5)

    async def story(scene: Scene) -> None:
        handle = await scene.submit()
        cursor, _ = await scene.hear(handle, "", kube=granted("kube", "b", "10.9.0.1"))
        scene.now += 600
        cursor, _ = await scene.hear(handle, cursor)
        scene.parts["kube"].silent = True
        cursor, _ = await scene.hear(handle, cursor, leo=granted("leo", "a", "10.0.0.1"))
        # It may hold its nodes still: it is not asked for again before it has answered.
        assert parse_cursor(cursor).parts["kube"].stage is GateStage.AWAY
        scene.parts["kube"].silent = False
        for _ in range(3):
            cursor, _ = await scene.hear(handle, cursor)
        assert [word for _, word in scene.parts["kube"].said[1:]] == ["Hold", "Release"]

    play(story)


def test_a_users_hold_waits_until_a_part_is_there_that_can_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_orders, "PAUSES", (0.001,) * 5)

    async def story(scene: Scene) -> None:
        leo, kube = scene.parts["leo"], scene.parts["kube"]
        handle = await scene.submit()
        cursor, _ = await scene.hear(handle, "", kube=granted("kube", "b", "10.9.0.1"))
        scene.now += 600
        cursor, _ = await scene.hear(handle, cursor)
        kube.silent = True
        cursor, _ = await scene.hear(handle, cursor, leo=granted("leo", "a", "10.0.0.1"))
        (early,) = await scene.across.order([Order("u", handle, events.Hold(1.0, "me"))])
        assert early is not None and early.transient, "no part would keep the launch from its start"
        kube.silent = False
        while parse_cursor(cursor).parts["kube"].stage is not GateStage.ASKS:
            cursor, _ = await scene.hear(handle, cursor)
        assert await scene.across.order([Order("u", handle, events.Hold(1.0, "me"))]) == [None]
        assert kube.said[-1] == ("kube-handle", "Hold") and leo.said[1:]

    play(story)


def test_a_hold_is_not_sent_again_once_its_launch_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_orders, "PAUSES", (0.05,) * 5)

    async def story(scene: Scene) -> None:
        kube = scene.parts["kube"]
        handle = await scene.submit()
        cursor, _ = await scene.hear(handle, "", kube=granted("kube", "b", "10.9.0.1"))
        scene.now += 600
        cursor, _ = await scene.hear(handle, cursor)
        kube.answer = Refusal("", "it is being ended", transient=True)
        await asyncio.wait_for(asyncio.gather(scene.across.observe({handle: cursor}, 0.01)), 5)
        await scene.across.observe({}, 0.01)
        tries = len(kube.said)
        assert kube.said[-1] == ("kube-handle", "Hold")
        await asyncio.gather(*scene.across._gates._sending.values())
        assert len(kube.said) == tries

    play(story)


def test_a_plan_shows_every_part() -> None:
    async def story(scene: Scene) -> None:
        assert scene.across.plan(JOB) == "# --- on leo ---\nstarts a\n# --- on kube ---\nstarts b"

    play(story)
