"""Runs `span` commands in forked children of one process that has them imported: a command costs 10 ms of processor.

`python command_server.py SOCKET PADDING` imports the commands, prints `ready` and serves until its input ends. A child
has the asker's words, environment, folder and streams, and ends with the command's exit code. A daemon that it starts
is its fork too, and has the words that a daemon has in the list of processes: they take the place of the server's, for
which the padding makes room. What an interpreter reads of the environment as it starts is that of the server.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

PADDING = "-" * 1024
DAEMON_MODULES = (
    *("api.app", "api.daemon", "api.server", "controller.controller", "controller.reading", "controller.timers"),
    "store.store",
)
LIBRARIES = ("kubernetes.client", "paramiko")
"""What daemons import as they need it."""

Execute = Callable[["list[str]", bytes, Path, "dict[str, str]", float], "subprocess.CompletedProcess[bytes]"]


@contextlib.contextmanager
def open_server(path: Path) -> Iterator[Execute]:
    """Serve at a path; gives what runs one command."""
    command = [sys.executable, "-P", __file__, str(path), PADDING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield partial(run, str(path))
        process.stdin.close()


def run(
    server: str, words: list[str], data: bytes, folder: Path, environment: dict[str, str], timeout: float
) -> subprocess.CompletedProcess[bytes]:
    """Run `span WORDS` with `data` as its input. Raises subprocess.TimeoutExpired, and has killed it then."""
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        streams[0].write(data)
        streams[0].seek(0)
        link = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        link.connect(server)
        request = json.dumps([words, str(folder), environment]).encode("utf-8", "surrogateescape")
        descriptors = array.array("i", [stream.fileno() for stream in streams])
        link.sendmsg([len(request).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        link.sendall(request)
        answer = _await_code(link, words, timeout)
        out, err = (_read_all(stream) for stream in streams[1:])
        return subprocess.CompletedProcess(words, answer, out, err)


def _await_code(link: socket.socket, words: list[str], timeout: float) -> int:
    pid = int.from_bytes(_receive(link, 4), "big")
    if not select.select([link], [], [], timeout)[0]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise subprocess.TimeoutExpired(words, timeout)
    return int.from_bytes(_receive(link, 4), "big", signed=True)


def _read_all(stream: Any) -> bytes:
    stream.seek(0)
    data: bytes = stream.read()
    return data


def _receive(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise ConnectionError("the command server has gone")
        data += part
    return data


def serve(path: str) -> None:
    """Fork a child for each connection until the input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            found, _, _ = select.select([listener.fileno(), 0], [], [])
            if 0 in found and not os.read(0, 1):
                return
            link, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _attend(link)
            link.close()


def _attend(link: socket.socket) -> None:
    """Run one command in a further child, whose end is told."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, ancillary, _, _ = link.recvmsg(4, socket.CMSG_SPACE(3 * 4))
    descriptors = array.array("i")
    descriptors.frombytes(ancillary[0][2])
    words, folder, environment = json.loads(_receive(link, int.from_bytes(head, "big")))
    pid = os.fork()
    if pid == 0:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        link.close()
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["span", *words]
        _end(_run_command, words)
    link.sendall(pid.to_bytes(4, "big"))
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        link.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
    os._exit(0)


def _run_command(words: list[str]) -> int:
    from overspan.bridge.cli import main
    from overspan.bridge.client import daemon

    daemon._spawn = _fork_daemon
    return main(words)


def _fork_daemon(log: int, environment: Mapping[str, str]) -> int:
    """Start a daemon as the client does, with descriptors, signals and variables as after an exec; gives its pid."""
    variables = dict(environment)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for number, kept in ((null, 0), (log, 1), (log, 2)):
            os.dup2(number, kept)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        os.environ.clear()
        os.environ.update(variables)
        write_command_line(["python", "-m", "overspan.bridge.api", variables.get("SPAN_STATE_DIR", "")])
        # What the command left behind has descriptors that are others' now: it is never collected.
        gc.freeze()
        from overspan.bridge.api.daemon import main

        _end(main, [])
    return pid


def write_command_line(words: list[str]) -> None:
    """Have other words stand in the list of processes (proc(5), /proc/PID/stat: arg_start, arg_end)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    text = "\0".join(words).encode()
    assert len(text) < end - start
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def _end(work: Callable[[list[str]], int], words: list[str]) -> None:
    """End this fork with the exit code of its work, and run nothing of its parent's."""
    code = 70
    try:
        code = work(words)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def import_all() -> None:
    """Import what commands and daemons do, and keep the collector from touching it: children share its pages."""
    from overspan.bridge.cli import commands

    for name in (*LIBRARIES, "overspan.bridge.client", *(f"overspan.bridge.{name}" for name in DAEMON_MODULES)):
        importlib.import_module(name)
    for module in pkgutil.iter_modules(commands.__path__, f"{commands.__name__}."):
        importlib.import_module(module.name)
    gc.freeze()


if __name__ == "__main__":
    import_all()
    serve(sys.argv[1])
