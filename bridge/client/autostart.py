"""Connects to the daemon, and starts it on first use.

Two commands that find no daemon at the same moment start one: the starter holds a lock, the other waits for the
socket. Nothing is removed here; a stale socket is the daemon's to replace.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

from overspan.bridge.client.connection import HttpConnection
from overspan.bridge.config.disk_space import find_shortage, is_full, word_shortage
from overspan.bridge.config.paths import Paths, make_folders
from overspan.bridge.model.errors import OverspanError, Unreachable

MODULE = "overspan.bridge.api"
START_SECONDS = 30.0
END_SECONDS = 20.0
_PAUSE = 0.01
_LOG_TAIL = 8192


def connect(paths: Paths, timeout: float) -> HttpConnection | None:
    """Connect to a daemon that runs; None when there is none. Raises Unreachable for every other obstacle."""
    try:
        return HttpConnection(paths.socket, timeout)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except TimeoutError:
        raise Unreachable("the daemon does not accept connections", remedy=f"look into {paths.log}") from None
    except OSError as error:
        raise Unreachable(f"cannot use the socket {paths.socket}: {error.strerror}") from None


def ensure_daemon(paths: Paths, environment: Mapping[str, str], timeout: float) -> HttpConnection:
    """Connect to the daemon, starting it first if there is none. Raises Unreachable when it cannot be started."""
    connection = connect(paths, timeout)
    if connection is not None:
        return connection
    if environment.get("SPAN_AUTOSTART") == "0":
        raise Unreachable("the daemon is not running", remedy="start it with `span daemon`, or unset SPAN_AUTOSTART")
    make_folders(paths)
    deadline = time.monotonic() + START_SECONDS
    try:
        lock = os.open(paths.start_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _word_failure(paths, error, f"cannot write to the state folder {paths.state}") from None
    try:
        return _start_under_lock(paths, environment, lock, deadline)
    finally:
        os.close(lock)


def watch_end(pid: int) -> int:
    """A pidfd, readable once the process has ended; -1 if there is none."""
    # One that serves from within this process will not end.
    if pid in (0, os.getpid()):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def await_end(end: int) -> None:
    """Wait for what `watch_end` gave, for END_SECONDS at most: until then no other daemon can start."""
    if end >= 0:
        import select

        select.select([end], [], [], END_SECONDS)


def _start_under_lock(paths: Paths, environment: Mapping[str, str], lock: int, deadline: float) -> HttpConnection:
    while True:
        locked = _try_lock(lock)
        connection = connect(paths, timeout=5.0)
        if connection is not None:
            return connection
        if locked:
            return _start(paths, environment, deadline)
        if time.monotonic() > deadline:
            raise Unreachable("another command is starting the daemon, in vain", remedy=f"look into {paths.log}")
        time.sleep(_PAUSE)


def _try_lock(lock: int) -> bool:
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _start(paths: Paths, environment: Mapping[str, str], deadline: float) -> HttpConnection:
    try:
        log = os.open(paths.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _word_failure(paths, error, f"cannot write {paths.log}") from None
    try:
        start = os.fstat(log).st_size
        pid = _spawn(log, environment)
    except OSError as error:
        raise Unreachable(f"cannot start the daemon: {error.strerror}") from None
    finally:
        os.close(log)
    status: int | None = None
    while time.monotonic() < deadline:
        # Asked before connecting: a daemon that gave way to another one has ended, and the other answers.
        status = _poll(pid) if status is None else status
        connection = connect(paths, timeout=5.0)
        if connection is not None:
            return connection
        if status is not None:
            raise _word_end(paths, start, status)
        time.sleep(_PAUSE)
    raise Unreachable(
        f"the daemon was started but does not answer after {START_SECONDS:.0f} s", remedy=f"look into {paths.log}"
    )


def _spawn(log: int, environment: Mapping[str, str]) -> int:
    """Start the daemon in a session of its own; -P keeps modules of the present folder out of it."""
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", MODULE],
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
        ],
        setsid=True,
    )


def _poll(pid: int) -> int | None:
    """The exit code of a child that has ended, minus the signal that killed it; None while it runs."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status) if done else None


def _word_failure(paths: Paths, error: OSError, what: str) -> OverspanError:
    if is_full(error):
        shortage = word_shortage(paths.state, error.errno or 0)
        return Unreachable(f"the daemon cannot start: {shortage.message}", remedy=shortage.remedy)
    return OverspanError(f"{what}: {error.strerror}")


def _word_end(paths: Paths, start: int, status: int) -> Unreachable:
    """The error about a daemon that ended at once. A full disk may have kept it from saying why in its log."""
    words = _last_words(paths.log, start)
    shortage = None if words else find_shortage(paths.state)
    if shortage is not None:
        return Unreachable(f"the daemon cannot start: {shortage.message}", remedy=shortage.remedy)
    text = f"the daemon cannot start: {words}" if words else f"the daemon ended at once with exit code {status}"
    return Unreachable(text, remedy=f"look into {paths.log}")


def _last_words(log: str, start: int) -> str:
    """The error that a daemon wrote to its log last; empty if there is none."""
    try:
        with open(log, "rb") as stream:
            stream.seek(max(start, os.fstat(stream.fileno()).st_size - _LOG_TAIL))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in reversed(lines):
        _, mark, text = line.partition("span: error: ")
        if mark:
            return text
    return ""
