"""Elastic tasks: members that are wanted are submitted, those that are too many end, and all know of each other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, begin, play, turn, until

from overspan.adapters.contract import Node
from overspan.bridge.controller.features.elastic import node_queries
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.controller.views.listing import Selection, list_queue
from overspan.bridge.lifecycle.members import list_peers
from overspan.bridge.listings.rows import CORE, rows_from_document
from overspan.bridge.model import events
from overspan.bridge.model.elastic import Elastic
from overspan.bridge.model.errors import Conflict, StoreFailed, TimedOut
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.readers.submission import Submission

GROUP = 1


def read(elastic: Elastic) -> Any:
    """A reader of groups with an elastic task; any other text is a job of that name."""

    def make(submission: Submission, kinds: Mapping[str, str], now: float) -> ParsedSubmission:
        if submission.text != "group":
            return ParsedSubmission(JobSpec(submission.text, (TaskSpec(submission.text, run="true"),)))
        workers = TaskSpec("rollout", run="true", num_nodes=elastic.least, primary=False, elastic=elastic)
        return ParsedSubmission(JobSpec("rl", (TaskSpec("trainer", run="true"), workers), group=True))

    return make


def play_group(scene: Any, elastic: Elastic | None = None) -> None:
    """Run a scene with a group that runs."""
    bounds = elastic or Elastic(1, 4, 1, None)

    async def run(bench: Bench) -> None:
        await bench.submit("group")
        await start(bench, GROUP)
        await scene(bench)

    def prepare(bench: Bench) -> None:
        bench.reader = read(bounds)

    play(run, FakeCluster(), prepare)


async def wait(bench: Bench, fact: Callable[[], bool]) -> None:
    """Wait until a fact is true, while a little of the controller's time passes."""
    end = bench.clock.now + 3

    def look() -> bool:
        if bench.clock.now < end:
            bench.clock.advance(0.01)
        return fact()

    await until(look)


async def start(bench: Bench, job: int) -> None:
    """Let the present launch of a job begin."""
    handle = f"{job}.{bench.job(job).launch}"
    await wait(bench, lambda: handle in bench.cluster.journals)
    bench.cluster.tell(handle, *begin(bench.job(job), bench.clock.now))
    await wait(bench, lambda: bench.state(job) == "RUNNING")


def list_members(bench: Bench) -> dict[str, Job]:
    """The live members that are jobs of their own, by name."""
    entries = bench.controller.recorder.registry
    return {entry.job.spec.name: entry.job for entry in entries if entry.job.spec.member and not entry.job.over}


async def settle(bench: Bench, *names: str) -> dict[str, Job]:
    """Wait until just these members are there, and start those that wait."""
    await wait(bench, lambda: list_members(bench).keys() == set(names))
    for job in list_members(bench).values():
        if job.granted_at is None:
            await start(bench, job.id)
    return list_members(bench)


def list_rows(bench: Bench) -> dict[str, tuple[str, str]]:
    """Of each task and member that lives: which task it is a member of, and how many members it has."""
    registry = bench.controller.recorder.registry
    sent = list_queue(registry, Selection(tasks=True, extent="core"), bench.clock.now)
    rows = rows_from_document(CORE, map(json.loads, sent))
    assert {row.group for row in rows} == {"rl"} and {row.family for row in rows} == {GROUP}
    return {row.name: (row.member_of, row.members) for row in rows}


async def scale(bench: Bench, size: int | None) -> Any:
    return await bench.controller.scaling.scale(str(GROUP), "rollout", size, "ana")


def told(bench: Bench, handle: str) -> list[events.SetPeers]:
    """The lists that a launch was told."""
    return [order.event for order in bench.cluster.orders if order.handle == handle and _is_list(order.event)]  # type: ignore[misc]


def count_told(bench: Bench, handle: str) -> int:
    """How many members the last list has that a launch was told."""
    lists = told(bench, handle)
    return len(lists[-1].peers) if lists else 0


def list_ends(bench: Bench) -> dict[str, events.Cancel]:
    """The launches that were ordered to end, in the order of that."""
    return {each.handle: each.event for each in bench.cluster.orders if isinstance(each.event, events.Cancel)}


def _is_list(event: object) -> bool:
    return isinstance(event, events.SetPeers)


def test_members_are_jobs_and_all_are_told_the_same_list() -> None:
    async def scene(bench: Bench) -> None:
        done = await scale(bench, 3)
        assert (done.wanted, done.present) == (3, 3)
        members = await settle(bench, "rollout-1", "rollout-2")
        handles = [f"{GROUP}.0", *(f"{job.id}.0" for job in members.values())]
        await wait(
            bench, lambda: all(told(bench, handle) and len(told(bench, handle)[-1].peers) == 4 for handle in handles)
        )
        last = {told(bench, handle)[-1].generation for handle in handles}
        assert len(last) == 1 and bench.job(GROUP).generation in last
        names = [(task, index) for task, index, *_ in told(bench, handles[0])[-1].peers]
        assert names == [("rollout", 0), ("rollout", 1), ("rollout", 2), ("trainer", 0)]
        assert members["rollout-2"].spec.parent == GROUP and members["rollout-2"].spec.tasks[0].num_nodes == 1
        assert [peer.task for peer in members["rollout-1"].spec.member.peers] == ["trainer", "rollout"]  # type: ignore[union-attr]

    play_group(scene)


def test_listings_tell_how_many_members_have_a_place_and_whose_they_are() -> None:
    async def scene(bench: Bench) -> None:
        assert list_rows(bench) == {"trainer": ("", ""), "rollout": ("", "1 of 1-4")}
        await scale(bench, 3)
        await wait(bench, lambda: list_members(bench).keys() == {"rollout-1", "rollout-2"})
        first, second = (job.id for job in list_members(bench).values())
        await start(bench, first)
        await wait(bench, lambda: list_rows(bench)["rollout"] == ("", "2 of 1-4"))
        assert list_rows(bench)["rollout-1"] == ("1+rollout", "")
        await start(bench, second)
        await wait(bench, lambda: list_rows(bench)["rollout"] == ("", "3 of 1-4"))
        bench.cluster.tell(f"{second}.0", events.NodeEnded(bench.clock.now, "rollout", 0, 0, exit_code=3))
        await wait(bench, lambda: list_rows(bench)["rollout"] == ("", "2 of 1-4"))
        await bench.kill()
        await bench.start()
        await wait(bench, lambda: list_rows(bench)["rollout"] == ("", "2 of 1-4"))

    play_group(scene)


def test_the_next_daemon_goes_on_and_what_ended_by_itself_stays_away() -> None:
    async def scene(bench: Bench) -> None:
        await scale(bench, 3)
        members = await settle(bench, "rollout-1", "rollout-2")
        lost = members["rollout-1"].id
        bench.cluster.tell(f"{lost}.0", events.NodeEnded(bench.clock.now, "rollout", 0, 0, exit_code=3))
        await settle(bench, "rollout-2")
        await bench.kill()
        await bench.start()
        for _ in range(4):
            bench.clock.advance(1)
            await turn(300)
        assert (await settle(bench, "rollout-2")).keys() == {"rollout-2"}
        await scale(bench, 2)
        # Two are wanted, and two are there: the one that failed costs the other nothing.
        assert list_members(bench).keys() == {"rollout-2"}
        await scale(bench, 3)
        await settle(bench, "rollout-1", "rollout-2")

    play_group(scene)


def test_a_size_that_is_asked_for_brings_back_what_had_ended_whenever_a_daemon_is_killed() -> None:
    async def scene(bench: Bench) -> None:
        async def lose() -> None:
            lost = list_members(bench)["rollout-1"].id
            bench.cluster.tell(f"{lost}.0", events.NodeEnded(bench.clock.now, "rollout", 0, 0, exit_code=3))
            await wait(bench, lambda: "rollout-1" not in list_members(bench))
            bench.clock.advance(1)

        await scale(bench, 3)
        await settle(bench, "rollout-1", "rollout-2")
        await lose()
        await bench.kill()
        await bench.start()
        # The new daemon has not looked at the group yet.
        await scale(bench, 4)
        await settle(bench, "rollout-1", "rollout-2", "rollout-3")

        await lose()
        asked = asyncio.create_task(scale(bench, 4))
        while not asked.done() and bench.repository.jobs[GROUP].job.task("rollout").sized_at != bench.clock.now:
            await asyncio.sleep(0)
        # The size is stored, and this daemon submits nothing any more.
        await bench.kill()
        assert list_members(bench).keys() == {"rollout-2", "rollout-3"}
        await bench.start()
        await settle(bench, "rollout-1", "rollout-2", "rollout-3")

    play_group(scene)


def test_members_end_by_an_order_with_a_notice_the_highest_first() -> None:
    async def scene(bench: Bench) -> None:
        await scale(bench, 4)
        members = await settle(bench, "rollout-1", "rollout-2", "rollout-3")
        await scale(bench, 2)
        ends = {order.handle: order.event for order in bench.cluster.orders if isinstance(order.event, events.Cancel)}
        await wait(
            bench, lambda: len([1 for order in bench.cluster.orders if isinstance(order.event, events.Cancel)]) == 2
        )
        ends = {order.handle: order.event for order in bench.cluster.orders if isinstance(order.event, events.Cancel)}
        assert ends.keys() == {f"{members[name].id}.0" for name in ("rollout-2", "rollout-3")}
        assert all(event.done == "ScaledDown" and event.delayed for event in ends.values())
        # Until they have gone, their numbers are theirs, and nobody ends them twice.
        await scale(bench, 3)
        await turn(200)
        assert list_members(bench).keys() == {"rollout-1", "rollout-2", "rollout-3"}

    play_group(scene)


def test_one_that_somebody_cancels_is_not_replaced_while_it_ends() -> None:
    async def scene(bench: Bench) -> None:
        await scale(bench, 2)
        (member,) = (await settle(bench, "rollout-1")).values()
        await bench.controller.orders.cancel(CancelRequest((str(member.id),), by="ana"))
        await wait(bench, lambda: bool(list_ends(bench)))
        for _ in range(5):
            bench.clock.advance(1)
            await turn(200)
        assert list_members(bench).keys() == {"rollout-1"}
        # Who asks for it again has it, under a number that is free.
        await scale(bench, 3)
        await wait(bench, lambda: list_members(bench).keys() == {"rollout-1", "rollout-2"})

    play_group(scene)


def test_members_of_a_launch_that_is_lost_end_with_it() -> None:
    async def scene(bench: Bench) -> None:
        await scale(bench, 2)
        (member,) = (await settle(bench, "rollout-1")).values()
        bench.cluster.tell(f"{GROUP}.0", events.LaunchLost(bench.clock.now, 0, "node", "its node is gone"))
        await wait(bench, lambda: bool(list_ends(bench)))
        assert list_ends(bench).keys() == {f"{member.id}.0"}
        bench.cluster.tell(f"{member.id}.0", events.NodeEnded(bench.clock.now, "rollout", 0, 0))
        await wait(bench, lambda: not list_members(bench))
        bench.clock.advance(60)
        await start(bench, GROUP)
        # What was wanted is wanted of the next launch.
        (again,) = (await settle(bench, "rollout-1")).values()
        assert again.spec.member is not None and again.spec.member.launch == bench.job(GROUP).launch == 1

    play_group(scene)


def test_a_refusal_is_told_once_and_tried_again() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.impossible = "no node has so much"
        await scale(bench, 2)
        for _ in range(3):
            bench.clock.advance(20)
            await turn(200)
        rows = [row.text for row in await bench.controller.timeline(str(GROUP))]
        assert len([text for text in rows if "its members are as they were: no node has so much" in text]) == 1
        bench.cluster.impossible = ""
        bench.clock.advance(20)
        await settle(bench, "rollout-1")
        assert any("rollout-1 is job" in row.text for row in await bench.controller.timeline(str(GROUP)))

    play_group(scene)


def test_room_that_lasts_brings_members_and_a_job_that_waits_takes_them_back() -> None:
    async def scene(bench: Bench) -> None:
        # The cluster has two CPUs that are free, and each member asks for one.
        bench.clock.advance(1)
        await turn(200)
        bench.clock.advance(5)
        await turn(200)
        assert not list_members(bench)
        bench.clock.advance(10)
        await settle(bench, "rollout-1", "rollout-2")
        await submit_waiting(bench)
        for _ in range(3):
            bench.clock.advance(6)
            await turn(300)
        assert next(iter(list_ends(bench))) == f"{list_members(bench)['rollout-2'].id}.0"

    play_group(scene, Elastic(1, 3, 1, 10.0))


def test_a_group_that_ends_takes_no_more() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.tell(f"{GROUP}.0", events.NodeEnded(bench.clock.now, "trainer", 0, 0))
        await wait(bench, lambda: bench.job(GROUP).ending is not None)
        try:
            await scale(bench, 3)
        except Conflict as error:
            assert "no more members" in error.message
        else:
            raise AssertionError("it was accepted")
        assert not list_members(bench) and list_peers(bench.job(GROUP))

    play_group(scene)


def test_a_disk_that_is_full_as_the_group_ends_leaves_no_member() -> None:
    """The group's own end is written, and nothing changes of it later that would end its members."""

    async def scene(bench: Bench) -> None:
        await scale(bench, 2)
        (member,) = (await settle(bench, "rollout-1")).values()
        end = bench.controller.joined_jobs._cancel
        fails = [StoreFailed("the disk is full")] * 2

        async def fail(members: list[int]) -> None:
            if fails:
                raise fails.pop()
            await end(members)

        bench.controller.joined_jobs._cancel = fail  # type: ignore[method-assign]
        bench.cluster.lose(f"{GROUP}.0")
        await bench.controller.orders.cancel(CancelRequest((str(GROUP),), by="ana"))
        await wait(bench, lambda: len(fails) < 2)
        for _ in range(3):
            bench.clock.advance(6)
            await turn(200)
        assert not fails and f"{member.id}.0" in list_ends(bench)

    play_group(scene)


async def submit_waiting(bench: Bench) -> int:
    """A job that waits for room."""
    waiting = await bench.submit("other")
    await wait(bench, lambda: f"{waiting}.0" in bench.cluster.journals)
    bench.cluster.tell(f"{waiting}.0", events.Queued(bench.clock.now, "Resources"))
    await wait(bench, lambda: bench.job(waiting).reason == "Resources")
    return waiting


class SlowNodes:
    """The nodes of a cluster that tells them late; counts who asks at once."""

    def __init__(self, bench: Bench) -> None:
        self._tell = bench.cluster.nodes
        self.told = asyncio.Event()
        self.asked = self.asking = 0
        bench.cluster.nodes = self.list  # type: ignore[method-assign]

    async def list(self) -> list[Node]:
        self.asked += 1
        self.asking += 1
        assert self.asking == 1, "two queries at once"
        try:
            await self.told.wait()
            return await self._tell()
        finally:
            self.asking -= 1
            self.told.clear()

    async def tell(self, bench: Bench) -> None:
        """Answer the next query, however long ago it was asked."""
        asked = self.asked
        await wait_long(bench, lambda: self.asking == 1)
        self.told.set()
        await until(lambda: self.asking == 0 or self.asked > asked)
        await turn(100)


async def wait_long(bench: Bench, fact: Callable[[], bool]) -> None:
    """Wait until a fact is true, while seconds pass."""
    for _ in range(60):
        if fact():
            return
        bench.clock.advance(1)
        await turn(100)
    raise AssertionError("the fact did not come true")


def test_a_cluster_that_tells_its_nodes_late_gives_and_takes_members_all_the_same() -> None:
    """One query at a time, which nothing waits for: neither a size that is asked for nor the lists of members."""

    async def scene(bench: Bench) -> None:
        nodes = SlowNodes(bench)
        await wait_long(bench, lambda: nodes.asking == 1)
        for _ in range(20):
            bench.clock.advance(1)
            await turn(100)
        async with asyncio.timeout(5):
            await scale(bench, 2)
        await settle(bench, "rollout-1")
        await wait(bench, lambda: count_told(bench, f"{GROUP}.0") == 3)
        await scale(bench, None)
        await wait(bench, lambda: bool(list_ends(bench)))
        ((handle, order),) = list_ends(bench).items()
        bench.cluster.tell(handle, order, events.NodeEnded(bench.clock.now, "rollout", 0, 0))
        await wait(bench, lambda: not list_members(bench))
        bench.cluster.orders.clear()
        # This answer is older than that order.
        await nodes.tell(bench)
        await nodes.tell(bench)
        assert not list_members(bench)
        await nodes.tell(bench)
        await settle(bench, "rollout-1", "rollout-2")
        waiting = await submit_waiting(bench)
        await wait_long(bench, lambda: bench.clock.now - bench.job(waiting).submitted_at > 6)
        assert not list_ends(bench)
        await nodes.tell(bench)
        await nodes.tell(bench)
        assert list_ends(bench).keys() == {f"{list_members(bench)['rollout-2'].id}.0"}

    play_group(scene, Elastic(1, 4, 1, 1.0))


def test_members_that_are_ending_are_not_given_back_again() -> None:
    """They hold their CPUs until they have gone: a job that needs one CPU takes one member."""

    async def scene(bench: Bench) -> None:
        await wait_long(bench, lambda: len(list_members(bench)) == 2)
        await settle(bench, "rollout-1", "rollout-2")
        await submit_waiting(bench)
        await wait_long(bench, lambda: bool(list_ends(bench)))
        asked = bench.controller.elastic.queries.count
        await wait_long(bench, lambda: bench.controller.elastic.queries.count > asked + 3)
        assert list_ends(bench).keys() == {f"{list_members(bench)['rollout-2'].id}.0"}

    play_group(scene, Elastic(1, 3, 1, 1.0))


@pytest.mark.parametrize("hangs", [True, False])
def test_a_cluster_that_never_tells_its_nodes_is_named_once_and_asked_again(
    monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    monkeypatch.setattr(node_queries, "ANSWER_SECONDS", 0.01)

    async def scene(bench: Bench) -> None:
        tell, asked = bench.cluster.nodes, list[float]()

        async def fail() -> list[Node]:
            asked.append(bench.clock.now)
            if hangs:
                await asyncio.Event().wait()
            raise TimedOut("sinfo did not answer within 30 s")

        bench.cluster.nodes = fail  # type: ignore[method-assign]
        for count in (1, 2, 3):
            await wait_long(bench, lambda: len(asked) >= count)  # noqa: B023
            await asyncio.sleep(0.03)
        await turn(300)
        why = "no answer within 0.01 s" if hangs else "sinfo did not answer within 30 s"
        text = f"room for more members on local is not known: {why}"
        assert [row.text for row in await bench.controller.timeline(str(GROUP))].count(text) == 1
        await scale(bench, 2)
        await settle(bench, "rollout-1")
        await scale(bench, None)
        bench.cluster.nodes = tell  # type: ignore[method-assign]
        await wait_long(bench, lambda: "rollout-2" in list_members(bench))

    play_group(scene, Elastic(1, 4, 1, 1.0))
