"""Readiness: tried in a forked child, so that nothing a service does can hold the supervisor up."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import NamedTuple, Optional

from overspan.bridge.model.spec import Ready, ReadyKind
from overspan.bridge.supervisor import kernel
from overspan.bridge.supervisor.commands import find_shell

TRY_SECONDS = 5


class Target(NamedTuple):
    """What to try, from where and with which environment."""

    ready: Ready
    address: str
    cwd: str
    environment: dict[str, str]


class _Trial(NamedTuple):
    pid: int
    started: float


class Probes:
    """One trial at a time for each (task, attempt) that is watched."""

    def __init__(self) -> None:
        self._targets: dict[tuple[str, int], Target] = {}
        self._trials: dict[tuple[str, int], _Trial] = {}
        self._next: dict[tuple[str, int], float] = {}

    def watch(self, task: str, attempt: int, target: Target, now: float) -> None:
        """Begin to try."""
        self._targets[task, attempt] = target
        self._next[task, attempt] = now

    def forget(self, task: str, attempt: int) -> None:
        """Stop trying."""
        self._targets.pop((task, attempt), None)
        self._next.pop((task, attempt), None)
        trial = self._trials.pop((task, attempt), None)
        if trial is not None:
            _end(trial)

    def step(self, now: float) -> list[tuple[str, int]]:
        """Look at the trials and begin those that are due; gives what has become ready."""
        ready = []
        for name, trial in list(self._trials.items()):
            status = _status(trial, now)
            if status is None:
                continue
            del self._trials[name]
            if status == 0:
                ready.append(name)
                self.forget(*name)
            else:
                self._next[name] = now + self._targets[name].ready.period
        for name, due in list(self._next.items()):
            if due <= now and name not in self._trials:
                del self._next[name]
                self._trials[name] = _Trial(_fork(self._targets[name]), now)
        return ready

    @property
    def wake_at(self) -> Optional[float]:
        """When to look again; trials that run are looked at every 20 ms."""
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
        _end(trial)
        return 1
    return None


def _end(trial: _Trial) -> None:
    # The process first: one that was just forked has no group of its own yet, and makes none any more.
    for kill in (os.kill, os.killpg):
        try:
            kill(trial.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    try:
        os.waitpid(trial.pid, 0)
    except ChildProcessError:
        pass


def _fork(target: Target) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        kernel.reset_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        code = 0 if _try(target) else 1
    finally:
        os._exit(code)


def _try(target: Target) -> bool:
    kind, what = target.ready.kind, target.ready.target
    if kind is ReadyKind.FILE:
        return os.path.exists(os.path.join(target.cwd, what))
    if kind is ReadyKind.COMMAND:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.chdir(target.cwd)
        os.execve(find_shell(), [find_shell(), "-c", what], target.environment)
    port, _, path = what.partition("/")
    with socket.create_connection((target.address or "127.0.0.1", int(port)), timeout=TRY_SECONDS) as connection:
        if kind is ReadyKind.TCP:
            return True
        request = f"GET /{path} HTTP/1.0\r\nHost: {target.address}\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        answer = connection.recv(64).split()
        return len(answer) > 1 and answer[1].startswith((b"2", b"3"))
