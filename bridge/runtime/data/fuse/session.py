"""The loop of a FUSE server: takes requests of the kernel, has threads answer them, and writes the answers.

A program that is being killed is let go at once: its request is answered although the store has not answered. Other
signals do not end a request, since few programs expect that of a file.
"""

from __future__ import annotations

import errno
import os
import select
import threading
import traceback
from typing import Callable, Optional, Protocol

from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.data.fuse import protocol
from overspan.bridge.runtime.data.fuse.protocol import Buffer, Request
from overspan.bridge.runtime.data.fuse.threads import open_pool

Reply = tuple[Buffer, ...]

_LOOK_MILLISECONDS = 100
"""Between two looks whether a program that waits is being killed."""
_WAITING = 32
"""Requests that may wait for the store at once."""
_WRITING = 8
"""Those that may wait for the disk."""
PROC = "/proc"
_KILLED = 1 << 8
"""SIGKILL in the masks of /proc/PID/status."""


class FuseOperations(Protocol):
    """What answers requests."""

    def answer(self, request: Request) -> Reply:
        """Answer a request. Raises OSError."""

    def answer_now(self, request: Request) -> Optional[Reply]:
        """The answer where that takes no wait."""

    def is_local(self, request: Request) -> bool:
        """Whether no store is asked for it."""

    def forget(self, node: int, count: int) -> None:
        """The kernel knows a node so many times less."""

    def undo(self, request: Request, reply: Reply) -> None:
        """Nobody takes the answer any more."""


class FuseSession:
    """One mount, by its descriptor of /dev/fuse. `proc` is where the processes that have mounted it are seen."""

    def __init__(self, fd: int, operations: FuseOperations, log: Callable[[str], None], proc: str = PROC) -> None:
        """Start its threads. Raises OSError."""
        self._proc = proc
        self._fd = fd
        self._operations = operations
        self._log = log
        self._lock = threading.Lock()
        self._open: dict[int, Request] = {}
        """Requests that are not answered."""
        self._interrupted: dict[int, Request] = {}
        self._store_threads = open_pool(_WAITING)
        self._disk_threads = open_pool(_WRITING)

    def serve(self) -> None:
        """Answer until the folder is mounted nowhere any more."""
        buffer = memoryview(bytearray(protocol.REQUEST_SIZE))
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        while True:
            if self._interrupted and not poller.poll(_LOOK_MILLISECONDS):
                self._let_go()
                continue
            try:
                size = os.readv(self._fd, [buffer])
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno not in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    raise
                continue
            if not size:
                return
            self._take(protocol.parse_request(buffer[:size]))

    def _take(self, request: Request) -> None:
        code = request.opcode
        if code == protocol.FORGET:
            self._operations.forget(request.node, request.unpack("Q")[0])
        elif code == protocol.BATCH_FORGET:
            count = request.unpack("II")[0]
            numbers = request.unpack("8x" + "QQ" * count)
            for node, lookups in zip(numbers[::2], numbers[1::2]):
                self._operations.forget(node, lookups)
        elif code == protocol.INTERRUPT:
            number = request.unpack("Q")[0]
            with self._lock:
                if number in self._open:
                    self._interrupted[number] = self._open[number]
        elif code == protocol.INIT:
            self._write(protocol.encode_reply(request.unique, (protocol.encode_init(request),)))
        elif code == protocol.DESTROY:
            self._write(protocol.encode_reply(request.unique))
        else:
            self._begin(request)
        if self._interrupted:
            self._let_go()

    def _begin(self, request: Request) -> None:
        reply = self._operations.answer_now(request)
        if reply is not None:
            self._write(protocol.encode_reply(request.unique, reply))
            return
        with self._lock:
            self._open[request.unique] = request
        threads = self._disk_threads if self._operations.is_local(request) else self._store_threads
        threads.submit(self._answer, request)

    def _answer(self, request: Request) -> None:
        reply: Reply = ()
        number = 0
        try:
            reply = self._operations.answer(request)
        except OSError as error:
            number = error.errno or errno.EIO
        except BaseException:
            self._log(traceback.format_exc())
            number = errno.EIO
        if self._finish(request):
            self._write(protocol.encode_reply(request.unique, reply, number))
        elif not number:
            self._operations.undo(request, reply)

    def _finish(self, request: Request) -> bool:
        """Whether a request is still to be answered, from now on no more."""
        with self._lock:
            self._interrupted.pop(request.unique, None)
            return self._open.pop(request.unique, None) is not None

    def _let_go(self) -> None:
        """Answer the requests of programs that are being killed."""
        with self._lock:
            interrupted = list(self._interrupted.values())
        for request in interrupted:
            if is_killed(request.pid, self._proc) and self._finish(request):
                self._write(protocol.encode_reply(request.unique, (), errno.EINTR))

    def _write(self, parts: list[Buffer]) -> None:
        try:
            os.writev(self._fd, parts)
        except OSError as error:
            # ENOENT: the request was given up; ENODEV: the mount.
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                self._log(f"span: error: an answer to the kernel failed: {error}")


def is_killed(pid: int, proc: str = PROC) -> bool:
    """Whether a process is gone, or is being killed: the kernel gives each of its threads a KILL then."""
    try:
        text = kernel.read_file(f"{proc}/{pid}/status")
    except OSError:
        return True
    masks = (line[7:] for line in text.split(b"\n") if line.startswith((b"SigPnd:", b"ShdPnd:")))
    return any(int(mask, 16) & _KILLED for mask in masks)
