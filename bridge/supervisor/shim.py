"""The shim: one small process a node, forked from the supervisor, that starts the user's program and outlives it.

It writes the start durably before user code runs, passes signals on, writes the end, and kills what is left. A
supervisor that is started again finds it by its record; it never needs its parent.

    supervisor -- fork --> shim (session of its own, subreaper) -- fork --> gated child -- exec --> the user's program

The child prepares everything that can fail (folder, output files, namespaces), reports, and waits at the gate: a pipe
that the shim opens when the start record is on the disk. End of file there means the shim is gone: nothing is started.
"""

from __future__ import annotations

import errno
import gc
import os
import resource  # noqa: F401  os.wait4 would import it in the forked shim, from files that may be gone by then
import signal
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn, Optional

from overspan.bridge.supervisor import isolation as names
from overspan.bridge.supervisor import kernel, processes, records
from overspan.bridge.supervisor.isolation import Isolation
from overspan.bridge.supervisor.processes import Shim
from overspan.bridge.supervisor.records import NodeRecord

_COMM = "span-shim"
_READY = b"R"
_GO = b"G"
# The step of a start that failed because nothing could be written about it.
_RECORD = "record"
# Descriptors above this are not in use by any supervisor.
_DESCRIPTORS = 65536
# Seconds between two rounds of killing, and until a process that cannot be killed is left (Slurm's
# UnkillableStepTimeout, slurm.conf(5)).
_KILL_INTERVAL = 0.02
_UNKILLABLE_TIMEOUT = 60.0
# Seconds between two tries to write the end, and until errors other than a full disk are given up.
_WRITE_INTERVAL = 0.5
_WRITE_TIMEOUT = 60.0
ALL_SIGNALS = frozenset(int(number) for number in signal.valid_signals())
_WATCHED = tuple(processes.FORWARDED | {int(signal.SIGCHLD), processes.KILL_ORDER})
_FULL = (errno.ENOSPC, errno.EDQUOT)


class NodeLaunch(NamedTuple):
    """One node's start: `directory` holds the claim and the record under `key`; it and `cwd` are absolute paths.

    `stdin`, `stdout` and `stderr` are paths, relative ones to `cwd`; an empty one is /dev/null; equal outputs share one
    descriptor. `append` keeps what output files hold. `umask` None keeps the supervisor's.
    """

    directory: str
    key: str
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    append: bool = False
    umask: Optional[int] = None
    isolation: Isolation = Isolation()


class StartError(Exception):
    """A step of the start failed: `step` as in NodeRecord.failed_at, `number` an errno."""

    def __init__(self, step: str, text: str, number: int) -> None:
        super().__init__(text)
        self.step = step
        self.text = text
        self.number = number


class _Child(NamedTuple):
    """The gated child: its pid, the pipe that tells what it reports, the pipe that lets it go."""

    pid: int
    report: int
    gate: int


def spawn(launch: NodeLaunch) -> Shim:
    """Fork the shim that runs one node; returns at once, what happens next is in the record.

    Raises FileExistsError when the key was started before, by anyone, and OSError when it cannot be claimed or forked:
    nothing runs then. A start that fails later is in the record, or, where the disk is full, the node is UNSTARTED and
    the shim's exit status is the errno. Call it from a process of one thread.
    """
    launch = launch._replace(directory=os.path.abspath(launch.directory))
    lock = records.claim(launch.directory, launch.key)
    try:
        # No handler of the supervisor may run in the shim.
        mask = signal.pthread_sigmask(signal.SIG_SETMASK, ALL_SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                kernel.reset_signals()
                run_shim(launch, lock)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    finally:
        os.close(lock)
    return Shim(launch.directory, launch.key, pid, kernel.open_pidfd(pid))


def run_shim(launch: NodeLaunch, lock: int) -> NoReturn:
    """Be the shim of a claimed node; in a forked process, with every signal blocked and at its default action."""
    status = 70  # EX_SOFTWARE, sysexits.h
    try:
        gc.disable()
        _detach(lock)
        status = _serve(launch, lock)
    finally:
        os._exit(status)


def _detach(lock: int) -> None:
    """Leave the supervisor's session, descriptors and folder, so that neither holds the other."""
    os.setsid()
    kernel.set_comm(_COMM)
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        if null != number:
            os.dup2(null, number)
    os.closerange(3, lock)
    os.closerange(lock + 1, _DESCRIPTORS)
    os.chdir("/")


def _serve(launch: NodeLaunch, lock: int) -> int:
    """Run the node from gate to record; gives the shim's exit status: 0, or the errno that kept the record away.

    The child writes the start's record: the memory that takes is gone with its exec, and the shim stays small.
    """
    subreaper = True
    try:
        kernel.set_subreaper()
    except OSError:
        subreaper = False
    try:
        child = _fork_child(launch, lock, subreaper)
    except OSError as error:
        failure = StartError("start", f"cannot fork: {os.strerror(error.errno or 0)}", error.errno or 0)
        return _record_failure(launch, _make_record(os.getpid(), 0, subreaper), failure)
    report = os.read(child.report, 1)
    if report == _READY:
        return _watch(launch, child)
    report += _read_report(child.report, 4096)
    _, status = os.waitpid(child.pid, 0)
    failure = _parse_failure(report, status)
    if failure.step == _RECORD:
        return failure.number or errno.EIO
    return _record_failure(launch, _make_record(os.getpid(), 0, subreaper), failure)


def _make_record(shim: int, pid: int, subreaper: bool) -> NodeRecord:
    return NodeRecord(
        pid,
        shim,
        kernel.read_start_time(shim),
        kernel.read_boot_id(),
        start_time=kernel.read_start_time(pid) if pid else 0,
        started_at=round(time.time(), 6),
        subreaper=subreaper,
    )


def _record_failure(launch: NodeLaunch, record: NodeRecord, failure: StartError) -> int:
    ended = _add_failure(record._replace(ended_at=round(time.time(), 6)), failure)
    try:
        os.close(records.begin_record(launch.directory, launch.key, ended))
    except OSError as error:
        return error.errno or errno.EIO
    records.close_record(launch.directory, launch.key)
    return 0


def _add_failure(record: NodeRecord, failure: StartError) -> NodeRecord:
    return record._replace(
        exit_code=None, signal=None, error=failure.text, failed_at=failure.step, errno=failure.number
    )


def _watch(launch: NodeLaunch, child: _Child) -> int:
    """Let the child go, follow the tree to its end, and complete the record."""
    try:
        os.write(child.gate, _GO)
    except OSError:
        pass  # killed at the gate: its status tells
    os.close(child.gate)
    report = _read_report(child.report, 4096)
    os.close(child.report)
    tree = _Tree(child.pid)
    tree.follow()
    file, ended = _complete(launch, tree)
    if report:
        ended = _add_failure(ended, _parse_failure(report, 0))
    written = _try_update(file, ended)
    killed, left = tree.clear()
    number = 0
    if killed or left or written:
        number = _insist_update(file, ended._replace(strays_killed=killed, strays_left=left))
    # The file is synced and closes with this process.
    records.close_record(launch.directory, launch.key)
    return number


def _complete(launch: NodeLaunch, tree: _Tree) -> tuple[int, NodeRecord]:
    """The start's record, with the end in it, and its open file."""
    record = records.read_record(launch.directory, launch.key)
    if record is None:
        # Somebody removed it; what is known now is better than nothing.
        record = _make_record(os.getpid(), 0, True)
        return records.begin_record(launch.directory, launch.key, record), tree.conclude(record)
    return records.open_record(launch.directory, launch.key), tree.conclude(record)


def _try_update(file: int, record: NodeRecord) -> int:
    try:
        records.update_record(file, record)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _insist_update(file: int, record: NodeRecord) -> int:
    """Write the end, however long the disk stays full; gives the errno of a failure that does not pass."""
    deadline = time.monotonic() + _WRITE_TIMEOUT
    while True:
        number = _try_update(file, record)
        if number == 0 or (number not in _FULL and time.monotonic() > deadline):
            return number
        time.sleep(_WRITE_INTERVAL)


class _Tree:
    """Everything below the shim: the main process first, then what it leaves behind."""

    __slots__ = ("_leader", "_patient", "_status", "_usage")

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._patient = False
        self._status: Optional[int] = None
        self._usage: tuple[float, float, int] = (0.0, 0.0, 0)

    def follow(self) -> None:
        """Wait until the main process has ended, passing signals on."""
        while self._reap() and self._status is None:
            self._obey(signal.sigwaitinfo(_WATCHED).si_signo)

    def conclude(self, record: NodeRecord) -> NodeRecord:
        """The record, completed with the main process's end."""
        ended = processes.conclude(record, self._status or 0)
        user, system, memory = self._usage
        return ended._replace(user_seconds=round(user, 3), system_seconds=round(system, 3), max_rss=memory)

    def clear(self) -> tuple[int, int]:
        """Kill and reap until nothing is left below; gives how many were killed and how many could not be.

        After a SIGTERM the survivors have until the supervisor's SIGKILL.
        """
        killed: set[int] = set()
        deadline = time.monotonic() + _UNKILLABLE_TIMEOUT
        while self._reap():
            if self._patient:
                self._obey(signal.sigwaitinfo(_WATCHED).si_signo)
                deadline = time.monotonic() + _UNKILLABLE_TIMEOUT
                continue
            if time.monotonic() > deadline:
                return len(killed), len(kernel.list_tree(os.getpid()))
            killed.update(kernel.signal_tree(os.getpid(), signal.SIGKILL))
            signal.sigtimedwait({signal.SIGCHLD}, _KILL_INTERVAL)
        return len(killed), 0

    def _reap(self) -> bool:
        """Reap what has ended; tells whether a child is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._leader:
                self._status = status
                self._usage = (usage.ru_utime, usage.ru_stime, usage.ru_maxrss)

    def _obey(self, signum: int) -> None:
        if signum == signal.SIGCHLD:
            return
        if signum == processes.KILL_ORDER:
            self._patient = False
            kernel.signal_tree(os.getpid(), signal.SIGKILL)
            return
        if signum == signal.SIGTERM:
            self._patient = True
        kernel.signal_tree(os.getpid(), signum)
        if signum in processes.ENDING:
            kernel.signal_tree(os.getpid(), signal.SIGCONT)


def _fork_child(launch: NodeLaunch, lock: int, subreaper: bool) -> _Child:
    report_reading, report_writing = os.pipe()
    gate_reading, gate_writing = os.pipe()
    shim = os.getpid()
    pid = os.fork()
    if pid == 0:
        # The lock is the shim's alone: with it, a child could pass for a living shim.
        for number in (lock, report_reading, gate_writing):
            os.close(number)
        _run_child(launch, report_writing, gate_reading, lambda: _make_record(shim, os.getpid(), subreaper))
    os.close(report_writing)
    os.close(gate_reading)
    return _Child(pid, report_reading, gate_writing)


def _run_child(launch: NodeLaunch, report: int, gate: int, make_record: Callable[[], NodeRecord]) -> NoReturn:
    """Prepare, put the start on record, report, wait at the gate, become the user's program."""
    try:
        try:
            os.setsid()
            _prepare(launch)
            environment = names.extend_environment(launch.isolation, launch.env)
            environment[processes.NODE_KEY] = processes.name_node(launch.directory, launch.key)
            _begin_record(launch, make_record())
            os.write(report, _READY)
            if os.read(gate, 1) != _GO:
                os._exit(1)
            # Nothing after this line is undone by the shim: the start is on record.
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            _execute(launch.argv, environment)
        except StartError as error:
            _report_failure(report, error)
        except OSError as error:
            _report_failure(report, StartError("start", str(error), error.errno or 0))
    finally:
        os._exit(127)


def _begin_record(launch: NodeLaunch, record: NodeRecord) -> None:
    try:
        os.close(records.begin_record(launch.directory, launch.key, record))
    except OSError as error:
        raise StartError(_RECORD, f"cannot record the start: {error}", error.errno or 0) from error


def _report_failure(report: int, error: StartError) -> None:
    if error.step == "exec":
        # Where the user looks first; the words of slurmstepd.
        os.write(2, f"span: error: {error.text}\n".encode("utf-8", "backslashreplace"))
    text = f"{error.step}\0{error.number}\0{error.text}"
    os.write(report, text.encode("utf-8", "surrogateescape"))


def _parse_failure(report: bytes, status: int) -> StartError:
    step, _, rest = report.decode("utf-8", "surrogateescape").partition("\0")
    number, _, text = rest.partition("\0")
    if number.isdigit():
        return StartError(step, text, int(number))
    return StartError("start", f"killed before its start (wait status {status})", 0)


def _read_report(fd: int, size: int) -> bytes:
    """Read up to `size` bytes, or to the end of file, which a successful exec gives."""
    parts: list[bytes] = []
    while size > 0:
        part = os.read(fd, size)
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _prepare(launch: NodeLaunch) -> None:
    if launch.umask is not None:
        os.umask(launch.umask)
    try:
        os.chdir(launch.cwd)
    except OSError as error:
        text = f"cannot enter the working directory {launch.cwd}: {os.strerror(error.errno or 0)}"
        raise StartError("directory", text, error.errno or 0) from error
    _open_files(launch)
    try:
        names.enter_isolation(launch.isolation)
    except OSError as error:
        text = f"cannot give this node its names: {names.explain(error)}"
        raise StartError("isolation", text, error.errno or 0) from error


def _open_files(launch: NodeLaunch) -> None:
    _open_as(0, launch.stdin, os.O_RDONLY)
    # Append also without `append`: two descriptors of one file then do not overwrite each other.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if launch.append else os.O_TRUNC)
    _open_as(1, launch.stdout, flags)
    if launch.stderr == launch.stdout:
        os.dup2(1, 2)
    else:
        _open_as(2, launch.stderr, flags)


def _open_as(number: int, path: str, flags: int) -> None:
    try:
        fd = os.open(path or os.devnull, flags | os.O_NOCTTY | os.O_CLOEXEC, 0o666)
    except OSError as error:
        what = "input" if number == 0 else "output"
        text = f"cannot open the {what} file {path}: {os.strerror(error.errno or 0)}"
        raise StartError(what, text, error.errno or 0) from error
    os.dup2(fd, number)
    os.close(fd)


def _execute(argv: tuple[str, ...], environment: dict[str, str]) -> NoReturn:
    """Become the program, found by the PATH of its own environment as a shell finds it (execvp(3))."""
    if not argv or not argv[0]:
        raise StartError("exec", "the command is empty", errno.ENOENT)
    name = argv[0]
    folders = environment.get("PATH", os.defpath).split(":")
    candidates = [name] if "/" in name else [os.path.join(folder or ".", name) for folder in folders]
    number = errno.ENOENT
    for candidate in candidates:
        try:
            os.execve(candidate, argv, environment)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR) or len(candidates) == 1:
                number = error.errno or 0
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                break
        except ValueError as error:
            raise StartError("exec", f"cannot execute {name}: {error}", errno.EINVAL) from error
    raise StartError("exec", f"cannot execute {name}: {os.strerror(number)}", number)
