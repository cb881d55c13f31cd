"""The history by pages: what was kept with a job that is over says the same as its facts."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.fake_repository import FakeRepository
from tests.unit.controller.fakes import Bench, end, give_order, play, start_job, until

from overspan.bridge.controller.core import history_rows
from overspan.bridge.controller.core.history_rows import decode_history_rows, make_history_rows
from overspan.bridge.controller.core.registry import Registry, entry_of
from overspan.bridge.controller.views import history
from overspan.bridge.controller.views.history import Handles, list_history
from overspan.bridge.controller.views.listing import Selection
from overspan.bridge.listings.rows import COLUMNS
from overspan.bridge.model import events
from overspan.bridge.model.errors import StoreFailed
from overspan.bridge.model.ids import parse_array
from overspan.bridge.model.job import Array, Job, new_element, new_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.store.records import HistoryRows, JobQuery, StoredJob

ORIGIN = Origin(user="me")
ONE = (TaskSpec("a"),)
GROUP = JobSpec("g", (TaskSpec("a"), TaskSpec("b")), group=True, origin=ORIGIN, partition="fast", account="blue")
SWEEP = JobSpec("sweep", ONE, array=parse_array("0-2"), origin=ORIGIN, qos="high")


def over(job: Job, state: State = State.COMPLETED) -> Job:
    tasks = tuple(replace(task, state=state, ended_at=9.0) for task in job.tasks)
    return replace(job, state=state, tasks=tasks, ended_at=9.0, version=job.version + 1)


def make_jobs() -> list[Job]:
    """Single jobs, a group with one task that failed, an array of which the last element runs, a job that waits."""
    array = replace(new_job(2, SWEEP, 5.0), array=Array((), None), state=State.RUNNING)
    group = over(new_job(7, GROUP, 6.0), State.FAILED)
    return [
        over(new_job(1, JobSpec("one", ONE, origin=ORIGIN), 4.0)),
        array,
        # Elements of one array are drawn in any order, and others come between.
        over(new_element(array, 1, 3)),
        over(new_job(4, JobSpec("two", ONE, origin=ORIGIN), 5.0), State.CANCELLED),
        over(new_element(array, 0, 5), State.FAILED),
        replace(new_element(array, 2, 6), state=State.RUNNING),
        replace(group, tasks=(replace(group.tasks[0], state=State.COMPLETED), group.tasks[1])),
        new_job(9, JobSpec("late", ONE, origin=ORIGIN), 8.0),
    ]


class Ledger(FakeRepository):
    """Jobs, those that are over with their rows where `kept`; `read` are those whose facts were asked for."""

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self.read: set[int] = set()
        for job in make_jobs():
            self.jobs[job.id] = StoredJob(job, "here", f"0:{job.id}.0", "", "", "me")
            self.account_rows[job.id] = make_history_rows(entry_of(self.jobs[job.id])) if kept else None

    async def find(self, query: JobQuery) -> list[StoredJob]:
        found = await super().find(query)
        self.read |= {stored.job.id for stored in found} if query.ids else set()
        return found


def look(repository: FakeRepository, **wanted: Any) -> tuple[list[list[Any]], Handles]:
    """The rows of the history, and the launches behind them."""
    shown: Handles = {}

    async def read() -> list[list[Any]]:
        pages = list_history(Registry(), repository, Selection(**wanted), shown)
        return [json.loads(row) for rows in [rows async for rows in pages] for row in rows]

    return asyncio.run(read()), shown


def ids(rows: list[list[Any]]) -> list[int]:
    return [row[COLUMNS.index("raw_id")] for row in rows]


WISHES: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [1, 5, 3, 6, 4, 7, 9]),
    ({"tasks": True}, [1, 5, 3, 6, 4, 7, 8, 9]),
    ({"states": frozenset({"FAILED"})}, [5, 7]),
    ({"states": frozenset({"FAILED"}), "tasks": True}, [5, 8]),
    ({"states": frozenset({"ALL"}), "names": frozenset({"sweep", "g"})}, [5, 3, 6, 7]),
    ({"partitions": frozenset({"fast"})}, [7]),
    ({"partitions": frozenset({"here"}), "accounts": frozenset({""})}, [1, 5, 3, 6, 4, 9]),
    ({"accounts": frozenset({"blue"}), "tasks": True}, [7, 8]),
    ({"qos": frozenset({"high"})}, [5, 3, 6]),
    ({"names": frozenset({"one", "two"}), "limit": 1}, [4]),
    ({"tasks": True, "states": frozenset({"COMPLETED"}), "limit": 2}, [3, 7]),
    ({"extent": "core"}, [1, 5, 3, 6, 4, 7, 9]),
]


@pytest.mark.parametrize("page", [1, 2, 3, 500])
@pytest.mark.parametrize(("wish", "shown"), WISHES)
def test_rows_that_were_kept_say_what_the_facts_say(
    monkeypatch: pytest.MonkeyPatch, page: int, wish: dict[str, Any], shown: list[int]
) -> None:
    monkeypatch.setattr(history, "PAGE", page)
    kept = Ledger(kept=True)
    assert ids(look(kept, **wish)[0]) == shown
    assert look(kept, **wish) == look(Ledger(kept=False), **wish)
    # Nothing of what is over was read but its rows.
    assert kept.read == {2, 6, 9}


def test_what_ended_under_an_earlier_version_is_read_once() -> None:
    repository = Ledger(kept=False)
    first, repository.read = look(repository), set()
    assert look(repository) == first and repository.read == {2, 6, 9}


def test_a_disk_that_takes_nothing_keeps_no_rows_and_hinders_nobody() -> None:
    repository = Ledger(kept=False)
    repository.broken = True
    assert ids(look(repository)[0]) == [1, 5, 3, 6, 4, 7, 9]


def test_rows_of_other_columns_and_damaged_ones_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Ledger(kept=True).account_rows[1]
    assert kept is not None and decode_history_rows(kept) is not None
    assert decode_history_rows(kept[:-1]) is None and decode_history_rows(kept.replace(b"one", b"two")) is None
    monkeypatch.setattr(history_rows, "_FORMAT", 7)
    assert decode_history_rows(kept) is None


def test_an_end_counts_although_it_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(entry: object) -> bytes:
        raise ValueError("no such text")

    monkeypatch.setattr(history_rows, "job_row", fail)
    assert make_history_rows(entry_of(StoredJob(make_jobs()[0], "here", "", "", "", "me"))) is None


def test_a_store_that_fails_in_the_middle_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "PAGE", 2)

    class Failing(Ledger):
        async def history_rows(self, ids: Any) -> list[HistoryRows]:
            if 7 in ids:
                raise StoreFailed("the disk fails")
            return await super().history_rows(ids)

    with pytest.raises(StoreFailed, match="the disk fails"):
        look(Failing(kept=True))


def test_the_end_of_a_job_keeps_its_rows_and_a_requeue_takes_them_away() -> None:
    async def scene(bench: Bench) -> None:
        number = await start_job(bench)
        assert bench.repository.account_rows[number] is None
        bench.cluster.tell(f"{number}.0", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "COMPLETED")
        (row,) = decode_history_rows(bench.repository.account_rows[number]) or [b""]
        assert json.loads(b"[" + row + b"]")[COLUMNS.index("state")] == "COMPLETED"
        await give_order(bench, str(number), events.Requeue)
        assert bench.repository.account_rows[number] is None

    play(scene)
