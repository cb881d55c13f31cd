"""A slot: a shim that runs one node after another, and starts each without a copy of itself.

A fork copies the page tables of an interpreter, which costs more than a short job does; posix_spawn(3) copies nothing.
So the program starts before its pid is on record. That is enough here: what a worker holds ends with it, and a record
that tells of a start without a pid leads to what the slot has left by its mark.

    slot source -- fork, once a slot --> slot (session of its own, subreaper) -- posix_spawn --> the user's program

A request has the node's launch in a file in memory, the lock of its claim, and the end that is closed when nothing of
the node is left. The socket's end of file ends a slot that is idle. A pending signal is for the node that is requested,
which may not have begun: a slot that was signalled for one node gets no other (`Slots.retire`).
"""

from __future__ import annotations

import array
import contextlib
import errno
import gc
import marshal
import os
import signal
import socket
from typing import Callable, NoReturn

from overspan.bridge.model.records import prepare
from overspan.bridge.runtime.core import gated_child, kernel, node_records, shim_control
from overspan.bridge.runtime.core.gated_child import NodeLaunch, StartError
from overspan.bridge.runtime.core.isolation import NAMESPACE, Isolation, extend_environment, probe
from overspan.bridge.runtime.core.node_records import NodeRecord
from overspan.bridge.runtime.core.shim import ALL_SIGNALS, Tree, detach, finish, record_failure

SOURCE_COMM, COMM = "span-slots", "span-slot"
REQUEST = b"R"
PROBE = b"P"
"""A request to find out what gives members their names here; the answer comes on the socket that it brings."""
PID_SIZE = 4
REQUEST_DESCRIPTORS = 3
_UMASK = 0o077


def serve_source(requests: socket.socket) -> NoReturn:
    """Fork a slot for each socket that comes on `requests`, and answer with its pid or an errno below zero.

    For one that comes with PROBE, fork what tries how members get their names.
    """
    status = 1
    try:
        kernel.reset_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, ALL_SIGNALS)
        # The kernel reaps slots: their sockets tell that they have ended.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        kernel.set_comm(SOURCE_COMM)
        detach(requests.fileno())
        prepare(NodeRecord, kernel.Process)
        gc.collect()
        gc.freeze()
        while True:
            word, descriptors = _receive(requests, 1)
            if not descriptors:
                break
            pid = _fork(requests, descriptors[0], _answer_probe if word == PROBE else _serve_slot)
            if word != PROBE:
                requests.send(pid.to_bytes(PID_SIZE, "big", signed=True))
        status = 0
    finally:
        os._exit(status)


def _receive(line: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """The next message and its descriptors; none at the end of file."""
    size = socket.CMSG_SPACE(most * array.array("i").itemsize)
    word, ancillary, _, _ = line.recvmsg(1, size, socket.MSG_CMSG_CLOEXEC)
    numbers = array.array("i")
    for _, _, data in ancillary:
        numbers.frombytes(data)
    return word, list(numbers)


def _fork(requests: socket.socket, line: int, serve: Callable[[socket.socket], NoReturn]) -> int:
    """Fork what serves a socket; its pid, or an errno below zero."""
    with socket.socket(fileno=line) as own:
        try:
            pid = os.fork()
        except OSError as error:
            return -(error.errno or errno.EAGAIN)
        if pid == 0:
            requests.close()
            serve(own)
        return pid


def _answer_probe(line: socket.socket) -> NoReturn:
    """Try what gives members their names, and tell it; nothing where that cannot be tried now."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with contextlib.suppress(OSError):
            line.send(marshal.dumps(tuple(probe())))
    finally:
        os._exit(0)


def _serve_slot(line: socket.socket) -> NoReturn:
    status = 70  # EX_SOFTWARE, sysexits.h
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.umask(_UMASK)
        kernel.set_comm(COMM)
        subreaper = True
        try:
            kernel.set_subreaper()
        except OSError:
            # Without it, what a program leaves behind outlives it.
            subreaper = False
        while True:
            _, descriptors = _receive(line, REQUEST_DESCRIPTORS)
            if len(descriptors) < REQUEST_DESCRIPTORS:
                break
            body, lock, end = descriptors
            launch = _read_launch(body)
            _run(launch, subreaper)
            os.close(lock)
            used_up = launch.isolation.method == NAMESPACE
            if used_up:
                # There is no way back out of these. The socket goes first: the worker gives it no other launch then.
                line.close()
            os.close(end)
            if used_up:
                break
        status = 0
    finally:
        os._exit(status)


def _read_launch(body: int) -> NodeLaunch:
    fields = marshal.loads(kernel.read_descriptor(body))
    os.close(body)
    return NodeLaunch._make([*fields[:-1], Isolation(*fields[-1])])


def _run(launch: NodeLaunch, subreaper: bool) -> None:
    """Run a node from its start to its record."""
    try:
        pid = _start(launch, subreaper)
    except StartError as error:
        if error.step != gated_child.RECORD_STEP:
            record_failure(launch.directory, launch.key, error, subreaper)
        return
    tree = Tree(pid)
    tree.follow()
    finish(launch.directory, launch.key, tree)


def _start(launch: NodeLaunch, subreaper: bool) -> int:
    """Put the start on record, start the program, and add its pid. Raises StartError."""
    try:
        file = node_records.begin_record(
            launch.directory, launch.key, node_records.make_record(os.getpid(), 0, subreaper)
        )
    except OSError as error:
        raise StartError(gated_child.RECORD_STEP, str(error), error.errno or 0) from error
    try:
        pid = _spawn(launch)
        with contextlib.suppress(OSError):
            # It overwrites in place, which needs no room; where that fails, the end is reported without the start.
            node_records.update_record(file, node_records.make_record(os.getpid(), pid, subreaper))
        return pid
    except OSError as error:
        raise StartError("start", str(error), error.errno or 0) from error
    finally:
        os.close(file)


def _spawn(launch: NodeLaunch) -> int:
    environment = extend_environment(launch.isolation, launch.env)
    environment[shim_control.NODE_KEY] = shim_control.name_node(launch.directory, launch.key)
    # As the worker has it, whose environment is this process's own.
    environment[shim_control.WORKER_KEY] = os.environ.get(shim_control.NODE_KEY, "")
    try:
        gated_child.prepare(launch)
        return gated_child.start_program(launch.argv, environment, _spawn_program)
    except StartError as error:
        gated_child.say_failure(error)
        raise
    finally:
        _leave()


def _spawn_program(path: str, argv: tuple[str, ...], environment: dict[str, str]) -> int:
    try:
        return os.posix_spawn(path, argv, environment, setsid=True, setsigmask=())
    except NotImplementedError as error:
        raise StartError("start", f"this node's C library cannot start a session: {error}", errno.ENOSYS) from error


def _leave() -> None:
    """Let go of the node's folder and files."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)
    os.chdir("/")
    os.umask(_UMASK)
