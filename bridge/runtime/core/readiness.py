"""Readiness probes: each try runs in a forked child, so that no service can block the supervisor."""

from __future__ import annotations

import os
import signal
import time
from typing import Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.spec import Ready, ReadyKind
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.core.sockets import TimedOut, connect
from overspan.bridge.runtime.core.task_scripts import find_shell

TRY_SECONDS = 5
CHANGE_SECONDS = 10.0
"""Minimum time between two reported answers."""
QUIET_SECONDS = 300.0
"""Maximum time between two reports of the same answer; the first ones follow sooner."""
_MOST_BYTES = 400


class ProbeTarget(NamedTuple):
    """What a probe tries, in which directory and environment."""

    ready: Ready
    address: str
    cwd: str
    environment: dict[str, str]


class ProbeAnswer(NamedTuple):
    """A probe's progress in one attempt: the number of tries, and the result of the last one."""

    task: str
    attempt: int
    tries: int
    text: str


class _Trial(NamedTuple):
    pid: int
    started: float
    answer: int = -1
    """The descriptor to read its answer from."""


class _Tries:
    """The tries of an attempt, and what was reported of them."""

    def __init__(self, since: float, count: int) -> None:
        self.since = since
        self.count = count
        self.text = ""
        self.told_at: Optional[float] = None
        self.told = ""

    def is_news(self, now: float) -> bool:
        """Whether to report the answer: the first, a different one, or the same one after growing intervals."""
        if not self.text:
            return False
        if self.told_at is None:
            return True
        quiet = CHANGE_SECONDS if self.text != self.told else min(QUIET_SECONDS, self.told_at - self.since)
        return now - self.told_at >= max(quiet, CHANGE_SECONDS)


_NO_ANSWER = -1


class ReadinessProbes:
    """The probes of a launch: one try at a time for each watched (task, attempt)."""

    def __init__(self) -> None:
        self._targets: dict[tuple[str, int], ProbeTarget] = {}
        self._trials: dict[tuple[str, int], _Trial] = {}
        self._next: dict[tuple[str, int], float] = {}
        self._tries: dict[tuple[str, int], _Tries] = {}

    def watch(self, task: str, attempt: int, target: ProbeTarget, now: float, tries: int = 0) -> None:
        """Start probing; `tries` counts those of an earlier supervisor."""
        self._targets[task, attempt] = target
        self._tries[task, attempt] = _Tries(now, tries)
        self._next[task, attempt] = now

    def forget(self, task: str, attempt: int) -> None:
        """Stop probing."""
        self._targets.pop((task, attempt), None)
        self._next.pop((task, attempt), None)
        self._tries.pop((task, attempt), None)
        trial = self._trials.pop((task, attempt), None)
        if trial is not None:
            _end(trial)

    def move_clock(self, seconds: float) -> None:
        """The machine's clock was set by that many seconds: move all due times along with it."""
        self._next = {name: due + seconds for name, due in self._next.items()}
        self._trials = {name: trial._replace(started=trial.started + seconds) for name, trial in self._trials.items()}
        for tries in self._tries.values():
            tries.since += seconds
            if tries.told_at is not None:
                tries.told_at += seconds

    def step(self, now: float) -> list[tuple[str, int]]:
        """Collect finished tries and start those that are due; returns the (task, attempt)s that became ready."""
        ready = []
        for name, trial in list(self._trials.items()):
            status = _status(trial, now)
            if status is None:
                continue
            del self._trials[name]
            text = _read_answer(trial, status)
            if status == 0:
                ready.append(name)
                self.forget(*name)
            else:
                self._next[name] = now + self._targets[name].ready.period
                self._tries[name].count += 1
                self._tries[name].text = text
        for name, due in list(self._next.items()):
            if due <= now and name not in self._trials:
                del self._next[name]
                self._begin(name, now)
        return ready

    def _begin(self, name: tuple[str, int], now: float) -> None:
        try:
            self._trials[name] = _Trial(*_fork(self._targets[name], now))
        except OSError as error:
            # The machine is short of processes or descriptors: that says nothing about the task.
            self._tries[name].text = f"cannot try: {error.strerror}"
            self._next[name] = now + max(1.0, self._targets[name].ready.period)

    def news(self, now: float) -> list[ProbeAnswer]:
        """The answers to report now: rate-limited, however many tries there are."""
        found = []
        for (task, attempt), tries in self._tries.items():
            if tries.is_news(now):
                tries.told_at, tries.told = now, tries.text
                found.append(ProbeAnswer(task, attempt, tries.count, tries.text))
        return found

    @property
    def wake_at(self) -> Optional[float]:
        """When the next look is due; running tries are polled every 20 ms."""
        times = list(self._next.values())
        if self._trials:
            times.append(time.time() + 0.02)
        return min(times) if times else None


def _status(trial: _Trial, now: float) -> Optional[int]:
    try:
        done, status = os.waitpid(trial.pid, os.WNOHANG)
    except ChildProcessError:
        return 1
    if done:
        return status
    if now - trial.started > TRY_SECONDS:
        _kill(trial)
        return _NO_ANSWER
    return None


def _read_answer(trial: _Trial, status: int) -> str:
    """Read the result of a try and close its descriptor."""
    data = b""
    if trial.answer >= 0:
        try:
            data = os.read(trial.answer, _MOST_BYTES)
        except OSError:
            pass
        os.close(trial.answer)
    if status == _NO_ANSWER:
        return f"no answer within {TRY_SECONDS} s"
    if data:
        return data.decode("utf-8", "replace")
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"exit code {os.WEXITSTATUS(status)}"


def _end(trial: _Trial) -> None:
    _kill(trial)
    if trial.answer >= 0:
        os.close(trial.answer)


def _kill(trial: _Trial) -> None:
    # The process first: one that was just forked has no process group yet, and once killed makes none.
    for kill in (os.kill, os.killpg):
        try:
            kill(trial.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    try:
        os.waitpid(trial.pid, 0)
    except ChildProcessError:
        pass


def _fork(target: ProbeTarget, now: float) -> tuple[int, float, int]:
    """Fork a child that tries: its pid, start, and the descriptor of its answer, which commands do not inherit."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        os.set_blocking(reading, False)
        return pid, now, reading
    code = 1
    try:
        os.setsid()
        kernel.reset_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        answer = _try_well(target)
        os.write(writing, answer.encode("utf-8", "replace")[:_MOST_BYTES])
        code = 1 if answer else 0
    finally:
        os._exit(code)


def _try_well(target: ProbeTarget) -> str:
    """What is wrong, as a text; empty when the task is ready."""
    try:
        return _try(target)
    except TimedOut:
        return "timed out"
    except OSError as error:
        return (error.strerror or str(error) or type(error).__name__).lower()


def _try(target: ProbeTarget) -> str:
    kind, what = target.ready.kind, target.ready.target
    if kind is ReadyKind.FILE:
        return "" if os.path.exists(os.path.join(target.cwd, what)) else "it is not there"
    if kind is ReadyKind.COMMAND:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.chdir(target.cwd)
        os.execve(find_shell(), [find_shell(), "-c", what], target.environment)
    port, _, path = what.partition("/")
    # It is closed by the end of this process.
    connection = connect(target.address or "127.0.0.1", int(port), TRY_SECONDS)
    if kind is ReadyKind.TCP:
        return ""
    request = f"GET /{path} HTTP/1.0\r\nHost: {target.address}\r\nConnection: close\r\n\r\n"
    connection.sendall(request.encode())
    answer = connection.recv(64).split()
    if len(answer) < 2 or not answer[0].startswith(b"HTTP/") or not answer[1].isdigit():
        return "no HTTP answer"
    return "" if answer[1].startswith((b"2", b"3")) else f"HTTP status {answer[1].decode()}"
