"""Node runs on this machine: start them, adopt them after a restart, and turn their records into reports."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Callable, Optional

from overspan.bridge.model.allocations import is_held, is_kept, runs_daemon
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event, NodeStarted
from overspan.bridge.model.job import Job
from overspan.bridge.model.names import member_name
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core import shim_control
from overspan.bridge.runtime.core.allocation import own_program, write_allocation
from overspan.bridge.runtime.core.allocation_document import describe_allocation
from overspan.bridge.runtime.core.environment import (
    NodeRunContext,
    build_environment,
    has_names,
    list_members,
    name_members,
)
from overspan.bridge.runtime.core.gated_child import GATE_STEP, STORAGE_STEP
from overspan.bridge.runtime.core.isolation import (
    Isolation,
    IsolationProbe,
    prepare_isolation,
    render_machine_hosts,
    write_hosts,
)
from overspan.bridge.runtime.core.node_records import NodeRecord, read_record, withdraw
from overspan.bridge.runtime.core.node_runs import (
    mark_setup,
    prepare_folder,
    prepare_work,
    report_end,
    report_failure,
    report_unlaunched,
    report_unstarted,
)
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.core.shim import NodeLaunch
from overspan.bridge.runtime.core.shim_control import Shim
from overspan.bridge.runtime.core.shortages import word_shortage
from overspan.bridge.runtime.core.streams import NodeKey, daemon_paths
from overspan.bridge.runtime.core.task_scripts import TaskCommand
from overspan.bridge.runtime.data.moved_data import MovedData
from overspan.bridge.runtime.local.data_movers import ShimMover

_FIRST_LOOK = 0.002
_LAST_LOOK = 0.05
_SETTLE_PAUSE = 0.02
_LOST = "lost"


def _keep(shim: Shim) -> None:
    """A shim serves one node run, whatever it is sent."""


class NodeRunSettings(NamedTuple):
    """What all node runs of a launch share."""

    directory: RunDirectory
    cluster: str
    isolation: Isolation
    environment: Mapping[str, str]
    spawn: Callable[[NodeLaunch], Shim]
    watch: Callable[[Shim], None]
    """Adds a shim to the poll loop, which reports its end."""
    retire: Callable[[Shim], None] = _keep
    """Is told of a shim that is about to be signalled."""


class LocalNodeRuns:
    """The node runs of a launch that may have processes (`node_runs.NodeRuns`)."""

    def __init__(self, setting: NodeRunSettings) -> None:
        self._setting = setting
        self._folder = setting.directory.folder("nodes")
        self._shims: dict[NodeKey, Shim] = {}
        self._starting: dict[NodeKey, float] = {}
        self._lost: list[NodeKey] = []
        self._outcomes: dict[NodeKey, str] = {}
        """How node runs that are to start see their storage (`NodeMounts`)."""
        self._mounting: dict[NodeKey, Job] = {}
        """Node runs whose start mounts storage, each with the job as it was then."""
        directory = setting.directory
        root = os.path.dirname(os.path.dirname(directory.outputs))
        self._data = MovedData(directory, root, ShimMover(directory, setting.spawn, setting.retire))
        self._settle_at = 0.0
        self._look_at: Optional[float] = None
        self._pause = _FIRST_LOOK
        self._described = False

    def start(self, job: Job, key: NodeKey, now: float) -> list[Event]:
        """Start a node run; the report where it cannot be started at all."""
        unstarted = report_unstarted(job, key, now)
        if unstarted is not None:
            return [unstarted]
        return self._data.start(job, key, self._begin, now)

    def _begin(self, job: Job, key: NodeKey, now: float) -> list[Event]:
        try:
            launch = self._launch(job, key)
        except (OSError, ValueError) as error:
            return [report_failure(key, now, error)]
        try:
            shim = self._setting.spawn(launch)
        except FileExistsError:
            return self.adopt(job, key, now)
        except (OSError, ValueError) as error:
            # ValueError: an argument that execve(2) cannot pass, such as one with a NUL.
            return [report_failure(key, now, error)]
        self._watch(key, shim)
        self._await_start(key, now)
        return []

    def adopt(self, job: Job, key: NodeKey, now: float) -> list[Event]:
        """Take over a node run that an earlier supervisor began, or begin it; the reports of what it missed."""
        node = shim_control.adopt(self._folder, str(key))
        if node.record is None and _is_started(job, key):
            raise self._word_damage(key, node)
        if node.state == shim_control.ABSENT:
            return self.start(job, key, now)
        if node.shim is not None:
            self._watch(key, node.shim)
            if not _is_started(job, key):
                self._await_start(key, now)
            return []
        reports: list[Event] = []
        if node.record is not None and _has_started(node.record) and not _is_started(job, key):
            reports.append(self._tell_start(key, node.record))
        if job.spec_of(key.task).storage:
            self._mounting[key] = job
        return reports + self._conclude(key, node, now)

    def collect(self, ended: Sequence[Shim], now: float) -> list[Event]:
        """What has happened since the last call; `ended` are shims that the poll loop found ended."""
        reports = self._data.collect(self._begin, now)
        reports += self.look(now)
        for shim in ended:
            reports.extend(self.end(shim, now))
        reports.extend(self.settle(now))
        return reports

    def look(self, now: float) -> list[Event]:
        """Reports of node runs that have started since the last look."""
        if not self._starting or (self._look_at is not None and self._look_at > now):
            return []
        reports: list[Event] = []
        for key in list(self._starting):
            record = read_record(self._folder, str(key))
            if record is not None and _has_started(record):
                del self._starting[key]
                reports.append(self._tell_start(key, record))
        self._pause = _FIRST_LOOK if reports else min(self._pause * 1.5, _LAST_LOOK)
        self._look_at = now + self._pause if self._starting else None
        return reports

    def end(self, shim: Shim, now: float) -> list[Event]:
        """Reports of a shim that the poll loop found ended."""
        key = next((key for key, held in self._shims.items() if held.key == shim.key), None)
        node = shim_control.release(shim)
        if key is None:
            return []
        if node.shim is not None:
            # A child that the shim had just forked holds its lock for a moment: watch the lock until it is free.
            if node.shim.pidfd is not None:
                os.close(node.shim.pidfd)
            self._watch(key, node.shim._replace(pidfd=None))
            return []
        if node.record is None and key not in self._starting:
            raise self._word_damage(key, node)
        del self._shims[key]
        reports: list[Event] = []
        if self._starting.pop(key, None) is not None and node.record is not None and _has_started(node.record):
            reports.append(self._tell_start(key, node.record))
        return reports + self._conclude(key, node, now)

    def settle(self, now: float) -> list[Event]:
        """Reports of killed shims whose remaining processes have ended by now."""
        lost, self._lost = self._lost, []
        self._settle_at = now + _SETTLE_PAUSE
        reports = [self._settle(key, now) for key in lost]
        return [report for report in reports if report is not None]

    def signal(self, task: str, attempt: int, signum: int, scope: str = "tree") -> bool:
        """Signal every live node run of an attempt; False when that reached nothing."""
        reached = False
        if signum in (signal.SIGTERM, signal.SIGKILL):
            self._data.stop(task, attempt)
            self._mounting = {
                key: job for key, job in self._mounting.items() if (key.task, key.attempt) != (task, attempt)
            }
        for key, shim in list(self._shims.items()):
            if key.task == task and key.attempt == attempt:
                try:
                    self._setting.retire(shim)
                    reached = shim_control.send(shim, signum, scope) or reached
                except ProcessLookupError:
                    continue
        return reached

    def tell_members(self, job: Job) -> None:
        """Rewrite the hosts file that all members have before them. Raises OSError."""
        hosts = self._setting.isolation.hosts
        if hosts:
            write_hosts(hosts, render_machine_hosts(list_members(job)))

    def flush(self, job: Job, now: float) -> list[Event]:
        """Have the data of attempts whose programs have ended sent; the news of that."""
        return self._data.flush(job, now)

    def abandon_flush(self, task: str, attempt: int) -> None:
        """Have no more data of an attempt sent."""
        self._data.abandon(task, attempt)

    def end_data(self, now: float) -> bool:
        """Have the data mover end, because the launch is over; whether it has."""
        return self._data.end(now)

    def move_clock(self, seconds: float) -> None:
        """The machine's clock was set by that much: what is due stays as far away as it was."""
        self._data.move_clock(seconds)
        self._settle_at += seconds
        if self._look_at is not None:
            self._look_at += seconds

    @property
    def wake_at(self) -> Optional[float]:
        """When the next look is due without a wake-up."""
        times = (self._settle_at if self._lost else self._look_at, self._data.wake_at)
        return min((time for time in times if time is not None), default=None)

    @property
    def unsettled(self) -> bool:
        """Whether processes of a killed shim are still being ended."""
        return bool(self._lost)

    def _tell_start(self, key: NodeKey, record: NodeRecord) -> Event:
        """The start of a node run; how it sees its storage where this supervisor has begun it."""
        return NodeStarted(record.started_at, key.task, key.attempt, key.node, key.run, self._outcomes.pop(key, ""))

    def _word_damage(self, key: NodeKey, node: shim_control.NodeStatus) -> OSError:
        """The error for a program that has started and has no record any more: started again, it might run twice."""
        suffix = "claim" if node.state == shim_control.ABSENT else "start"
        path = os.path.join(self._folder, f"{key}.{suffix}")
        return OSError(errno.EBADMSG, "the record of a program that has started is damaged or gone", path)

    def _watch(self, key: NodeKey, shim: Shim) -> None:
        self._shims[key] = shim
        self._setting.watch(shim)

    def _await_start(self, key: NodeKey, now: float) -> None:
        self._starting[key] = now
        self._pause = _FIRST_LOOK
        self._look_at = now + self._pause

    def _conclude(self, key: NodeKey, node: shim_control.NodeStatus, now: float) -> list[Event]:
        """The report of a node run whose shim has ended; one that could not mount its storage begins with a copy."""
        job, record = self._mounting.pop(key, None), node.record
        # What the machine is short of is tried again as it is: a copy may be far larger.
        if job and record and record.failed_at == STORAGE_STEP and not word_shortage(record.errno):
            try:
                withdraw(self._folder, str(key))
            except OSError as error:
                return [report_failure(key, now, error)]
            self._data.copy(job, key, record.error)
            return self.start(job, key, now)
        report = self._close(key, node, now)
        return [] if report is None else [report]

    def _close(self, key: NodeKey, node: shim_control.NodeStatus, now: float) -> Optional[Event]:
        if node.state == shim_control.UNSTARTED:
            return report_end(key, now, cause=Cause.NODE, detail="the shim ended before the program was started")
        if node.state == shim_control.LOST:
            return self._settle(key, now)
        if node.state == shim_control.ENDED and node.record is not None:
            return self._report(key, node.record, now)
        return report_end(key, now, cause=Cause.NODE, detail=f"the node is {node.state} although its shim has ended")

    def _settle(self, key: NodeKey, now: float) -> Optional[Event]:
        record = None
        try:
            record = shim_control.settle_lost(self._folder, str(key), {})
        except OSError:
            # A full disk prevents the record, not the end of the processes.
            pass
        if record is None:
            self._lost.append(key)
            return None
        return self._report(key, record, now)

    def _report(self, key: NodeKey, record: NodeRecord, now: float) -> Event:
        at = record.ended_at or now
        if record.failed_at in (_LOST, GATE_STEP):
            return report_end(key, at, cause=Cause.NODE, detail=record.error)
        if record.failed_at:
            return report_unlaunched(key, at, record.error, record.errno)
        cause = Cause.SETUP if record.exit_code and os.path.exists(mark_setup(self._setting.directory, key)) else None
        return report_end(key, at, cause=cause, exit_code=record.exit_code or 0, signal=record.signal or 0)

    def _launch(self, job: Job, key: NodeKey) -> NodeLaunch:
        setting = self._setting
        spec = job.spec_of(key.task)
        directory = setting.directory
        cwd = prepare_folder(job, key, directory, self._data.locate(job, key.task))
        host = (
            member_name(key.task, key.node + job.spec.first_index)
            if setting.isolation.method != "env"
            else os.uname().nodename
        )
        held = is_held(spec) and key.node == 0
        if held or (is_kept(spec) and key.node == 0) or runs_daemon(spec, key.node):
            address = next((p.address for p in job.placements if (p.task, p.index) == (key.task, key.node)), "")
            words = (directory.path, key.task, str(key.node), address or "127.0.0.1", *(("hold",) if held else ()))
            command = TaskCommand((*own_program(), "stepd", *words))
            paths = daemon_paths(key, directory)
        else:
            command, paths = prepare_work(job, key, directory, cwd, host)
        place = NodeRunContext(*key, directory.path, setting.cluster, setting.environment)
        environment = build_environment(job, place)
        self._describe(job, place, environment)
        mounts = self._data.mount(job, key.task, key.attempt)
        self._outcomes[key] = mounts.outcome
        if mounts.folders:
            self._mounting[key] = job
        return NodeLaunch(
            directory=self._folder,
            key=str(key),
            argv=command.argv,
            env=environment,
            cwd=cwd,
            stdin=paths.input,
            stdout=paths.output,
            stderr=paths.error,
            append=paths.append,
            folders_awaited=paths.folders_awaited,
            umask=job.spec.origin.umask,
            server=mounts.server,
            mounted=mounts.folders,
            note=mounts.note,
            isolation=setting.isolation._replace(hostname=host) if setting.isolation.method != "env" else Isolation(),
        )

    def _describe(self, job: Job, place: NodeRunContext, environment: dict[str, str]) -> None:
        """Leave what srun needs to know of the allocation, once; the environment is that of `place`."""
        if self._described:
            return
        setting = self._setting
        first = NodeRunContext(
            job.spec.tasks[0].name, 0, 0, 0, setting.directory.path, setting.cluster, setting.environment
        )
        variables = environment if place == first else build_environment(job, first)
        document = describe_allocation(job, variables, name_members(job))
        write_allocation(setting.directory.path, document)
        self._described = True


def isolate_launch(directory: RunDirectory, job: Job, ask: Callable[[], IsolationProbe]) -> Isolation:
    """How the members of a launch get their names; `ask` finds out what works on this node. Raises OSError."""
    if not has_names(job):
        return Isolation()
    folder = os.path.join(directory.path, f"names.{directory.launch}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return prepare_isolation(folder, ask(), list_members(job))


def _is_started(job: Job, key: NodeKey) -> bool:
    """Whether the job's facts have the start already."""
    attempt = job.task(key.task).current
    return attempt is not None and attempt.nodes[key.node].started_at is not None


def _has_started(record: NodeRecord) -> bool:
    """Whether user code ran."""
    return record.pid > 0 and record.failed_at in ("", _LOST)
