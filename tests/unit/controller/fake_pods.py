"""A cluster of pods that goes on without the daemon, and an adapter over it that dies with the daemon.

A pod is one node run of an attempt. It starts when it has `go`, the mark that the decision to launch it was carried
out, and only then its facts are told. What was told and stored is tidied away.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from tests.unit.controller.fakes import FakeClock, FakeCluster

from overspan.adapters.contract import Accepted, Decider, Launch, Observation, Order, Refusal, Report
from overspan.bridge.model import events
from overspan.bridge.model.errors import TimedOut, Unreachable
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job

NONE, STARTED, ENDED = range(3)
LAGS = (0.0, 0.0, 0.1, 1.5)
"""Seconds after which a fact is known outside."""
RUNS = (0.0, 5.0, 20.0, 50.0, 2000.0)
EXITS = (0, 0, 0, 0, 1, 42)


class Key(NamedTuple):
    """A node run of a job; attempts count on over launches."""

    job: int
    task: str
    attempt: int
    node: int
    run: int


@dataclass
class Pod:
    """One program as it really is."""

    key: Key
    go: float | None = None
    started_at: float | None = None
    start_known: float = 0.0
    end: tuple[float, int, int, str] | None = None
    """When, exit code, signal and cause."""
    end_known: float = 0.0

    @property
    def running(self) -> bool:
        """Whether the user's program is there."""
        return self.started_at is not None and self.end is None


@dataclass
class Objects:
    """What is on the cluster of one launch."""

    job: Job
    pods: dict[Key, Pod] = field(default_factory=dict)
    placed: bool = False
    held: bool = False
    """Whether it holds nothing while it waits: its places are given back."""

    def newest(self, task: str, attempt: int, node: int) -> Pod | None:
        """The last run of a node."""
        runs = [pod for key, pod in self.pods.items() if key[1:4] == (task, attempt, node)]
        return max(runs, key=lambda pod: pod.key.run, default=None)


class World:
    """The cluster itself. It keeps account of every program that ever ran."""

    def __init__(self, clock: FakeClock, random: Random) -> None:
        self.clock = clock
        self.random = random
        self.trouble = random.choice([0.0, 1.0, 1.0, 4.0])
        """How often calls fail."""
        self.full = False
        """Whether nothing can be started any more."""
        self.launches: dict[str, Objects] = {}
        self.ending: dict[str, list[Pod]] = {}
        """Pods of launches that were let go, by token; some may run until their grace is over."""
        self.history: dict[Key, Pod] = {}
        self.removed: set[tuple[int, int]] = set()
        """Job and launch of what somebody else took away."""
        self.faults: list[str] = []
        """What must never happen."""
        self.news = asyncio.Event()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Something happens on the cluster, whoever lives then."""
        self.at(self.clock.now + seconds, call)

    def at(self, due: float, call: Callable[[], None]) -> None:
        """The same, at a time."""

        def happen() -> None:
            # The loop may be a rounding error early, and nothing is told before it is known.
            self.clock.now = max(self.clock.now, due)
            call()
            self.news.set()

        asyncio.get_running_loop().call_later(due - self.clock.now, happen)

    def make(self, launch: Launch) -> None:
        """Make the pods of a launch, or find them."""
        if launch.token in self.launches:
            return
        found = self.launches[launch.token] = Objects(launch.job)
        for task in launch.job.tasks:
            if not task.over:
                for node in range(launch.job.spec_of(task.name).num_nodes):
                    self.add(found, Key(launch.job.id, task.name, len(task.attempts), node, 0))

        self.place_later(found)

    def place_later(self, found: Objects) -> None:
        """Give a launch its nodes after a while."""

        def place() -> None:
            found.placed = True

        self.later(self.random.choice([0.0, 0.5, 3.0, 40.0]), place)

    def add(self, found: Objects, key: Key) -> Pod:
        """Make a pod that may not start yet."""
        pod = found.pods[key] = Pod(key)
        return pod

    def let_go(self, pod: Pod) -> None:
        """Mark a pod; it starts."""
        if pod.go is not None:
            return
        pod.go = self.clock.now
        if pod.key in self.history:
            self.faults.append(f"{pod.key} starts twice")
        self.history[pod.key] = pod
        self.later(self.random.choice([0.0, 0.3, 2.0]), lambda: self._start(pod))
        self.news.set()

    def _start(self, pod: Pod) -> None:
        if pod.end is not None:
            return
        for key, other in self.history.items():
            if other.running and self.name_place(key) == self.name_place(pod.key):
                self.faults.append(f"{pod.key} runs beside {key}")
        pod.started_at = self.clock.now
        pod.start_known = self.clock.now + self.random.choice(LAGS)
        code = self.random.choice(EXITS)
        self.later(self.draw_run(pod.key), lambda: self.end(pod, code))
        self.at(pod.start_known, lambda: None)

    def name_place(self, key: Key) -> tuple[int, str, int]:
        """The job, task and node that a node run is of: there is one at a time."""
        return key.job, key.task, key.node

    def draw_run(self, key: Key) -> float:
        """How many seconds a program lasts."""
        return self.random.choice(RUNS)

    def end(self, pod: Pod, code: int = 0, signal: int = 0, cause: str = "") -> None:
        """End a program, or a pod that never ran one."""
        if pod.end is None:
            pod.end = (self.clock.now, code, signal, cause)
            pod.end_known = max(pod.start_known, self.clock.now + self.random.choice(LAGS))
            self.at(pod.end_known, lambda: None)

    def terminate(self, pod: Pod) -> None:
        """Send TERM; one that has not started never will."""
        if pod.go is None:
            pod.go = self.clock.now
            self.history[pod.key] = pod
        if not pod.running:
            self.end(pod, signal=15)
        elif self.random.random() < 0.6:
            # By its handler, or by the signal.
            code, signal = self.random.choice([(0, 0), (143, 0), (0, 15)])
            self.later(self.random.choice([0.0, 1.0, 2.0]), lambda: self.end(pod, code, signal))

    def kill(self, pod: Pod) -> None:
        """Send KILL."""
        self.later(0.5, lambda: self.end(pod, signal=9))

    def lose_node(self) -> None:
        """The node of some pod is gone."""
        pods = [pod for found in self.launches.values() for pod in found.pods.values() if pod.end is None]
        if pods:
            self.end(self.random.choice(pods), cause="node")

    def lose_launch(self) -> None:
        """Somebody removes a whole launch."""
        if self.launches:
            token = self.random.choice(sorted(self.launches))
            job = self.launches[token].job
            self.removed.add((job.id, job.launch))
            self.remove(token)

    def remove(self, token: str) -> None:
        """Take all objects of a launch away."""
        found = self.launches.pop(token, None)
        for pod in found.pods.values() if found else ():
            self.end(pod, signal=9)
        self.news.set()


Progress = dict[str, tuple[int, list[int]]]
"""What was told: of each task the attempt, and for each node `3 * run + level`."""


class PodCluster(FakeCluster):
    """The adapter of one daemon; what it remembers dies with it."""

    decider = Decider.DAEMON

    def __init__(self, world: World) -> None:
        super().__init__("pods")
        self.world = world
        self._known: dict[str, Progress] = {}
        self._lost: dict[str, dict[Key, float]] = {}
        self._fresh: set[str] = set()
        self._turns: dict[str, asyncio.Lock] = {}

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        # Nothing of a call happens after its answer.
        found = await asyncio.gather(*map(self._submit, launches), return_exceptions=True)
        for answer in found:
            if isinstance(answer, BaseException):
                raise answer
        return [answer for answer in found if not isinstance(answer, BaseException)]

    async def _submit(self, launch: Launch) -> Accepted | Refusal:
        await self._travel()
        self._fresh.add(launch.token)
        self.world.make(launch)
        if self._strikes(0.1):
            self.world.remove(launch.token)
            return Refusal(launch.token, "exceeded quota", True, "AssocGrpCpuLimit")
        await self._travel()
        return Accepted(launch.token, f"default/{launch.token}", "uid")

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        for handle, cursor in since.items():
            self._tidy(_token(handle), _read(cursor))
        while True:
            self.world.news.clear()
            if self._strikes(0.02):
                raise Unreachable("no route to the cluster")
            found = (self._tell(handle, cursor) for handle, cursor in since.items())
            reports = tuple(report for report in found if report is not None)
            if reports:
                return Observation(reports, self.world.clock.now)
            await self.world.news.wait()

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        return [await self._order(order) for order in orders]

    async def _order(self, order: Order) -> Refusal | None:
        await self._travel()
        token = _token(order.handle)
        found = self.world.launches.get(token)
        if found is None:
            return None
        if token not in self._known:
            # Only the cursor tells what has ended and was tidied away.
            return Refusal(order.token, "the launch has not been looked at yet", True, "Resources")
        starts = isinstance(order.event, events.Launch | events.NodeRelaunch)
        if starts and (self.world.full or self._strikes(0.3)):
            return Refusal(order.token, "exceeded quota", True, "Resources")
        answer = self._carry_out(token, found, order.event)
        await self._travel()
        return Refusal(order.token, answer) if answer else None

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        # What was submitted before this call is wanted only if it is named.
        self._fresh.clear()
        wanted = {_token(handle) for handle in handles} | set(tokens)
        await self._travel()
        for token in sorted(set(self.world.launches) - wanted - self._fresh):
            self.world.remove(token)
        await self._travel()

    async def _travel(self) -> None:
        """A call takes its time, or is never answered."""
        await asyncio.sleep(self.world.random.choice([0.0, 0.0, 0.2, 5.0]))
        if self._strikes(0.05):
            raise TimedOut("no answer in time")

    def _strikes(self, chance: float) -> bool:
        return self.world.random.random() < chance * self.world.trouble

    def _carry_out(self, token: str, found: Objects, event: Event) -> str:
        match event:
            case events.Launch():
                for node in range(found.job.spec_of(event.task).num_nodes):
                    if self._strikes(0.05):
                        raise TimedOut("half of it was done")
                    self._start(token, found, Key(found.job.id, event.task, event.attempt, node, 0))
            case events.NodeRelaunch():
                self._start(token, found, Key(found.job.id, event.task, event.attempt, event.node, event.run))
            case events.Terminate() | events.Kill():
                self._end(token, found, event)
            case events.Hold() | events.Release():
                found.held = isinstance(event, events.Hold)
                self.world.news.set()
            case events.Suspend() | events.Resume():
                return "a pod cannot be suspended"
        return ""

    def _start(self, token: str, found: Objects, key: Key) -> None:
        attempt, levels = self._known[token].get(key.task, (0, []))
        level = 3 * key.run + NONE
        if attempt > key.attempt or (attempt == key.attempt and levels and levels[key.node] > level):
            return
        if key in self._lost.get(token, {}):
            return
        pod = found.newest(*key[1:4])
        if pod is None or pod.key.run < key.run:
            pod = self.world.add(found, key)
        self.world.let_go(pod)

    def _end(self, token: str, found: Objects, event: events.Terminate | events.Kill) -> None:
        attempt, levels = self._known[token].get(event.task, (0, []))
        for node in range(found.job.spec_of(event.task).num_nodes):
            pod = found.newest(event.task, event.attempt, node)
            if pod is None:
                if attempt < event.attempt or not levels or levels[node] % 3 == NONE:
                    key = Key(found.job.id, event.task, event.attempt, node, 0)
                    self._lost.setdefault(token, {})[key] = self.world.clock.now
                    self.world.news.set()
            elif pod.end is not None and pod.go is None:
                pod.go = self.world.clock.now
                self.world.history[pod.key] = pod
                self.world.news.set()
            elif pod.end is None:
                (self.world.terminate if isinstance(event, events.Terminate) else self.world.kill)(pod)

    # --- telling ---

    def _tidy(self, token: str, progress: Progress) -> None:
        """Remove ended pods whose end is stored."""
        self._known[token] = progress
        found = self.world.launches.get(token)
        for key in list(found.pods) if found else ():
            attempt, levels = progress.get(key.task, (0, []))
            over = attempt > key.attempt or (
                attempt == key.attempt and bool(levels) and levels[key.node] >= 3 * key.run + ENDED
            )
            if found is not None and over and found.pods[key].end is not None and self.world.random.random() < 0.5:
                del found.pods[key]

    def _tell(self, handle: str, cursor: str) -> Report | None:
        token = _token(handle)
        found = self.world.launches.get(token)
        if found is None:
            return Report(handle, (), cursor, gone=True)
        if not cursor:
            if not found.placed or found.held:
                return None
            places = [(key.task, key.node) for key in found.pods]
            members = tuple((task, node, "n", "10.0.0.1", ()) for task, node in places)
            return Report(handle, (events.Granted(self.world.clock.now, members),), "{}")
        progress, told = _read(cursor), list[Event]()
        lost = self._lost.get(token, {})
        for task in found.job.tasks:
            started = [key.attempt for key, pod in found.pods.items() if key.task == task.name and pod.go is not None]
            before = progress.get(task.name)
            attempt = max([*started, *(key.attempt for key in lost if key.task == task.name)], default=-1)
            if attempt < 0 or (before is not None and attempt < before[0]):
                continue
            size = found.job.spec_of(task.name).num_nodes
            levels = list(before[1]) if before is not None and before[0] == attempt else [0] * size
            for node in range(size):
                pod = found.newest(task.name, attempt, node)
                key = Key(found.job.id, task.name, attempt, node, 0)
                if pod is None and key in lost and levels[node] == NONE:
                    told.append(events.NodeEnded(lost[key], task.name, attempt, node, signal=15))
                    levels[node] = ENDED
                elif pod is not None and pod.go is not None:
                    told += self._tell_pod(pod, levels)
            progress[task.name] = (attempt, levels)
        text = json.dumps(progress)
        return Report(handle, tuple(sorted(told, key=lambda one: one.at)), text) if told else None

    def _tell_pod(self, pod: Pod, levels: list[int]) -> list[Event]:
        _, task, attempt, node, run = pod.key
        told: list[Event] = []
        now = self.world.clock.now
        if levels[node] < 3 * run:
            levels[node] = 3 * run
        if levels[node] == 3 * run + NONE and pod.started_at is not None and pod.start_known <= now:
            told.append(events.NodeStarted(pod.started_at, task, attempt, node, run))
            told += [events.TaskReady(pod.started_at, task, attempt)] if not node else []
            levels[node] = 3 * run + STARTED
        if levels[node] < 3 * run + ENDED and pod.end is not None and pod.end_known <= now:
            at, code, signal, cause = pod.end
            told.append(events.NodeEnded(max(at, pod.go or 0.0), task, attempt, node, run, code, signal, cause))
            levels[node] = 3 * run + ENDED
        return told


def _token(handle: str) -> str:
    return handle.partition("/")[2]


def _read(cursor: str) -> Progress:
    return {task: (attempt, levels) for task, (attempt, levels) in json.loads(cursor or "{}").items()}


class RacingPods(PodCluster):
    """Pods that wait for the daemon."""

    def find_obstacle(self, job: Job) -> str:
        return ""
