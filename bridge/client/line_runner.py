"""Runs a command over lines, and prints a record for each line at its end. Sent as a program, without this package.

A record is RS and JSON: [number, result], or [number, null, exit code, error]. Nothing else is printed. What is killed
has printed the records of all lines before the one that it was at.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Optional

RECORD = "\x1e"
EACH, BATCH, SERVE = "each", "batch", "serve"
PLACE = "{}"
_MOST_ERROR = 2000


def run_lines(mode: str, command: str, size: int, lines: Sequence[tuple[int, str]]) -> None:
    """Run the command over (number, text) pairs. `size` is how many lines a batch has."""
    if mode == BATCH:
        for start in range(0, len(lines), size):
            _run_batch(command, lines[start : start + size])
    elif mode == SERVE:
        _serve(command, lines)
    else:
        for number, text in lines:
            _run_one(command, number, text)


def _run_one(command: str, number: int, text: str) -> None:
    given = text + "\n"
    if PLACE in command:
        command, given = command.replace(PLACE, shlex.quote(text)), ""
    code, output, error = _execute(command, given)
    if code == 0 and "\n" not in output:
        _tell(number, output)
    else:
        _tell(number, None, code, error if code else "it printed several lines, and a result is one")


def _run_batch(command: str, lines: Sequence[tuple[int, str]]) -> None:
    """Run the command over lines at once; where that fails, over each half, down to the line at fault."""
    code, output, error = _execute(command, "".join(text + "\n" for _, text in lines))
    results = output.split("\n")
    if code == 0 and len(results) == len(lines):
        for (number, _), result in zip(lines, results):
            _tell(number, result)
    elif len(lines) > 1:
        middle = len(lines) // 2
        _run_batch(command, lines[:middle])
        _run_batch(command, lines[middle:])
    else:
        _tell(lines[0][0], None, code, error if code else f"it printed {len(results)} lines for one")


def _execute(command: str, given: str) -> tuple[int, str, str]:
    """Run the command; gives its exit code (128 + N for signal N), its output without the last line end, its words."""
    done = subprocess.run(["/bin/sh", "-c", command], input=given.encode(), capture_output=True, check=False)
    output = done.stdout.decode(errors="replace")
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return code, output[:-1] if output.endswith("\n") else output, done.stderr.decode(errors="replace")[-_MOST_ERROR:]


def _serve(command: str, lines: Sequence[tuple[int, str]]) -> None:
    """Give each line to one long-lived process, which answers with a line; one that has died is started again."""
    server: Optional[subprocess.Popen[bytes]] = None
    for number, text in lines:
        server = server or _start_server(command)
        answer = _ask(server, text)
        if answer.endswith(b"\n"):
            _tell(number, answer[:-1].decode(errors="replace"))
            continue
        code = _end_server(server)
        server = None
        _tell(number, None, code, "the server ended without an answer")
    if server is not None:
        _end_server(server)


def _ask(server: subprocess.Popen[bytes], text: str) -> bytes:
    assert server.stdin is not None and server.stdout is not None
    try:
        server.stdin.write(text.encode() + b"\n")
        server.stdin.flush()
        return server.stdout.readline()
    except OSError:
        return b""


def _start_server(command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def _end_server(server: subprocess.Popen[bytes]) -> int:
    assert server.stdin is not None and server.stdout is not None
    try:
        server.stdin.close()
    except OSError:
        pass
    server.stdout.close()
    code = server.wait()
    return code if code >= 0 else 128 - code


def _tell(number: int, *facts: Any) -> None:
    os.write(1, (RECORD + json.dumps([number, *facts]) + "\n").encode())


def main(mode: str, command: str, size: int, lines: Sequence[tuple[int, str]]) -> None:
    """Run over the lines; TERM ends what runs, as it does a shell."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    run_lines(mode, command, size, lines)
    sys.exit(0)
