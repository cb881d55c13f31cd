"""A transport whose commands of Slurm a test answers; what is for sh runs here."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from overspan.adapters.slurm.commands.queries import Site
from overspan.adapters.slurm.transports.transport import NO_VARIABLES, Call, Done, FileChunk, FolderEntry
from overspan.bridge.model.errors import NotFound

OK = Done(0, b"", b"")
SITE = Site((22, 5), {"MessageTimeout": "10 sec", "AccountingStorageType": "accounting_storage/slurmdbd"}, "ada", "/h")


class Link:
    """Runs what is for sh here; Slurm's commands are noted, and answered as they were told to be."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, ...]] = []
        self.programs: list[bytes] = []
        """The standard input of what was for sh."""
        self.trips: list[int] = []
        """How many commands went together."""
        self.gate: asyncio.Event | None = None
        """What keeps the answers to programs for sh back."""
        self.answer: Callable[[Sequence[str]], Done | None] = lambda words: OK

    def execute(self, call: Call) -> Done | None:
        words = tuple(call.argv)
        if words[0] != "/bin/sh":
            self.commands.append(words)
            return self.answer(words)
        self.programs.append(call.stdin)
        done = subprocess.run(words, input=call.stdin, capture_output=True, timeout=60, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    async def run_all(self, calls: Sequence[Call], timeout: float = 60.0) -> list[Done | None]:
        self.trips.append(len(calls))
        return [self.execute(call) for call in calls]

    async def run(
        self,
        argv: Sequence[str],
        stdin: bytes = b"",
        environment: Mapping[str, str] = NO_VARIABLES,
        timeout: float = 60.0,
    ) -> Done:
        if self.gate is not None and argv[0] == "/bin/sh":
            await self.gate.wait()
        done = self.execute(Call(argv, stdin))
        assert done is not None
        return done

    async def read(self, path: str, offset: int, limit: int) -> FileChunk:
        try:
            data = Path(path).read_bytes()
        except FileNotFoundError as error:
            raise NotFound(path) from error
        return FileChunk(data[offset : offset + limit], len(data))

    async def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        Path(path).write_bytes(data)

    async def list(self, path: str) -> list[FolderEntry]:
        return []

    async def close(self) -> None:
        pass
