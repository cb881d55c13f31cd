"""Runs a command over lines, and prints a record for each line at its end. Sent as a program, without this package.

A record is RS and JSON: [number, result], or [number, null, exit code, error]. Nothing else is printed. What is killed
has printed the records of all lines before the one that it was at.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, Optional

RECORD = "\x1e"
EACH, BATCH, SERVE = "each", "batch", "serve"
PLACE = "{}"
CANNOT_RUN = 126
"""The exit code of a line whose command could not be started, as a shell has it."""
_MOST_ERROR = 2000
_END_SECONDS = 10.0
"""How long a server has to end when its input has."""


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
    try:
        done = subprocess.run(["/bin/sh", "-c", command], input=given.encode(), capture_output=True, check=False)
    except (OSError, ValueError) as error:
        # In place of `{}`: a line with a NUL, or one that is longer than an argument may be.
        return CANNOT_RUN, "", f"the command cannot be started with this line: {error}"
    output = done.stdout.decode(errors="replace")
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return code, output[:-1] if output.endswith("\n") else output, done.stderr.decode(errors="replace")[-_MOST_ERROR:]


def _serve(command: str, lines: Sequence[tuple[int, str]]) -> None:
    """Give each line to one long-lived process, which answers with a line; one that has ended is started again."""
    server: Optional[_Server] = None
    for number, text in lines:
        used = server is not None
        server = server or _Server(command)
        answer = server.ask(text)
        if answer is None and used:
            # It may have ended of an earlier line, or after so many of them.
            server.end()
            server = _Server(command)
            answer = server.ask(text)
        if answer is None or b"\n" in answer:
            code, words = server.end()
            server = None
            several = "it printed several lines for one"
            _tell(number, None, code, (words or "the server ended without an answer") if answer is None else several)
        else:
            _tell(number, answer.decode(errors="replace"))
    if server is not None:
        server.end()


class _Server:
    """A command that runs as long as it has lines; the last words of its stderr are kept."""

    def __init__(self, command: str) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(["/bin/sh", "-c", command], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        self._rest = b""
        self._words = b""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def ask(self, text: str) -> Optional[bytes]:
        """The answer to a line without its end, with more lines where more came; None where none comes."""
        assert self._process.stdin is not None and self._process.stdout is not None
        output = self._process.stdout.fileno()
        if self._rest or select.select([output], [], [], 0)[0]:
            # It has ended, or has said more than it was asked: what comes next would stand at the wrong line.
            return None
        try:
            left = memoryview(text.encode() + b"\n")
            while left:
                left = left[self._process.stdin.write(left) :]
            while b"\n" not in self._rest:
                data = os.read(output, 1 << 16)
                if not data:
                    return None
                self._rest += data
        except OSError:
            return None
        answer, self._rest = self._rest, b""
        return answer[:-1]

    def end(self) -> tuple[int, str]:
        """End its input, and it after some time; gives its exit code (128 + N for signal N) and its last words."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        # What it has started may hold its stderr open.
        self._listener.join(1.0)
        return code if code >= 0 else 128 - code, self._words.decode(errors="replace")

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as words:
            while True:
                data = os.read(words.fileno(), 1 << 16)
                if not data:
                    return
                self._words = (self._words + data)[-_MOST_ERROR:]


def _tell(number: int, *facts: Any) -> None:
    os.write(1, (RECORD + json.dumps([number, *facts]) + "\n").encode())


def main(mode: str, command: str, size: int, lines: Sequence[tuple[int, str]]) -> None:
    """Run over the lines; TERM ends what runs, as it does a shell."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    run_lines(mode, command, size, lines)
    sys.exit(0)
