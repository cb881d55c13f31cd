"""The supervisor of one allocation: `PYZ slurm RUN_DIR LAUNCH` in the batch script, on the first node.

It ends by itself when the job is over, with 0 for COMPLETED. Slurm's TERM ends it too: it does not know why that came,
so it records nothing more, passes TERM on and waits; Slurm's own verdict on the job then closes the journal.
Its standard error is the log.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Callable, Optional

from overspan.bridge.model.events import Granted
from overspan.bridge.model.job import Job
from overspan.bridge.model.states import State
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.core.allocation import own_program
from overspan.bridge.runtime.core.clock_jumps import JumpDetector
from overspan.bridge.runtime.core.job_access import give_access
from overspan.bridge.runtime.core.node_data import NoData, NodeData
from overspan.bridge.runtime.core.node_runs import NodeRuns
from overspan.bridge.runtime.core.run_directory import RunDirectory, RunPlan
from overspan.bridge.runtime.core.supervised_launch import Services, SupervisedLaunch
from overspan.bridge.runtime.slurm.addresses import AddressBook
from overspan.bridge.runtime.slurm.nodes import LaunchContext, RemoteNodes
from overspan.bridge.runtime.slurm.placement import (
    GrantedComponent,
    NodeSlots,
    assign_slots,
    find_spare,
    make_grant,
    read_components,
    read_placement,
)
from overspan.bridge.runtime.slurm.run_files import RunFiles, SharedFiles
from overspan.bridge.runtime.slurm.variables import prepare_srun

LOOK_SECONDS = 1.0
_SPARE_SECONDS = 1.0
_LEAVE_SECONDS = 10.0
_DATA_SECONDS = 0.1
_TERMINATED = 128 + int(signal.SIGTERM)
_FAILURE = 70  # EX_SOFTWARE, sysexits.h


class Supervisor:
    """One launch in one allocation."""

    part = False
    """Whether the allocation is for some of the job's tasks only."""

    def __init__(self, files: RunFiles, environment: Mapping[str, str]) -> None:
        """Read what is to run where. OSError and ValueError where the run directory and the allocation do not fit."""
        directory = files.directory
        self._files = files
        self._directory = directory
        self._environment = environment
        self.terminated = False
        """Whether Slurm ends the allocation."""
        self._poller = select.poll()
        self._returned: set[int] = set()
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._nodes: Optional[RemoteNodes] = None
        plan = directory.read_plan()
        placement = read_placement(directory.file("placement.json"))
        if placement.token != plan.token:
            raise ValueError(f"plan and placement of launch {directory.launch} are not of one submission")
        self._components: Sequence[GrantedComponent] = read_components(environment)
        self._slots: NodeSlots = assign_slots(plan.job, placement, self._components, self.part)

    def serve(self) -> int:
        """Run the launch to its end; gives the exit status of the batch script."""
        wakeup = self._catch_signals()
        services = Services(self._grant, self._open_nodes, _wake, self._files.seen)
        clock = JumpDetector()
        run = SupervisedLaunch(self._directory, services, time.time())
        try:
            ready: list[int] = []
            while not run.done:
                if self._nodes is not None:
                    self._nodes.handle(ready)
                if self.terminated:
                    return self._leave_terminated(run.job)
                jump = clock.take_jump()
                now = time.time()
                if jump:
                    self._move_clock(run, jump, now)
                self._prepare(run, now)
                run.advance((), now)
                self._attend(run, now)
                if not run.done:
                    ready = self._poll(run.wake_at(now))
                    _drain(wakeup)
            self._leave()
            return self._judge(run.job)
        finally:
            run.close()

    def _move_clock(self, run: SupervisedLaunch, seconds: float, now: float) -> None:
        """The machine's clock was set by that much: what is due stays as far away as it was."""
        run.move_clock(seconds, now)

    def _prepare(self, run: SupervisedLaunch, now: float) -> None:
        """What comes before each turn."""

    def _attend(self, run: SupervisedLaunch, now: float) -> None:
        """What comes after each turn."""
        self._give_back(run.job, now)

    def _judge(self, job: Job) -> int:
        """The exit status of the batch script."""
        return exit_status(job)

    def _catch_signals(self) -> int:
        """TERM and USR1 wake the loop, and so do ends of children."""
        wakeup, wakeup_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._note_term)
        for number in (signal.SIGUSR1, signal.SIGCHLD):
            signal.signal(number, lambda number, frame: None)
        self._poller.register(wakeup, select.POLLIN)
        return wakeup

    def _note_term(self, number: int, frame: object) -> None:
        self.terminated = True

    def _poll(self, due: Optional[float]) -> list[int]:
        seconds = LOOK_SECONDS if due is None else min(LOOK_SECONDS, max(0.001, due - time.time()))
        return [fd for fd, _ in self._poller.poll(seconds * 1000)]

    # --- beginning ---------------------------------------------------------------------------------------------------

    def _grant(self, directory: RunDirectory) -> Granted:
        book = AddressBook(self._environment.get("SLURMD_NODENAME", ""))
        grant = make_grant(directory.read_plan().job, self._slots, book.find, time.time())
        return grant._replace(partition=self._environment.get("SLURM_JOB_PARTITION", ""))

    def _give_access(self, access: str) -> dict[str, str]:
        """Leave what `span` needs in the work to reach the daemon in the run directory; the variables that say so."""
        return give_access(self._directory.path, access, own_program()) if access and self._files.seen else {}

    def _open_nodes(self, directory: RunDirectory, plan: RunPlan, job: Job) -> NodeRuns:
        self._nodes = RemoteNodes(
            LaunchContext(
                files=self._files,
                data=_open_data(directory, job),
                cluster=plan.cluster,
                extra={**plan.environment, **self._give_access(plan.access)},
                slots=self._slots,
                components=self._components,
                variables=prepare_srun(self._environment),
                poller=self._poller,
                log=log,
            )
        )
        return self._nodes

    # --- components --------------------------------------------------------------------------------------------------

    def _give_back(self, job: Job, now: float) -> None:
        """Cancel components, by their raw ids, whose tasks have all ended for good."""
        self._helpers = [helper for helper in self._helpers if helper.poll() is None]
        if len(self._components) == 1:
            return
        for number in sorted(find_spare(job, self._slots, now, _SPARE_SECONDS) - self._returned):
            self._returned.add(number)
            native = self._components[number].native
            log(f"component {number} (job {native}) is given back: its tasks have ended")
            try:
                self._helpers.append(subprocess.Popen(["scancel", native], stdin=subprocess.DEVNULL))
            except OSError as error:
                log(f"cannot give it back: {error}")

    # --- ending ------------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Let the sruns end, which have nothing to do any more."""
        if self._nodes is None:
            return
        self._nodes.close_inputs()
        if self._await_sruns(_LEAVE_SECONDS):
            self._nodes.abandon()
            self._await_sruns(_LEAVE_SECONDS)

    def _leave_terminated(self, job: Job) -> int:
        """Wait for what Slurm ends; it kills this process when the time for that is over (KillWait)."""
        log("Slurm ends this allocation (TERM): nothing more is recorded")
        if self._nodes is not None:
            self._nodes.terminate()
            self._await_sruns(None)
            self._send_data(self._nodes, job)
        return _TERMINATED

    def _send_data(self, nodes: RemoteNodes, job: Job) -> None:
        """Have data sent until Slurm kills this process, or the longest `flush.timeout` is over."""
        until = time.monotonic() + max(spec.flush.timeout for spec in job.spec.tasks)
        try:
            while not nodes.flush_terminated(job, time.time()) and time.monotonic() < until:
                time.sleep(_DATA_SECONDS)
        except OSError as error:
            log(f"data is not sent: {error}")

    def _await_sruns(self, seconds: Optional[float]) -> bool:
        """Wait until no srun is left, so many seconds at most; tells whether one is."""
        deadline = None if seconds is None else time.monotonic() + seconds
        assert self._nodes is not None
        while self._nodes.reap():
            if deadline is not None and time.monotonic() >= deadline:
                return True
            self._nodes.handle(self._poll(time.time() + 0.1))
        return False


def exit_status(job: Job) -> int:
    """The batch script's, so that Slurm's state agrees with the job's."""
    if job.state is State.COMPLETED:
        return 0
    return job.exit_code or 1


def log(text: str) -> None:
    """Write a line to the supervisor's log; never fails."""
    try:
        print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}", file=sys.stderr, flush=True)
    except OSError:
        pass


def _open_data(directory: RunDirectory, job: Job) -> NodeData:
    """Who moves the data of the launch's storage.

    Data and credentials are in the run directory, which all nodes see and no other job has, so one mover is enough.
    """
    if not any(spec.storage for spec in job.spec.tasks):
        return NoData()
    # Not at the top: jobs without storage need none of it, and on nodes that share no folder it has not come with the
    # application.
    from overspan.bridge.runtime.data.moved_data import MovedData
    from overspan.bridge.runtime.slurm.data_movers import ChildMover

    return MovedData(directory, directory.path, ChildMover(directory.path))


def _wake(text: str) -> None:
    """The daemon reads the journal by itself: it may be on another machine."""


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass


def main(words: Sequence[str]) -> int:
    """Serve the launch of a run directory; the exit status is the job's, 70 when the supervisor itself failed."""

    def open_supervisor() -> Supervisor:
        path, launch = words
        return Supervisor(SharedFiles(RunDirectory(path, int(launch))), dict(os.environ))

    return run_supervisor(open_supervisor)


def run_supervisor(open_supervisor: Callable[[], Supervisor]) -> int:
    """Serve as the process of a batch script; gives its exit status."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    kernel.set_comm("span-supervisor")
    try:
        return open_supervisor().serve()
    except (OSError, ValueError) as error:
        log(f"span: error: cannot run this allocation: {error}")
    except Exception:
        log(traceback.format_exc())
    return _FAILURE
