"""Rate limit: a token bucket that follows slurmctld's own limit, with one token for each command that asks slurmctld.

slurm.conf(5), SlurmctldParameters: rl_enable, rl_bucket_size, rl_refill_rate, rl_refill_period (23.02 and later).
Without a configured limit there is none until slurmctld answers that it gets too many requests.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from overspan.adapters.slurm.commands.errors import RATE_LIMIT
from overspan.adapters.slurm.transports.transport import (
    NO_VARIABLES,
    Call,
    Done,
    FileChunk,
    FolderEntry,
    Interrupted,
    Transport,
    name_command,
)

log = logging.getLogger(__name__)

COMMANDS = frozenset({"sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun", "sprio", "sdiag"})
"""Commands that ask slurmctld; sacct asks the database."""
HANG_SECONDS = 60.0
"""Seconds for which a command that did not answer makes its cluster stale, even if other commands answer."""
_FRONT = 40
"""The command is one of the first so many words: env(1) and timeout(1) may come before it."""


@dataclass(frozen=True)
class RateLimit:
    """The size of a bucket in tokens, and how many flow back each second."""

    size: float = 30.0
    rate: float = 2.0


DEFAULT = RateLimit()
"""Slurm's own defaults (slurm.conf(5))."""


def read_limit(config: str) -> RateLimit | None:
    """The limit in the answer to `scontrol show config`; None if the site has none."""
    found = re.search(r"^SlurmctldParameters\s*=\s*(.*)$", config, re.MULTILINE)
    words = found[1].split(",") if found else []
    if "rl_enable" not in [word.strip() for word in words]:
        return None
    values = {name.strip(): value for name, equals, value in (word.partition("=") for word in words) if equals}

    def number(name: str, default: float) -> float:
        text = values.get(name, "").strip()
        return float(text) if text.isdigit() and int(text) else default

    size, refill = number("rl_bucket_size", DEFAULT.size), number("rl_refill_rate", DEFAULT.rate)
    return RateLimit(size, refill / number("rl_refill_period", 1.0))


class Bucket:
    """The tokens of one limit. A call that needs more than there are waits, and leaves the bucket in debt."""

    def __init__(self, limit: RateLimit, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._tokens = limit.size
        self._at = clock()

    def take(self, count: int) -> float:
        """Take tokens; returns the seconds to wait before the call."""
        self._refill()
        self._tokens -= count
        return max(0.0, -self._tokens / self.limit.rate)

    def count(self) -> int:
        """How many calls need not wait now."""
        self._refill()
        return max(0, int(self._tokens))

    def drain(self) -> None:
        """Empty the bucket, because slurmctld has answered that it gets too many requests."""
        self._refill()
        self._tokens = min(0.0, self._tokens)

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self.limit.size, self._tokens + (now - self._at) * self.limit.rate)
        self._at = now


class RateLimited:
    """A transport that delays commands to keep to the cluster's rate limit, and notes which commands hang."""

    def __init__(
        self,
        transport: Transport,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._sleep = sleep
        self.bucket: Bucket | None = None
        self._hangs: dict[str, tuple[float, str]] = {}

    @property
    def hang(self) -> str:
        """The command that timed out within HANG_SECONDS and has not answered since; empty if there is none."""
        since = self._clock() - HANG_SECONDS
        return next((words for at, words in self._hangs.values() if at >= since), "")

    def describe_left(self) -> str:
        """What is left of the cluster's rate limit, for `Traits.calls_left`."""
        if self.bucket is None:
            return ""
        limit = self.bucket.limit
        return f"{self.bucket.count()} of {limit.size:g}, {limit.rate:g}/s"

    async def run(
        self,
        argv: Sequence[str],
        stdin: bytes = b"",
        environment: Mapping[str, str] = NO_VARIABLES,
        timeout: float = 60.0,
    ) -> Done:
        """Run one command, after a delay if the rate limit needs one."""
        await self._wait([argv])
        began = self._clock()
        try:
            done = await self._transport.run(argv, stdin, environment, timeout)
        except Interrupted:
            self._note([argv], [None], began, timeout)
            raise
        self._note([argv], [done], began, timeout)
        self._learn(argv, done)
        return done

    async def run_all(self, calls: Sequence[Call], timeout: float = 60.0) -> list[Done | None]:
        """Run commands, after a delay if the rate limit needs one."""
        await self._wait(call.argv for call in calls)
        began = self._clock()
        answers = await self._transport.run_all(calls, timeout)
        self._note([call.argv for call in calls], answers, began, timeout)
        for call, done in zip(calls, answers, strict=True):
            if done is not None:
                self._learn(call.argv, done)
        return answers

    async def read(self, path: str, offset: int, limit: int) -> FileChunk:
        """As the transport does."""
        return await self._transport.read(path, offset, limit)

    async def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """As the transport does."""
        await self._transport.write(path, data, mode)

    async def list(self, path: str) -> list[FolderEntry]:
        """As the transport does."""
        return await self._transport.list(path)

    async def close(self) -> None:
        """As the transport does."""
        await self._transport.close()

    async def _wait(self, commands: Iterable[Sequence[str]]) -> None:
        if self.bucket is None:
            return
        count = sum(asks_controller(argv) for argv in commands)
        seconds = self.bucket.take(count) if count else 0.0
        if seconds:
            log.debug("waiting %.1f s before %d queries", seconds, count)
            await self._sleep(seconds)

    def _note(
        self, commands: Sequence[Sequence[str]], answers: Sequence[Done | None], began: float, timeout: float
    ) -> None:
        """Note which command hangs: the first one without an end, if the time limit has passed."""
        for argv, done in zip(commands, answers, strict=True):
            name = name_command(argv)
            if done is None:
                if self._clock() - began >= timeout:
                    self._hangs[name] = (self._clock(), f"{name} has not answered within {timeout:g} s")
                return
            self._hangs.pop(name, None)

    def _learn(self, argv: Sequence[str], done: Done) -> None:
        """Learn the limit from an answer: from the configuration, or from a refusal for too many requests."""
        if not asks_controller(argv):
            return
        if done.rc == 0:
            if tuple(argv[-3:]) == ("scontrol", "show", "config"):
                limit = read_limit(done.text)
                self.bucket = None if limit is None else Bucket(limit, self._clock)
            return
        if re.search(RATE_LIMIT, done.words or done.text):
            if self.bucket is None:
                log.warning("the cluster limits requests: at most %g queries a second from now on", DEFAULT.rate)
                self.bucket = Bucket(DEFAULT, self._clock)
            self.bucket.drain()


def asks_controller(argv: Sequence[str]) -> bool:
    """Whether a command sends a request to slurmctld."""
    return any(word.rpartition("/")[2] in COMMANDS for word in argv[:_FRONT])
