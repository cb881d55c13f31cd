"""The interface of node runs, wherever the nodes are, and the preparation and reports that all kinds share."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Optional, Protocol

from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event, NodeEnded
from overspan.bridge.model.job import Job
from overspan.bridge.runtime.core.mounts import TICKETS, LinkRecords, link_mounts
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.core.shim_control import Shim
from overspan.bridge.runtime.core.shortages import word_shortage
from overspan.bridge.runtime.core.streams import NodeKey, StreamPaths, choose_paths, record_paths
from overspan.bridge.runtime.core.task_scripts import TaskCommand, prepare_command

LAUNCH_SIGNAL = 53
"""Slurm's exit code of a job that could not be launched is 0:53."""


class NodeRuns(Protocol):
    """The node runs of one launch that may have processes."""

    def start(self, job: Job, key: NodeKey, now: float) -> list[Event]:
        """Start a node run; the report where it cannot be started at all."""

    def adopt(self, job: Job, key: NodeKey, now: float) -> list[Event]:
        """Take over a node run that an earlier supervisor began, or begin it; the reports of what it missed."""

    def collect(self, ended: Sequence[Shim], now: float) -> list[Event]:
        """What has happened since the last call; `ended` are shims that the poll loop found ended."""

    def signal(self, task: str, attempt: int, signum: int, scope: str = "tree") -> bool:
        """Signal every live node run of an attempt; False when that reached nothing. Scopes as of processes.send."""

    def tell_members(self, job: Job) -> None:
        """Members have come, gone or moved: names lead to where they are now. Raises OSError."""

    def flush(self, job: Job, now: float) -> list[Event]:
        """Have the data of attempts whose programs have ended sent; the news of that."""

    def abandon_flush(self, task: str, attempt: int) -> None:
        """Have no more data of an attempt sent."""

    def end_data(self, now: float) -> bool:
        """Have what moves data end, because the launch is over; whether it has."""

    def move_clock(self, seconds: float) -> None:
        """The machine's clock was set by that many seconds: move all due times along with it."""

    @property
    def wake_at(self) -> Optional[float]:
        """When the next look is due without a wake-up."""

    @property
    def unsettled(self) -> bool:
        """Whether processes are still being ended that no report will mention."""


def prepare_folder(
    job: Job,
    key: NodeKey,
    directory: RunDirectory,
    storage: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The working directory of a node run, with the task's links; `storage` as of `link_mounts`. Raises OSError."""
    spec = job.spec_of(key.task)
    cwd = spec.workdir or job.spec.origin.directory or directory.outputs
    root = os.path.dirname(os.path.dirname(directory.outputs))
    # Only the local cluster has tickets, so only there can unused links be found and removed.
    here = os.path.isdir(os.path.join(root, TICKETS))
    records = LinkRecords(root, f"{os.path.basename(directory.outputs)}.{directory.launch}") if here else LinkRecords()
    link_mounts(spec, cwd, os.path.join(root, "volumes"), records, storage)
    return cwd


def prepare_work(
    job: Job, key: NodeKey, directory: RunDirectory, cwd: str, host: str
) -> tuple[TaskCommand, StreamPaths]:
    """The command of a node run and its files, which are added to streams.jsonl. Raises OSError."""
    command = prepare_command(job.spec_of(key.task), directory.folder("scripts"), mark_setup(directory, key))
    paths = choose_paths(job, key, directory, cwd, host)
    record_paths(directory, key, paths)
    return command, paths


def mark_setup(directory: RunDirectory, key: NodeKey) -> str:
    """The path of the file that a set-up leaves where it fails."""
    return os.path.join(directory.folder("nodes"), f"{key}.setup-failed")


def report_end(
    key: NodeKey, at: float, *, cause: Optional[Cause] = None, exit_code: int = 0, signal: int = 0, detail: str = ""
) -> Event:
    """The end of a node run; the cause where more is known than the exit code."""
    why = cause.value if cause else ""
    return NodeEnded(at, key.task, key.attempt, key.node, key.run, exit_code, signal, why, detail)


def report_failure(key: NodeKey, now: float, error: Exception) -> Event:
    """A node run that could not be started."""
    number = error.errno if isinstance(error, OSError) else None
    return report_unlaunched(key, now, f"cannot start: {error}", number or 0)


def report_unlaunched(key: NodeKey, at: float, text: str, number: int) -> Event:
    """A start that failed with an errno before the program ran: for what the machine lacks it is tried again."""
    words = word_shortage(number)
    if words:
        return report_end(key, at, cause=Cause.NODE, signal=LAUNCH_SIGNAL, detail=f"{text} ({words})")
    return report_end(key, at, cause=Cause.LAUNCH, signal=LAUNCH_SIGNAL, detail=text)


def report_unstarted(job: Job, key: NodeKey, now: float) -> Optional[Event]:
    """The end of a node run whose attempt was stopped before it could be started; None when it is to be started."""
    attempt = job.task(key.task).current
    if attempt is None or attempt.stop is None:
        return None
    return report_end(key, now, cause=attempt.stop.cause, detail="ended before its start")
