"""Runs `span` commands in forked children of one process that has them imported: a command costs 10 ms of processor.

`python command_server.py SOCKET` imports the commands, prints `ready` and serves until its input ends. A child has the
asker's words, environment, folder and streams, and ends with the command's exit code. What an interpreter reads of the
environment as it starts is that of the server.
"""

from __future__ import annotations

import array
import contextlib
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
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

Execute = Callable[["list[str]", bytes, Path, "dict[str, str]", float], "subprocess.CompletedProcess[bytes]"]


@contextlib.contextmanager
def open_server(path: Path) -> Iterator[Execute]:
    """Serve at a path; gives what runs one command."""
    command = [sys.executable, "-P", __file__, str(path)]
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
        from overspan.bridge.cli import main

        code = main(words)
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    link.sendall(pid.to_bytes(4, "big"))
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        link.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
    os._exit(0)


def import_commands() -> None:
    """Import what commands import as they run, and keep the collector from touching it: children share its pages."""
    from overspan.bridge.cli import commands

    importlib.import_module("overspan.bridge.client")
    for module in pkgutil.iter_modules(commands.__path__, f"{commands.__name__}."):
        importlib.import_module(module.name)
    gc.freeze()


if __name__ == "__main__":
    import_commands()
    serve(sys.argv[1])
