"""The fork server: a process from which all supervisors of a local cluster are forked, so that they share its pages.

It has imported everything and remembers nothing: a daemon may kill it at any time and start another one. A request on
its stdin is the path of a host directory, with two descriptors: the host's log, and the line, a socket on which is told

    started PID START   by the supervisor itself, as its first act: what was forked is never forked again
    short ERRNO         by the fork server, where it cannot fork
    ended STATUS        by the supervisor, where it ends by itself

The line closes with the last process that could write to it. So a daemon that reads its end of file knows that nothing
was started, even if the fork server was killed in the middle of a request.
"""

from __future__ import annotations

import array
import errno
import gc
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn

from overspan.bridge.model.documents import prepare
from overspan.bridge.model.job import Job
from overspan.bridge.model.records import prepare_all
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.local import supervisor

COMM = "span-forkserver"
"""The name of its process."""
_REQUEST_SIZE = 4096
_DESCRIPTOR_SIZE = array.array("i").itemsize


def main(words: Sequence[str] = ()) -> int:
    """Fork a supervisor for each request on stdin, until end of file."""
    kernel.set_comm(COMM)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    # The kernel reaps supervisors: their lines report how they end.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    prepare(Job)
    prepare_all()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=os.dup(0)) as requests:
        while True:
            path, ancillary, _, _ = requests.recvmsg(
                _REQUEST_SIZE, socket.CMSG_SPACE(2 * _DESCRIPTOR_SIZE), socket.MSG_CMSG_CLOEXEC
            )
            if not path:
                return 0
            descriptors = array.array("i")
            for _, _, data in ancillary:
                descriptors.frombytes(data)
            try:
                if len(descriptors) == 2:
                    _fork(path, descriptors[0], descriptors[1], requests)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)


def _fork(path: bytes, log: int, line: int, requests: socket.socket) -> None:
    try:
        pid = os.fork()
    except OSError as error:
        tell(line, f"short {error.errno or errno.EAGAIN}")
        return
    if pid == 0:
        requests.close()
        _serve(os.fsdecode(path), log, line)


def _serve(path: str, log: int, line: int) -> NoReturn:
    """Be a supervisor like one that was started alone: in a session of its own, with nothing of the fork server."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        pid = os.getpid()
        tell(line, f"started {pid} {kernel.read_start_time(pid)}")
        null = os.open(os.devnull, os.O_RDONLY)
        for number, kept in ((null, 0), (log, 1), (log, 2)):
            os.dup2(number, kept)
        os.close(null)
        os.close(log)
        status = supervisor.serve(path)
        tell(line, f"ended {status}")
    except Exception:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(status)


def tell(line: int, text: str) -> None:
    """Say something on a line; a daemon that has ended does not hear it."""
    try:
        os.write(line, f"{text}\n".encode())
    except OSError:
        pass
