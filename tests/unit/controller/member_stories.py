"""Random stories of a group across with a part on this machine and an elastic task, whose daemon is killed anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from hypothesis import strategies as st
from tests.unit.controller.across_stories import NAMES, AcrossStory, NamingPods, list_overlaps, read_token
from tests.unit.controller.decisions import POLICIES, SCOPES, SOON
from tests.unit.controller.fake_pods import Key, World
from tests.unit.controller.fakes import FakeClock, FakeCluster

from overspan.adapters.contract import NOT_HERE, Accepted, Launch, Order, Refusal, Report
from overspan.bridge.lifecycle.members import list_peers, takes_members
from overspan.bridge.model import events
from overspan.bridge.model.elastic import SCALED, Elastic
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import JobSpec, OnFailure, TaskSpec

HERE, AWAY = NAMES
"""The cluster whose queue is in its adapter's memory, and the other one."""
ELASTIC = "rollout"
LEAST, FURTHER = 1, 3
"""Members that the elastic task needs, and may have beyond that."""
ARRIVED = 200.0
"""Seconds in which a member that is wanted is submitted, whatever was refused before."""
LINGERS = SOON + 60 + 30
"""Seconds in which a member ends after its group: what was refused before, its termination delay and its grace."""

TRAINERS = st.builds(
    TaskSpec,
    name=st.just("trainer"),
    run=st.just("true"),
    num_nodes=st.integers(1, 2),
    grace_period=st.sampled_from([0, 3]),
    restart=SCOPES,
    retry=POLICIES,
)
WORKERS = st.builds(
    TaskSpec,
    name=st.just(ELASTIC),
    run=st.just("true"),
    primary=st.just(False),
    num_nodes=st.just(LEAST),
    elastic=st.builds(
        Elastic, st.just(LEAST), st.just(LEAST + FURTHER), st.integers(1, 2), st.sampled_from([None, 5.0])
    ),
    termination_delay=st.sampled_from([0, 5, 60]),
    grace_period=st.sampled_from([0, 3, 30]),
    on_failure=st.sampled_from([OnFailure.IGNORE, OnFailure.RESTART]),
    retry=POLICIES,
)
ELASTIC_GROUPS = st.builds(
    JobSpec,
    name=st.just("g"),
    group=st.just(True),
    tasks=st.tuples(TRAINERS, WORKERS).flatmap(st.permutations).map(tuple),
    restart=SCOPES,
)
"""Each task is on either cluster in half of them."""


class MemberWorld(World):
    """A cluster with members of groups: a place in a group is taken once at a time, whichever job has it."""

    def __init__(self, clock: FakeClock, story: MemberStory) -> None:
        super().__init__(clock, story.random)
        self.story = story
        self.trouble = story.random.choice([0.0, 0.0, 1.0])
        self.made: set[str] = set()
        """Tokens of all launches that ever had pods."""
        self.let_go_of: set[str] = set()
        """Tokens of launches that waited, and that nobody wanted any more."""
        self.lists: dict[str, int] = {}
        """The generation of the newest list of members that a launch was told, by token."""

    def make(self, launch: Launch) -> None:
        self.made.add(launch.token)
        super().make(launch)

    def name_place(self, key: Key) -> tuple[int, str, int]:
        stored = self.story.bench.repository.jobs.get(key.job)
        member = None if stored is None else stored.job.spec.member
        return super().name_place(key) if member is None else (member.group, member.task, member.index)

    def draw_run(self, key: Key) -> float:
        return self.random.choice([50.0, 2000.0, 2000.0] if key.task == ELASTIC else [300.0, 2000.0])


class MemberPods(NamingPods):
    """Pods whose launches keep the last list of the members."""

    world: MemberWorld

    def _carry_out(self, token: str, found: object, event: Event) -> str:
        if isinstance(event, events.SetPeers):
            self.world.lists[token] = max(self.world.lists.get(token, 0), event.generation)
            return ""
        return super()._carry_out(token, found, event)  # type: ignore[arg-type]


class QueueingPods(MemberPods):
    """What waits is in memory alone, as on the local cluster: the next daemon hands it over again."""

    def __init__(self, world: MemberWorld) -> None:
        super().__init__(world)
        self._queue: dict[str, Launch] | None = None

    @property
    def queue(self) -> dict[str, Launch]:
        """What waits, by token."""
        if self._queue is None:
            waiting = self.config.list_waiting()
            self._queue = {launch.token: launch for launch in waiting if launch.token not in self.world.made}
            for launch in self._queue.values():
                self._await_room(launch)
        return self._queue

    def _await_room(self, launch: Launch) -> None:
        self.world.later(self.world.random.choice([0.0, 1.0, 20.0]), lambda: self._grant(launch.token))

    def _grant(self, token: str) -> None:
        launch = self.queue.get(token)
        if self.world.story.bench.others.get(HERE) is self and launch is not None and not launch.job.held:
            del self.queue[token]
            self.world.make(launch)

    async def _submit(self, launch: Launch) -> Accepted | Refusal:
        await self._travel()
        token = launch.token
        accepted = Accepted(token, f"default/{token}", "uid")
        if token in self.queue or token in self.world.made:
            return accepted
        if not launch.wanted:
            return Refusal(token, NOT_HERE)
        if self._lives(launch.job.id):
            return Refusal(token, "the launch before is being ended on this machine", True, "Cleaning")
        self._fresh.add(token)
        self.queue[token] = launch
        self._await_room(launch)
        await self._travel()
        return accepted

    def _lives(self, job: int) -> bool:
        ending = [token for token, pods in self.world.ending.items() if any(pod.end is None for pod in pods)]
        return any(read_token(token)[1] == job for token in (*self.queue, *self.world.launches, *ending))

    async def _order(self, order: Order) -> Refusal | None:
        token = order.handle.partition("/")[2]
        launch = self.queue.get(token)
        if launch is None:
            return await super()._order(order)
        await self._travel()
        if isinstance(order.event, events.Hold | events.Release) and token in self.queue:
            held = isinstance(order.event, events.Hold)
            self.queue[token] = replace(launch, job=replace(launch.job, held=held))
            self._await_room(launch)
        return None

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        wanted = {handle.partition("/")[2] for handle in handles} | set(tokens)
        for token in [token for token in self.queue if token not in wanted]:
            del self.queue[token]
            self.world.let_go_of.add(token)
        await super().release(installation, handles, tokens)

    def _tell(self, handle: str, cursor: str) -> Report | None:
        token = handle.partition("/")[2]
        if token in self.queue:
            return None
        if token not in self.world.made | self.world.let_go_of:
            self.world.faults.append(f"{token} has waited here, and was not handed over again")
        return super()._tell(handle, cursor)


class MemberStory(AcrossStory):
    """One group's life with further members that come and go."""

    worlds: list[MemberWorld]  # type: ignore[assignment]
    calm_at = 0.0
    """Since when nothing goes wrong any more; 0 before."""

    def _make_world(self) -> None:
        self.world = MemberWorld(self.clock, self)
        other = MemberWorld(self.clock, self)
        other.history, other.removed = self.world.history, self.world.removed
        self.worlds = [self.world, other]

    async def _start(self) -> None:
        here, away = self.worlds
        adapters: list[FakeCluster] = [QueueingPods(here), MemberPods(away)]
        self.bench.cluster = adapters[0]
        self.bench.others = dict(zip(NAMES, adapters, strict=True))
        await self.bench.start()

    async def _order(self) -> None:
        if self.random.random() < 0.7:
            await self._scale(self._draw_size())
        else:
            await super()._order()

    def _draw_size(self) -> int:
        return LEAST + self.random.randrange(FURTHER + 1)

    async def _scale(self, size: int) -> None:
        """Somebody asks for members of the first group, and may not wait for the answer."""
        with suppress(OverspanError, TimeoutError):
            async with asyncio.timeout(self.random.choice([0.1, 30.0])):
                await self.bench.controller.scaling.scale("1", ELASTIC, size, "ana")

    async def _calm_down(self) -> None:
        await super()._calm_down()
        self.calm_at = self.clock.now
        if not self.cancelled:
            size, asked_at = self._draw_size(), self.clock.now
            await self._scale(size)
            await asyncio.sleep(ARRIVED)
            group = self.bench.repository.jobs[1].job
            granted_at = group.granted_at or asked_at
            if takes_members(group, ELASTIC) and granted_at < asked_at and group.task(ELASTIC).size == size:
                self._check_size(group, size, asked_at)
                await self._check_lists()

    def _check_size(self, group: Job, size: int, asked_at: float) -> None:
        """As many members as were asked for are there, but for those that have ended by themselves since."""
        members = [job for job in self.jobs if job.spec.member is not None and job.spec.member.group == group.id]
        live = [job for job in members if not job.over and job.ending is None]
        assert all(job.spec.member.launch == group.launch for job in live if job.spec.member is not None)
        lost = [job for job in members if job.over and (job.ended_at or 0.0) >= asked_at and job.reason != SCALED]
        assert LEAST + len(live) <= size, f"{len(live)} further members where {size - LEAST} are wanted"
        assert LEAST + len(live) + len(lost) >= size, f"{len(live)} live, {len(lost)} lost, {size} wanted"

    async def _check_lists(self) -> None:
        """All launches that run are told of the same members, soon after the last change of any."""
        for _ in range(20):
            if self._know_each_other():
                return
            await asyncio.sleep(1.0)
        raise AssertionError(f"a launch does not know its group's members: {[job.generation for job in self.jobs]}")

    def _know_each_other(self) -> bool:
        running = [job for job in self.jobs if job.granted_at is not None and not job.over]
        jobs = [job for job in running if job.id == 1 or (job.spec.member is not None and job.spec.member.group == 1)]
        there = {(peer.task, peer.index) for job in jobs for peer in list_peers(job)}
        newest = {(job.id, job.launch): job.generation for job in jobs}
        told = [
            world.lists.get(token, 0) == newest[number]
            for world in self.worlds
            for token in world.launches
            if (number := read_token(token)[1:]) in newest
        ]
        known = [{(peer.task, peer.index) for peer in job.peers} == there for job in jobs]
        return all(known) and all(told) and len(set(newest.values())) == 1

    def _check(self) -> None:
        super(AcrossStory, self)._check()
        history = self.world.history
        assert not list_overlaps(history.values(), {key: self.world.name_place(key) for key in history})
        jobs = {job.id: job for job in self.jobs}
        for job in jobs.values():
            group = jobs[job.spec.member.group] if job.spec.member is not None else job
            if job.ended_at is not None and group.ended_at is not None:
                late = job.ended_at - max(group.ended_at, self.calm_at or job.ended_at)
                assert late < LINGERS, f"{job.spec.name} was there {late} s after its group"
        for name, world in zip(NAMES, self.worlds, strict=True):
            for found in world.launches.values():
                for key in found.pods:
                    cluster = found.job.spec_of(key.task).cluster or found.job.spec.clusters[0]
                    assert cluster == name, f"{key} is on {name}"
