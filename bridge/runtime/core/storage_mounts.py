"""Folders of object stores as FUSE mounts in a program's own mount namespace, without root.

The server of the mounts is started outside of the namespace, before it is entered, and gets the descriptors: so the
namespace ends with the last process of the program, the kernel ends the mounts with it, and the server ends with them.
A server that is killed leaves mounts that answer ENOTCONN.

    gated child -- fork, exec --> server
                -- unshare, mount, descriptors of /dev/fuse --> server
                <-- ready
                -- exec --> the user's program
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping, Sequence
from typing import NoReturn

from overspan.bridge.runtime.core import isolation, kernel, sockets
from overspan.bridge.runtime.core.isolation import Isolation
from overspan.bridge.runtime.core.shortages import is_shortage
from overspan.bridge.runtime.core.sockets import Socket

READY = b"R"
"""What a server says that has all its mounts."""
_DEVICE = "/dev/fuse"
_KIND = "fuse.overspan"
_MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
"""Blocks of one size come and go in many threads: one heap, whose pages are kept (mallopt(3))."""
_MS_NOSUID, _MS_NODEV = 2, 4
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")


class FileServer:
    """The server of a program's mounts, as the gated child has it until the program is started."""

    def __init__(self, words: Sequence[str], mark: tuple[str, str]) -> None:
        """Start it: `words`, with a descriptor's number before the last. `mark` is a variable that it is found by.

        Raises OSError.
        """
        self._line, theirs = sockets.create_pair()
        environment = {**_MEMORY, **{name: os.environ[name] for name in _KEPT if name in os.environ}}
        environment[mark[0]] = mark[1]
        pid = os.fork()
        if pid == 0:
            _become_server(words, environment, theirs, self._line)
        theirs.close()
        # Its child is not the program's: it is left to the shim.
        os.waitpid(pid, 0)

    def serve(self, folders: Sequence[str], own: Isolation) -> None:
        """Mount a file system on each folder, in a namespace of this process's own, and have it served.

        Raises OSError.
        """
        if own.method != isolation.NAMESPACE:
            isolation.enter_namespaces()
        hand_over(self._line, folders)


def hand_over(line: Socket, folders: Sequence[str]) -> None:
    """Mount a file system on each folder, and have the server at the other end of a line serve them. Raises OSError."""
    for folder in folders:
        fd = mount_folder(folder)
        sockets.send_descriptor(line, b"M", fd)
        os.close(fd)
    ready = line.recv(1) == READY
    line.close()
    if not ready:
        raise OSError(errno.EIO, "the server of the mounted folders ended at its start")


def mount_folder(folder: str) -> int:
    """Mount a FUSE file system on a folder, and give the descriptor by which it is served. Raises OSError."""
    fd = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    try:
        # allow_other: other users that a program becomes see the folder too; there are none outside of its namespace.
        options = (
            f"fd={fd},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()},default_permissions,allow_other"
        )
        kernel.mount("overspan", folder, _MS_NOSUID | _MS_NODEV, _KIND, options)
    except OSError:
        os.close(fd)
        raise
    return fd


def probe_mounts(folder: str) -> str:
    """Try a mount on that folder in a child process; why it does not work here, empty where it does.

    Raises OSError where this node is short of what that needs: it may work in a moment.
    """
    return isolation.ask_child(lambda: _try_mount(folder))


def explain_mount(error: OSError) -> str:
    """Why a folder cannot be mounted, in words."""
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
        return f"there is no {_DEVICE} on this node"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{_DEVICE} or a namespace of its own is not allowed to this user: its mode has to be 0666 ({error})"
    return str(error)


def _try_mount(folder: str) -> str:
    try:
        isolation.enter_namespaces()
    except OSError as error:
        return isolation.find_obstacle(error)
    try:
        mount_folder(folder)
    except OSError as error:
        if is_shortage(error):
            raise
        return explain_mount(error)
    return ""


def _become_server(words: Sequence[str], environment: Mapping[str, str], line: Socket, other: Socket) -> NoReturn:
    try:
        if os.fork():
            os._exit(0)
        other.close()
        os.chdir("/")
        # Signals to the program's tree are not for it; this one mask survives exec.
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)
        os.set_inheritable(line.fileno(), True)
        os.execve(words[0], [*words[:-1], str(line.fileno()), words[-1]], dict(environment))
    finally:
        os._exit(127)
