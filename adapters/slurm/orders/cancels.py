"""Cancels native jobs that nobody wants any more: a failure is an error, so that the caller comes back to it."""

from __future__ import annotations

from collections.abc import Sequence

from overspan.adapters.slurm.commands.errors import FailureKind, SlurmFailure, clean, read_failure
from overspan.adapters.slurm.orders.command_lines import TOGETHER
from overspan.adapters.slurm.transports.transport import Transport

_OVER = (FailureKind.UNKNOWN_JOB, FailureKind.ENDED)


async def cancel_natives(transport: Transport, names: Sequence[str], timeout: float = 60.0) -> None:
    """Cancel native jobs by their names (N, or N_i). Raises OverspanError where one of them may be alive afterwards."""
    failures = []
    for start in range(0, len(names), TOGETHER):
        done = await transport.run(["scancel", *names[start : start + TOGETHER]], timeout=timeout)
        if done.rc != 0:
            failures += read_failures(done.words, done.rc)
    if failures:
        raise failures[0].error()


def read_failures(stderr: str, code: int) -> list[SlurmFailure]:
    """What a failed scancel says, but for jobs that have ended: it has a line for each job."""
    lines = clean(stderr).splitlines() or [stderr]
    return [failure for failure in (read_failure(line, code) for line in lines) if failure.kind not in _OVER]
