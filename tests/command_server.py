"""Runs `span` commands, and the daemons that they start, as forks of processes that have them imported.

A command costs 10 ms of processor so, and a daemon 0.3 s. `python command_server.py PLACE commands PADDING` imports the
commands, prints `ready` and serves at a socket until its input ends. A child has the asker's words, environment, folder
and streams. A process that forks is copied with all it has, so daemons, which import much, are forks of another one:
`daemons`. A daemon's words in the list of processes take the place of the server's, for which the padding makes room.
What an interpreter reads of the environment as it starts is that of the server.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import importlib
import json
import os
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
Work = Callable[["list[str]"], int]
Execute = Callable[["list[str]", bytes, Path, "dict[str, str]", float], "subprocess.CompletedProcess[bytes]"]


@contextlib.contextmanager
def open_server(place: Path) -> Iterator[Execute]:
    """Serve at a place; gives what runs one command."""
    with contextlib.ExitStack() as stack:
        processes = []
        for kind in ("daemons", "commands"):
            command = [sys.executable, "-P", __file__, str(place), kind, PADDING]
            processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            stack.enter_context(processes[-1])
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield partial(run, f"{place}.commands")
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()


def run(
    server: str, words: list[str], data: bytes, folder: Path, environment: dict[str, str], timeout: float
) -> subprocess.CompletedProcess[bytes]:
    """Run `span WORDS` with `data` as its input. Raises subprocess.TimeoutExpired, and has killed it then."""
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        streams[0].write(data)
        streams[0].seek(0)
        descriptors = [stream.fileno() for stream in streams]
        link = stack.enter_context(_ask(server, words, str(folder), environment, descriptors))
        answer = _await_code(link, words, timeout)
        out, err = (_read_all(stream) for stream in streams[1:])
        return subprocess.CompletedProcess(words, answer, out, err)


def _ask(
    server: str, words: list[str], folder: str, environment: Mapping[str, str], descriptors: list[int]
) -> socket.socket:
    """Have a server fork; on the socket it tells the pid, and then the exit code."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.connect(server)
    request = json.dumps([words, folder, dict(environment)]).encode("utf-8", "surrogateescape")
    passed = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
    link.sendmsg([len(request).to_bytes(4, "big")], [passed])
    link.sendall(request)
    return link


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


def serve(path: str, work: Work) -> None:
    """Fork a child for each connection until the input ends, and tell there how it ended."""
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            found, _, _ = select.select([listener.fileno(), 0, woken], [], [])
            if 0 in found and not os.read(0, 1):
                return
            if woken in found:
                os.read(woken, 4096)
                _reap(running)
            if listener.fileno() in found:
                link, _ = listener.accept()
                pid = _start(link, work)
                running[pid] = link
                with contextlib.suppress(OSError):
                    link.sendall(pid.to_bytes(4, "big"))


def _reap(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        # Who gave up waiting does not hear it.
        with running.pop(pid) as link, contextlib.suppress(OSError):
            link.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))


def _start(link: socket.socket, work: Work) -> int:
    """Fork a child for the request of a connection; gives its pid."""
    head, ancillary, _, _ = link.recvmsg(4, socket.CMSG_SPACE(3 * 4))
    descriptors = array.array("i")
    descriptors.frombytes(ancillary[0][2])
    words, folder, environment = json.loads(_receive(link, int.from_bytes(head, "big")))
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        _end(work, words)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def run_command(words: list[str]) -> int:
    """Be a command; the daemon that it may start is asked for where daemons are forked."""
    from overspan.bridge.cli import main
    from overspan.bridge.client import autostart

    started: dict[int, socket.socket] = {}

    def spawn(log: int, environment: Mapping[str, str]) -> int:
        with open(os.devnull, "rb") as null:
            link = _ask(f"{PLACE}.daemons", [], "/", environment, [null.fileno(), log, log])
        pid = int.from_bytes(_receive(link, 4), "big")
        started[pid] = link
        return pid

    def poll(pid: int) -> int | None:
        if not select.select([started[pid]], [], [], 0)[0]:
            return None
        return int.from_bytes(_receive(started[pid], 4), "big", signed=True)

    autostart._spawn, autostart._poll = spawn, poll
    sys.argv = ["span", *words]
    return main(words)


def run_daemon(words: list[str]) -> int:
    """Be a daemon, with a session and signals as after an exec."""
    from overspan.bridge.api.daemon import main

    os.setsid()
    write_command_line(["python", "-m", "overspan.bridge.api", os.environ.get("SPAN_STATE_DIR", "")])
    return main(words)


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


def import_commands() -> None:
    """Import what commands do."""
    from overspan.bridge.cli.program import COMMANDS

    importlib.import_module("overspan.bridge.client")
    for command in COMMANDS.values():
        importlib.import_module(f"overspan.bridge.cli.{command.module}")


def import_daemon() -> None:
    """Import what daemons do, some of it as they need it."""
    parts = (
        "overspan.bridge.api.app",
        "overspan.bridge.api.daemon",
        "overspan.bridge.api.server",
        "overspan.bridge.controller.controller",
        "overspan.bridge.controller.core.timers",
        "overspan.bridge.controller.submission.parsing",
        "overspan.bridge.store.store",
    )
    for name in parts:
        importlib.import_module(name)
    for name in ("kubernetes.client", "paramiko"):
        importlib.import_module(name)


if __name__ == "__main__":
    PLACE, kind = sys.argv[1:3]
    prepare, work = {"commands": (import_commands, run_command), "daemons": (import_daemon, run_daemon)}[kind]
    prepare()
    # Children share the pages of what the collector does not touch.
    gc.freeze()
    serve(f"{PLACE}.{kind}", work)
