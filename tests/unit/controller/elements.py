"""Elements of arrays and their runs."""

from __future__ import annotations

from tests.unit.controller.fakes import (
    Bench,
    begin,
    end,
    until,
)

from overspan.bridge.model.job import Job


def element(bench: Bench, index: int, array: int = 1) -> Job:
    """The job of an element."""
    return bench.controller.recorder.registry.elements(array)[index].job


async def run(bench: Bench, index: int, exit_code: int | None = None, array: int = 1) -> None:
    """Let an element start, and end where an exit code is given."""
    job = element(bench, index, array)
    handle = f"{job.id}.{job.launch}"
    await until(lambda: handle in bench.cluster.journals)
    if job.granted_at is None:
        bench.cluster.tell(handle, *begin(job, bench.clock.now))
        await until(lambda: element(bench, index, array).state.value == "RUNNING")
    if exit_code is not None:
        bench.cluster.tell(handle, *end(element(bench, index, array), bench.clock.now, exit_code))
        await until(lambda: element(bench, index, array).over)
