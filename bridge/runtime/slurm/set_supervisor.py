"""The supervisor of one task of a set: `PYZ member RUN_DIR LAUNCH TASK FIRST` in the batch script of its own job.

It decides nothing: the daemon's orders say what to launch and what to end, and the journal has how that went. Until
the first order to launch, the job waits at the start gate: it gives its nodes back when `start_timeout` is over. When
the task has failed and may be tried again, the nodes are kept a little for the next attempt.

FIRST is the number of the first attempt that the job is for. Its files are in RUN_DIR/members/TASK/FIRST.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Optional

from overspan.bridge.lifecycle.execution import place_members
from overspan.bridge.lifecycle.stages import list_deferred
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Granted
from overspan.bridge.model.job import Job, Placement
from overspan.bridge.model.spec import OnFailure, Start, TaskSpec
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.core.supervised_launch import SupervisedLaunch
from overspan.bridge.runtime.slurm.member_locations import (
    locations_path,
    read_locations,
    render_locations,
)
from overspan.bridge.runtime.slurm.part_folders import name_part
from overspan.bridge.runtime.slurm.run_files import RunFiles, SharedFiles
from overspan.bridge.runtime.slurm.supervisor import LOOK_SECONDS, Supervisor, log, run_supervisor

START_SECONDS = 600
"""How long a job waits at the start gate where the job file says no `start_timeout`."""
KEEP_SECONDS = 30
"""How long the nodes of a failed task are kept for its next attempt."""
_GAVE_UP = 75  # EX_TEMPFAIL, sysexits.h
_AGAIN = (Cause.RESTART, Cause.GROUP_RESTART)


class SetSupervisor(Supervisor):
    """One native job of a set."""

    part = True

    def __init__(self, files: RunFiles, environment: Mapping[str, str], task: str) -> None:
        super().__init__(files, environment)
        self._task = task
        self._began = time.time()
        self._looked_at = 0.0
        self._gave_up = False
        self._earlier = len(self._directory.read_plan().job.task(task).attempts)
        """Attempts of launches before this one: they say nothing of how long its nodes are kept."""

    def _grant(self, directory: RunDirectory) -> Granted:
        granted = super()._grant(directory)
        members = [Placement(*member) for member in granted.members]
        self._files.tell_locations(self._task, render_locations(members, self._components[0].native))
        return granted

    def _move_clock(self, run: SupervisedLaunch, seconds: float, now: float) -> None:
        super()._move_clock(run, seconds, now)
        self._began += seconds
        self._looked_at += seconds

    def _prepare(self, run: SupervisedLaunch, now: float) -> None:
        """See where the others are: always before a launch, else each second."""
        if not is_idle(run.job, self._task) and now < self._looked_at + LOOK_SECONDS:
            return
        self._looked_at = now
        directory = self._directory
        placed = run.job
        for task in run.job.spec.tasks:
            if task.name != self._task:
                members = read_locations(locations_path(directory.path, task.name, directory.launch))
                placed = place_members(placed, members)
        if placed.placements != run.job.placements:
            run.job = placed
            if self._nodes is not None:
                self._nodes.tell_members(placed)

    def _attend(self, run: SupervisedLaunch, now: float) -> None:
        """Leave when nothing is to be done here any more."""
        if run.done or not is_idle(run.job, self._task):
            return
        kept_until = keep_until(run.job, self._task, KEEP_SECONDS, self._earlier)
        due = self._find_start_deadline(run.job) if kept_until is None else kept_until
        if due is None or now < due:
            return

        def settle() -> bool:
            """Take the last orders; whether nothing has begun by them, and nothing has ended."""
            run.advance((), now)
            kept = keep_until(run.job, self._task, KEEP_SECONDS, self._earlier)
            return is_idle(run.job, self._task) and (kept_until is None) is (kept is None)

        try:
            if not self._files.close_orders(settle):
                return
        except OSError as error:
            log(f"the orders cannot be closed: {error}")
            return
        self._gave_up = kept_until is None
        if self._gave_up:
            log("the others have not started in time: the nodes are given back")
        run.leave(now)

    def _find_start_deadline(self, job: Job) -> float | None:
        """Until when to wait for the first launch; None for ever: tasks start alone, or this one needs others."""
        placed = {(place.task, place.index) for place in job.placements}
        deferred = list_deferred(job)
        members = {
            (task.name, index)
            for task in job.spec.tasks
            for index in range(task.num_nodes)
            if task.name not in deferred and not job.task(task.name).over
        }
        if job.spec.start is Start.INDEPENDENT or (job.spec_of(self._task).needs and placed >= members):
            return None
        return self._began + (START_SECONDS if job.spec.start_timeout is None else job.spec.start_timeout)

    def _judge(self, job: Job) -> int:
        return _GAVE_UP if self._gave_up else exit_of(job, self._task)


def is_idle(job: Job, task: str) -> bool:
    """Whether nothing of the task runs."""
    return not job.task(task).live


def keep_until(job: Job, task: str, seconds: float, earlier: int = 0) -> Optional[float]:
    """Until when an idle task's nodes are kept for another attempt; None where none was launched yet.

    `earlier` is the number of attempts that the launches before this one had.
    """
    attempts = job.task(task).attempts[earlier:]
    attempt = attempts[-1] if attempts else None
    if attempt is None or attempt.ended_at is None:
        return None
    if attempt.stop is not None:
        return attempt.ended_at + (seconds if attempt.stop.cause in _AGAIN else 0)
    if all(node.cause is Cause.SUCCESS for node in attempt.nodes):
        return attempt.ended_at
    kept = seconds if _may_try_again(job.spec_of(task)) else 0
    return attempt.ended_at + max(kept, job.spec.hold_on_failure)


def _may_try_again(spec: TaskSpec) -> bool:
    """Whether any budget allows another attempt after an error; what was lost starts elsewhere."""
    retry = spec.retry
    restarts = not spec.primary and spec.on_failure is OnFailure.RESTART
    return bool(retry.max_restarts_on_errors or retry.recover_on_exit_codes) or restarts


def exit_of(job: Job, task: str) -> int:
    """An exit status that tells how the task's newest attempt ended: of its failures the first."""
    attempt = job.task(task).current
    nodes = () if attempt is None else attempt.nodes
    failed = sorted((node for node in nodes if node.exit_code or node.signal), key=lambda node: node.ended_at or 0.0)
    return (failed[0].exit_code or 128 + failed[0].signal) if failed else 0


def main(words: Sequence[str]) -> int:
    """Serve one task's job; the exit status is the task's, 75 when it never started."""

    def open_supervisor() -> Supervisor:
        path, launch, task, first = words
        directory = RunDirectory(path, int(launch), name_part(task, first))
        return SetSupervisor(SharedFiles(directory), dict(os.environ), task)

    return run_supervisor(open_supervisor)
