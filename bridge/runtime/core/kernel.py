"""Thin, typed wrappers of Linux calls and of the parts of /proc that the supervisor needs.

Everything that leaves the interpreter by ctypes is here. Calls raise OSError with the kernel's errno. Files are read as
bytes: a codec that is first looked up in a forked shim would be imported there, from files that may be gone by then.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from typing import Any, Optional

from overspan.bridge.model.records import NamedTuple

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
MS_BIND = 0x1000
MS_REC = 0x4000
MS_SLAVE = 1 << 19

_MFD_CLOEXEC = 1
# struct signalfd_siginfo: ssi_signo is its first word, ssi_pid its fourth (signalfd(2)).
_SIGINFO_SIZE = 128
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
# One number on every architecture, as for all calls since Linux 5.0 (asm-generic/unistd.h).
_NR_PIDFD_SEND_SIGNAL = 424
_NR_PIDFD_OPEN = 434

_libc = ctypes.CDLL(None, use_errno=True)
# Without errno and without a release of the interpreter's lock: shims call it, and keep every page that a call touches.
_prctl = ctypes.PyDLL(None).prctl


class Process(NamedTuple):
    """One line of /proc/PID/stat: `state` is its letter, `start_time` is in clock ticks since boot (proc(5))."""

    pid: int
    parent: int
    state: str
    start_time: int


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _call(number: int, *arguments: int) -> int:
    _libc.syscall.restype = ctypes.c_long
    values: list[Any] = [ctypes.c_long(number)]
    values.extend(ctypes.c_long(argument) for argument in arguments)
    return int(_libc.syscall(*values))


def set_subreaper() -> None:
    """Make this process the parent of every orphan below it (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    if _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def set_dumpable() -> None:
    """Give /proc/self back to this process's own user, which a change of uid without exec takes away."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl")


def unshare(flags: int) -> None:
    """Leave the namespaces named by the CLONE_ flags; a new user namespace needs a process of one thread."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, flags: int, kind: str = "", options: str = "") -> None:
    """Mount `source` on `target` (mount(2)); `kind` is the file system's name, not needed for a bind."""
    result = _libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None
    )
    _check(result, "mount on " + target)


def bind_mount(source: str, target: str) -> None:
    """Show the file or folder `source` in the place of `target`."""
    mount(source, target, MS_BIND)


def join_namespaces(pid: int) -> None:
    """Enter the user, IPC, network, UTS and mount namespaces of a process that are not this one's (setns(2))."""
    for name in ("user", "ipc", "net", "uts", "mnt"):
        theirs = f"/proc/{pid}/ns/{name}"
        if os.stat(theirs) == os.stat(f"/proc/self/ns/{name}"):
            continue
        fd = os.open(theirs, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(fd, 0), f"setns {name}")
        finally:
            os.close(fd)


def detach_mounts() -> None:
    """Keep this namespace's mounts from the host; what the host mounts later (automounts) still comes in."""
    mount("none", "/", MS_REC | MS_SLAVE)


def set_hostname(name: str) -> None:
    """Set the host name of this UTS namespace."""
    text = name.encode()
    _check(_libc.sethostname(text, ctypes.c_size_t(len(text))), "sethostname")


def set_comm(name: str) -> None:
    """Set this process's name, at most 15 bytes, so that kills by name do not take it for another Python."""
    _prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def create_memfd(data: bytes) -> int:
    """Make a file in memory that holds `data`, to be read from its start; raises OSError, also where there are none."""
    if not hasattr(_libc, "memfd_create"):
        raise OSError(errno.ENOSYS, "memfd_create: " + os.strerror(errno.ENOSYS))
    fd = _check(_libc.memfd_create(b"overspan", _MFD_CLOEXEC), "memfd_create")
    done = 0
    try:
        while done < len(data):
            done += os.pwrite(fd, data[done:], done)
    except OSError:
        os.close(fd)
        raise
    return fd


def read_file(path: str) -> bytes:
    """Read a whole file with no more than system calls: a shim's memory is what it touches."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return read_descriptor(fd)
    finally:
        os.close(fd)


def read_descriptor(fd: int) -> bytes:
    """Read to the end of file, from where the descriptor stands."""
    data = part = os.read(fd, 65536)
    while part:
        part = os.read(fd, 65536)
        data += part
    return data


def load_library(name: str) -> str:
    """Load a library by its plain name, as the loader finds it, and give its path; empty when there is none."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return ""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            words = line.split(None, 5)
            if len(words) == 6 and os.path.basename(words[5].strip()).startswith(name):
                return words[5].strip()
    return ""


def open_pidfd(pid: int) -> Optional[int]:
    """Open a pidfd with close-on-exec; None where the kernel has none (before Linux 5.3, or filtered).

    Raises ProcessLookupError when there is no such process.
    """
    result = _call(_NR_PIDFD_OPEN, pid, 0)
    if result >= 0:
        return result
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
        return None
    raise OSError(number, "pidfd_open: " + os.strerror(number))


def send_pidfd_signal(pidfd: int, signum: int) -> None:
    """Signal the process behind a pidfd; raises ProcessLookupError when it has ended and been reaped."""
    _check(_call(_NR_PIDFD_SEND_SIGNAL, pidfd, signum, 0, 0), "pidfd_send_signal")


def read_boot_id() -> str:
    """Give the id of this boot: start times of another boot mean nothing."""
    try:
        return read_file("/proc/sys/kernel/random/boot_id").decode().strip()
    except OSError:
        return ""


def read_process(pid: int) -> Optional[Process]:
    """Read /proc/PID/stat; None when there is no such process."""
    try:
        text = read_file(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name stands in brackets and may hold brackets and spaces itself.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    state = fields[0].decode()
    if state == "Z" and int(fields[17]) > 1:
        state = "S"  # only the first thread has ended, the process lives on
    return Process(pid, int(fields[1]), state, int(fields[19]))


def read_start_time(pid: int) -> int:
    """Give a process's start time in clock ticks since boot; 0 when there is no such process."""
    process = read_process(pid)
    return process.start_time if process is not None else 0


def list_pids() -> list[int]:
    """List the process ids that /proc shows."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read_children(pid: int) -> list[int]:
    """List a process's children: of all its threads; by a scan of /proc where the kernel has no `children` files."""
    folder = f"/proc/{pid}/task"
    children: list[int] = []
    try:
        tasks = os.listdir(folder)
    except OSError:
        return children
    for task in tasks:
        try:
            children.extend(int(word) for word in read_file(f"{folder}/{task}/children").split())
        except FileNotFoundError:
            if os.path.isdir(f"{folder}/{task}"):
                return _scan_children(pid)
        except OSError:
            continue
    return children


def _scan_children(pid: int) -> list[int]:
    processes = (read_process(candidate) for candidate in list_pids())
    return [process.pid for process in processes if process is not None and process.parent == pid]


def signal_process(process: Process, signum: int) -> bool:
    """Signal exactly this process, not a later one with its pid; False when it is gone or not ours to signal."""
    try:
        pidfd = open_pidfd(process.pid)
        try:
            if read_start_time(process.pid) != process.start_time:
                return False
            if pidfd is None:
                os.kill(process.pid, signum)
            else:
                send_pidfd_signal(pidfd, signum)
        finally:
            if pidfd is not None:
                os.close(pidfd)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def list_tree(root: int) -> list[Process]:
    """List the living processes below `root`, parents first, without `root` and without zombies."""
    found: list[Process] = []
    queue: list[int] = read_children(root)
    seen = {root}
    while queue:
        pid = queue.pop(0)
        if pid in seen:
            continue
        seen.add(pid)
        process = read_process(pid)
        if process is not None and process.state not in "ZX":
            found.append(process)
        queue.extend(read_children(pid))
    return found


def signal_tree(root: int, signum: int) -> tuple[int, ...]:
    """Signal everything below `root`, parents first; gives the pids that were reached.

    The tree is read twice before the first signal, because `children` may miss one when another ends meanwhile
    (proc(5)), and never after it: what a handler starts in answer, to save its work, is not signalled.
    """
    processes = list_tree(root)
    known = set(processes)
    processes.extend(process for process in list_tree(root) if process not in known)
    return tuple(process.pid for process in processes if signal_process(process, signum))


def signal_below(root: int, name: str, signum: int) -> tuple[int, ...]:
    """Signal what is below each process of that name under `root`, as `signal_tree` does; gives the pids reached."""
    reached: list[int] = []
    for process in list_tree(root):
        if read_comm(process.pid) == name:
            reached.extend(signal_tree(process.pid, signum))
    return tuple(reached)


def reset_signals() -> None:
    """Give every signal its default action: handlers and ignored signals are inherited by fork."""
    signal.set_wakeup_fd(-1)
    changed = 0
    for line in read_file("/proc/self/status").split(b"\n"):
        if line.startswith((b"SigIgn:", b"SigCgt:")):
            changed |= int(line[7:], 16)
    for number in range(1, changed.bit_length() + 1):
        # 32 and 33 are the C library's own.
        if changed >> (number - 1) & 1 and number not in (32, 33):
            signal.signal(number, signal.SIG_DFL)


class SignalInfo(NamedTuple):
    """One signal that was taken from a signal descriptor: its number and the process that sent it."""

    number: int
    sender: int


def open_signalfd(signals: frozenset[int]) -> int:
    """A descriptor that is readable while one of these signals is pending; they have to be blocked (signalfd(2))."""
    mask = (ctypes.c_ulong * (128 // ctypes.sizeof(ctypes.c_ulong)))()
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    for number in signals:
        mask[(number - 1) // bits] |= 1 << (number - 1) % bits
    return _check(_libc.signalfd(-1, mask, os.O_CLOEXEC | os.O_NONBLOCK), "signalfd")


def read_signalfd(fd: int) -> list[SignalInfo]:
    """The signals that are pending."""
    found: list[SignalInfo] = []
    while True:
        try:
            data = os.read(fd, _SIGINFO_SIZE * 16)
        except BlockingIOError:
            return found
        for start in range(0, len(data), _SIGINFO_SIZE):
            words = memoryview(data)[start : start + 16].cast("I")
            found.append(SignalInfo(words[0], words[3]))


def set_parent_death_signal(signum: int) -> None:
    """Have this process signalled when its parent ends (prctl(2), PR_SET_PDEATHSIG)."""
    _prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)


def read_comm(pid: int) -> str:
    """A process's name; empty when there is no such process."""
    try:
        return read_file(f"/proc/{pid}/comm").decode("utf-8", "replace").strip()
    except OSError:
        return ""
