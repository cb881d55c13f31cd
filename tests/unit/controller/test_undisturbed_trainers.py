"""A group whose rollout workers come and go: what happens to its trainer, as counted by the cluster where it runs.

Nothing here asks the daemon what it believes. Starts, signals and ends are those of the simulated programs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import count_examples
from tests.unit.controller.across_stories import NAMES
from tests.unit.controller.fake_pods import Key, Pod
from tests.unit.controller.fakes import FakeCluster
from tests.unit.controller.member_stories import (
    ELASTIC,
    ELASTIC_GROUPS,
    MemberPods,
    MemberStory,
    MemberWorld,
    QueueingPods,
)

from overspan.bridge.model.spec import JobSpec, TaskSpec

TRAINER = "trainer"
LONG = 7_000.0
"""Seconds that programs of the group's own launch last: longer than anything is done to its members."""


class CountingWorld(MemberWorld):
    """A cluster that counts what is done to the programs of the group's own launch."""

    story: TrainerStory

    def is_own(self, key: Key) -> bool:
        """Whether a program belongs to a group itself, and not to a further member."""
        stored = self.story.bench.repository.jobs.get(key.job)
        return stored is not None and stored.job.spec.member is None

    def draw_run(self, key: Key) -> float:
        return LONG if self.is_own(key) else super().draw_run(key)

    def let_go(self, pod: Pod) -> None:
        if pod.go is None and pod.key.task == TRAINER:
            self.story.starts[pod.key.job, pod.key.node].append(self.clock.now)
        super().let_go(pod)

    def terminate(self, pod: Pod) -> None:
        self._note_signal(pod)
        super().terminate(pod)

    def kill(self, pod: Pod) -> None:
        self._note_signal(pod)
        super().kill(pod)

    def _note_signal(self, pod: Pod) -> None:
        if self.is_own(pod.key) and pod.key.job not in self.story.stirred:
            self.faults.append(f"{pod.key} is told to end, and only further members have come or gone")

    def end(self, pod: Pod, code: int = 0, signal: int = 0, cause: str = "") -> None:
        if pod.end is None and pod.started_at is not None and self.is_own(pod.key):
            self.story.stirred.add(pod.key.job)
        super().end(pod, code, signal, cause)

    def lose_node(self) -> None:
        """The node of some further member is gone."""
        pods = [pod for found in self.launches.values() for pod in found.pods.values() if pod.end is None]
        members = [pod for pod in pods if not self.is_own(pod.key)]
        if members:
            super().end(self.random.choice(members), cause="node")

    def lose_launch(self) -> None:
        """Somebody removes the launch of a further member."""
        tokens = [token for token, found in self.launches.items() if found.job.spec.member is not None]
        if tokens:
            token = self.random.choice(sorted(tokens))
            job = self.launches[token].job
            self.removed.add((job.id, job.launch))
            self.remove(token)


class TrainerStory(MemberStory):
    """One group's life in which nothing happens but to further members, and to the daemon."""

    world: CountingWorld

    def __init__(self, spec: JobSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.starts: dict[tuple[int, int], list[float]] = defaultdict(list)
        """When each trainer was started, by group and node."""
        self.stirred: set[int] = set()
        """Groups of which a program has ended: what follows is about that."""
        self.most = 0
        """The most further members that ran at once."""

    def _make_world(self) -> None:
        self.world = CountingWorld(self.clock, self)
        other = CountingWorld(self.clock, self)
        other.history, other.removed = self.world.history, self.world.removed
        self.worlds = [self.world, other]

    async def _start(self) -> None:
        here, away = self.worlds
        adapters: list[FakeCluster] = [QueueingPods(here), MemberPods(away)]
        self.bench.cluster = adapters[0]
        self.bench.others = dict(zip(NAMES, adapters, strict=True))
        await self.bench.start()

    async def _order(self) -> None:
        await self._scale(self._draw_size())

    def _check(self) -> None:
        super()._check()
        history = self.world.history
        running = [key for key, pod in history.items() if pod.running]
        self.most = max(self.most, sum(key.task == ELASTIC and not self.world.is_own(key) for key in running))
        for (job, node), starts in self.starts.items():
            assert job in self.stirred or len(starts) == 1, f"trainer {node} of group {job} was started at {starts}"


@settings(max_examples=count_examples(10), deadline=None)
@given(ELASTIC_GROUPS, st.integers(0, 2**32))
def test_workers_that_come_and_go_never_end_or_restart_the_trainer(spec: JobSpec, seed: int) -> None:
    TrainerStory(spec, seed).run()


class PatientPods(MemberPods):
    """Pods whose trainer takes minutes to save its state after TERM."""

    def draw_grace(self, pod: Pod) -> float:
        return 200.0 if pod.key.task == TRAINER else super().draw_grace(pod)


class LostPartStory(MemberStory):
    """One group's life, in which the part without the trainer is taken away again and again."""

    async def _start(self) -> None:
        here, away = self.worlds
        adapters: list[FakeCluster] = [QueueingPods(here), PatientPods(away)]
        self.bench.cluster = adapters[0]
        self.bench.others = dict(zip(NAMES, adapters, strict=True))
        await self.bench.start()

    async def _lose(self) -> None:
        for world in self.worlds:
            for token, found in sorted(world.launches.items()):
                if found.job.id == 1 and not any(key.task == TRAINER for key in found.pods):
                    world.removed.add((1, found.job.launch))
                    world.remove(token)

    async def _order(self) -> None:
        await self._lose()


RECOVERED = ELASTIC_GROUPS.map(lambda spec: replace(spec, tasks=tuple(map(recover, spec.tasks))))


def recover(task: TaskSpec) -> TaskSpec:
    """The task with a budget for all that is lost."""
    return replace(task, retry=replace(task.retry, max_recoveries=30, max_restarts=60))


@settings(max_examples=count_examples(10), deadline=None)
@given(RECOVERED, st.integers(0, 2**32))
def test_no_trainer_starts_beside_that_of_a_launch_which_is_lost(spec: JobSpec, seed: int) -> None:
    """It runs on through its grace period, on a cluster that has lost nothing."""
    LostPartStory(spec, seed).run()


def test_such_stories_have_workers_that_come_and_go() -> None:
    """The counts above mean something: members ran, ended by themselves, and were ended."""
    drawn = list[TrainerStory]()

    @settings(max_examples=16, deadline=None, derandomize=True, database=None)
    @given(ELASTIC_GROUPS, st.integers(0, 2**32))
    def play(spec: JobSpec, seed: int) -> None:
        drawn.append(TrainerStory(spec, seed))
        drawn[-1].run()

    play()
    assert max(story.most for story in drawn) >= 2
    ends = [pod.end for story in drawn for key, pod in story.world.history.items() if story.starts and key.job > 2]
    assert any(end is not None and end[2] == 15 for end in ends)
    assert any(len(starts) == 1 for story in drawn for starts in story.starts.values())
