"""Random stories of a cluster on which the daemon decides."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from random import Random
from unittest.mock import patch
from uuid import UUID

from hypothesis import strategies as st
from tests.unit.controller.fake_pods import Key, PodCluster, World
from tests.unit.controller.fakes import START, Bench
from tests.unit.controller.virtual_time import VirtualClock, run_virtually

from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Attempt, Job
from overspan.bridge.model.spec import (
    Backoff,
    JobSpec,
    Need,
    NeedKind,
    OnFailure,
    RestartScope,
    RetryPolicy,
    TaskSpec,
)

UNDER_WAY = 60.0
"""Seconds for which orders that are under way are waited for at the end; a killed daemon carries out none."""
ENOUGH = 50_000.0
"""Seconds in which every job comes to its end by itself."""


CANCELLED = 1_000.0
"""Seconds in which a cancelled job is over, whatever its cluster refuses."""


SOON = 330.0
"""Seconds in which a call that was refused is surely made again, and done."""


RELEASED = 1_000.0
"""Seconds in which everything is let go."""


SCOPES = st.sampled_from([None, *RestartScope])


POLICIES = st.builds(
    RetryPolicy,
    max_restarts_on_errors=st.integers(0, 2),
    recover_on_exit_codes=st.sampled_from([(), (42,)]),
    max_recoveries=st.integers(0, 3),
    max_restarts=st.integers(0, 5),
    backoff=st.builds(Backoff, first=st.sampled_from([0.0, 1.0, 10.0])),
)


def _tasks(name: str, earlier: tuple[str, ...], is_primary: st.SearchStrategy[bool]) -> st.SearchStrategy[TaskSpec]:
    needs: st.SearchStrategy[tuple[Need, ...]] = st.just(())
    if earlier:
        need = st.builds(Need, st.sampled_from(earlier), st.sampled_from(NeedKind))
        needs = st.one_of(needs, need.map(lambda found: (found,)))
    return st.builds(
        TaskSpec,
        name=st.just(name),
        run=st.just("true"),
        num_nodes=st.integers(1, 3),
        primary=is_primary,
        termination_delay=st.sampled_from([0, 5, 60]),
        grace_period=st.sampled_from([0, 3, 30]),
        time=st.sampled_from([None, 20, 100]),
        on_failure=st.sampled_from(OnFailure),
        restart=SCOPES,
        retry=POLICIES,
        needs=needs,
    )


SPECS = st.builds(
    JobSpec,
    name=st.just("g"),
    group=st.just(True),
    tasks=st.one_of(
        st.tuples(_tasks("a", (), st.just(True))),
        st.tuples(
            _tasks("a", (), st.booleans()),
            _tasks("b", ("a",), st.just(True)),
            _tasks("c", ("a", "b"), st.booleans()),
        ),
    ),
    restart=SCOPES,
    deadline=st.sampled_from([None, None, START + 200.0]),
    hold_on_failure=st.sampled_from([0, 0, 40]),
    requeue=st.sampled_from([None, False]),
)


class Story:
    """One job's life, drawn from a seed."""

    def __init__(self, spec: JobSpec, seed: int, cancelled: bool = False) -> None:
        self.random = Random(seed)
        self.cancelled = cancelled
        """Whether it ends by a cancel, on a cluster that starts nothing any more; else it is left alone."""
        self.asking: list[asyncio.Future[None]] = []
        """Orders that nobody has waited for."""
        self.clock = VirtualClock()
        self.bench = Bench()
        self.bench.clock = self.clock
        self.bench.reader = lambda submission, kinds, now: ParsedSubmission(spec, {"wait": False})
        self.bench.settings = Settings(clusters={"pods": ClusterSettings(kind="pods")}, default_cluster="pods")

    def run(self) -> None:
        """Tell it; names are drawn from the seed too, since backoffs depend on them."""
        names = Random(self.random.random())
        with patch("uuid.uuid4", lambda: UUID(int=names.getrandbits(128), version=4)):
            run_virtually(self.clock, self._run)

    def _make_world(self) -> None:
        self.world = World(self.clock, self.random)
        self.worlds = [self.world]

    async def _run(self) -> None:
        self._make_world()
        await self._start()
        try:
            for _ in range(self.random.choice([1, 1, 2])):
                await self.bench.submit()
            for _ in range(self.random.randrange(30)):
                await self._pass()
                await self.random.choice([self._die, self._die, self._order, self._order, self._lose, self._break])()
                self._check()
            await self._calm_down()
            calm_at = self.clock.now
            await asyncio.sleep(CANCELLED if self.cancelled else ENOUGH)
            self._check()
            for job in self.jobs:
                assert job.over, f"{job.state} for ever"
            await asyncio.sleep(RELEASED)
            self._check()
            assert not any(world.launches for world in self.worlds)
            assert not any(pod.end is None for pod in self.world.history.values())
            for job in self.jobs:
                check_account(job, self.world)
                check_stops(job, self.world, calm_at)
                check_deadline(job)
            assert not self.bench.repository.rows
        finally:
            await self.bench.controller.close()

    @property
    def jobs(self) -> list[Job]:
        return [stored.job for stored in self.bench.repository.jobs.values()]

    async def _start(self) -> None:
        self.bench.cluster = PodCluster(self.world)
        await self.bench.start()

    async def _pass(self) -> None:
        """Time goes by, or only some steps of the daemon do."""
        if self.random.random() < 0.3:
            for _ in range(self.random.randrange(60)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(self.random.choice([0.1, 1.0, 3.0, 10.0, 60.0]))

    async def _die(self) -> None:
        self.bench.repository.broken = False
        await self.bench.kill()
        if self.random.random() < 0.5:
            await asyncio.sleep(self.random.choice([0.1, 5.0, 100.0]))
        await self._start()

    async def _order(self) -> None:
        make, task = self.random.choice(ORDERS)
        ref = str(self.random.choice(self.jobs).id)
        orders = self.bench.controller.orders

        async def give() -> None:
            with suppress(OverspanError):
                if make is events.Cancel:
                    await orders.cancel(CancelRequest((ref,), task=task))
                else:
                    await orders.give(ref, lambda at, name: make_order(make, at, name), task)

        asking = asyncio.ensure_future(give())
        if self.random.random() < 0.7:
            await asking
        else:
            self.asking.append(asking)

    async def _lose(self) -> None:
        world = self.random.choice(self.worlds)
        (world.lose_launch if self.random.random() < 0.2 else world.lose_node)()
        world.news.set()

    async def _break(self) -> None:
        """Nothing can be written for a while."""
        self.bench.repository.broken = not self.bench.repository.broken and self.random.random() < 0.3

    async def _calm_down(self) -> None:
        for world in self.worlds:
            world.trouble, world.full = 0.0, self.cancelled
        self.bench.repository.broken = False
        if self.asking:
            # A hold that is still under way would come after the release.
            await asyncio.wait(self.asking, timeout=UNDER_WAY)
        orders = self.bench.controller.orders
        for job in self.jobs:
            with suppress(OverspanError):
                await orders.give(str(job.id), lambda at, name: events.Release(at))
        if self.cancelled:
            await orders.cancel(CancelRequest(tuple(str(job.id) for job in self.jobs)))

    def _check(self) -> None:
        assert not any(world.faults for world in self.worlds)
        if not self.bench.controller.recorder.busy:
            self.bench.check()
        for job in self.jobs:
            check_budgets(job)
            if job.over and not self._is_let_go(job):
                running = [key for key, pod in self.world.history.items() if key.job == job.id and pod.running]
                assert not running, f"{running} after the end"

    def _is_let_go(self, job: Job) -> bool:
        """Whether parts of a job that is over may run until the cluster is told that nobody wants them."""
        return False


def make_order(make: Callable[..., Event], at: float, task: str) -> Event:
    if make is events.SetTime:
        return events.SetTime(at, 30, task)
    if make is events.Signal:
        return events.Signal(at, 10, task)
    if make is events.Restart:
        return events.Restart(at, task)
    return make(at)


ORDERS: list[tuple[Callable[..., Event], str]] = [
    (events.Cancel, ""),
    (events.Cancel, "a"),
    (events.Requeue, ""),
    (events.Requeue, ""),
    (events.Restart, ""),
    (events.Restart, "a"),
    (events.Hold, ""),
    (events.Release, ""),
    (events.SetTime, ""),
    (events.SetTime, "a"),
    (events.Signal, ""),
]


def check_budgets(job: Job) -> None:
    """No budget is exceeded."""
    for task in job.tasks:
        spec = job.spec_of(task.name)
        assert task.restarts <= spec.retry.max_restarts
        assert task.recoveries <= spec.retry.max_recoveries
        keeps = not spec.primary and spec.on_failure is OnFailure.RESTART
        assert keeps or task.errors <= spec.retry.max_restarts_on_errors


def check_account(job: Job, world: World) -> None:
    """The job's facts are those of the cluster: what was launched ran, and how it ended is what was recorded."""
    known = set()
    for task in job.tasks:
        for attempt in task.attempts:
            for node in attempt.nodes:
                for run in range(node.run + 1):
                    known.add(Key(job.id, task.name, attempt.number, node.index, run))
                check_node(Key(job.id, task.name, attempt.number, node.index, node.run), job, attempt, world)
    assert {key for key in world.history if key.job == job.id} <= known


def check_node(key: Key, job: Job, attempt: Attempt, world: World) -> None:
    node = attempt.nodes[key.node]
    pod = world.history.get(key)
    if pod is None:
        assert attempt.stop is not None or world.removed, f"{key} was never launched"
        return
    assert pod.end is not None
    if node.cause is Cause.NODE and world.removed:
        return
    assert (node.exit_code, node.signal) == pod.end[1:3], f"{key} ended by {pod.end}, not by {node}"
    assert (node.cause is Cause.NODE) == (pod.end[3] == "node")


def check_deadline(job: Job) -> None:
    """Work that was done in time is not called late because nobody saw it."""
    ending = job.ending
    if ending is not None and ending.cause is Cause.DEADLINE:
        primaries = [job.task(spec.name) for spec in job.spec.tasks if spec.primary]
        ends = [task.attempts[-1] for task in primaries if task.attempts]
        done = len(ends) == len(primaries) and all(
            end.cause is Cause.SUCCESS
            and (job.granted_at or math.inf) <= end.launched_at
            and (end.ended_at or 0.0) < (job.spec.deadline or 0.0)
            for end in ends
        )
        assert not done, "it was done before its deadline"


def check_stops(job: Job, world: World, calm_at: float) -> None:
    """Whoever was to end has ended, soon after the cluster did what it was told."""
    for task in job.tasks:
        for attempt in task.attempts:
            for key, pod in world.history.items():
                if attempt.stop is not None and key[:3] == (job.id, task.name, attempt.number):
                    assert pod.end is not None
                    due = max(attempt.stop.kill_at, calm_at) + SOON
                    assert pod.end[0] <= due, f"{key} lives {pod.end[0] - due} s too long"
