"""Submissions over a transport that plays a small Slurm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tests.unit.adapters.slurm.links import OK, SITE, Link
from tests.unit.adapters.slurm.records import record
from tests.unit.adapters.slurm.samples import NOW, read_script

from overspan.adapters.contract import Accepted, Launch, Node, Refusal
from overspan.adapters.slurm.commands.queries import Queries, Site
from overspan.adapters.slurm.commands.sacct import AccountingRecord
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.rendering.renderer import Renderer
from overspan.adapters.slurm.rendering.script import find_token
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.submission.arrays import Key
from overspan.adapters.slurm.submission.submitter import Submitter
from overspan.adapters.slurm.transports.transport import Call, Done, FileChunk
from overspan.bridge.model.errors import NotFound, OverspanError, TimedOut, Unreachable
from overspan.bridge.model.job import Job

T = TypeVar("T")


TIMED_OUT = Done(1, b"", b"sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n")


class World:
    """A controller: native jobs by their comment, and what the next sbatch does."""

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[str, str, int]] = {}
        self.forgotten: dict[int, str] = {}
        self.commands: list[tuple[str, ...]] = []
        self.behaviour: list[str] = []
        self.delayed: list[str] = []
        self.before_again: Callable[[], None] = self.land
        """Comes before what is submitted again, which is held."""

    def add(self, token: str, state: str = "PENDING", restarts: int = 0) -> int:
        number = 100 + len(self.jobs) + len(self.forgotten)
        self.jobs[number] = (token, state, restarts)
        return number

    def land(self) -> None:
        """What was on its way arrives."""
        for token in self.delayed:
            self.add(token)
        self.delayed.clear()

    def execute(self, call: Call) -> Done | None:
        self.commands.append(tuple(call.argv))
        if call.argv[0] != "sbatch":
            if call.argv[0] == "scancel":
                token, _, restarts = self.jobs[int(call.argv[-1])]
                self.jobs[int(call.argv[-1])] = (token, "CANCELLED", restarts)
            return OK
        token = find_token(next(word for word in call.argv if word.startswith("--comment=")).partition("=")[2])
        held = "--hold" in call.argv or b"#SBATCH --hold" in call.stdin
        if held:
            self.before_again()
        how = self.behaviour.pop(0) if self.behaviour else "answers"
        if how == "answers":
            return Done(0, f"{self.add(token, 'HELD' if held else 'PENDING')}\n".encode(), b"")
        if how == "refuses":
            return Done(1, b"", b"sbatch: error: Batch job submission failed: Invalid qos specification\n")
        if how == "limit":
            reason = (
                b"sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates\n"
            )
            return Done(1, b"", reason)
        if how == "no answer":
            self.add(token, "HELD" if held else "PENDING")
            return TIMED_OUT
        if how == "cut":
            self.add(token)
            return None
        if how == "late":
            self.delayed.append(token)
            return TIMED_OUT
        if how == "down":
            return Done(1, b"", b"sbatch: error: Unable to contact slurm controller (connect failure)\n")
        assert how == "never"
        return TIMED_OUT

    def records(self) -> tuple[QueueRecord, ...]:
        return tuple(record(number, *facts) for number, facts in self.jobs.items())

    def count(self, command: str) -> int:
        return sum(words[0] == command for words in self.commands)


class Wire(Link):
    """A link to that controller, with files of its own."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.files: dict[str, bytes] = {}

    def execute(self, call: Call) -> Done | None:
        return self.world.execute(call)

    async def read(self, path: str, offset: int, limit: int) -> FileChunk:
        if path not in self.files:
            raise NotFound(f"no {path}")
        return FileChunk(self.files[path], len(self.files[path]))

    async def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        if path.startswith("/full"):
            raise OverspanError(f"{path} cannot be written: No space left on device")
        self.files[path] = data


class Asked(Queries):
    def __init__(self, world: World) -> None:
        self.wire = Wire(world)
        super().__init__(self.wire, 10)
        self.world = world
        self.dumb = False
        self.kept: dict[str, list[AccountingRecord]] = {}

    async def site(self) -> Site:
        return SITE

    async def nodes(self) -> list[Node]:
        return [Node(f"n{number}", "main", "idle", 4, 0, 4000, 0) for number in range(2)]

    async def own_queue(self) -> tuple[QueueRecord, ...]:
        self.world.commands.append(("squeue",))
        if self.dumb:
            raise Unreachable("no answer")
        return self.world.records()

    async def find_in_accounts(self, keys: Iterable[Key], since: float) -> dict[Key, int]:
        found = {Key(token): number for number, token in self.world.forgotten.items()}
        return {key: found[key] for key in keys if key in found}

    async def runs(self, names: Sequence[str]) -> dict[str, list[AccountingRecord]]:
        return {name: self.kept.get(name, []) for name in names}


class Bench:
    def __init__(self, started_at: float = NOW - 100, root: str = "/r", world: World | None = None) -> None:
        self.world = world or World()
        self.asked = Asked(self.world)
        self.submitter = Submitter(self.asked, Renderer(Settings(), root), started_at)
        self.now = 1000.0
        self.submitter.monotonic = lambda: self.now

    async def submit(self, *launches: Launch) -> list[Accepted | Refusal]:
        answers = await self.submitter.submit(launches)
        if len(answers) < len(launches):
            raise TimedOut(self.submitter.in_doubt)
        return [answers[launch.token] for launch in launches]

    async def persist(self, launch: Launch) -> Accepted:
        """Try again, as the daemon does, until there is an answer."""
        for _ in range(20):
            try:
                (answer,) = await self.submit(launch)
            except TimedOut:
                self.now += 4
                continue
            assert isinstance(answer, Accepted)
            return answer
        raise AssertionError("never answered")


def launch(number: int = 1, launches: int = 0, job: Job | None = None) -> Launch:
    job = job or read_script("#!/bin/sh\ntrue\n", number=number)
    return Launch(f"inst-{number}-{launches}", replace(job, launch=launches))


def play(story: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(story)
