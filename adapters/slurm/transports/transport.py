"""The interface of all transports (OpenSSH, paramiko, this machine): calls, their ends, and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from overspan.bridge.model.errors import Unreachable

NO_VARIABLES: Mapping[str, str] = {}


class Interrupted(Unreachable):
    """In doubt: the connection broke, or the time was over, while a command was under way."""


@dataclass(frozen=True)
class Call:
    """One command: its words, its standard input, and variables on top of the login environment.

    `folder` is made first (0700). `path` is a folder that comes first in the command's PATH. `umask` is the command's;
    None for the login's own.
    """

    argv: Sequence[str]
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    path: str = ""
    umask: int | None = None


_WRAPPERS = ("env", "timeout")


def name_command(argv: Sequence[str]) -> str:
    """The name of the program in a command, without env(1), timeout(1) and their arguments before it."""
    words = list(argv)
    while words and words[0] in _WRAPPERS:
        wrapper = words.pop(0)
        while words and (words[0].startswith("-") or "=" in words[0]):
            words = words[2 if words[0] == "-u" else 1 :]
        words = words[1:] if wrapper == "timeout" else words
    return words[0].rpartition("/")[2] if words else ""


class Done(NamedTuple):
    """The end of a command: its exit code (128 and more for signals) and its output."""

    rc: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """The output as text."""
        return self.out.decode("utf-8", "surrogateescape")

    @property
    def words(self) -> str:
        """The error output as text."""
        return self.err.decode("utf-8", "replace")


class FileChunk(NamedTuple):
    """Bytes of a file, and the size of the whole file."""

    data: bytes
    size: int


class FolderEntry(NamedTuple):
    """One name in a folder: size in bytes, time of the last change, whether it is a folder."""

    name: str
    size: int
    changed: float
    folder: bool


class Transport(Protocol):
    """A connection to a machine with Slurm's commands. Methods raise Unreachable without a connection."""

    async def run(
        self,
        argv: Sequence[str],
        stdin: bytes = b"",
        environment: Mapping[str, str] = NO_VARIABLES,
        timeout: float = 60.0,
    ) -> Done:
        """Run one command. Raises Interrupted if it may have run but its end is not known."""

    async def run_all(self, calls: Sequence[Call], timeout: float = 60.0) -> list[Done | None]:
        """Run commands one after the other over one round trip; None for each whose end is not known."""

    async def read(self, path: str, offset: int, limit: int) -> FileChunk:
        """Bytes of a regular file. Raises NotFound if there is none, Denied if it may not be read."""

    async def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file atomically, and make its folders (0700). Raises OverspanError if that fails."""

    async def list(self, path: str) -> list[FolderEntry]:
        """The entries of a folder, by name. Raises NotFound if there is none."""

    async def close(self) -> None:
        """Close the connection."""
