"""Random stories of groups over two clusters on which the daemon decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from tests.unit.controller.decisions import Story
from tests.unit.controller.fake_pods import Key, Pod, RacingPods, World

from overspan.adapters.abilities import Trace
from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.job import Job, Placement
from overspan.bridge.model.spec import JobSpec

NAMES = ("pods", "more")
GRACES = (0.0, 0.0, 2.0, 30.0)
"""Seconds that pods of a launch which is let go take to end."""

Place = tuple[int, str, int]
"""A group's number, task and node."""


class NamingPods(RacingPods):
    """Pods that are told where members elsewhere are, sometimes at the second try; they take their time to end."""

    async def tell_members(self, handle: str, members: Sequence[Placement], further: Sequence[Placement]) -> None:
        if self._strikes(0.1):
            raise Unreachable("no route to the cluster")

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        self._fresh.clear()
        wanted = {handle.partition("/")[2] for handle in handles} | set(tokens)
        await self._travel()
        for token in sorted(set(self.world.launches) - wanted - self._fresh):
            self._let_go(token)
        await self._travel()

    def _let_go(self, token: str) -> None:
        """Tell all pods of a launch to end, and forget it; each ends in its grace."""
        pods = self.world.ending[token] = list(self.world.launches.pop(token).pods.values())
        for pod in pods:
            if pod.running:
                self.world.later(self.draw_grace(pod), lambda pod=pod: self.world.end(pod, signal=15))  # type: ignore[misc]
            else:
                self.world.end(pod, signal=9)
        self.world.news.set()

    def draw_grace(self, pod: Pod) -> float:
        """How many seconds a program lives on after TERM."""
        return self.world.random.choice(GRACES)

    async def find_traces(self) -> list[Trace]:
        await self._travel()
        running = {token: sum(pod.running for pod in pods) for token, pods in self.world.ending.items()}
        return [Trace(token, "", *read_token(token), ("Pod p",), count) for token, count in running.items()]

    async def remove_traces(self, traces: Sequence[Trace]) -> None:
        raise AssertionError("nobody asked for that")


def read_token(token: str) -> tuple[str, int, int]:
    """Installation, job and launch."""
    installation, job, launch = token.rsplit("-", 2)
    return installation, int(job), int(launch)


def list_overlaps(pods: Iterable[Pod], places: Mapping[Key, Place]) -> list[str]:
    """Programs of one place that ran at the same time, by when they started and ended there."""
    by_place = defaultdict[Place, list[Pod]](list)
    for pod in pods:
        if pod.started_at is not None:
            by_place[places[pod.key]].append(pod)
    found = []
    for place, runs in by_place.items():
        runs.sort(key=lambda pod: pod.started_at or 0.0)
        for first, second in pairwise(runs):
            if first.end is None or (second.started_at or 0.0) < first.end[0]:
                found.append(f"{place}: {second.key} started while {first.key} ran")
    return found


class AcrossStory(Story):
    """One group's life on two clusters: every second task is on the other one."""

    def __init__(self, spec: JobSpec, seed: int, cancelled: bool = False) -> None:
        tasks = tuple(replace(task, cluster=NAMES[number % 2]) for number, task in enumerate(spec.tasks))
        super().__init__(replace(spec, tasks=tasks), seed, cancelled)
        clusters = {name: ClusterSettings(kind="pods") for name in NAMES}
        self.bench.settings = Settings(clusters=clusters, default_cluster="pods")

    def _make_world(self) -> None:
        super()._make_world()
        other = World(self.clock, self.random)
        other.history, other.removed = self.world.history, self.world.removed
        self.worlds.append(other)

    async def _start(self) -> None:
        adapters = [NamingPods(world) for world in self.worlds]
        self.bench.cluster = adapters[0]
        self.bench.others = dict(zip(NAMES, adapters, strict=True))
        await self.bench.start()

    def _is_let_go(self, job: Job) -> bool:
        # What one cluster has lost is over; the part on the other is taken away after that. A group that cannot start
        # again then has the number of the launch that never was.
        return any((job.id, launch) in self.world.removed for launch in (job.launch - 1, job.launch))

    def _check(self) -> None:
        super()._check()
        for name, world in zip(NAMES, self.worlds, strict=True):
            for found in world.launches.values():
                for key in found.pods:
                    assert found.job.spec_of(key.task).cluster == name, f"{key} is on {name}"
