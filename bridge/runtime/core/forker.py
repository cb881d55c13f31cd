"""The forker: a small process from which all shims of a supervisor are forked.

A shim keeps every page of its parent that the parent changes later. The supervisor changes its pages all the time, the
forker hardly ever: 300 shims forked from it take a fraction of the memory. It is forked before the supervisor has
anything to remember, obeys requests on a socket and ends with the supervisor; shims outlive both.

A request is the path of the node's claim, and a descriptor of a file in memory that holds the rest, which only the
shim's child reads. The forker takes the claim, forks, and answers with the shim's pid, or an errno below zero.
"""

from __future__ import annotations

import errno
import gc
import marshal
import os
import select
import signal
from typing import NoReturn, Optional

from overspan.bridge.model.records import prepare
from overspan.bridge.runtime.core import gated_child, kernel, node_records, sockets
from overspan.bridge.runtime.core.gated_child import StartGate
from overspan.bridge.runtime.core.isolation import Isolation
from overspan.bridge.runtime.core.shim import ALL_SIGNALS, NodeLaunch, detach, hold, run_shim, spawn
from overspan.bridge.runtime.core.shim_control import Shim
from overspan.bridge.runtime.core.sockets import Socket

ANSWER_SECONDS = 20.0
"""Silence after which a forker counts as stopped, as by SIGSTOP, and is killed."""
_REAP_MILLISECONDS = 1000
# The longest path that open(2) takes, and one descriptor.
_REQUEST_SIZE = 4096
_ANSWER_SIZE = 4


class Forker:
    """The supervisor's end: `spawn` as in the module shim, except that another process forks."""

    def __init__(self) -> None:
        self._socket, theirs = sockets.create_pair()
        self.pid = os.fork()
        if self.pid == 0:
            _run(theirs)
        theirs.close()

    def close(self) -> None:
        """Let the forker end; its shims go on."""
        self._socket.close()

    def spawn(self, launch: NodeLaunch) -> Shim:
        """Start a node's shim; FileExistsError and OSError as of `shim.spawn`."""
        launch = launch._replace(directory=os.path.abspath(launch.directory))
        answer = self._ask(launch)
        if answer is None:
            # A shim forked from here only takes more memory.
            return spawn(launch)
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer))
        return hold(launch, answer)

    def _ask(self, launch: NodeLaunch) -> Optional[int]:
        """The forker's answer; None where it is gone or cannot be asked."""
        try:
            body = kernel.create_memfd(marshal.dumps((*launch[:-1], tuple(launch.isolation))))
        except OSError:
            return None
        try:
            sockets.send_descriptor(self._socket, node_records.name_claim(launch.directory, launch.key), body)
            if not _is_ready(self._socket):
                # It was stopped. Killed, it has started the node or never will: the claim tells.
                os.kill(self.pid, signal.SIGKILL)
            answer = self._socket.recv(_ANSWER_SIZE)
        except OSError:
            return None
        finally:
            os.close(body)
        return int.from_bytes(answer, "big", signed=True) if answer else None


def _is_ready(answers: Socket) -> bool:
    """Whether there is an answer, or the end of answers, in time."""
    poller = select.poll()
    poller.register(answers, select.POLLIN)
    return bool(poller.poll(ANSWER_SECONDS * 1000))


def _run(requests: Socket) -> NoReturn:
    status = 1
    try:
        kernel.reset_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, ALL_SIGNALS)
        kernel.set_comm("span-forker")
        detach(requests.fileno())
        prepare(StartGate, node_records.NodeRecord, kernel.Process)
        gc.collect()
        gc.freeze()
        gc.disable()
        _serve(requests)
        status = 0
    finally:
        os._exit(status)


def _serve(requests: Socket) -> None:
    """Answer requests until end of file. Pages that are touched here are copied in each shim, so do little."""
    poller = select.poll()
    poller.register(requests, select.POLLIN)
    number = requests.fileno()
    living = 0
    while True:
        ready = poller.poll(_REAP_MILLISECONDS)
        # A shim is reaped once its pid is no longer needed: at the earliest with the request after its own.
        while living and os.waitpid(-1, os.WNOHANG)[0]:
            living -= 1
        if not ready:
            continue
        path, body = sockets.receive_descriptor(requests, _REQUEST_SIZE)
        if not path:
            return
        pid = _fork_shim(number, path, body)
        living += pid > 0
        os.close(body)
        requests.send(pid.to_bytes(_ANSWER_SIZE, "big", signed=True))


def _fork_shim(requests: int, path: bytes, body: int) -> int:
    """Take a claim and fork the shim of its node; gives the pid, or an errno below zero."""
    try:
        lock = node_records.take_claim(path)
        try:
            pid = os.fork()
            if pid == 0:
                os.close(requests)
                run_shim(path, lock, lambda gate: _start(body, gate), body)
            return pid
        finally:
            os.close(lock)
    except OSError as error:
        return -(error.errno or errno.EIO)


def _start(body: int, gate: StartGate) -> NoReturn:
    """Read what to start, in the child that becomes it."""
    fields = marshal.loads(kernel.read_descriptor(body))
    os.close(body)
    gated_child.run_child(NodeLaunch._make([*fields[:-1], Isolation(*fields[-1])]), gate)
