"""Who acts on a committed change, and in which order: what comes later relies on what came before."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, begin, end, play, until

from overspan.bridge.controller import controller
from overspan.bridge.controller.core.dispatch import Dispatcher
from overspan.bridge.controller.core.observation import Observer
from overspan.bridge.controller.core.outbox import SUBMIT
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.releases import LaunchReleases
from overspan.bridge.controller.core.wakeups import JobWakeups
from overspan.bridge.controller.features.allocations import Allocations
from overspan.bridge.controller.features.arrays import ArrayElements
from overspan.bridge.controller.features.dependencies import DependencyTracker
from overspan.bridge.controller.features.elastic.elastic_tasks import ElasticTasks
from overspan.bridge.controller.features.evaluations.evaluations import Evaluations
from overspan.bridge.controller.features.failover import Failover
from overspan.bridge.controller.features.joined_jobs import JoinedJobs
from overspan.bridge.controller.features.pools.pools import Pools
from overspan.bridge.controller.features.reach.automatic import AutomaticTrials
from overspan.bridge.controller.features.schedules import Schedules
from overspan.bridge.model.job import Job

PACKAGE = Path(controller.__file__).parent

FOLLOWERS = (
    ArrayElements,
    DependencyTracker,
    JoinedJobs,
    Failover,
    Allocations,
    Schedules,
    Evaluations,
    ElasticTasks,
    Pools,
    Dispatcher,
    LaunchReleases,
    AutomaticTrials,
)
"""Those that follow each change of a job, in the order in which they act."""


class Acts:
    """Takes down the calls of methods, in their order, and lets them happen."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.seen: list[tuple[Any, ...]] = []

    def note(self, kind: type, name: str, word: Callable[..., tuple[Any, ...]]) -> None:
        """Take down what `word` makes of the arguments of a method, before it runs."""
        method = getattr(kind, name)

        @functools.wraps(method)
        def call(self: object, *arguments: Any) -> Any:
            acts.append(word(*arguments))
            return method(self, *arguments)

        acts = self.seen
        self._patch.setattr(kind, name, call)

    def note_followers(self) -> None:
        """Take down each follower with the states of the job before and after the change."""
        for kind in FOLLOWERS:
            self.note(kind, "follow", functools.partial(_word_change, kind.__name__))


def _word_change(name: str, before: Job | None, entry: JobEntry) -> tuple[Any, ...]:
    return name, None if before is None else before.state.value, entry.job.state.value


def test_the_followers_of_a_change_act_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    acts = Acts(monkeypatch)
    acts.note_followers()

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: "1.0" in bench.cluster.journals)
        bench.cluster.tell("1.0", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "COMPLETED")

    play(scene)
    # New, taken by its cluster, started, ended.
    changes = [(None, "PENDING"), ("PENDING", "PENDING"), ("PENDING", "RUNNING"), ("RUNNING", "COMPLETED")]
    assert acts.seen == [(kind.__name__, *change) for change in changes for kind in FOLLOWERS]


def test_each_subscriber_is_one_of_the_followers() -> None:
    async def scene(bench: Bench) -> None:
        subscribers: Any = bench.controller.recorder.changes.committed
        assert tuple(type(each.__self__) for each in subscribers._subscribers) == FOLLOWERS

    play(scene)


def test_a_new_daemon_tells_the_followers_of_each_job_before_anything_is_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acts = Acts(monkeypatch)

    async def scene(bench: Bench) -> None:
        await bench.submit("one hold")
        await bench.kill()
        acts.note_followers()
        await bench.start()

    play(scene)
    assert acts.seen == [(kind.__name__, None, "PENDING") for kind in FOLLOWERS]


def test_loops_and_waiters_are_woken_before_the_followers_act(monkeypatch: pytest.MonkeyPatch) -> None:
    acts = Acts(monkeypatch)
    acts.note(Dispatcher, "wake", lambda key: ("owed", key))
    acts.note(Observer, "wake", lambda name: ("watched", name))
    acts.note(JobWakeups, "wake", lambda job_id: ("waiters", job_id))
    acts.note_followers()

    async def scene(bench: Bench) -> None:
        await bench.submit()
        entry = bench.controller.recorder.registry.get(1)
        await until(lambda: entry is not None and entry.watched)

    play(scene)
    followers = [kind.__name__ for kind in FOLLOWERS]
    names = [act[0] for act in acts.seen]
    assert names == ["owed", "waiters", *followers, "watched", "waiters", *followers]
    assert acts.seen[0] == ("owed", ("local", SUBMIT))


def test_a_cluster_is_marked_before_launches_are_sent_and_freed_after_their_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acts = Acts(monkeypatch)
    acts.note(LaunchReleases, "note", lambda name: ("before", name))
    acts.note(FakeCluster, "submit", lambda launches: ("send", len(launches)))
    acts.note(Observer, "wake", lambda name: ("stored", name))
    acts.note(LaunchReleases, "sent", lambda name, overtaken: ("after", name, overtaken))

    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: len(acts.seen) == 4)

    play(scene)
    assert acts.seen == [("before", "local"), ("send", 1), ("stored", "local"), ("after", "local", False)]


def test_all_subscriptions_are_made_in_one_place() -> None:
    places = {path.name for path in PACKAGE.rglob("*.py") if ".subscribe(" in path.read_text()}
    assert places == {"controller.py"}


def test_no_part_assigns_to_another() -> None:
    found = [each for path in PACKAGE.rglob("*.py") for each in _find_foreign(path.name, ast.parse(path.read_text()))]
    assert found == []


def _find_foreign(file: str, tree: ast.Module) -> Iterator[str]:
    """Assignments to an attribute of a part: `self.part.x = 1` anywhere, and `part.x = 1` in a constructor."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    owner = ast.unparse(node.value)
                    if owner.startswith("self.") or (function.name == "__init__" and owner != "self"):
                        yield f"{file}:{node.lineno}: {ast.unparse(node)}"
