"""Implements a transport's interface by programs for sh at the other end."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from overspan.adapters.slurm.transports.programs import (
    INTERPRETER,
    NO_FILE,
    NO_REGULAR,
    NO_RIGHT,
    read_answers,
    read_list,
    render_calls,
    render_list,
    render_read,
    render_write,
)
from overspan.adapters.slurm.transports.transport import (
    NO_VARIABLES,
    Call,
    Done,
    FileChunk,
    FolderEntry,
    Interrupted,
    name_command,
)
from overspan.bridge.model.errors import Denied, NotFound, OverspanError, Rejected

FILE_SECONDS = 30.0
"""Seconds for reading or writing one file, or listing one folder."""
FULL = re.compile(r"No space left on device|[Qq]uota exceeded")
ROOM = "make room there, or set `root` to a folder with room"
CLOSED = re.compile(r"Permission denied|Operation not permitted|Read-only file system|Not a directory|File exists")
"""Errors that no further try can change."""


class Raw(NamedTuple):
    """The output of a program until its end, or until the connection broke: then `trouble` says why."""

    out: bytes
    err: bytes
    trouble: str = ""


class Shell:
    """The common part of all transports; a subclass says how a program gets to the other end."""

    def __init__(self, path: str = "") -> None:
        self._path = path

    async def carry(self, program: bytes, timeout: float) -> Raw:
        """Run the program by sh. Raises Unreachable only if it did not run at all."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connection."""

    async def run_all(self, calls: Sequence[Call], timeout: float = 60.0) -> list[Done | None]:
        """Run commands in order; None for each whose end is not known."""
        answers, _ = await self._run_all(calls, timeout)
        return answers

    async def run(
        self,
        argv: Sequence[str],
        stdin: bytes = b"",
        environment: Mapping[str, str] = NO_VARIABLES,
        timeout: float = 60.0,
    ) -> Done:
        """Run one command. Interrupted when its end is not known."""
        (answer,), trouble = await self._run_all([Call(argv, stdin, environment)], timeout)
        if answer is None:
            raise Interrupted(trouble)
        return answer

    async def _run_all(self, calls: Sequence[Call], timeout: float) -> tuple[list[Done | None], str]:
        mark = secrets.token_hex(8)
        raw = await self.carry(render_calls(calls, mark, self._path), timeout)
        answers = read_answers(raw.out, raw.err, mark, len(calls))
        open_ones = (name_command(call.argv) for call, done in zip(calls, answers, strict=True) if done is None)
        trouble = raw.trouble or "the shell ended before its commands"
        return answers, f"{trouble} ({next(open_ones, '')})"

    async def read(self, path: str, offset: int, limit: int) -> FileChunk:
        """Bytes of a regular file, and its size."""
        done = await self._run_program(render_read(path, offset, limit))
        if done.rc == NO_FILE:
            raise NotFound(f"there is no file {path}")
        if done.rc == NO_REGULAR:
            raise NotFound(f"{path} is not a file")
        if done.rc == NO_RIGHT:
            raise Denied(f"{path} may not be read")
        if done.rc != 0:
            raise OverspanError(f"{path} cannot be read: {done.words.strip()}")
        size, _, data = done.out.partition(b"\n")
        return FileChunk(data, int(size))

    async def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file atomically."""
        done = await self._run_program(render_write(path, data, mode))
        if done.rc != 0:
            raise make_write_error(path, done.words)

    async def list(self, path: str) -> list[FolderEntry]:
        """The entries of a folder."""
        done = await self._run_program(render_list(path))
        if done.rc == NO_FILE:
            raise NotFound(f"there is no folder {path}")
        return read_list(done.out)

    async def _run_program(self, program: str) -> Done:
        return await self.run([INTERPRETER], stdin=program.encode("utf-8", "surrogateescape"), timeout=FILE_SECONDS)


def make_write_error(path: str, words: str) -> OverspanError:
    """The error of a file that could not be written; Rejected if no further try can change it."""
    said = words.strip().splitlines()
    message = f"{path} cannot be written: {said[-1] if said else 'no error message'}"
    if FULL.search(words):
        return OverspanError(message, remedy=ROOM)
    if CLOSED.search(words):
        return Rejected(message, remedy="set `root` of the cluster to a folder of yours there that takes files")
    return OverspanError(message, remedy="look at the folder's owner and rights there")
