"""A cluster that outlives daemons: its supervisors run the real lifecycle, its answers get lost, late and repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from tests.simulation.clockwork import Chaos, wall_time

from overspan.adapters.contract import (
    NOT_HERE,
    Accepted,
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
from overspan.bridge.model import events
from overspan.bridge.model.errors import NotFound, Unreachable
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job

WORLD = (events.Granted, events.NodeStarted, events.NodeEnded, events.TaskReady)
"""Reports that a cluster may repeat at any time; orders in a journal are told once a cursor."""


class Work:
    """One launch: a supervisor with its journal, and processes that end with the code their `run` names."""

    def __init__(self, launch: Launch, machine: Machine) -> None:
        self.token = launch.token
        self.job: Job = launch.job
        self.launch = launch.job.launch
        self.machine = machine
        self.journal: list[Event] = []
        self.orders: list[Event] = []
        self.seen: set[str] = set()
        self.bell = asyncio.Event()
        self.running: dict[tuple[str, int, int, int], asyncio.TimerHandle] = {}
        self.over = False

    @property
    def handle(self) -> str:
        """Its name."""
        return f"{self.job.id}.{self.launch}"

    def give(self, order: Order) -> None:
        """Take an order, once for each token."""
        if order.token not in self.seen and not self.over:
            self.seen.add(order.token)
            self.orders.append(order.event)
            self.bell.set()

    async def run(self) -> None:
        """Wait in the queue, then decide until the end."""
        chance = self.machine.chaos.random
        granted_at = wall_time() + chance.choice((0.0, 0.2, 5.0))
        while not self.over:
            for order in self._take():
                self.record(order)
            now = wall_time()
            if self.job.granted_at is None and now >= granted_at and not self.job.held and self.job.ending is None:
                members = tuple((task.name, 0, "node", "127.0.0.1", ()) for task in self.job.spec.tasks)
                self.record(events.Granted(now, members))
            wake_at = self._decide(now)
            self._finish()
            if not self.over:
                if self.job.granted_at is None:
                    wake_at = min(wake_at or granted_at, granted_at) if not self.job.held else wake_at
                await self._wait(None if wake_at is None else max(0.0, wake_at - wall_time()))

    def record(self, event: Event) -> None:
        """Write into the journal, and tell whoever observes."""
        self.journal.append(event)
        self.job = reduce(self.job, event)
        self.machine.news.set()

    def lose(self) -> None:
        """The node is gone with all that ran."""
        if not self.over and self.job.granted_at is not None:
            for timer in self.running.values():
                timer.cancel()
            self.running.clear()
            self.record(events.LaunchLost(wall_time(), self.launch, "node", "the node is gone"))
            self.bell.set()

    def _take(self) -> list[Event]:
        taken, self.orders = self.orders, []
        return taken

    def _decide(self, now: float) -> float | None:
        while not self.job.over and self.job.launch == self.launch:
            found = decide(self.job, now)
            if not found.events:
                return found.wake_at
            for event in found.events:
                self.record(event)
                self._act(event)
        return None

    def _finish(self) -> None:
        if self.job.over or self.job.launch != self.launch:
            self.over = True
            assert not self.running, f"{self.handle} ended with processes"

    async def _wait(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.bell.wait()
        except TimeoutError:
            pass
        self.bell.clear()

    def _act(self, event: Event) -> None:
        if isinstance(event, events.Launch):
            self.machine.note_start(self, event.task, event.attempt)
            key = (event.task, event.attempt, 0, 0)
            self._later(key, self.machine.chaos.random.uniform(0.0, 0.2), self._start)
        elif isinstance(event, (events.Terminate, events.Kill)):
            for key, timer in list(self.running.items()):
                if key[:2] == (event.task, event.attempt):
                    timer.cancel()
                    self._later(key, 0.05, self._end, 15)

    def _later(self, key: tuple[str, int, int, int], seconds: float, call: object, *words: int) -> None:
        assert callable(call)
        self.running[key] = asyncio.get_running_loop().call_later(seconds, call, key, *words)

    def _start(self, key: tuple[str, int, int, int]) -> None:
        seconds, code = self.job.spec_of(key[0]).run.split()
        self._later(key, float(seconds), self._exit, int(code))
        self.record(events.NodeStarted(wall_time(), *key))
        self.bell.set()

    def _exit(self, key: tuple[str, int, int, int], code: int) -> None:
        self._over(key, code, 0)

    def _end(self, key: tuple[str, int, int, int], signal: int) -> None:
        self._over(key, 0, signal)

    def _over(self, key: tuple[str, int, int, int], code: int, signal: int) -> None:
        del self.running[key]
        task, attempt, node, run = key
        self.record(events.NodeEnded(wall_time(), task, attempt, node, run, code, signal))
        self.bell.set()


class Machine:
    """The adapter and the cluster behind it."""

    traits = Traits(this_machine=True, gives_back=True, default_partition=lambda: "local")

    def __init__(self, chaos: Chaos, name: str = "local", other: Machine | None = None) -> None:
        self.chaos = chaos
        self.name = name
        self.works: dict[str, Work] = {}
        self.news = asyncio.Event()
        # Of all machines together: no job may run on two of them.
        self.tasks: set[asyncio.Task[None]] = set() if other is None else other.tasks
        self.started: dict[tuple[int, str, int], str] = {} if other is None else other.started
        self.lost: set[int] = set() if other is None else other.lost
        self.refused: set[int] = set() if other is None else other.refused
        self.wrong: list[str] = [] if other is None else other.wrong

    def note_start(self, work: Work, task: str, attempt: int) -> None:
        """No attempt of a task ever starts twice, in this launch or in another."""
        key = (work.job.id, task, attempt)
        if key in self.started:
            self.wrong.append(f"job {key} started by {self.started[key]} and again by {work.handle}")
        self.started[key] = work.handle

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        """Take launches; the call or its answer may get lost."""
        await self.chaos.pause()
        if self.chaos.trouble:
            raise Unreachable("no route to the machine")
        answers = [self._take(launch) for launch in launches]
        await self.chaos.pause()
        if self.chaos.trouble:
            raise Unreachable("the answer was lost")
        return answers

    def _take(self, launch: Launch) -> Accepted | Refusal:
        job = launch.job
        known = self.works.get(f"{job.id}.{job.launch}")
        if known is None and not launch.wanted:
            return Refusal(launch.token, NOT_HERE)
        if known is None:
            if self.chaos.trouble:
                return Refusal(launch.token, "not now", transient=True, reason="Resources")
            if self.chaos.happens(0.02):
                self.refused.add(job.id)
                return Refusal(launch.token, "never here")
            known = self.works[f"{job.id}.{job.launch}"] = Work(launch, self)
            self._run(known)
        elif known.token != launch.token:
            self.wrong.append(f"{known.handle} submitted under two tokens")
        return Accepted(launch.token, known.handle, f"n{known.handle}")

    def _run(self, work: Work) -> None:
        task = asyncio.ensure_future(work.run())
        self.tasks.add(task)
        if self.chaos.happens(0.05):
            self.lost.add(work.job.id)
            asyncio.get_running_loop().call_later(self.chaos.random.uniform(0, 20), work.lose)

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        """News in any order, in parts, with repetitions and words about launches that nobody asked for."""
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            await self.chaos.pause()
            if self.chaos.trouble:
                raise Unreachable("no route to the machine")
            self.news.clear()
            reports = [report for item in since.items() if (report := self._report(*item)) is not None]
            left = deadline - asyncio.get_running_loop().time()
            if reports or left <= 0:
                self.chaos.random.shuffle(reports)
                await self.chaos.pause()
                return Observation((*reports, *self._repeat(reports)), wall_time())
            try:
                async with asyncio.timeout(left):
                    await self.news.wait()
            except TimeoutError:
                continue

    def _report(self, handle: str, cursor: str) -> Report | None:
        work = self.works.get(handle)
        if work is None:
            self.wrong.append(f"asked for {handle}, which was never accepted")
            return None
        place = int(cursor or 0)
        end = len(work.journal)
        if place == end:
            return None
        if self.chaos.happens(0.3):
            end = self.chaos.random.randint(place + 1, end)
        earlier = [event for event in work.journal[:place] if isinstance(event, WORLD)]
        repeated = earlier[self.chaos.random.randint(0, len(earlier)) :] if self.chaos.happens(0.3) else []
        return Report(handle, (*repeated, *work.journal[place:end]), str(end))

    def _repeat(self, reports: Sequence[Report]) -> list[Report]:
        if not self.chaos.happens(0.2):
            return []
        return [*reports[:1], Report("999.0", (events.NodeStarted(wall_time(), "x", 0, 0),), "1")]

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        """Carry out orders; the call, its answer or single orders may get lost."""
        await self.chaos.pause()
        if self.chaos.trouble:
            raise Unreachable("no route to the machine")
        answers = [self._obey(order) for order in orders]
        await self.chaos.pause()
        if self.chaos.trouble:
            raise Unreachable("the answer was lost")
        return answers

    def _obey(self, order: Order) -> Refusal | None:
        if self.chaos.trouble:
            return Refusal(order.token, "not now", transient=True)
        self.works[order.handle].give(order)
        return None

    async def logs(self, request: LogRequest) -> LogPart:
        """There are none."""
        raise NotFound("no logs here")

    async def nodes(self) -> list[Node]:
        """One node, where it answers."""
        await self.chaos.pause()
        if self.chaos.trouble:
            raise Unreachable("no route to the machine")
        return [Node("node", "main", "idle", 1, 0, 1, 0)]

    async def close(self) -> None:
        """The cluster stays."""
