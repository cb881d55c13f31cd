"""One launch under supervision: its facts, its journal and its processes.

Write-ahead logging: an iteration reads orders and ends of processes, reduces them, decides, makes it all durable in one
write, and only then acts. A supervisor that is killed anywhere in an iteration and started again replays the journal to
the same facts, and finds the processes by their records.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from typing import Any, Callable, Optional

from overspan.bridge.lifecycle.clocks import date_report
from overspan.bridge.lifecycle.rules import RULES
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.deciders import Decider
from overspan.bridge.model.events import Event, Granted
from overspan.bridge.model.job import Attempt, Job
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.signals import signal_number
from overspan.bridge.model.spec import Form, ReadyKind
from overspan.bridge.runtime.core.cancellation_message import forget_end, say_end
from overspan.bridge.runtime.core.environment import NodeRunContext, build_environment
from overspan.bridge.runtime.core.journal import Journal
from overspan.bridge.runtime.core.log_times import LogTimes
from overspan.bridge.runtime.core.members_file import describe_members, write_members
from overspan.bridge.runtime.core.node_runs import NodeRuns
from overspan.bridge.runtime.core.orders import OrderFile
from overspan.bridge.runtime.core.readiness import ProbeTarget, ReadinessProbes
from overspan.bridge.runtime.core.run_directory import RunDirectory, RunPlan
from overspan.bridge.runtime.core.shim_control import Shim
from overspan.bridge.runtime.core.streams import NodeKey

_RETRY_FLUSH = 1.0
_KILL_AGAIN = 1.0


class Services(NamedTuple):
    """What depends on where the nodes of a launch are.

    `grant` returns the journal's first event, `open_nodes` the node runs of a launch, `wake` notifies the daemon of new
    events. Without `sees_files`, the nodes' files are not visible from this machine: the node runs themselves report
    the files that make a task ready.
    """

    grant: Callable[[RunDirectory], Granted]
    open_nodes: Callable[[RunDirectory, RunPlan, Job], NodeRuns]
    wake: Callable[[str], None]
    sees_files: bool = True


class SupervisedLaunch:
    """A launch that this process supervises."""

    def __init__(self, directory: RunDirectory, services: Services, now: float) -> None:
        self.directory = directory
        self.nodes_folder = os.path.join(directory.path, "nodes")
        """The directory of this launch's shims."""
        self._services = services
        self._plan: RunPlan = directory.read_plan()
        self._rules = RULES[self._plan.decider]
        self.job: Job = self._plan.job
        self._orders = OrderFile(directory.file("orders.jsonl"), self._rules.heard)
        self._probes = ReadinessProbes()
        self._log_times = LogTimes(directory)
        self._pending: list[Event] = []
        self._seen_order = 0
        self._urgent_tokens: set[str] = set()
        """Tokens of orders that came before they could be written."""
        self._closing = self._leaving = self._clock_set = False
        self._retry_at: Optional[float] = None
        self._kill_again_at = 0.0
        self._members_due = self.job.spec.changes_size
        self._places_due = False
        """Whether the nodes are to be told where members elsewhere are."""
        self._notice_path = os.path.join(directory.path, "notice")
        self._journal = Journal(directory.file("journal.jsonl"), self.job.id, directory.launch)
        self.done = self._journal.ended
        try:
            for entry in self._journal.entries:
                self.job = self._rules.reduce(self.job, entry.event)
                self._seen_order = max(self._seen_order, entry.order)
            if self.done:
                return
            if not self._journal.entries:
                self._check_unbegun()
            if self.job.granted_at is None and not self._journal.entries:
                self._record(services.grant(directory))
            self._nodes = services.open_nodes(directory, self._plan, self.job)
        except Exception:
            self._journal.close()
            raise
        self._adopt(now)

    # --- an iteration ------------------------------------------------------------------------------------------------

    def advance(self, ended: Sequence[Shim], now: float) -> None:
        """Run one iteration: read what happened, decide, make it durable, act."""
        if self.done:
            return
        if self._closing:
            # The journal's last line waits for space on the disk, and nothing may follow it.
            self._commit(now)
            return
        for order in self._orders.read():
            if order.seq > self._seen_order:
                self._seen_order = order.seq
                if not order.token or order.token not in self._urgent_tokens:
                    self._record(order.event, order.seq)
                    self._places_due = self._places_due or isinstance(order.event, Granted)
        for event in self._nodes.collect(ended, now):
            self._record(self._date(event, now))
        for event in self._nodes.flush(self.job, now):
            self._record(event)
        for task, attempt in self._probes.step(now):
            self._record(events.TaskReady(now, task, attempt))
        for answer in self._probes.news(now):
            self._record(events.Probed(now, answer.task, answer.attempt, answer.tries, answer.text))
        # Before anything starts, so that the work finds the file.
        self._tell_members()
        self._decide(now)
        self._commit(now)
        self._insist(now)
        if self._services.sees_files:
            self._log_times.look(self.job, now)

    def move_clock(self, seconds: float, now: float) -> None:
        """The machine's clock was set by that many seconds: move all due times along with it."""
        if self.done or self._closing:
            return
        self._clock_set = True
        self._nodes.move_clock(seconds)
        self._probes.move_clock(seconds)
        self._retry_at, self._kill_again_at = now, now
        self._record(events.ClockSet(now, seconds))

    def obey(self, token: str, event: Event) -> None:
        """Take an order that could not be written to the file; it takes effect with the next iteration, and once."""
        if token in self._urgent_tokens or self.done or self._closing or not isinstance(event, self._rules.heard):
            return
        self._urgent_tokens.add(token)
        self._record(event)

    def wake_at(self, now: float) -> Optional[float]:
        """When the next iteration is due without a wake-up; None if only a wake-up can bring one."""
        if self.done:
            return None
        if self._journal.dirty:
            return self._retry_at
        times = [self._rules.decide(self.job, now).wake_at, self._nodes.wake_at, self._probes.wake_at]
        known = [time for time in times if time is not None]
        return min(known) if known else None

    def check(self) -> None:
        """Raise OSError where the run directory was removed or replaced."""
        self._journal.check()

    def close(self) -> None:
        """Close the files."""
        self._journal.close()

    def leave(self, now: float) -> None:
        """End the journal although the job is not over: what is left of it is others'."""
        self._leaving = True
        self.advance((), now)

    def _decide(self, now: float) -> None:
        while True:
            decisions = self._rules.decide(self.job, now).events
            if not decisions:
                return
            for decision in decisions:
                self._record(decision)

    def _record(self, event: Event, order: int = 0) -> None:
        self._journal.add(event, order)
        self.job = self._rules.reduce(self.job, event)
        self._pending.append(event)

    def _commit(self, now: float) -> None:
        released = self._is_released and not any(task.live for task in self.job.tasks)
        over = self._leaving or released or self.job.over or self.job.launch != self.directory.launch
        if over and not self._closing and not self._nodes.unsettled and self._nodes.end_data(now):
            self._journal.end()
            self._closing = True
        if not self._journal.dirty:
            return
        try:
            self._journal.flush()
        except OSError:
            # A full disk: unrecorded decisions are not carried out, except those that end processes.
            self._retry_at = now + _RETRY_FLUSH
            self._end_unrecorded(now)
            return
        self.done = self._closing
        self._services.wake(f"{self.job.id}.{self.directory.launch}")
        pending, self._pending = self._pending, []
        for event in pending:
            self._act(event, now)
        if self._journal.dirty:
            self._decide(now)
            self._commit(now)

    @property
    def _is_released(self) -> bool:
        """Whether the daemon, which decides about the launch, no longer wants it."""
        return self._plan.decider is Decider.DAEMON and self.job.ending is not None

    def _end_unrecorded(self, now: float) -> None:
        pending, self._pending = self._pending, []
        for event in pending:
            if isinstance(event, (events.Terminate, events.Kill, events.Signal)):
                self._act(event, now)
            else:
                self._pending.append(event)

    def _date(self, event: Event, now: float) -> Event:
        """Correct the time of a node's report that was made before the clock was set."""
        if not self._clock_set or not isinstance(event, (events.NodeStarted, events.NodeEnded)):
            return event
        return date_report(self.job, event, now)

    # --- acting ------------------------------------------------------------------------------------------------------

    def _act(self, event: Event, now: float) -> None:
        if isinstance(event, events.Launch):
            self._launch(event.task, event.attempt, now)
        elif isinstance(event, events.NodeRelaunch):
            self._start(NodeKey(event.task, event.node, event.attempt, event.run), now)
        elif isinstance(event, events.Notice):
            self._notify(event.kind or "primaries_done", event.task, event.at, event.deadline)
            self._signal_named(event.task, self.job.spec_of(event.task).notice_signal)
        elif isinstance(event, events.Warn):
            self._notify("time_limit", event.task, event.at, event.deadline)
            self._warn(event)
        elif isinstance(event, events.Terminate):
            if event.cause == Cause.PREEMPTION.value:
                self._notify("preemption", event.task, event.at, event.kill_at)
            say_end(self.job, event.task, event.attempt, event.cause, self.directory, event.at)
            self._nodes.signal(event.task, event.attempt, signal.SIGTERM)
            self._probes.forget(event.task, event.attempt)
        elif isinstance(event, events.Kill):
            self._nodes.signal(event.task, event.attempt, signal.SIGKILL)
        elif isinstance(event, events.AbandonFlush):
            self._nodes.abandon_flush(event.task, event.attempt)
        elif isinstance(event, events.Signal):
            self._pass_signal(event)
        elif isinstance(event, (events.Suspend, events.Resume)):
            self._suspend(isinstance(event, events.Suspend))
        elif isinstance(event, events.SetPeers):
            self._members_due = True
            self._tell_members()
        elif isinstance(event, events.NodeEnded):
            attempt = self.job.task(event.task).current
            if attempt is None or not attempt.live or attempt.number != event.attempt:
                self._probes.forget(event.task, event.attempt)

    def _launch(self, name: str, number: int, now: float) -> None:
        attempt = self.job.task(name).current
        if attempt is None or attempt.number != number:
            return
        forget_end(self.directory)
        for node in attempt.nodes:
            self._start(NodeKey(name, node.index, number, node.run), now)
        self._watch_ready(name, number, now)

    def _start(self, key: NodeKey, now: float) -> None:
        for report in self._nodes.start(self.job, key, now):
            self._record(report)

    def _watch_ready(self, name: str, number: int, now: float) -> None:
        spec = self.job.spec_of(name)
        if spec.ready is None or (spec.ready.kind is ReadyKind.FILE and not self._services.sees_files):
            return
        place = NodeRunContext(name, 0, number, 0, self.directory.path, self._plan.cluster, self._plan.environment)
        environment = build_environment(self.job, place)
        cwd = spec.workdir or self.job.spec.origin.directory or self.directory.outputs
        target = ProbeTarget(spec.ready, environment["OVERSPAN_ADDR"], cwd, environment)
        probe = self.job.task(name).probe
        tries = probe.tries if probe is not None and probe.attempt == number else 0
        self._probes.watch(name, number, target, now, tries)

    def _tell_members(self) -> None:
        """Show the work which members its group has now. What cannot be written is tried again with each iteration."""
        if not (self._members_due or self._places_due):
            return
        try:
            if self._members_due:
                write_members(self.directory.path, describe_members(self.job))
            self._nodes.tell_members(self.job)
        except OSError:
            return
        self._members_due = self._places_due = False

    def _insist(self, now: float) -> None:
        """Repeat KILL until it has worked: the first one may have missed a process that was just being forked."""
        if now < self._kill_again_at:
            return
        self._kill_again_at = now + _KILL_AGAIN
        for task in self.job.tasks:
            stop = task.current.stop if task.current is not None and task.current.live else None
            if stop is not None and stop.killed_at is not None and stop.killed_at + _KILL_AGAIN <= now:
                self._nodes.signal(task.name, task.attempts[-1].number, signal.SIGKILL)

    def _notify(self, kind: str, task: str, at: float, deadline: float) -> None:
        line = json.dumps({"kind": kind, "task": task, "at": at, "deadline": deadline}) + "\n"
        try:
            fd = os.open(self._notice_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, line.encode())
            finally:
                os.close(fd)
        except OSError:
            # The signal still arrives; a full disk must not delay the end.
            pass

    def _warn(self, event: events.Warn) -> None:
        """The signal before the time limit: to the batch shell (`B:`) or, of a batch script, to its steps only."""
        batch = self.job.spec_of(event.task).form is Form.BATCH
        self._signal_named(event.task, event.signal, "leader" if event.batch_only else "steps" if batch else "tree")

    def _pass_signal(self, event: events.Signal) -> None:
        """As scancel(1): of a batch script only the steps get the signal, unless it is `full` or KILL."""
        for task in self.job.tasks:
            if event.task not in ("", task.name):
                continue
            steps_only = self.job.spec_of(task.name).form is Form.BATCH and not event.full
            scope = "leader" if event.batch_only else "steps" if steps_only else "tree"
            self._signal(task.name, event.signal, "tree" if event.signal == signal.SIGKILL else scope)

    def _suspend(self, wanted: bool) -> None:
        """Stop every process of the job, or continue all; does nothing for an order that changed nothing."""
        if wanted is (self.job.suspended_at is None):
            return
        for task in self.job.tasks:
            self._signal(task.name, signal.SIGSTOP if wanted else signal.SIGCONT, "tree")

    def _signal_named(self, task: str, name: str, scope: str = "tree") -> None:
        if name:
            self._signal(task, signal_number(name), scope)

    def _signal(self, task: str, number: int, scope: str) -> bool:
        attempt = self.job.task(task).current
        if attempt is None or not attempt.live or not number:
            return False
        return self._nodes.signal(task, attempt.number, number, scope)

    def _check_unbegun(self) -> None:
        """Raise ValueError where the journal is empty although node runs of this launch have begun."""
        try:
            names = os.listdir(self.nodes_folder)
        except FileNotFoundError:
            return
        # Stages before this one have left claims of other tasks.
        known = {task.name: len(task.attempts) for task in self._plan.job.tasks}
        for name in names:
            task, *numbers = name.rsplit(".", 4)
            if not name.endswith(".claim") or len(numbers) != 4 or task not in known:
                continue
            if int(numbers[1]) >= known[task]:
                path = self.directory.file("journal.jsonl")
                raise ValueError(f"{path} is empty or was removed, and {name} says that work has begun")

    # --- beginning ---------------------------------------------------------------------------------------------------

    def _adopt(self, now: float) -> None:
        """Adopt the node runs that an earlier supervisor of this launch started."""
        for task in self.job.tasks:
            attempt = task.current
            if attempt is None or not attempt.live:
                continue
            for node in attempt.nodes:
                if node.live:
                    key = NodeKey(task.name, node.index, attempt.number, node.run)
                    for report in self._nodes.adopt(self.job, key, now):
                        self._record(report)
            if task.ready_at is None:
                self._watch_ready(task.name, attempt.number, now)
            self._repeat_stop(task.name, attempt)
        self._repeat_notices()
        if any(isinstance(entry.event, (events.Suspend, events.Resume)) for entry in self._journal.entries):
            self._suspend(self.job.suspended_at is not None)

    def _repeat_notices(self) -> None:
        """Write the notices that were decided and are missing in their file."""
        given = {(line.get("task"), line.get("at")) for line in _read_notices(self._notice_path)}
        for event, _ in self._journal.entries:
            if isinstance(event, (events.Notice, events.Warn)) and (event.task, event.at) not in given:
                attempt = self.job.task(event.task).current
                if attempt is not None and attempt.live and attempt.stop is None and attempt.launched_at <= event.at:
                    self._act(event, event.at)

    def _repeat_stop(self, task: str, attempt: Attempt) -> None:
        """Send the signal of a decided stop again: its first sending is in doubt."""
        if attempt.stop is not None:
            killed = attempt.stop.killed_at is not None
            self._nodes.signal(task, attempt.number, signal.SIGKILL if killed else signal.SIGTERM)


def _read_notices(path: str) -> list[dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]
    except (OSError, ValueError):
        return []
