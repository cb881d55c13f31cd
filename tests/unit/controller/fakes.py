"""A scripted cluster, a clock and timers that the test moves, and a controller over them."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.unit.controller.fake_repository import FakeRepository

from overspan.adapters.contract import (
    NOT_HERE,
    Accepted,
    ClusterConfig,
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
from overspan.adapters.traits import ArraySizes, Traits
from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.controller import Controller, ControllerParts
from overspan.bridge.controller.submission.submitter import ParsedSubmission, Reader
from overspan.bridge.model import events
from overspan.bridge.model.errors import NotFound, Unreachable
from overspan.bridge.model.events import Event
from overspan.bridge.model.ids import parse_array
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.model.storage import MountMode, StorageMount
from overspan.bridge.readers.dependencies import parse_dependency
from overspan.bridge.readers.submission import Submission

START = 1_700_000_000.0


class FakeClock:
    """A clock that stands still until it is moved, with the timers that hang on it."""

    def __init__(self) -> None:
        self.now = START
        self.jump = 0.0
        self._timers: dict[str, tuple[float, Callable[[], None]]] = {}

    def __call__(self) -> float:
        return self.now

    def set(self, name: str, at: float, call: Callable[[], None]) -> None:
        self._timers[name] = (at, call)

    def drop(self, name: str) -> None:
        self._timers.pop(name, None)

    def move(self, seconds: float) -> None:
        self._timers = {name: (at + seconds, call) for name, (at, call) in self._timers.items()}

    def look(self) -> None:
        pass

    def close(self) -> None:
        self._timers.clear()

    def take_jump(self) -> float:
        """Seconds by which the machine's clock was set (`jump`); time itself did not pass."""
        seconds, self.jump = self.jump, 0.0
        self.now += seconds
        return seconds

    def due(self) -> dict[str, float]:
        """Names and times of the timers that are set."""
        return {name: at for name, (at, _) in self._timers.items()}

    def advance(self, seconds: float) -> None:
        """Move on, and ring what becomes due."""
        self.now += seconds
        ready = [(at, name) for name, (at, _) in self._timers.items() if at <= self.now]
        heapq.heapify(ready)
        while ready:
            _, name = heapq.heappop(ready)
            found = self._timers.pop(name, None)
            if found is not None:
                found[1]()


STATED: Mapping[str, Traits] = {
    "local": Traits(this_machine=True, gives_back=True, default_partition=lambda: "local"),
    "slurm": Traits(gives_back=True, requeued_by="slurm"),
    "kubernetes": Traits(warns_of_preemption=True),
}
"""What a cluster states for the kind that the settings give it."""


class FakeCluster:
    """A cluster whose launches do what the test writes into their journals."""

    decider = Decider.SUPERVISOR

    def __init__(self, name: str = "local") -> None:
        self.name = name
        self.kind = "local"
        self.config = ClusterConfig(name, "local")
        """As it was opened last."""
        self.handles: dict[str, str] = {}
        self.launched: list[Job] = []
        self.submits = 0
        self.asked = 0
        self.orders: list[Order] = []
        self.order_tokens: set[str] = set()
        self.journals: dict[str, list[Event]] = {}
        self.gone: set[str] = set()
        self.refusals: list[Refusal] = []
        self._away = False
        self.impossible: str = ""
        self.remedy: str = ""
        self.down = False
        self.gate: asyncio.Event | None = None
        self.closed = False
        self._news = asyncio.Event()

    @property
    def traits(self) -> Traits:
        return replace(STATED.get(self.kind, Traits()), decider=self.decider, **self.state())

    def state(self) -> dict[str, Any]:
        """What the cluster of a test states beyond its kind."""
        return {}

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        self.submits += 1
        answers = [self._take(launch) for launch in launches]
        if self.gate is not None:
            await self.gate.wait()
        return answers

    def _take(self, launch: Launch) -> Accepted | Refusal:
        if self.down:
            raise Unreachable("no route to the cluster")
        if self.refusals:
            return replace(self.refusals.pop(0), token=launch.token)
        if launch.token not in self.handles and not launch.wanted:
            return Refusal(launch.token, NOT_HERE)
        if launch.token not in self.handles:
            self.handles[launch.token] = f"{launch.job.id}.{launch.job.launch}"
            self.launched.append(launch.job)
        handle = self.handles[launch.token]
        self.journals.setdefault(handle, [])
        return Accepted(launch.token, handle, f"native-{handle}")

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        self.asked += 1
        while True:
            if self.down:
                self._away = True
                raise Unreachable("no route to the cluster")
            reports = [report for handle, cursor in since.items() if (report := self._report(handle, cursor))]
            # As the contract has it: the first answer is told, with news or without.
            back, self._away = self._away, False
            if reports or back:
                return Observation(tuple(reports), 0.0)
            self._news.clear()
            await self._news.wait()

    def _report(self, handle: str, cursor: str) -> Report | None:
        journal = self.journals.get(handle, [])
        start = int(cursor or 0)
        if handle in self.gone:
            return Report(handle, tuple(journal[start:]), str(len(journal)), gone=True)
        return Report(handle, tuple(journal[start:]), str(len(journal))) if start < len(journal) else None

    def tell(self, handle: str, *news: Event) -> None:
        """Write into a launch's journal."""
        self.journals.setdefault(handle, []).extend(news)
        self._news.set()

    def lose(self, handle: str) -> None:
        """Forget a launch."""
        self.gone.add(handle)
        self._news.set()

    def fail(self, down: bool) -> None:
        """Stop answering, or begin again."""
        self.down = down
        self._news.set()

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        if self.down:
            raise Unreachable("no route to the cluster")
        for order in orders:
            if order.token not in self.order_tokens:
                self.order_tokens.add(order.token)
                self.orders.append(order)
        return [None for _ in orders]

    async def logs(self, request: LogRequest) -> LogPart:
        if request.stream != "output":
            raise NotFound("no such stream")
        text = b"hello\nworld\n"
        return LogPart(text[request.offset : request.offset + request.limit], request.offset, len(text), "/run/out")

    async def nodes(self) -> list[Node]:
        if self.down:
            raise Unreachable("no route to the cluster")
        return [Node("me", "local", "idle", 2.0, 0.0, 1000, 0)]

    async def admit(self, job: Job) -> Refusal | None:
        return Refusal("", self.impossible, remedy=self.remedy) if self.impossible else None

    def plan(self, job: Job) -> str:
        return f"processes of {job.spec.name}"

    async def close(self) -> None:
        self.closed = True


class ThrottlingCluster(FakeCluster):
    """A cluster that keeps arrays' throttles itself; it only takes down what it is told."""

    def __init__(self, name: str = "local") -> None:
        super().__init__(name)
        self.throttles: dict[str, int | None] = {}
        """Of each launch, as it came with it."""
        self.told: list[tuple[int, int | None]] = []

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        answers = await super().submit(launches)
        self.throttles.update((self.handles[launch.token], launch.throttle) for launch in launches)
        return answers

    async def set_throttle(self, array: int, limit: int | None) -> None:
        if self.down:
            raise Unreachable("no route to the cluster")
        self.told.append((array, limit))


class NativeCluster(ThrottlingCluster):
    """A cluster with arrays of its own; it takes down what it was given at once."""

    def state(self) -> dict[str, Any]:
        return {"arrays": ArraySizes(elements=50, submissions=3)}

    def __init__(self, name: str = "local") -> None:
        super().__init__(name)
        self.batches: list[list[int]] = []

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        self.batches.append([launch.job.id for launch in launches])
        return await super().submit(launches)


class Bench:
    """A controller over fakes, which can be killed and started again."""

    def __init__(self, cluster: FakeCluster | None = None) -> None:
        self.clock = FakeClock()
        self.repository = FakeRepository()
        self.cluster = cluster or FakeCluster()
        self.others: dict[str, FakeCluster] = {}
        """Clusters of other names; every other name is `cluster`."""
        self.settings = Settings()
        self.state_dir = "/nowhere"
        self.reader: Reader = read
        self.controller: Controller

    async def start(self) -> Controller:
        """Open a controller on whatever the repository has."""
        parts = ControllerParts(
            repository=self.repository,
            settings=self.settings,
            state_dir=self.state_dir,
            timers=self.clock,
            clock=self.clock,
            reader=self.reader,
            opener_of=lambda kind: self._open,
            take_jump=self.clock.take_jump,
        )
        self.controller = await Controller.open(parts)
        return self.controller

    def _open(self, config: ClusterConfig) -> FakeCluster:
        cluster = self.others.get(config.name, self.cluster)
        cluster.kind, cluster.config = config.kind, config
        return cluster

    async def kill(self) -> None:
        """End the controller's loops at once, as kill -9 would; the repository and the cluster stay as they are."""
        controller = self.controller
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await turn()
        controller.closing = True
        self.clock.close()

    async def submit(self, text: str = "one", **more: object) -> int:
        """Submit a job and give its number."""
        submission = replace(Submission("script", text, user="me"), **more)  # type: ignore[arg-type]
        return (await self.controller.submit(submission)).id

    def job(self, job_id: int = 1) -> Job:
        """The job in memory."""
        entry = self.controller.recorder.registry.get(job_id)
        assert entry is not None
        return entry.job

    def check(self) -> None:
        """Memory says what the store says, about jobs and about calls that are owed.

        What ends work may be ahead of it, and then knows from where.
        """
        recorder = self.controller.recorder
        for entry in recorder.registry:
            stored = self.repository.jobs[entry.job.id]
            if entry.unwritten is not None:
                assert entry.unwritten.expected_version == stored.job.version
            else:
                assert (entry.job, entry.cursor, entry.cluster) == (stored.job, stored.cursor, stored.cluster)
        if all(entry.unwritten is None for entry in recorder.registry):
            assert len(recorder.outbox) == len(self.repository.rows)

    def state(self, job_id: int = 1) -> str:
        """The job's state."""
        return self.job(job_id).state.value


def read(submission: Submission, kinds: Mapping[str, str], now: float) -> ParsedSubmission:
    """Words of a text: names of tasks; hold, kill, later, race; writes: the tasks do, to an object store.

    begin=SECONDS, deadline=SECONDS, array=, needs= and parent= are what they say.
    clusters=A,B and after=SECONDS are a list of clusters and its failover_after.
    """
    words = submission.text.split()
    facts = dict(word.split("=") for word in words if "=" in word)
    names = [word for word in words if "=" not in word and word not in ("hold", "kill", "later", "race", "writes")]
    # A limit would end the job before its deadline.
    limit = None if "deadline" in facts else 60
    storage = (StorageMount("/out", "s3://lab/run", MountMode.MOUNT_CACHED, "s3"),) if "writes" in words else ()
    tasks = tuple(TaskSpec(name, run="true", time=limit, storage=storage) for name in names)
    spec = JobSpec(
        name=submission.name or names[0],
        tasks=tasks,
        group=len(tasks) > 1,
        array=parse_array(facts["array"]) if "array" in facts else None,
        dependency=parse_dependency(facts.get("needs", "")),
        kill_on_invalid_dep="kill" in words,
        parent=int(facts["parent"]) if "parent" in facts else None,
        hold="hold" in words or submission.hold,
        begin=now + float(facts["begin"]) if "begin" in facts else None,
        deadline=now + float(facts["deadline"]) if "deadline" in facts else None,
        clusters=tuple(filter(None, facts.get("clusters", submission.cluster).split(","))),
        race="race" in words,
        failover_after=int(facts["after"]) if "after" in facts else None,
        later={"event_callback": {}} if "later" in words else {},
        origin=Origin(user=submission.user, directory=submission.directory, job=submission.job),
    )
    return ParsedSubmission(spec, {"wait": False})


def begin(job: Job, at: float) -> list[Event]:
    """The journal of a launch that starts all its tasks."""
    members = tuple((task.name, 0, "me", "127.1.0.1", ()) for task in job.tasks)
    news: list[Event] = [events.Granted(at, members)]
    for task in job.tasks:
        attempt = len(task.attempts)
        news += [events.Launch(at, task.name, attempt), events.NodeStarted(at, task.name, attempt, 0)]
    return news


def end(job: Job, at: float, exit_code: int = 0) -> list[Event]:
    """The journal of a launch whose running tasks end."""
    return [
        events.NodeEnded(at, task.name, task.attempts[-1].number, 0, exit_code=exit_code)
        for task in job.tasks
        if task.live
    ]


async def turn(times: int = 50) -> None:
    """Let every coroutine that can go on do so."""
    for _ in range(times):
        await asyncio.sleep(0)


async def until(fact: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until a fact is true."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not fact():
        assert loop.time() < deadline, "the fact did not come true"
        await asyncio.sleep(0)


def play(
    scene: Callable[[Bench], Awaitable[None]],
    cluster: FakeCluster | None = None,
    prepare: Callable[[Bench], None] = lambda bench: None,
) -> None:
    """Run a scene with a controller of its own; `prepare` comes before its start."""

    async def run() -> None:
        bench = Bench(cluster)
        prepare(bench)
        await bench.start()
        try:
            await scene(bench)
            await turn()
            bench.check()
        finally:
            await bench.controller.close()

    asyncio.run(run())


async def start_job(bench: Bench, text: str = "one") -> int:
    """Submit a job and let it run."""
    job_id = await bench.submit(text)
    await until(lambda: f"{job_id}.0" in bench.cluster.journals)
    bench.cluster.tell(f"{job_id}.0", *begin(bench.job(job_id), bench.clock.now))
    await until(lambda: bench.state(job_id) == "RUNNING")
    return job_id


async def give_order(bench: Bench, ref: str, make: type, task: str = "") -> None:
    """Give an order that takes nothing but a time."""
    await bench.controller.orders.give(ref, lambda at, name: make(at), task)
