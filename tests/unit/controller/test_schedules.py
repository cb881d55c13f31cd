"""Schedules over a fake clock: runs, restarts, missed runs, overlaps, refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.unit.controller.fakes import Bench, begin, turn, until
from tests.unit.controller.schedule_scenes import (
    HOUR,
    HOURLY,
    NOON,
    dues,
    facts,
    finish,
    pass_hours,
    play,
    quiet,
    restart,
    schedule,
)

from overspan.bridge.controller import controller
from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.model.errors import Conflict, Denied, NotFound
from overspan.bridge.model.schedule import Missed, Overlap
from overspan.bridge.readers.submission import Submission
from overspan.bridge.store.records import NewJob, Receipt
from overspan.bridge.store.schedule_records import StoredSchedule


@pytest.fixture(autouse=True)
def no_catching_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripted cluster has no news at a start."""
    monkeypatch.setattr(controller, "CATCH_UP_SECONDS", 0.01)


def test_each_time_is_one_job_of_its_own() -> None:
    async def scene(bench: Bench) -> None:
        assert await schedule(bench) == 1
        assert bench.repository.jobs == {}
        await pass_hours(bench, 0.5)
        await finish(bench, 1)
        await pass_hours(bench, 1)
        assert dues(bench) == [0, 1]
        cron = bench.repository.jobs[2].job.spec.cron
        assert cron is not None and (cron.id, cron.text) == (1, "0 * * * *")
        assert (facts(bench).runs, facts(bench).last_job, facts(bench).message) == (2, 2, "")
        assert bench.clock.due()["schedule:1"] == NOON + 2 * HOUR

    play(scene)


def test_a_file_that_is_sent_again_makes_one_schedule_whose_runs_are_jobs_of_their_own() -> None:
    async def scene(bench: Bench) -> None:
        sent = Submission("job_file", "one again", user="me", token="0a1b")
        answers = [await bench.controller.submit(sent) for _ in range(2)]
        assert [answer.schedule for answer in answers] == [1, 1]
        await pass_hours(bench, 0.5)
        await finish(bench, 1)
        await pass_hours(bench, 1)
        assert dues(bench) == [0, 1]

    play(scene)


def test_the_run_and_what_was_dealt_with_are_one_transaction() -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        bench.repository.broken = True
        await pass_hours(bench, 0.5)
        assert bench.repository.jobs == {} and facts(bench).last_due == NOON - HOUR / 2
        bench.repository.broken = False
        bench.clock.advance(5)
        await quiet(bench)
        assert dues(bench) == [0] and facts(bench).last_due == NOON

    play(scene)


@pytest.mark.parametrize("written", [False, True])
def test_a_crash_around_the_write_neither_loses_nor_doubles_a_run(written: bool) -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        good, reached = bench.repository.insert, asyncio.Event()

        async def insert(
            jobs: Sequence[NewJob], schedule: StoredSchedule | None = None, receipt: Receipt | None = None
        ) -> None:
            if written:
                await good(jobs, schedule)
            reached.set()
            await asyncio.Event().wait()

        bench.repository.insert = insert  # type: ignore[method-assign]
        bench.clock.advance(HOUR / 2)
        await asyncio.wait_for(reached.wait(), 60)
        assert len(bench.repository.jobs) == written
        await bench.kill()
        bench.repository.insert = good  # type: ignore[method-assign]
        await bench.start()
        await quiet(bench)
        assert dues(bench) == [0]
        assert (facts(bench).runs, facts(bench).missed) == (1, 0)

    play(scene)


@pytest.mark.parametrize("turns", [0, 3, 10, 30])
def test_a_crash_when_a_run_is_due_neither_loses_nor_doubles_it(turns: int) -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        bench.clock.advance(HOUR / 2)
        await turn(turns)
        await restart(bench, 0)
        assert dues(bench) == [0]
        assert (facts(bench).runs, facts(bench).missed) == (1, 0)

    play(scene)


@pytest.mark.parametrize(
    ("missed", "made", "owed"), [(Missed.SKIP, [], 0), (Missed.ONCE, [2], 0), (Missed.ALL, [0], 2)]
)
def test_missed_runs_follow_the_policy_and_are_told(missed: Missed, made: list[float], owed: int) -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        await restart(bench, 3)
        assert dues(bench) == made
        assert (facts(bench).missed, len(facts(bench).owed)) == (3, owed)
        assert facts(bench).message.startswith("3 runs were missed, the first at ")
        assert bench.clock.due()["schedule:1"] == NOON + 3 * HOUR

    play(scene, replace(HOURLY, missed=missed))


def test_all_missed_runs_are_made_one_after_another() -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        await restart(bench, 3)
        await finish(bench, 1)
        await restart(bench, 0)
        assert dues(bench) == [0, 1]
        await finish(bench, 2)
        await finish(bench, 3)
        assert dues(bench) == [0, 1, 2] and facts(bench).owed == ()

    play(scene, replace(HOURLY, missed=Missed.ALL))


def test_missed_runs_that_may_overlap_are_made_at_once() -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        await restart(bench, 3)
        assert dues(bench) == [0, 1, 2]

    play(scene, replace(HOURLY, missed=Missed.ALL, overlap=Overlap.ALLOW))


def test_a_run_that_is_due_now_stands_for_the_missed_ones() -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        await restart(bench, 2.5 + 10 / HOUR)
        assert dues(bench) == [2] and facts(bench).missed == 2

    play(scene)


def test_a_run_found_a_little_late_is_on_time() -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        await restart(bench, 0.5 + 50 / HOUR)
        assert dues(bench) == [0] and facts(bench).missed == 0

    play(scene, replace(HOURLY, missed=Missed.SKIP))


def test_a_missed_run_waits_for_the_former_one() -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        await pass_hours(bench, 0.5)
        await restart(bench, 1.5)
        assert dues(bench) == [0] and facts(bench).owed == (NOON + HOUR,)
        await finish(bench, 1)
        assert dues(bench) == [0, 1]

    play(scene)


@pytest.mark.parametrize(
    ("overlap", "made", "skipped"), [(Overlap.SKIP, [0], 1), (Overlap.ALLOW, [0, 1], 0), (Overlap.REPLACE, [0, 1], 0)]
)
def test_overlaps_follow_the_policy(overlap: Overlap, made: list[float], skipped: int) -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        await pass_hours(bench, 0.5)
        await until(lambda: "1.0" in bench.cluster.journals)
        bench.cluster.tell("1.0", *begin(bench.job(1), bench.clock.now))
        await until(lambda: bench.state(1) == "RUNNING")
        await pass_hours(bench, 1)
        assert dues(bench) == made and facts(bench).skipped == skipped
        assert ("was left out: job 1 was not over" in facts(bench).message) is (skipped == 1)
        assert bool(bench.cluster.orders) is (overlap is Overlap.REPLACE)

    play(scene, replace(HOURLY, overlap=overlap))


def test_a_refused_run_is_told_and_the_next_is_tried() -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        bench.cluster.impossible = "there are no such nodes any more"
        await pass_hours(bench, 0.5)
        assert (facts(bench).refused, facts(bench).runs, facts(bench).last_due) == (1, 0, NOON)
        assert facts(bench).message.endswith("was refused: there are no such nodes any more")
        bench.cluster.impossible = ""
        await pass_hours(bench, 1)
        assert dues(bench) == [1] and facts(bench).runs == 1

    play(scene)


def test_a_failure_nobody_foresaw_is_told_and_the_next_is_tried() -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        good = bench.controller.submitter.reader

        def broken(*_: object) -> ParsedSubmission:
            raise RuntimeError("a bug")

        bench.controller.submitter.reader = broken
        await pass_hours(bench, 0.5)
        assert "internal error, RuntimeError" in facts(bench).message
        bench.controller.submitter.reader = good
        await pass_hours(bench, 1)
        assert dues(bench) == [1]

    play(scene)


def test_a_schedule_whose_zone_has_gone_is_still_shown() -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        old = bench.repository.schedule_rows[1]
        gone = replace(old.facts, schedule=replace(HOURLY, timezone="Moon/Sea"))
        bench.repository.schedule_rows[1] = replace(old, facts=gone)
        await restart(bench, 1)
        (row,) = await bench.controller.schedules.describe()
        assert row["next_due"] is None and "no time zone 'Moon/Sea'" in row["message"]

    play(scene)


def test_a_look_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        with monkeypatch.context() as patch:
            patch.setattr(bench.controller.schedules, "_split", lambda *_: 1 / 0)
            await pass_hours(bench, 0.5)
        assert dues(bench) == []
        bench.clock.advance(60)
        await quiet(bench)
        assert dues(bench) == [0]

    play(scene)


def test_a_run_says_in_its_timeline_whose_it_is() -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        await pass_hours(bench, 0.5)
        assert bench.repository.lines[0].text.startswith("submitted by the schedule c1, due at 2026-11-2")

    play(scene)


def test_a_pause_makes_no_runs_and_misses_none() -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        await bench.controller.schedules.pause(1, "me")
        await pass_hours(bench, 2)
        await restart(bench, 1)
        assert dues(bench) == [] and "schedule:1" not in bench.clock.due()
        await bench.controller.schedules.resume(1, "me")
        await quiet(bench)
        assert dues(bench) == [] and facts(bench).missed == 0
        await pass_hours(bench, 0.5)
        assert dues(bench) == [3]

    play(scene)


def test_a_run_by_hand_changes_nothing_of_the_times() -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        answer = await bench.controller.schedules.run(1, "me")
        assert (answer.id, facts(bench).last_job, facts(bench).last_due) == (1, 1, NOON - HOUR / 2)
        with pytest.raises(Conflict, match="job 1 of the schedule c1 is not over"):
            await bench.controller.schedules.run(1, "me")

    play(scene)


def test_what_is_deleted_runs_no_more_and_its_number_is_not_used_again() -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        with pytest.raises(Denied):
            await bench.controller.schedules.delete(1, "you")
        await bench.controller.schedules.delete(1, "me")
        await pass_hours(bench, 1)
        assert bench.repository.jobs == {} and bench.clock.due() == {}
        with pytest.raises(NotFound):
            await bench.controller.schedules.pause(1, "me")
        bench.clock.now = NOON - 60
        assert await schedule(bench) == 2

    play(scene)


def test_what_would_be_refused_makes_no_schedule() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.impossible = "never"
        with pytest.raises(Exception, match="never"):
            await schedule(bench)
        bench.cluster.impossible = ""
        submission = Submission("job_file", "one again", user="me", test_only=True)
        assert (await bench.controller.submit(submission)).schedule == 0
        assert bench.repository.schedule_rows == {} and bench.repository.transactions == 0

    play(scene)


def test_the_list_tells_all_but_secrets() -> None:
    async def scene(bench: Bench) -> None:
        await schedule(bench)
        await pass_hours(bench, 0.5)
        (row,) = await bench.controller.schedules.describe()
        wanted = {"id": 1, "last_job": 1, "last_state": "PENDING", "next_due": NOON + HOUR, "missed": "once"}
        assert {key: row[key] for key in wanted} == wanted
        assert "hush" not in json.dumps(row)
        assert "hush" in json.dumps(dict(bench.repository.schedule_rows[1].request))

    play(scene)
