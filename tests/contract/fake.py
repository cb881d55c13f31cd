"""A scripted adapter in memory: the smallest thing that keeps the contract. It shows that the seam can be met."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from overspan.adapters.contract import (
    NOT_HERE,
    Accepted,
    Decider,
    Launch,
    LogPart,
    LogRequest,
    Node,
    Observation,
    Order,
    Refusal,
    Report,
)
from overspan.adapters.traits import Traits
from overspan.bridge.lifecycle.decision import decide
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model.errors import NotFound
from overspan.bridge.model.events import Cancel, Event, Granted, NodeEnded, NodeStarted, SetPeers, Terminate
from overspan.bridge.model.events import Launch as Launched
from overspan.bridge.model.job import Job

MOST_CPUS = 8


@dataclass(frozen=True)
class Script:
    """What a task's text means here: `exit CODE` ends at once with that code, anything else runs on."""

    exit_code: int | None
    output: bytes

    @staticmethod
    def read(text: str) -> Script:
        """Read a task's text."""
        output, _, last = text.rpartition("exit ")
        return Script(int(last) if last.isdigit() else None, output.encode())


@dataclass
class FakeLaunch:
    """A launch: its job as its own journal has it, and the journal."""

    token: str
    job: Job
    journal: list[Event] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)


@dataclass
class FakeWorld:
    """What outlives the adapter: the cluster itself."""

    launches: dict[str, FakeLaunch] = field(default_factory=dict)


class FakeAdapter:
    """Carries out decisions by writing down that they came true."""

    name = "fake"
    traits = Traits(decider=Decider.SUPERVISOR)

    def __init__(self, world: FakeWorld) -> None:
        self.world = world
        self._fresh = asyncio.Event()

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        return [self._submit(launch) for launch in launches]

    def _submit(self, launch: Launch) -> Accepted | Refusal:
        handle = f"fake.{launch.job.id}"
        if handle not in self.world.launches:
            if not launch.wanted:
                return Refusal(launch.token, NOT_HERE)
            if any((task.resources.cpus or 1) > MOST_CPUS for task in launch.job.spec.tasks):
                return Refusal(launch.token, "too large")
            known = self.world.launches[handle] = FakeLaunch(launch.token, launch.job)
            now = time.time()
            members = tuple((task.name, 0, "fake-1", "192.0.2.1", ()) for task in launch.job.spec.tasks)
            self._record(known, Granted(now, members))
            self._settle(known, now)
        return Accepted(launch.token, handle, handle)

    def _record(self, launch: FakeLaunch, event: Event) -> None:
        launch.journal.append(event)
        launch.job = reduce(launch.job, event)
        self._fresh.set()

    def _settle(self, launch: FakeLaunch, now: float) -> None:
        """Decide, and let each decision have its outcome, until nothing follows."""
        while decisions := decide(launch.job, now).events:
            for decision in decisions:
                self._record(launch, decision)
                if isinstance(decision, Launched):
                    self._start(launch, decision)
                elif isinstance(decision, Terminate):
                    self._record(launch, NodeEnded(now, decision.task, decision.attempt, 0, signal=15))

    def _start(self, launch: FakeLaunch, decision: Launched) -> None:
        self._record(launch, NodeStarted(decision.at, decision.task, decision.attempt, 0))
        code = Script.read(launch.job.spec_of(decision.task).run).exit_code
        if code is not None:
            self._record(launch, NodeEnded(decision.at, decision.task, decision.attempt, 0, exit_code=code))

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        reports = self._report(since)
        if not reports and timeout > 0:
            self._fresh.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._fresh.wait()
            except TimeoutError:
                pass
            reports = self._report(since)
        return Observation(tuple(reports), time.time())

    def _report(self, since: Mapping[str, str]) -> list[Report]:
        reports = []
        for handle, cursor in since.items():
            launch = self.world.launches.get(handle)
            if launch is None:
                reports.append(Report(handle, (), cursor, gone=True))
            elif len(launch.journal) > int(cursor or 0):
                reports.append(Report(handle, tuple(launch.journal[int(cursor or 0) :]), str(len(launch.journal))))
        return reports

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        for order in orders:
            launch = self.world.launches.get(order.handle)
            if launch is None or order.token in launch.tokens or launch.job.over:
                continue
            launch.tokens.add(order.token)
            assert isinstance(order.event, Cancel | SetPeers), "the fake can only cancel"
            self._record(launch, order.event)
            self._settle(launch, order.event.at)
        return [None] * len(orders)

    async def logs(self, request: LogRequest) -> LogPart:
        launch = self.world.launches[request.handle]
        task = next((task for task in launch.job.tasks if task.name == request.task), None)
        if task is None or (request.attempt or 0) >= len(task.attempts):
            raise NotFound(f"no log of {request.task}")
        data = Script.read(launch.job.spec_of(task.name).run).output
        return LogPart(data[request.offset : request.offset + request.limit], request.offset, len(data))

    async def nodes(self) -> list[Node]:
        used = sum(not launch.job.over for launch in self.world.launches.values())
        return [Node("fake-1", "fake", "mixed" if used else "idle", MOST_CPUS, used, 1024, 0)]

    async def close(self) -> None:
        pass
