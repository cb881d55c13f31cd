"""What changed of the queue: which rows are told after which version, and when an answer is kept back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.unit.controller.fakes import START, Bench, FakeClock, begin, end, play, until
from tests.unit.controller.virtual_time import run_virtually

from overspan.bridge.controller.core import listing_changes
from overspan.bridge.controller.core.listing_changes import ListingChanges
from overspan.bridge.controller.core.registry import KEEP_SECONDS, JobEntry, Registry
from overspan.bridge.controller.views.cluster_health import ClusterHealth
from overspan.bridge.controller.views.listing import Selection
from overspan.bridge.controller.views.queue_changes import LOOK_AT_CLUSTERS, ChangeFeed, parse_version
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model import events
from overspan.bridge.model.ids import parse_array
from overspan.bridge.model.job import Array, new_element, new_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.model.states import State

SPEC = JobSpec("fit", (TaskSpec("batch", run="true"),), origin=Origin(user="ana"))
CHOSEN = Selection(tasks=True, extent="core")


class FakeHealth:
    """Clusters that do not answer, as a test sets them."""

    def __init__(self) -> None:
        self.stale: list[dict[str, Any]] = []

    def list_stale(self) -> list[dict[str, Any]]:
        return self.stale


class Daemon:
    """A registry and its feed on a loop whose clock jumps."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.registry = Registry()
        self.health = FakeHealth()
        self.feed = self.restart()

    def restart(self) -> ChangeFeed:
        """The feed of another run of the daemon."""
        self.feed = ChangeFeed(self.registry, cast(ClusterHealth, self.health), self._settle, self.clock)
        return self.feed

    def _settle(self) -> None:
        self.registry.forget_finished(self.clock.now)

    def add(self, number: int, spec: JobSpec = SPEC, user: str = "ana") -> JobEntry:
        """Add a pending job."""
        entry = JobEntry(new_job(number, spec, START), "leo", user)
        self.registry.add(entry)
        return entry

    def set_state(self, number: int, state: State) -> None:
        """Change a job's state."""
        entry = self.registry.get(number)
        assert entry is not None
        ended = self.clock.now if state.terminal else None
        self.registry.put(entry, replace(entry.job, state=state, ended_at=ended))

    async def read(self, version: str = "", wait: float = 0, selection: Selection = CHOSEN) -> dict[str, Any]:
        """An answer, with rows by name of the column."""
        told: dict[str, Any] = json.loads(await self.feed.read(selection, version, wait))
        told["rows"] = [dict(zip(told["columns"], row, strict=True)) for row in told["rows"]]
        return told


def run(scene: Callable[[Daemon], Coroutine[Any, Any, None]]) -> None:
    """Play a scene in no time."""
    daemon = Daemon()
    run_virtually(daemon.clock, lambda: scene(daemon))


def ids(told: dict[str, Any]) -> list[int]:
    return [row["id"] for row in told["rows"]]


def test_after_the_first_answer_only_changed_jobs_are_told() -> None:
    async def scene(daemon: Daemon) -> None:
        for number in (1, 2, 3):
            daemon.add(number)
        first = await daemon.read()
        assert first["whole"] and first["changed"] == [] and ids(first) == [1, 2, 3]
        daemon.set_state(2, State.RUNNING)
        daemon.registry.remove(3)
        daemon.add(4)
        told = await daemon.read(first["version"])
        assert not told["whole"] and sorted(told["changed"]) == [2, 3, 4]
        assert sorted((row["id"], row["state"]) for row in told["rows"]) == [(2, "RUNNING"), (4, "PENDING")]
        again = await daemon.read(told["version"])
        assert (again["changed"], again["rows"], again["version"]) == ([], [], told["version"])

    run(scene)


def test_an_ended_job_has_a_row_until_it_leaves_memory() -> None:
    async def scene(daemon: Daemon) -> None:
        daemon.add(1)
        version = (await daemon.read())["version"]
        daemon.set_state(1, State.COMPLETED)
        told = await daemon.read(version)
        assert [row["state"] for row in told["rows"]] == ["COMPLETED"]
        assert ids(await daemon.read()) == [1]
        daemon.clock.now += KEEP_SECONDS + 1
        told = await daemon.read(told["version"])
        assert (told["changed"], told["rows"]) == ([1], [])

    run(scene)


def test_a_group_has_a_row_for_each_task() -> None:
    tasks = (TaskSpec("trainer", run="x"), TaskSpec("server", run="x"))

    async def scene(daemon: Daemon) -> None:
        daemon.add(1)
        version = (await daemon.read())["version"]
        daemon.add(5, replace(SPEC, name="rlhf", tasks=tasks, group=True))
        told = await daemon.read(version)
        assert told["changed"] == [5]
        assert [(row["task_offset"], row["name"], row["group"]) for row in told["rows"]] == [
            (0, "trainer", "rlhf"),
            (1, "server", "rlhf"),
        ]

    run(scene)


def _add_array(daemon: Daemon, *indices: int) -> None:
    """Array 10 of 0-9 whose elements of these indices are jobs, 11 and on, pending like the others."""
    waiting = parse_array(",".join(str(index) for index in range(10) if index not in indices)).ranges
    head = replace(new_job(10, replace(SPEC, array=parse_array("0-9")), START), array=Array(waiting))
    daemon.registry.add(JobEntry(head, "leo", "ana"))
    for number, index in enumerate(indices, 11):
        daemon.registry.add(JobEntry(new_element(head, index, number), "leo", "ana"))


def test_an_element_that_starts_changes_the_row_of_those_that_wait() -> None:
    async def scene(daemon: Daemon) -> None:
        _add_array(daemon, 0, 1)
        first = await daemon.read()
        assert [(row["id"], row["array_waiting"]) for row in first["rows"]] == [(10, "0-9")]
        daemon.set_state(11, State.RUNNING)
        told = await daemon.read(first["version"])
        assert sorted(told["changed"]) == [10, 11]
        assert sorted((row["id"], row["array_waiting"]) for row in told["rows"]) == [(10, "1-9"), (11, "")]
        entry = daemon.registry.get(12)
        assert entry is not None
        daemon.registry.put(entry, reduce(entry.job, events.Hold(START)))
        told = await daemon.read(told["version"])
        assert sorted((row["id"], row["array_index"]) for row in told["rows"] if row["id"] != 10) == [(12, 1)]

    run(scene)


def test_filters_count_and_a_job_that_fits_no_more_has_no_rows() -> None:
    async def scene(daemon: Daemon) -> None:
        daemon.add(1)
        daemon.add(2, user="bob")
        _add_array(daemon, 3)
        assert ids(await daemon.read(selection=replace(CHOSEN, users=frozenset({"bob"})))) == [2]
        assert ids(await daemon.read(selection=replace(CHOSEN, ids=("2",)))) == [2]
        daemon.set_state(11, State.RUNNING)
        assert ids(await daemon.read(selection=replace(CHOSEN, ids=("10",)))) == [10, 11]
        pending = replace(CHOSEN, states=frozenset({"PENDING"}))
        version = (await daemon.read(selection=pending))["version"]
        daemon.set_state(1, State.RUNNING)
        told = await daemon.read(version, selection=pending)
        assert (told["changed"], told["rows"]) == ([1], [])

    run(scene)


@pytest.mark.parametrize("damage", ["", "x", "..", "1.2.3", "{run}.-1.0", "{run}.999.0", "{run}.x.0", "{run}.1.zz"])
def test_a_version_that_was_never_given_gets_everything(damage: str) -> None:
    async def scene(daemon: Daemon) -> None:
        daemon.add(1)
        given = (await daemon.read())["version"]
        told = await daemon.read(damage.format(run=given.partition(".")[0]), wait=60)
        assert told["whole"] and ids(told) == [1]
        assert daemon.clock.now == START

    run(scene)


def test_a_version_of_another_run_of_the_daemon_gets_everything() -> None:
    async def scene(daemon: Daemon) -> None:
        daemon.add(1)
        version = (await daemon.read())["version"]
        daemon.restart()
        assert (await daemon.read(version, wait=60))["whole"]

    run(scene)


def test_who_is_behind_all_that_is_remembered_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_changes, "REMEMBERED", 3)
    changes = ListingChanges()
    for job_id in (1, 2, 3, 1):
        changes.note(job_id)
    assert changes.list_since(0) == [1, 3, 2]
    changes.note(4)
    assert changes.list_since(0) is changes.list_since(1) is None
    assert changes.list_since(2) == [4, 1, 3] and changes.list_since(4) == [4]


def test_an_answer_is_kept_back_until_something_changes() -> None:
    async def scene(daemon: Daemon) -> None:
        daemon.add(1)
        version = (await daemon.read())["version"]
        asked = asyncio.ensure_future(daemon.read(version, wait=60))
        await asyncio.sleep(20)
        assert not asked.done()
        daemon.set_state(1, State.RUNNING)
        told = await asked
        assert told["changed"] == [1] and daemon.clock.now == pytest.approx(START + 20)
        told = await daemon.read(told["version"], wait=60)
        assert told["changed"] == [] and daemon.clock.now == pytest.approx(START + 80)

    run(scene)


def test_a_cluster_that_falls_silent_is_told_though_no_job_changes() -> None:
    async def scene(daemon: Daemon) -> None:
        daemon.add(1)
        version = (await daemon.read())["version"]
        asked = asyncio.ensure_future(daemon.read(version, wait=600))
        await asyncio.sleep(1)
        daemon.health.stale = [{"cluster": "leo", "since": START, "message": "ssh timed out"}]
        told = await asked
        assert told["stale"] == daemon.health.stale and told["changed"] == [] and not told["whole"]
        assert daemon.clock.now <= START + LOOK_AT_CLUSTERS + 0.1
        daemon.health.stale = []
        assert (await daemon.read(told["version"], wait=600))["stale"] == []

    run(scene)


def test_the_end_of_the_daemon_ends_all_waits() -> None:
    async def scene(daemon: Daemon) -> None:
        version = (await daemon.read())["version"]
        asked = [asyncio.ensure_future(daemon.read(version, wait=600)) for _ in range(3)]
        await asyncio.sleep(1)
        daemon.feed.close()
        assert [told["changed"] for told in await asyncio.gather(*asked)] == [[], [], []]
        assert daemon.clock.now == pytest.approx(START + 1)
        assert (await daemon.read(version, wait=600))["version"] == version

    run(scene)


def test_a_client_that_goes_away_leaves_no_waiter() -> None:
    async def scene(daemon: Daemon) -> None:
        version = (await daemon.read())["version"]
        asked = asyncio.ensure_future(daemon.read(version, wait=600))
        await asyncio.sleep(1)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert daemon.registry.changes.wakeup.idle

    run(scene)


def test_versions_are_read_as_they_are_written() -> None:
    async def scene(daemon: Daemon) -> None:
        version = (await daemon.read())["version"]
        assert str(parse_version(version)) == version

    run(scene)


def test_a_job_is_followed_through_its_life() -> None:
    """The real controller: each thing that squeue shows is a change."""

    async def scene(bench: Bench) -> None:
        async def read(version: str) -> tuple[str, list[str]]:
            told = json.loads(await bench.controller.feed.read(CHOSEN, version, 0))
            place = told["columns"].index("state")
            return told["version"], [row[place] for row in told["rows"]]

        version, states = await read("")
        assert states == []
        await bench.submit()
        await until(lambda: "1.0" in bench.cluster.journals)
        version, states = await read(version)
        assert states == ["PENDING"]
        bench.cluster.tell("1.0", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        version, states = await read(version)
        assert states == ["RUNNING"]
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "COMPLETED")
        version, states = await read(version)
        assert states == ["COMPLETED"]
        bench.clock.advance(KEEP_SECONDS + 1)
        assert (await read(version))[1] == []

    play(scene)
