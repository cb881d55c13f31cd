"""The data of a launch's storage, moved by its data mover: node runs wait for it, and ends wait until it is sent."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from typing import Callable, Optional

from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job
from overspan.bridge.runtime.core.allocation import own_program
from overspan.bridge.runtime.core.node_data import Begin, NodeMounts
from overspan.bridge.runtime.core.node_runs import report_end, report_failure
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.core.storage_mounts import probe_mounts
from overspan.bridge.runtime.core.streams import NodeKey
from overspan.bridge.runtime.data.mounts import place_mount
from overspan.bridge.runtime.data.mover_control import DataMover, MoverProcess


class MovedData:
    """The data of one launch (`node_data.NodeData`). `root` is the folder that has the data and the stores."""

    def __init__(
        self, directory: RunDirectory, root: str, process: MoverProcess, probe: Callable[[str], str] = probe_mounts
    ) -> None:
        self._root = root
        self._directory = directory
        self._probe = probe
        self._trouble: Optional[str] = None
        """Why nothing can be mounted here; None where that was not tried yet."""
        self._copied: dict[tuple[str, int], str] = {}
        """Attempts of which a node could not mount the storage although a probe could, and why, as "cannot ..."."""
        self._mover = DataMover(directory, root, process)
        self._waiting: dict[NodeKey, Job] = {}
        """Node runs that wait for their data, each with the job as it was when it was to start."""
        self._stopped: list[NodeKey] = []

    def start(self, job: Job, key: NodeKey, begin: Begin, now: float) -> list[Event]:
        """Begin a node run when its data has come; the reports of what could be begun at once, or not at all."""
        if not job.spec_of(key.task).storage:
            return begin(job, key, now)
        self._waiting[key] = job
        return self._begin(begin, now)

    def collect(self, begin: Begin, now: float) -> list[Event]:
        """Begin the node runs whose data has come since the last call; the reports of those that have ended instead."""
        stopped, self._stopped = self._stopped, []
        reports = [report_end(key, now, signal=signal.SIGTERM, detail="ended before its start") for key in stopped]
        return reports + self._begin(begin, now)

    def _begin(self, begin: Begin, now: float) -> list[Event]:
        reports: list[Event] = []
        for key, job in list(self._waiting.items()):
            try:
                mounted = bool(self.mount(job, key.task, key.attempt).folders)
                answer = self._mover.fetch(key.task, key.attempt, now, mounted=mounted)
            except OSError as error:
                del self._waiting[key]
                reports.append(report_failure(key, now, error))
                continue
            if answer is None:
                continue
            del self._waiting[key]
            if answer.error:
                cause = Cause.BOOT if answer.passes else Cause.SETUP
                reports.append(report_end(key, now, cause=cause, detail=answer.error))
            else:
                reports += begin(job, key, now)
        return reports

    def stop(self, task: str, attempt: int) -> None:
        """End node runs of an attempt that wait for their data."""
        keys = [key for key in self._waiting if (key.task, key.attempt) == (task, attempt)]
        for key in keys:
            del self._waiting[key]
        if keys:
            self._mover.abandon(task, attempt)
        self._stopped += keys

    def locate(self, job: Job, task: str) -> Mapping[str, str]:
        """The places of a task's storage on the node, by the targets in its job file."""
        return {mount.target: place_mount(self._root, job.id, mount).files for mount in job.spec_of(task).storage}

    def mount(self, job: Job, task: str, attempt: int) -> NodeMounts:
        """What of a task's storage its node mounts, and what it says of that."""
        mounts = [mount for mount in job.spec_of(task).storage if mount.read_through]
        if not mounts:
            return NodeMounts()
        if self._trouble is None:
            self._trouble = self._probe(self._directory.path)
        trouble = self._copied.get((task, attempt), self._trouble)
        urls = ", ".join(mount.url for mount in mounts)
        if trouble:
            note = f"{urls} was brought here whole before the start: {trouble}"
            return NodeMounts(note=note, outcome=f"copied: {trouble}")
        folders = tuple(dict.fromkeys(place_mount(self._root, job.id, mount).files for mount in mounts))
        tops = json.dumps([os.path.dirname(folder) for folder in folders])
        words, note = (*own_program(), "fuse", self._root, tops), f"{urls} is read through the store"
        return NodeMounts(words, folders, note, "mounted")

    def copy(self, job: Job, key: NodeKey, why: str) -> None:
        """Have a node run of an attempt that could not mount its storage find it on the disk, at its next start."""
        self._copied[key.task, key.attempt] = f"a node {why}"

    def flush(self, job: Job, now: float) -> list[Event]:
        """Have the data of attempts whose programs have ended sent; the news of that."""
        return self._mover.flush(job, now)

    def send_all(self, job: Job, now: float) -> bool:
        """Have all that was written sent, also while programs run; whether it was, or there is no data mover."""
        return self._mover.send_all(job, now)

    def abandon(self, task: str, attempt: int) -> None:
        """Have nothing more of an attempt sent."""
        self._mover.abandon(task, attempt)

    def end(self, now: float) -> bool:
        """Have the data mover end; whether it has."""
        return self._mover.end(now)

    def move_clock(self, seconds: float) -> None:
        """The machine's clock was set by that much: what is due stays as far away as it was."""
        self._mover.move_clock(seconds)

    @property
    def wake_at(self) -> Optional[float]:
        """When to call `collect` and `flush` again without being woken; None while nothing is waited for."""
        return 0.0 if self._stopped else self._mover.wake_at
