"""slurmstepd's last line of an output: the job or step was CANCELLED, when, and why.

The wording is that of slurmstepd/req.c, _handle_signal_container. The supervisor writes a batch script's line just
before TERM. A step's srun writes the step's line, with the reason from the file `ending` of the run directory.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Optional

from overspan.bridge.model.allocations import is_allocation
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form
from overspan.bridge.runtime.core.log_times import is_near, read_streams
from overspan.bridge.runtime.core.run_directory import RunDirectory

FILE = "ending"
_REASONS = {
    Cause.CANCEL.value: "",
    Cause.DEADLINE.value: "",
    Cause.TIME.value: " DUE TO TIME LIMIT",
    Cause.PREEMPTION.value: " DUE TO PREEMPTION",
    Cause.REQUEUE.value: " DUE TO JOB REQUEUE",
}


def word_end(entity: str, host: str, at: float, reason: str = "") -> str:
    """The line of an entity, such as `JOB 42` or `STEP 42.0`; times are local."""
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))
    return f"*** {entity} ON {host} CANCELLED AT {when}{reason} ***"


def say_end(job: Job, task: str, attempt: int, cause: str, directory: RunDirectory, at: float) -> None:
    """Write the line of a batch script that is about to be ended, and leave the reason for its steps; never fails."""
    reason = _REASONS.get(cause)
    spec = job.spec_of(task)
    if reason is None or spec.form is not Form.BATCH or is_allocation(spec):
        return
    host = next((place.node for place in job.placements if (place.task, place.index) == (task, 0)), "")
    line = f"slurmstepd: error: {word_end(f'JOB {job.id}', host or os.uname().nodename, at, reason)}\n"
    try:
        with open(os.path.join(directory.path, FILE), "w", encoding="utf-8") as file:
            file.write(reason)
        path = _find_error(directory, task, attempt)
        # A file system that hangs must not hang the end of the job.
        if path and is_near(path, directory.outputs):
            _append(path, line.encode("utf-8", "backslashreplace"))
    except OSError:
        # A full disk: the job's state still shows the end.
        return


def forget_end(directory: RunDirectory) -> None:
    """Remove the reason: another attempt begins. Never fails."""
    try:
        os.unlink(os.path.join(directory.path, FILE))
    except OSError:
        return


def is_ending(run_dir: str) -> bool:
    """Whether the batch script of a run directory is being ended."""
    return bool(run_dir) and os.path.exists(os.path.join(run_dir, FILE))


def read_reason(run_dir: str) -> str:
    """Why the job of a run directory is being ended, as it stands in a step's line; empty where that is not said."""
    try:
        with open(os.path.join(run_dir, FILE), encoding="utf-8") as file:
            text = file.read(64)
    except (OSError, ValueError):
        return ""
    return text if text in _REASONS.values() else ""


def _find_error(directory: RunDirectory, task: str, attempt: int) -> Optional[str]:
    """Where an attempt's script writes its errors: its own file for them, else that of its output."""
    with open(directory.streams, "rb") as file:
        found = [each for each in read_streams(file.read()) if (each.task, each.node) == (task, 0)]
    own = [each.path for each in found if each.attempt == attempt]
    return own[-1] if own else None


def _append(path: str, line: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.write(fd, line)
    finally:
        os.close(fd)
