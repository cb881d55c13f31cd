"""A group across whose launch was lost in one part starts again when the other parts have ended, not before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, play, turn, until

from overspan.adapters.abilities import Trace
from overspan.adapters.contract import Decider
from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.controller.core import releases
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.model import events
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.job import Job, Placement
from overspan.bridge.model.spec import Backoff, JobSpec, RetryPolicy, TaskSpec
from overspan.bridge.readers.submission import Submission

PLACES = (("leo", "a"), ("kube", "b"))
"""The clusters, and the task that each has."""


def make_spec(backoff: float) -> JobSpec:
    """The group, which waits so many seconds before its next launch."""
    retry = RetryPolicy(max_recoveries=3, backoff=Backoff(first=backoff))
    tasks = tuple(TaskSpec(task, run="true", cluster=name, retry=retry) for name, task in PLACES)
    return JobSpec("g", tasks, group=True)


class Part(FakeCluster):
    """One of the clusters; what it ends takes until `left` is empty."""

    decider = Decider.DAEMON

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.left: list[Trace] = []
        self.looks = 0

    async def tell_members(self, handle: str, members: Sequence[Placement], further: Sequence[Placement]) -> None:
        pass

    def find_obstacle(self, job: Job) -> str:
        return ""

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        if self.down:
            raise Unreachable("no route to the cluster")

    async def find_traces(self) -> list[Trace]:
        self.looks += 1
        if self.down:
            raise Unreachable("no route to the cluster")
        return self.left

    async def remove_traces(self, traces: Sequence[Trace]) -> None:
        raise AssertionError("nobody asked for that")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "GATHER_SECONDS", 0)
    monkeypatch.setattr(releases, "LOOK_SECONDS", (0.01,))


Story = Callable[[Bench, Mapping[str, Part]], Awaitable[None]]


def tell(story: Story, backoff: float = 0.0) -> None:
    """Play a story after the loss of the part on `leo`, while the one on `kube` still runs."""
    parts = {name: Part(name) for name in ("leo", "kube")}

    def read(submission: Submission, kinds: Mapping[str, str], now: float) -> ParsedSubmission:
        return ParsedSubmission(make_spec(backoff), {"wait": False})

    def prepare(bench: Bench) -> None:
        bench.settings = Settings(clusters={name: ClusterSettings(kind=name) for name in parts}, default_cluster="leo")
        bench.others, bench.reader = dict(parts), read

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: all("1.0" in part.journals for part in parts.values()))
        for name, task in PLACES:
            parts[name].tell("1.0", events.Granted(bench.clock.now, ((task, 0, "n", "10.0.0.1", ()),)))
        await until(lambda: all(len(part.orders) == 1 for part in parts.values()))
        for name, task in PLACES:
            parts[name].tell("1.0", events.NodeStarted(bench.clock.now, task, 0, 0))
        await until(lambda: bench.state() == "RUNNING")
        installation = bench.controller.recorder.completion.installation
        parts["kube"].left = [Trace(f"{installation}-1-0", "1.0", installation, 1, 0, ("Pod g-b-0",), running=1)]
        bench.clock.advance(5)
        parts["leo"].tell("1.0", events.LaunchLost(bench.clock.now, 0, "node"))
        await until(lambda: bench.job().launch == 1)
        await until(lambda: bool(backoff) or bench.job().reason.startswith("Cleaning"))
        await story(bench, parts)

    play(scene, prepare=prepare)


def count_launches(parts: Mapping[str, Part]) -> list[int]:
    return [len(part.handles) for part in parts.values()]


def test_the_next_launch_waits_for_the_end_of_the_other_part_and_says_so() -> None:
    async def story(bench: Bench, parts: Mapping[str, Part]) -> None:
        since = format_timestamp(bench.clock.now)
        words = f"Cleaning: the launch before is being ended, since {since}, on kube: Pod g-b-0"
        for _ in range(5):
            bench.clock.advance(300)
            await turn(200)
        assert bench.job().reason == words and count_launches(parts) == [1, 1]
        # At once, though its next try is minutes away.
        parts["kube"].left = []
        await until(lambda: count_launches(parts) == [2, 2])

    tell(story)


@pytest.mark.parametrize("backoff", [0.0, 60.0])
def test_a_daemon_that_is_killed_in_between_waits_as_well(backoff: float) -> None:
    """With a backoff, the cluster is owed nothing when the daemon dies, and yet has to be looked at."""

    async def story(bench: Bench, parts: Mapping[str, Part]) -> None:
        await until(lambda: parts["kube"].looks > 3)
        await bench.kill()
        bench.clock.advance(600)
        await bench.start()
        looks = parts["kube"].looks
        await until(lambda: parts["kube"].looks > looks + 1)
        assert count_launches(parts) == [1, 1]
        parts["kube"].left = []
        await until(lambda: count_launches(parts) == [2, 2])

    tell(story, backoff)


def test_what_its_cluster_has_given_up_is_not_waited_for() -> None:
    async def story(bench: Bench, parts: Mapping[str, Part]) -> None:
        (trace,) = parts["kube"].left
        parts["kube"].left = [replace(trace, stuck=("Pod g-b-0: its node n does not answer",))]
        await until(lambda: count_launches(parts) == [2, 2])

    tell(story)


def test_a_cluster_that_does_not_answer_is_asked_again_when_it_is_back() -> None:
    async def story(bench: Bench, parts: Mapping[str, Part]) -> None:
        parts["kube"].fail(True)
        bench.clock.advance(300)
        await turn(200)
        parts["kube"].left = []
        assert count_launches(parts) == [1, 1]
        parts["kube"].fail(False)
        await until(lambda: count_launches(parts) == [2, 2])

    tell(story)


def test_a_cancel_meanwhile_ends_the_group_and_nothing_is_started() -> None:
    async def story(bench: Bench, parts: Mapping[str, Part]) -> None:
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        await until(lambda: bench.state() == "CANCELLED")
        parts["kube"].left = []
        await turn(200)
        assert count_launches(parts) == [1, 1]

    tell(story)
