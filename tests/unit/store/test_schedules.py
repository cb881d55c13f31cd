"""Schedules in the store: one transaction with their runs, versions, crontabs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from overspan.bridge.model.errors import Conflict
from overspan.bridge.model.job import Job
from overspan.bridge.model.schedule import Missed, Overlap, Schedule
from overspan.bridge.store.records import JobQuery, NewJob
from overspan.bridge.store.schedule_records import CRONTAB, Crontab, ScheduleFacts, StoredSchedule
from overspan.bridge.store.store import Store

MakeJob = Callable[..., Job]
StartOf = Callable[[Job], NewJob]
FACTS = ScheduleFacts("train", "local", Schedule("@daily", "UTC", Missed.ALL, Overlap.ALLOW), 1.0, 2.0, owed=(1.5, 1.7))
NEW = StoredSchedule(0, 1, "ada", FACTS, {"text": "caf\udce9", "environment": {"A": "b"}})


def following(old: StoredSchedule, at: float) -> StoredSchedule:
    return replace(old, version=old.version + 1, facts=replace(old.facts, last_due=at))


def test_what_is_written_is_read(store: Store) -> None:
    async def scene() -> None:
        assert await store.schedules.add(NEW) == 1
        assert await store.schedules.load() == [replace(NEW, id=1)]
        assert await store.schedules.remove(1) and not await store.schedules.remove(1)
        assert await store.schedules.add(NEW) == 2

    asyncio.run(scene())


def test_a_run_and_its_schedule_are_written_together_or_not(store: Store, make_job: MakeJob, start_of: StartOf) -> None:
    async def scene() -> None:
        kept = replace(NEW, id=await store.schedules.add(NEW))
        await store.insert([start_of(make_job(1))], following(kept, 10.0))
        # Whoever believes the old record has made this run before.
        with pytest.raises(Conflict, match="changed by another request"):
            await store.insert([start_of(make_job(2))], following(kept, 11.0))
        with pytest.raises(Conflict):
            await store.insert([start_of(make_job(1))], following(following(kept, 10.0), 12.0))
        assert [stored.job.id for stored in await store.find(JobQuery())] == [1]
        assert [stored.facts.last_due for stored in await store.schedules.load()] == [10.0]
        assert len(await store.outbox()) == 1

    asyncio.run(scene())


def test_many_at_once_are_each_their_own(store: Store, make_job: MakeJob, start_of: StartOf) -> None:
    async def scene() -> None:
        kept = [replace(NEW, id=await store.schedules.add(NEW)) for _ in range(5)]
        runs = [store.insert([start_of(make_job(row.id))], following(row, 10.0)) for row in kept]
        stale = [store.insert([start_of(make_job(row.id + 10))], following(row, 20.0)) for row in kept]
        answers = await asyncio.gather(*runs, *stale, return_exceptions=True)
        assert [isinstance(answer, Conflict) for answer in answers] == [False] * 5 + [True] * 5
        assert [stored.job.id for stored in await store.find(JobQuery())] == [1, 2, 3, 4, 5]

    asyncio.run(scene())


def test_a_schedule_that_was_removed_makes_no_run(store: Store, make_job: MakeJob, start_of: StartOf) -> None:
    async def scene() -> None:
        kept = replace(NEW, id=await store.schedules.add(NEW))
        await store.schedules.remove(kept.id)
        with pytest.raises(Conflict):
            await store.insert([start_of(make_job(1))], following(kept, 10.0))
        assert not await store.schedules.change(following(kept, 10.0))
        assert await store.find(JobQuery()) == []

    asyncio.run(scene())


def test_a_crontab_is_replaced_as_a_whole(store: Store) -> None:
    async def scene() -> None:
        entry = replace(NEW, facts=replace(FACTS, source=CRONTAB))
        other = await store.schedules.add(NEW)
        assert await store.schedules.read_crontab("ada") is None
        first, second = await store.schedules.replace_crontab(Crontab("ada", "one\n", (entry, entry)))
        await store.schedules.replace_crontab(Crontab("bob", "his\n", (replace(entry, user="bob"),)))
        kept = following(replace(entry, id=second), 5.0)
        assert await store.schedules.replace_crontab(Crontab("ada", "two\n", (kept, entry))) == [second, 5]
        assert await store.schedules.read_crontab("ada") == "two\n"
        assert [stored.id for stored in await store.schedules.load()] == [other, second, 4, 5]
        # What was changed meanwhile is not overwritten, and nothing of the rest is written.
        with pytest.raises(Conflict):
            await store.schedules.replace_crontab(Crontab("ada", "three\n", (kept,)))
        assert await store.schedules.read_crontab("ada") == "two\n" and first not in {
            row.id for row in await store.schedules.load()
        }
        await store.schedules.replace_crontab(Crontab("ada", None))
        assert (
            await store.schedules.read_crontab("ada") is None and await store.schedules.read_crontab("bob") == "his\n"
        )
        assert [stored.id for stored in await store.schedules.load()] == [other, 4]

    asyncio.run(scene())
