"""Fetches an evaluation's result from the end of its job's log, as often as the log may still grow."""

from __future__ import annotations

import asyncio

from overspan.bridge.controller.features.evaluations.looking import RETRY_SECONDS
from overspan.bridge.controller.features.evaluations.results import Result, has_result, read_result
from overspan.bridge.controller.views.logs import LogQuery, Logs
from overspan.bridge.model.errors import NotFound, Unreachable
from overspan.bridge.model.evaluations import ResultKind, ResultSource
from overspan.bridge.model.job import Job
from overspan.bridge.model.states import State

RESULT_TRIES = 6
LATE_SECONDS = (1.0, 2.0, 4.0)
"""How often a result is looked for again that is not in the log: file systems show the last lines late."""
PARTIAL_SECONDS = (5.0,) * 12
"""How often after that, where the cluster has not shown the whole log."""
LOG_TAIL = 128 * 1024
"""Bytes at a log's end in which the result is looked for."""


async def fetch_result(logs: Logs, source: ResultSource, job: Job) -> Result:
    """The result of an evaluation whose job is over; a log that cannot be read is the result's trouble."""
    succeeded = job.state is State.COMPLETED
    if source.kind is ResultKind.EXIT:
        return read_result(source, "", job.exit_code, succeeded=succeeded)
    text = ""
    for tries, delay in enumerate((*LATE_SECONDS, *PARTIAL_SECONDS, None)):
        try:
            text, partial = await _read_tail(logs, job.id)
        except Unreachable as error:
            return Result(trouble=f"its output cannot be read: {error.message}")
        enough = not partial and tries >= len(LATE_SECONDS)
        if delay is None or enough or not succeeded or has_result(source, text):
            break
        await asyncio.sleep(delay)
    return read_result(source, text, job.exit_code, succeeded=succeeded)


async def _read_tail(logs: Logs, job_id: int) -> tuple[str, bool]:
    """The end of a job's log, empty where there is none, and whether more is to come.

    Raises Unreachable after some tries.
    """
    for tries in range(RESULT_TRIES):
        try:
            part = (await logs.read(str(job_id), LogQuery(offset=-LOG_TAIL, limit=LOG_TAIL))).part
            return part.data.decode("utf-8", "replace"), part.partial
        except NotFound:
            return "", False
        except Unreachable:
            if tries + 1 == RESULT_TRIES:
                raise
            await asyncio.sleep(RETRY_SECONDS)
    return "", False
