"""The process of one rank: a fork that becomes the user's program, and srun's ends of its pipes or terminal."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Mapping
from typing import Any, NoReturn

from overspan.bridge.runtime.core import kernel

PIPE = "|"
"""In the place of a path: a pipe to srun. An empty path is the null device."""


class RankProcess:
    """A rank that was started. Descriptors are -1 where it reads or writes a file of its own."""

    def __init__(self, number: int, pid: int, descriptors: tuple[int, int, int], terminal: bool) -> None:
        self.number = number
        self.pid = pid
        self.stdin, self.stdout, self.stderr = descriptors
        self.terminal = terminal
        """Whether all of them are one pseudo terminal."""
        self.pending = bytearray()
        """Input that it has not taken yet."""
        self.ending = False
        """Whether its input ends behind what is pending."""
        self.status: int | None = None
        """Its wait status, once it has ended."""

    def resize(self, rows: int, columns: int) -> None:
        """Give its terminal another size."""
        if self.terminal and self.stdout >= 0:
            set_window(self.stdout, rows, columns)


def set_window(fd: int, rows: int, columns: int) -> None:
    """Set a terminal's size (ioctl_tty(2))."""
    try:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    except OSError:
        pass


def start_rank(request: Mapping[str, Any], row: Mapping[str, Any], environment: Mapping[str, str]) -> RankProcess:
    """Fork one rank of a request; later failures show on its stderr and in its exit code."""
    runner = os.getpid()
    if request.get("terminal") and row["number"] == 0:
        return _start_on_terminal(request, row, environment, runner)
    pipes = [os.pipe() if row[name] == PIPE else (-1, -1) for name in ("stdin", "stdout", "stderr")]
    theirs = (pipes[0][0], pipes[1][1], pipes[2][1])
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            _become(request, row, environment, runner, theirs)
        finally:
            os._exit(1)
    for fd in theirs:
        if fd >= 0:
            os.close(fd)
    mine = (pipes[0][1], pipes[1][0], pipes[2][0])
    for fd in mine:
        if fd >= 0:
            os.set_blocking(fd, False)
    return RankProcess(row["number"], pid, mine, terminal=False)


def _start_on_terminal(
    request: Mapping[str, Any], row: Mapping[str, Any], environment: Mapping[str, str], runner: int
) -> RankProcess:
    master, slave = os.openpty()
    rows, columns = request["terminal"]
    if rows and columns:
        set_window(slave, rows, columns)
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            _become(request, row, environment, runner, (slave, slave, slave))
        finally:
            os._exit(1)
    os.close(slave)
    os.set_blocking(master, False)
    return RankProcess(row["number"], pid, (master, master, -1), terminal=True)


def _become(
    request: Mapping[str, Any],
    row: Mapping[str, Any],
    environment: Mapping[str, str],
    runner: int,
    descriptors: tuple[int, int, int],
) -> NoReturn:
    try:
        kernel.set_parent_death_signal(signal.SIGKILL)
        if os.getppid() != runner:
            os._exit(1)
        _enter(request["directory"])
        os.umask(request["umask"])
        _open_streams(request, row, descriptors)
    except OSError as error:
        _say(f"slurmstepd: error: {error.filename or 'start'}: {error.strerror}")
        os._exit(1)
    kernel.reset_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    pid = str(os.getpid())
    _execute(row["argv"], {**environment, "SLURM_TASK_PID": pid})


def _enter(directory: str) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        _say(
            f"slurmstepd: error: couldn't chdir to `{directory}': {os.strerror(error.errno or 0)}:"
            " going to /tmp instead"
        )
        os.chdir("/tmp")


def _open_streams(request: Mapping[str, Any], row: Mapping[str, Any], descriptors: tuple[int, int, int]) -> None:
    # Append also where a file is written anew: two descriptors of one file then do not overwrite each other.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if request["append"] else os.O_TRUNC)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        fd = descriptors[number]
        if fd < 0 and number == 2 and row["stderr"] == row["stdout"]:
            os.dup2(1, 2)
            continue
        if fd < 0:
            fd = os.open(row[name] or os.devnull, os.O_RDONLY if number == 0 else flags, 0o666)
        os.dup2(fd, number)
    os.closerange(3, 65536)


def _execute(argv: list[str], environment: dict[str, str]) -> NoReturn:
    name = argv[0]
    folders = environment["PATH"].split(":") if "PATH" in environment else []
    candidates = [name] if "/" in name else [os.path.join(folder or ".", name) for folder in folders] or [name]
    number = errno.ENOENT
    for candidate in candidates:
        try:
            os.execve(candidate, argv, environment)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                number = error.errno or errno.ENOENT
    _say(f"slurmstepd: error: execve(): {name}: {os.strerror(number)}")
    os._exit(number)


def _say(text: str) -> None:
    os.write(2, (text + "\n").encode("utf-8", "surrogateescape"))
