"""A step whose srun runs on a cluster's login node or in a pod, with this process's streams and signals."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from overspan.bridge.config.paths import find_paths

_PASSED = ("INT", "QUIT", "TERM", "HUP", "USR1", "USR2", "ALRM", "CONT")
"""Signals that srun has of its own (srun(1)); the guard hands them on."""
_ENDING = frozenset({signal.SIGTERM, signal.SIGHUP})
_END_SECONDS = 15.0
"""How long srun has to end after such a signal, or its allocation's end. Then the connection is assumed to hang."""
_LOOK_SECONDS = 1.0
_GUARD_SECONDS = 3.0
_SLOTS = 3
"""Steps that share the daemon's connection: a server allows ten commands on one, a step has two, the daemon four."""


def take_slot(environment: Mapping[str, str]) -> bool:
    """Whether this process may share the daemon's connection for its step, from now to its end."""
    for number in range(_SLOTS):
        path = os.path.join(find_paths(environment).runtime, f"step.{number}")
        try:
            # Kept open on purpose: the lock ends with the process.
            slot = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return True
        try:
            fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            os.close(slot)
    return False


def run_step(
    found: Mapping[str, Any], environment: Mapping[str, str], is_over: Callable[[], bool] = lambda: False
) -> int:
    """Run what the daemon has prepared; gives the exit code of the step's srun. Raises OSError.

    `is_over` tells that the allocation has ended: then the step has as well, even if the connection to it stays open.
    """
    guard = subprocess.Popen(
        found["guard"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(environment),
        start_new_session=True,
    )
    assert guard.stdin is not None
    try:
        # A session of its own: signals of the terminal go to srun, and must not end the connection to it.
        last_line = str(found.get("last_line", ""))
        errors = subprocess.PIPE if last_line else None
        step = subprocess.Popen(
            found["words"], stdin=_find_input(), stderr=errors, env=dict(environment), start_new_session=True
        )
        copy = _copy_errors(step.stderr, last_line) if step.stderr is not None else None
        code = _Watch(step, guard.stdin, is_over).wait()
        if copy is not None:
            copy.join(_LOOK_SECONDS)
        return code
    finally:
        _close(guard)


def _copy_errors(source: IO[bytes], last_line: str) -> threading.Thread:
    """Pass standard error on as it comes, without the last line that matches."""
    own = re.compile(last_line.encode())

    def copy() -> None:
        kept = b""
        while piece := os.read(source.fileno(), 1 << 16):
            kept += piece
            start = kept.rfind(b"\n", 0, -1) + 1
            if not own.fullmatch(kept, start):
                start = len(kept)
            _write(kept[:start])
            kept = kept[start:]

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def _write(data: bytes) -> None:
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        # The reader of stderr has closed it; the step goes on.
        pass


def _close(guard: subprocess.Popen[bytes]) -> None:
    """Let go of a guard, which then ends srun if it still runs; the connection to it may hang."""
    assert guard.stdin is not None
    try:
        guard.stdin.close()
    except OSError:
        pass
    try:
        guard.wait(_GUARD_SECONDS)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()


class _Watch:
    """Waits for a step while signals come."""

    def __init__(self, step: subprocess.Popen[bytes], guard: IO[bytes], is_over: Callable[[], bool]) -> None:
        self._step, self._guard, self._is_over = step, guard, is_over
        self._end_by = float("inf")
        for name in _PASSED:
            signal.signal(getattr(signal, f"SIG{name}"), self._pass)
        # srun would go on reading the terminal, so this process must not stop.
        signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        signal.signal(signal.SIGWINCH, lambda number, frame: step.send_signal(number))

    def wait(self) -> int:
        """The step's exit code; 128 + the signal's number where the connection was killed."""
        while True:
            try:
                code = self._step.wait(_LOOK_SECONDS)
                return 128 - code if code < 0 else code
            except subprocess.TimeoutExpired:
                if self._is_over():
                    self._end_by = min(self._end_by, time.monotonic() + _END_SECONDS)
                if time.monotonic() > self._end_by:
                    self._step.kill()

    def _pass(self, number: int, frame: object) -> None:
        if number in _ENDING:
            self._end_by = min(self._end_by, time.monotonic() + _END_SECONDS)
        if not _tell(self._guard, signal.Signals(number).name[3:]):
            # The connection is gone, so the signal cannot be passed on.
            self._step.terminate()


def _tell(guard: IO[bytes], word: str) -> bool:
    try:
        guard.write(f"{word}\n".encode())
        guard.flush()
    except (OSError, ValueError):
        return False
    return True


def _find_input() -> int | None:
    """Standard input for srun: inherited (None), or /dev/null where the terminal's foreground is another process's."""
    try:
        if os.isatty(0) and os.tcgetpgrp(0) != os.getpgrp():
            return subprocess.DEVNULL
    except OSError:
        # The terminal has no foreground process group: no shell with job control hands it over here.
        pass
    return None


def is_terminal(words: Sequence[str]) -> bool:
    """Whether the step gets this process's terminal: --pty was given and there is a terminal."""
    from overspan.bridge.model.options.srun import parse_words

    return parse_words("srun", words)[0].has("pty") and os.isatty(0) and os.isatty(1)
