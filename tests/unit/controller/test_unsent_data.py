"""What ended jobs could not send: told with its tasks, removed by hand, and after its time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.controller.fake_repository import FakeRepository

from overspan.adapters.abilities import EndedLaunch
from overspan.bridge.controller.features.unsent_data import UnsentJobs
from overspan.bridge.lifecycle.former_clusters import may_have_left
from overspan.bridge.model.errors import Conflict, Denied, InvalidRequest, NotFound, Unreachable
from overspan.bridge.model.job import Attempt, Flush, Job, NodeRun, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.model.storage import MountMode, StorageMount
from overspan.bridge.runtime.data.unsent import UnsentData, UnsentListing
from overspan.bridge.store.records import JobQuery, StoredJob

DAY = 86400.0
MOUNT = StorageMount("/out", "s3://lab/run", MountMode.MOUNT_CACHED, "s3")


def make_job(number: int, left: int | None = 8, *, ended_at: float | None = 100.0, began: bool = True) -> Job:
    """A job of two tasks, one of which writes to a store."""
    writer, other = TaskSpec("writer", run="true", storage=(MOUNT,)), TaskSpec("other", run="true")
    job = new_job(number, JobSpec("x", (writer, other)), 0.0)
    flush = None if left is None else Flush(1.0, 2.0, left, sent=left == 0)
    attempt = Attempt(0, State.FAILED, 1.0, (NodeRun(0, started_at=1.0 if began else None),), flush=flush)
    task = replace(job.tasks[0], attempts=(attempt,), state=State.FAILED)
    state = State.RUNNING if ended_at is None else State.FAILED
    return replace(job, tasks=(task, job.tasks[1]), state=state, ended_at=ended_at)


class Keeper:
    """A cluster that has something of these jobs."""

    def __init__(self, *jobs: int, seconds: int | None = None) -> None:
        self.seconds = seconds
        self.has = set(jobs)
        self.errors: dict[int, str] = {}
        self.asked: list[list[int]] = []
        self.away = False

    async def list_unsent(self, jobs: Sequence[EndedLaunch]) -> UnsentListing:
        self.asked.append([launch.job.id for launch in jobs])
        if self.away:
            raise Unreachable("it is away")
        assert all(launch.handle == f"h{launch.job.id}" for launch in jobs)
        chosen = [launch.job.id for launch in jobs if launch.job.id in self.has - self.errors.keys()]
        found = [UnsentData(job, MOUNT.url, "s3", 2, 8, 50.0, "left", "/x") for job in chosen]
        errors = tuple((job, text) for job, text in self.errors.items() if job in self.asked[-1])
        return UnsentListing(tuple(found), errors)

    async def remove_unsent(self, jobs: Sequence[EndedLaunch]) -> UnsentListing:
        listing = await self.list_unsent(jobs)
        self.has -= {each.job for each in listing.found}
        return listing


class Scene:
    """Jobs of the cluster `leo`, whose time goes as it is told to."""

    def __init__(self, keeper: Keeper | None, *jobs: Job, shared: bool = False) -> None:
        self.now = 100.0
        self.in_use: set[int] = set()
        self.repository = repository = FakeRepository()
        for job in jobs:
            repository.jobs[job.id] = StoredJob(job, "leo", f"0:h{job.id}", "", "", "ada")
        traits = SimpleNamespace(unsent=keeper)
        cluster = SimpleNamespace(name="leo", opened=True, traits=traits, adapter=SimpleNamespace(traits=traits))

        class Clusters(list[Any]):
            def get(self, name: str) -> Any:
                return cluster

            find = get

        async def find(ref: str) -> Any:
            job = repository.jobs[int(ref)].job
            return SimpleNamespace(entry=SimpleNamespace(job=job, cluster="leo", handle=f"h{ref}"))

        directory = cast(Any, SimpleNamespace(find=find))
        clusters: Any = Clusters([cluster])
        self.unsent = UnsentJobs(
            clusters, cast(Any, repository), directory, lambda: self.now, 30 * DAY, self.in_use, shared=shared
        )

    def list(self, name: str = "") -> Any:
        return asyncio.run(self.unsent.list(name))

    def remove(self, ref: str) -> Any:
        return asyncio.run(self.unsent.remove(ref))

    def sweep_in_time(self, now: float) -> None:
        self.now = now
        asyncio.run(self.unsent.sweep_in_time())

    def sweep(self, now: float) -> None:
        self.now = now
        asyncio.run(self.unsent.sweep())


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (make_job(1), True),
        (make_job(1, left=0), False),
        (make_job(1, left=None), True),
        (make_job(1, left=None, began=False), False),
        (new_job(1, JobSpec("x", (TaskSpec("x", run="true"),)), 0.0), False),
    ],
)
def test_which_jobs_may_have_left_anything(job: Job, expected: bool) -> None:
    assert may_have_left(job) is expected


class TestListing:
    def test_what_is_there_is_told_with_its_task_and_its_end(self) -> None:
        keeper = Keeper(7, 8, seconds=3600)
        scene = Scene(keeper, make_job(7), make_job(8, ended_at=None), make_job(9, left=0))
        (row,) = scene.list("leo").unsent
        assert keeper.asked == [[7]]
        assert (row["cluster"], row["job"], row["task"], row["files"], row["size"]) == ("leo", 7, "writer", 2, 8)
        assert row["until"] == 100 + 3600

    def test_it_is_kept_no_longer_than_the_job_is_known(self) -> None:
        for seconds in (None, int(90 * DAY)):
            (row,) = Scene(Keeper(7, seconds=seconds), make_job(7)).list().unsent
            assert row["until"] == 100 + 29 * DAY

    def test_one_cluster_that_is_away_is_an_error_of_all_a_note(self) -> None:
        keeper = Keeper(7)
        keeper.away = True
        scene = Scene(keeper, make_job(7))
        with pytest.raises(Unreachable):
            scene.list("leo")
        assert scene.list() == ([], ["leo does not answer: it is away"])
        keeper.away, keeper.errors = False, {7: "node n1 is away"}
        assert scene.list() == ([], ["job 7 on leo: node n1 is away"])

    def test_a_cluster_that_keeps_nothing_says_what_would(self) -> None:
        with pytest.raises(InvalidRequest) as refused:
            Scene(None, make_job(7)).list("leo")
        assert "`data_volume`" in refused.value.remedy
        assert Scene(None, make_job(7)).list() == ([], [])

    def test_a_shared_daemon_has_none(self) -> None:
        with pytest.raises(Denied):
            Scene(Keeper(7), make_job(7), shared=True).list()


class TestRemoval:
    def test_by_hand(self, caplog: pytest.LogCaptureFixture) -> None:
        scene = Scene(Keeper(7), make_job(7))
        with caplog.at_level(logging.INFO):
            assert scene.remove("7") == {"job": 7, "cluster": "leo", "files": 2, "size": 8}
        assert (
            "what job 7 could not send was removed from leo by hand: 2 files, 8 bytes, for s3://lab/run" in caplog.text
        )
        with pytest.raises(NotFound, match="job 7 has left no data on leo"):
            scene.remove("7")

    def test_what_is_in_use_stays(self) -> None:
        keeper = Keeper(7, 8)
        keeper.errors = {7: "it is being sent"}
        scene = Scene(keeper, make_job(7), make_job(8, ended_at=None))
        with pytest.raises(Conflict, match="job 8 is RUNNING, and its data is in use"):
            scene.remove("8")
        with pytest.raises(Conflict, match="not all that job 7 has left on leo is removed: it is being sent"):
            scene.remove("7")
        assert keeper.has == {7, 8}

    def test_what_is_being_sent_for_this_daemon_is_not_asked_for(self) -> None:
        keeper = Keeper(7)
        scene = Scene(keeper, make_job(7))
        scene.in_use.add(7)
        with pytest.raises(Conflict, match="the data of job 7 is being sent or removed"):
            scene.remove("7")
        scene.sweep(100 + 29 * DAY)
        assert keeper.has == {7}
        scene.in_use.clear()
        scene.remove("7")
        assert scene.in_use == set()

    def test_a_job_that_was_queued_meanwhile_keeps_its_data(self) -> None:
        keeper = Keeper(7)
        scene = Scene(keeper, make_job(7))
        real = scene.repository.find

        async def find(query: JobQuery) -> list[StoredJob]:
            found = await real(query)
            if not query.ids:
                scene.repository.jobs[7] = replace(found[0], job=make_job(7, ended_at=None))
            return found

        scene.repository.find = find  # type: ignore[method-assign]
        scene.sweep(100 + 29 * DAY)
        assert keeper.has == {7}

    def test_a_cluster_that_keeps_nothing_has_nothing(self) -> None:
        with pytest.raises(NotFound):
            Scene(None, make_job(7)).remove("7")


class TestTime:
    def test_what_was_kept_for_its_time_goes_once_and_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        keeper = Keeper(7, 8, 9, seconds=3600)
        scene = Scene(keeper, make_job(7), make_job(8, ended_at=None), make_job(9, ended_at=5000.0))
        scene.sweep(100 + 3599)
        assert keeper.has == {7, 8, 9}
        with caplog.at_level(logging.INFO):
            scene.sweep(100 + 3600)
        assert keeper.has == {8, 9}
        assert "what job 7 could not send was removed from leo after 1:00:00: 2 files, 8 bytes" in caplog.text
        keeper.asked.clear()
        scene.sweep(100 + 3700)
        assert [jobs for jobs in keeper.asked if jobs] == [], "a job of which nothing is left is asked about again"

    def test_what_cannot_be_removed_is_tried_again_and_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        keeper = Keeper(7, seconds=3600)
        keeper.errors = {7: "node n1: it does not answer"}
        scene = Scene(keeper, make_job(7))
        for _ in range(3):
            scene.sweep(DAY)
        assert caplog.text.count("what job 7 has left on leo stays: node n1: it does not answer") == 1
        keeper.errors = {}
        scene.sweep(DAY)
        assert keeper.has == set()

    def test_a_cluster_that_is_away_is_asked_again(self) -> None:
        keeper = Keeper(7, seconds=3600)
        keeper.away = True
        scene = Scene(keeper, make_job(7))
        scene.sweep(DAY)
        keeper.away = False
        scene.sweep(DAY)
        assert keeper.has == set()

    def test_without_a_time_of_its_own_it_goes_before_its_job_is_forgotten(self) -> None:
        keeper = Keeper(7)
        scene = Scene(keeper, make_job(7))
        scene.sweep(100 + 28.9 * DAY)
        assert keeper.has == {7}
        scene.sweep(100 + 29 * DAY)
        assert keeper.has == set()


class TestLooks:
    def test_a_new_daemon_looks_soon_unless_an_earlier_one_has_just_looked(self) -> None:
        keeper = Keeper(7, 8, seconds=3 * 3600)
        scene = Scene(keeper, make_job(7), make_job(8, ended_at=DAY))
        scene.sweep_in_time(DAY)
        assert keeper.asked == [[7]]
        keeper.asked.clear()

        def start_again() -> Scene:
            later = Scene(keeper, make_job(7), make_job(8, ended_at=DAY))
            later.repository.values = scene.repository.values
            return later

        # Of the first job nothing is left, and the other one's time is over: but it was just looked.
        start_again().sweep_in_time(DAY + 5)
        assert keeper.asked == []
        start_again().sweep_in_time(DAY + 4 * 3600)
        assert keeper.asked == [[8]]

    def test_a_clock_that_was_set_back_delays_no_look(self) -> None:
        keeper = Keeper(7, seconds=3600)
        scene = Scene(keeper, make_job(7))
        scene.sweep_in_time(3 * DAY)
        keeper.has = {9}
        scene.repository.jobs[9] = replace(scene.repository.jobs[7], job=make_job(9), handle="0:h9")
        scene.sweep_in_time(DAY)
        assert keeper.has == set()

    def test_a_damaged_note_of_the_last_look_is_none(self) -> None:
        for text in ("{", "[]", '{"done": [1]}', '{"at": "x"}'):
            keeper = Keeper(7, seconds=3600)
            scene = Scene(keeper, make_job(7))
            scene.repository.values["unsent_sweep"] = text
            scene.sweep_in_time(DAY)
            assert keeper.has == set()
