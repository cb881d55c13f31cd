"""Cancels and releases native jobs outside of orders; a failure that passes is an error: the caller comes back."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from overspan.adapters.slurm.commands.errors import FailureKind, SlurmFailure, clean, read_failure
from overspan.adapters.slurm.orders.command_lines import TOGETHER
from overspan.adapters.slurm.transports.transport import Transport

_log = logging.getLogger(__name__)
_OVER = (FailureKind.UNKNOWN_JOB, FailureKind.ENDED)


async def cancel_natives(transport: Transport, names: Sequence[str], timeout: float = 60.0) -> None:
    """Cancel native jobs by their names (N, or N_i). Raises OverspanError where that has to be tried again.

    What Slurm refuses for good is logged: to try it for ever would keep all others of the cluster waiting.
    """
    for start in range(0, len(names), TOGETHER):
        await _run(transport, ["scancel", *names[start : start + TOGETHER]], timeout)


async def release_natives(transport: Transport, names: Sequence[str], timeout: float = 60.0) -> None:
    """Release native jobs that are held; raises and logs as `cancel_natives`."""
    for start in range(0, len(names), TOGETHER):
        await _run(transport, ["scontrol", "release", ",".join(names[start : start + TOGETHER])], timeout)


async def _run(transport: Transport, words: Sequence[str], timeout: float) -> None:
    done = await transport.run(words, timeout=timeout)
    failures = read_failures(done.words, done.rc) if done.rc != 0 else []
    for failure in failures:
        if failure.transient or failure.kind is FailureKind.MISSING:
            raise failure.error()
    for failure in failures:
        _log.warning("%s: %s", " ".join(words), failure.message)


def read_failures(stderr: str, code: int) -> list[SlurmFailure]:
    """What a failed command says, a line for each job, without the lines about jobs that have ended."""
    lines = clean(stderr).splitlines() or [stderr]
    return [failure for failure in (read_failure(line, code) for line in lines) if failure.kind not in _OVER]
