"""srun while its step runs: output, input, signals, ends and time limits in one poll loop."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Sequence
from typing import Any, Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.srun import channel as wire
from overspan.bridge.runtime.srun.batch_process import BatchProcess
from overspan.bridge.runtime.srun.channel import AuthenticationError, Channel, Frame
from overspan.bridge.runtime.srun.connections import end_children
from overspan.bridge.runtime.srun.messages import code_of, complain, describe_end, say
from overspan.bridge.runtime.srun.output import Sinks, fold_ranks
from overspan.bridge.runtime.srun.step_options import StepOptions
from overspan.bridge.runtime.srun.terminal import read_window
from overspan.bridge.runtime.srun.viewers import Viewers

KILL_WAIT = 30.0
"""Seconds between TERM and KILL when srun ends a step: slurm.conf's KillWait."""
_LOOK_SECONDS = 0.5
_CREDIT = 1 << 18
_READ_SIZE = 1 << 16
_FORWARDED = frozenset(map(int, (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)))
_GATHER_SECONDS = 0.1
"""How long messages about ended ranks are collected, so that equal ones share a line."""
_FORCING = frozenset(map(int, (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)))
_STRUCK = frozenset(map(int, (signal.SIGTERM, signal.SIGKILL)))
TAKEN_SIGNALS = _FORWARDED | _FORCING | {int(signal.SIGINT), int(signal.SIGWINCH)}
_ABORTED = "Job step aborted: Waiting up to 32 seconds for job step to finish."
_SUPERVISING = ("span-shim", "span-supervisor")


class RunningStep(NamedTuple):
    """A step that is about to run."""

    name: str
    hosts: tuple[str, ...]
    ranks: tuple[tuple[int, ...], ...]
    """The numbers of the ranks of each node."""
    readers: frozenset[int]
    """The ranks that get srun's input."""
    batch_process: Optional[BatchProcess] = None
    """The program that the step joined: the step ends with it."""
    older: frozenset[int] = frozenset()
    """Children of this process that do not belong to the step."""
    viewers: Optional[Viewers] = None
    in_pod: bool = False
    """Whether signals of a pod's first process, or of one that entered the pod, are for all that runs there."""


class StepClient:
    """Runs one step over its channels."""

    def __init__(self, step: RunningStep, step_options: StepOptions, channels: Sequence[Channel], sinks: Sinks) -> None:
        self._step = step
        self._batch_process = step.batch_process
        self._viewers = step.viewers
        self._look_at = 0.0
        self._options = step_options
        self._channels = list(channels)
        self._sinks = sinks
        self._open = set(range(len(channels)))
        self.statuses: dict[int, int] = {}
        """The wait statuses of the ranks that have ended."""
        self.cancelled = False
        """Whether a user had the step ended by its number."""
        self._code = 0
        self._first_end: Optional[float] = None
        self._ends: dict[tuple[int, str], list[int]] = {}
        self._tell_at: Optional[float] = None
        self._struck = self._ended_by_order = False
        self._kill_at: Optional[float] = None
        self._ending = False
        self._interrupted_at = self._sent_at = -10.0
        self._input_open = bool(step.readers)
        self._unread = [0] * len(channels)
        self._signals = kernel.open_signalfd(TAKEN_SIGNALS)
        self._poller = select.poll()

    def run(self, requests: Sequence[dict[str, Any]]) -> int:
        """Start the ranks and see them through; gives the highest exit code."""
        for channel, request in zip(self._channels, requests):
            channel.send(wire.RUN, json.dumps(request).encode())
        while self._open:
            self._run_once()
        self._tell_ends()
        if self._struck and not (self._ending or self._ended_by_order):
            say(f"Force Terminated StepId={self._step.name}")
        if self._viewers is not None:
            # Viewers know of exit codes alone: a rank that was killed has none (measured on Slurm 22.05).
            codes = (os.WEXITSTATUS(status) for status in self.statuses.values() if os.WIFEXITED(status))
            self._viewers.close(max(codes, default=0))
        end_children(self._step.older)
        os.close(self._signals)
        return self._code

    def _run_once(self) -> None:
        by_fd = self._watch()
        for fd, _ in self._poller.poll(self._timeout()):
            if fd == self._signals:
                for info in kernel.read_signalfd(fd):
                    self._handle_signal(info)
            elif fd in by_fd:
                self._read_node(by_fd[fd])
            elif self._viewers is not None and fd in self._viewers.waits:
                self._listen_to(self._viewers.receive(fd))
            elif fd == 0:
                self._pass_input()
        self._keep_time()

    def _watch(self) -> dict[int, int]:
        self._poller = select.poll()
        self._poller.register(self._signals, select.POLLIN)
        by_fd = {self._channels[node].fileno(): node for node in self._open}
        for fd, node in by_fd.items():
            waits = self._channels[node].waiting
            self._poller.register(fd, select.POLLIN | (select.POLLOUT if waits else 0))
        for fd, full in (self._viewers.waits if self._viewers is not None else {}).items():
            self._poller.register(fd, select.POLLIN | (select.POLLOUT if full else 0))
        if self._input_open and all(self._unread[node] < _CREDIT for node in self._open):
            self._poller.register(0, select.POLLIN)
        return by_fd

    def _timeout(self) -> Optional[float]:
        times = [at for at in (self._kill_at, self._wait_end(), self._look_at or None, self._tell_at) if at is not None]
        return max(0.0, min(times) - time.monotonic()) * 1000 + 1 if times else None

    # --- from the nodes ----------------------------------------------------------------------------------------------

    def _read_node(self, node: int) -> None:
        channel = self._channels[node]
        channel.flush()
        try:
            frames = channel.receive()
        except AuthenticationError as error:
            complain(f"{self._step.hosts[node]}: {error}")
            channel.closed = True
            frames = []
        for frame in frames:
            self._take(node, frame)
        if len(self.statuses) == sum(map(len, self._step.ranks)):
            self._tell_ends()
        if channel.closed and node in self._open:
            self._lose(node)

    def _take(self, node: int, frame: Frame) -> None:
        if frame.kind in (wire.OUTPUT, wire.ERROR):
            rank, data = wire.unpack_rank(frame.body)
            self._sinks.write(rank, data, error=frame.kind == wire.ERROR)
            if self._viewers is not None:
                self._viewers.show(frame)
        elif frame.kind == wire.ENDED:
            rank, data = wire.unpack_rank(frame.body)
            if self._viewers is not None:
                self._viewers.show(frame)
            text = self._end(rank, int(data))
            if text:
                self._ends.setdefault((node, text), []).append(rank)
                self._tell_at = self._tell_at or time.monotonic() + _GATHER_SECONDS
        elif frame.kind == wire.TAKEN:
            self._unread[node] -= int(frame.body)
        elif frame.kind == wire.REFUSED:
            complain(frame.body.decode("utf-8", "replace"))
        elif frame.kind == wire.DONE:
            for rank in self._step.ranks[node]:
                self._sinks.finish(rank)
            self._open.discard(node)
            self._channels[node].close()

    def _end(self, rank: int, status: int) -> str:
        self._sinks.finish(rank)
        self.statuses[rank] = status
        self._code = max(self._code, code_of(status))
        self._struck = self._struck or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in _STRUCK)
        if self._first_end is None:
            self._first_end = time.monotonic()
        return describe_end(status)

    def _tell_ends(self) -> None:
        """Tell which ranks have failed since the last time, those of a node that ended alike in one line."""
        ends, self._ends, self._tell_at = self._ends, {}, None
        for (node, text), ranks in ends.items():
            noun = "task" if len(ranks) == 1 else "tasks"
            complain(f"{self._step.hosts[node]}: {noun} {fold_ranks(ranks)}: {text}")
        if ends and self._options.kill_on_bad_exit:
            self._terminate()

    def _lose(self, node: int) -> None:
        """A node is gone without a word: so are its ranks, and the step with it."""
        self._open.discard(node)
        self._channels[node].close()
        missing = [rank for rank in self._step.ranks[node] if rank not in self.statuses]
        if missing:
            complain(f"Node failure on {self._step.hosts[node]}")
            for rank in missing:
                self._end(rank, int(signal.SIGKILL))
            self._kill()

    # --- input and signals -------------------------------------------------------------------------------------------

    def _pass_input(self) -> None:
        try:
            data = os.read(0, _READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._input_open = bool(data)
        for node in self._open:
            here = self._step.ranks[node]
            chosen = [rank for rank in here if rank in self._step.readers]
            for rank in [wire.EVERY_RANK] if len(chosen) == len(here) else chosen:
                self._unread[node] += len(data)
                self._channels[node].send(wire.INPUT, wire.pack_rank(rank, data))

    def _handle_signal(self, info: kernel.SignalInfo) -> None:
        if info.sender and self._is_for_all(info.sender):
            # The whole job is being signalled: the ranks have it already.
            if info.number == signal.SIGTERM and not self._ended_by_order:
                self._tell_job_end()
            self._ended_by_order = self._ended_by_order or info.number in _FORCING
            return
        if info.number == signal.SIGWINCH:
            rows, columns = read_window(0)
            if self._options.pty and rows:
                self._send_all(wire.WINDOW, b"%d %d" % (rows, columns))
        elif info.number == signal.SIGINT:
            self._interrupt()
        elif info.number in _FORCING:
            say("forcing job termination")
            self._cancel_line()
            self._kill()
        else:
            self._signal(info.number)

    def _is_for_all(self, sender: int) -> bool:
        if self._step.in_pod:
            process = kernel.read_process(sender)
            return process is not None and process.parent == 0
        return kernel.read_comm(sender) in _SUPERVISING

    def _listen_to(self, frames: Sequence[Frame]) -> None:
        """Carry out a request that names the step: a signal, or its end."""
        for frame in frames:
            if frame.kind == wire.SIGNAL and frame.body.isdigit():
                if int(frame.body) == signal.SIGKILL:
                    self.cancelled = True
                    self._cancel_line()
                    say(_ABORTED)
                    self._kill()
                else:
                    self._signal(int(frame.body))

    def _interrupt(self) -> None:
        """^C: the first tells how it stands, a second within a second ends the step (srun(1))."""
        now = time.monotonic()
        if self._options.quit_on_interrupt or now - self._sent_at < KILL_WAIT:
            say("forcing job termination")
            self._cancel_line()
            self._kill()
        elif now - self._interrupted_at > 1.0 and not self._options.disable_status:
            self._interrupted_at = now
            say("interrupt (one more within 1 sec to abort)")
            self._tell_states()
        else:
            self._sent_at = now
            say(f"sending Ctrl-C to StepId={self._step.name}")
            say(_ABORTED)
            self._signal(int(signal.SIGINT))
            self._kill_at = now + KILL_WAIT

    def _tell_states(self, verb: str = "srun") -> None:
        for ended, word in ((True, "exited"), (False, "running")):
            ranks = [rank for ranks in self._step.ranks for rank in ranks if (rank in self.statuses) is ended]
            if ranks:
                noun = "task" if len(ranks) == 1 else "tasks"
                say(f"StepId={self._step.name} {noun} {fold_ranks(ranks)}: {word}", verb)

    # --- ending ------------------------------------------------------------------------------------------------------

    def _wait_end(self) -> Optional[float]:
        """When the others are ended for the sake of the first that has (--wait)."""
        if not self._options.wait or self._first_end is None or self._ending:
            return None
        return self._first_end + self._options.wait

    def _keep_time(self) -> None:
        now = time.monotonic()
        if self._tell_at is not None and now >= self._tell_at:
            self._tell_ends()
        wait_end = self._wait_end()
        if wait_end is not None and now >= wait_end and self._open:
            complain(f"First task exited {self._options.wait}s ago")
            self._tell_states()
            self._terminate()
        if self._kill_at is not None and now >= self._kill_at:
            self._kill()
        if self._batch_process is not None and now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            if not self._batch_process.alive:
                complain(f"Job allocation {self._step.name.partition('.')[0]} has been revoked")
                self._batch_process, self._look_at = None, 0.0
                self._kill()

    def _terminate(self) -> None:
        """TERM to what is left, and KILL later."""
        if self._ending:
            return
        self._ending = True
        if not self._options.quiet:
            say(f"Terminating StepId={self._step.name}")
        if len(self.statuses) == sum(map(len, self._step.ranks)):
            return
        self._cancel_line()
        self._signal(int(signal.SIGTERM))
        self._kill_at = time.monotonic() + KILL_WAIT

    def _tell_job_end(self) -> None:
        """The step is ended because its job is."""
        from overspan.bridge.runtime.core.cancellation_message import is_ending

        if is_ending(os.environ.get("OVERSPAN_RUN_DIR", "")):
            say(_ABORTED)
            self._cancel_line()

    def _cancel_line(self) -> None:
        # Not at the top: few steps are cancelled, and each srun would pay for it.
        from overspan.bridge.runtime.core.cancellation_message import read_reason, word_end

        reason = read_reason(os.environ.get("OVERSPAN_RUN_DIR", ""))
        complain(word_end(f"STEP {self._step.name}", self._step.hosts[0], time.time(), reason), "slurmstepd")

    def _kill(self) -> None:
        self._kill_at = None
        self._ending = True
        self._signal(int(signal.SIGKILL))

    def _signal(self, number: int) -> None:
        self._send_all(wire.SIGNAL, b"%d" % number)

    def _send_all(self, kind: bytes, body: bytes) -> None:
        for node in self._open:
            self._channels[node].send(kind, body)
