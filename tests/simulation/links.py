"""The way to the fake Slurm as a seed has it: a command may fail, hang, or have its effect after its daemon's end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.fakes.slurm_commands import COMMANDS
from tests.fakes.slurm_controller import FakeSlurm
from tests.fakes.slurm_transport import FakeTransport, Trouble, strip_words
from tests.simulation.clockwork import LIFE, Chaos

from overspan.adapters.slurm.transports.transport import Call, Done, FileChunk, FolderEntry
from overspan.bridge.model.errors import Unreachable

LATE = 8.0
"""By how many seconds at most a command may have its effect after its daemon has died: less than MessageTimeout."""


class Link(FakeTransport):
    """A transport with the mischief of a seed; it belongs to the cluster and outlives daemons."""

    def __init__(self, slurm: FakeSlurm, folder: Path, now: Callable[[], float], chaos: Chaos) -> None:
        super().__init__(slurm, folder, now)
        self.chaos = chaos
        self.down_until = 0.0
        self._carried: set[int] = set()

    @property
    def is_down(self) -> bool:
        """Whether there is no way to the cluster just now; outages come by themselves."""
        if self.chaos.calm:
            return False
        if self.chaos.happens(self.chaos.trouble_rate / 40):
            self.down_until = self._now() + self.chaos.random.uniform(1, 60)
        return self._now() < self.down_until

    async def _run(self, call: Call) -> Done:
        await self.chaos.pause()
        try:
            done = await super()._run(call)
        except asyncio.CancelledError:
            if LIFE.get().dead and id(call) not in self._carried and self.chaos.happens(0.3):
                seconds = self.chaos.random.uniform(0, LATE)
                asyncio.get_running_loop().call_later(seconds, self._carry_out_late, call)
            raise
        finally:
            self._carried.discard(id(call))
        await self.chaos.pause()
        return done

    def _carry_out(self, call: Call, words: Sequence[str], environment: Mapping[str, str]) -> Done:
        self._carried.add(id(call))
        return super()._carry_out(call, words, environment)

    def _carry_out_late(self, call: Call) -> None:
        words, environment, _ = strip_words(call.argv)
        self._took = 0.0
        super()._carry_out(call, words, environment)

    def _find_trouble(self, words: Sequence[str]) -> Trouble | Done | None:
        if self.is_down:
            return Trouble.UNREACHABLE
        if not self.chaos.trouble:
            return super()._find_trouble(words)
        kinds = [Trouble.UNREACHABLE, Trouble.HANGS, Trouble.LOST]
        if words[0] in COMMANDS:
            kinds += [Trouble.REFUSED, Trouble.TIMED_OUT]
        if words[0] in ("squeue", "sacct"):
            # Records have an end, so that one that is torn is seen to be so.
            kinds.append(Trouble.GARBAGE)
        return self.chaos.random.choice(kinds)

    async def read(self, path: str, offset: int, limit: int) -> FileChunk:
        """Bytes of a file."""
        await self._pass()
        return await super().read(path, offset, limit)

    async def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file; the answer may get lost."""
        await self._pass()
        await super().write(path, data, mode)
        await self._pass()

    async def list(self, path: str) -> list[FolderEntry]:
        """What is in a folder."""
        await self._pass()
        return await super().list(path)

    async def _pass(self) -> None:
        await self.chaos.pause()
        if self.is_down or self.chaos.trouble:
            raise Unreachable("no route to the login node")
