"""Scenes of schedules: a controller over fakes at half past eleven, whose submissions can have a schedule."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from tests.unit.controller.fakes import Bench, begin, end, read, turn, until

from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.model.schedule import Schedule
from overspan.bridge.readers.submission import Submission
from overspan.bridge.store.schedule_records import ScheduleFacts

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
HOUR = 3600.0
HOURLY = Schedule("0 * * * *", "UTC")


def play(scene: Callable[[Bench], Awaitable[None]], cron: Schedule = HOURLY) -> None:
    """Run a scene at half past eleven with a controller whose submissions that say `again` have the schedule."""

    def reader(submission: Submission, kinds: Mapping[str, str], now: float) -> ParsedSubmission:
        reading = read(replace(submission, text=submission.text.replace(" again", "")), kinds, now)
        again = " again" in submission.text
        return replace(reading, spec=replace(reading.spec, cron=cron if again else None))

    async def run() -> None:
        bench = Bench()
        bench.clock.now = NOON - HOUR / 2
        bench.reader = reader
        await bench.start()
        try:
            await scene(bench)
            await quiet(bench)
            bench.check()
            for kept in bench.controller.schedules:
                assert kept.stored == bench.repository.schedule_rows[kept.stored.id]
        finally:
            await bench.controller.close()

    asyncio.run(run())


async def quiet(bench: Bench) -> None:
    """Wait until nothing is under way any more."""
    await turn()
    await until(lambda: not bench.controller.recorder.busy)
    await turn()


async def schedule(bench: Bench, text: str = "one again") -> int:
    """Submit a job with a schedule; its number."""
    answer = await bench.controller.submit(Submission("job_file", text, user="me", secrets={"KEY": "hush"}))
    assert (answer.id, answer.next_due) == (0, NOON)
    await quiet(bench)
    return answer.schedule


async def pass_hours(bench: Bench, hours: float) -> None:
    """Let time pass at once."""
    bench.clock.advance(hours * HOUR)
    await quiet(bench)


async def restart(bench: Bench, hours: float) -> None:
    """Be away for hours."""
    await bench.kill()
    bench.clock.now += hours * HOUR
    await bench.start()
    await quiet(bench)


async def finish(bench: Bench, job_id: int) -> None:
    """Let a job start and end."""
    handle = f"{job_id}.0"
    await until(lambda: handle in bench.cluster.journals)
    bench.cluster.tell(handle, *begin(bench.job(job_id), bench.clock.now))
    await until(lambda: bench.state(job_id) == "RUNNING")
    bench.cluster.tell(handle, *end(bench.job(job_id), bench.clock.now))
    await until(lambda: bench.job(job_id).over)
    await quiet(bench)


def facts(bench: Bench, number: int = 1) -> ScheduleFacts:
    return bench.repository.schedule_rows[number].facts


def dues(bench: Bench) -> list[float]:
    """How many hours after noon the jobs' runs were due."""
    return [
        (stored.job.spec.cron.due - NOON) / HOUR
        for stored in bench.repository.jobs.values()
        if stored.job.spec.cron is not None and stored.job.spec.cron.due is not None
    ]
