"""Watches in the store: the newest and the open ones, whose they are, and their evaluations counted by state."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from overspan.bridge.model.evaluations import EvaluationSpec
from overspan.bridge.model.job import Job
from overspan.bridge.store.evaluation_records import (
    EvaluationFacts,
    EvaluationTally,
    JobLabel,
    StoredEvaluation,
    StoredWatch,
    WatchFacts,
)
from overspan.bridge.store.records import NewJob
from overspan.bridge.store.store import Store

FACTS = WatchFacts(EvaluationSpec("quality", "/c", "step_{step:int}"), 1.0)


def watch(job: int, user: str = "ada", closed: bool = True, name: str = "quality") -> StoredWatch:
    """A watch that is not stored yet."""
    return StoredWatch(0, job, name, user, closed, FACTS)


def evaluation(number: int, state: str, score: float | None = None, watch_id: int = 1) -> StoredEvaluation:
    """An evaluation, over where it has a state."""
    facts = EvaluationFacts(step=number, state=state, score=score, ended_at=100.0 + number if state else None)
    return StoredEvaluation(0, watch_id, f"step_{number}", "", 0, number, bool(state), facts)


def test_the_newest_watches_and_the_open_ones_are_read(store: Store) -> None:
    async def scene() -> None:
        for new in (watch(1, closed=False), watch(2, "bob"), watch(3), watch(4, "bob"), watch(5)):
            await store.evaluations.keep_watch(new)
        assert [each.job_id for each in await store.evaluations.find_newest_watches(2)] == [1, 4, 5]
        assert [each.job_id for each in await store.evaluations.find_newest_watches(9)] == [1, 2, 3, 4, 5]
        assert [each.job_id for each in await store.evaluations.find_newest_watches(1, "bob")] == [4]
        assert [each.job_id for each in await store.evaluations.find_newest_watches(9, "bob", [1, 5])] == [1, 2, 4, 5]

    asyncio.run(scene())


def test_evaluations_are_counted_by_state_and_damaged_ones_too(store: Store, tmp_path: Path) -> None:
    async def scene() -> None:
        await store.evaluations.keep_watch(watch(7))
        scores = [("COMPLETED", 0.25), ("COMPLETED", 0.5), ("COMPLETED", None), ("FAILED", None), ("", None)]
        for number, (state, score) in enumerate(scores, 1):
            await store.evaluations.keep(evaluation(number, state, score))
        await store.evaluations.keep(evaluation(1, "COMPLETED", 9.0, watch_id=2))
        found = sorted(await store.evaluations.count_ended([1]), key=lambda each: each.state)
        assert found == [
            EvaluationTally(1, "COMPLETED", 3, 0.5, 0.25, 103.0),
            EvaluationTally(1, "FAILED", 1, None, None, 104.0),
        ]

    asyncio.run(scene())
    store.close()
    with closing(sqlite3.connect(tmp_path / "span.db")) as connection, connection:
        connection.execute("UPDATE evaluation SET facts = '{\"state\": ' WHERE checkpoint = 'step_4'")
    with closing(Store.open(tmp_path / "span.db")) as again:
        states = {each.state: each.count for each in asyncio.run(again.evaluations.count_ended([1]))}
    assert states == {"COMPLETED": 3, "UNKNOWN": 1}


def test_watched_jobs_have_name_and_state(
    store: Store, make_job: Callable[..., Job], start_of: Callable[[Job], NewJob]
) -> None:
    async def scene() -> None:
        await store.insert([start_of(make_job(7, name="fit"))])
        assert await store.evaluations.label_jobs([7, 8]) == {7: JobLabel("fit", "PENDING")}

    asyncio.run(scene())
