"""A watched group over a scripted source of checkpoints, on a clock that jumps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.unit.controller.fakes import Bench, FakeCluster, begin, end
from tests.unit.controller.virtual_time import VirtualClock, run_virtually

from overspan.adapters.checkpoint_sources import WatchedFolder
from overspan.adapters.contract import LogPart, LogRequest
from overspan.bridge.controller.submission import parsing
from overspan.bridge.model import events
from overspan.bridge.model.checkpoints.listings import FolderListing, FoundCheckpoint, FoundFile, FoundMarker
from overspan.bridge.model.checkpoints.patterns import parse_pattern
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.readers.submission import JOB_FILE

GROUP = """\
name: train
execution: parallel
on_checkpoint: {watch}
{header}
---
name: trainer
run: train
"""
WATCH: dict[str, Any] = {
    "name": "quality",
    "path": "/c",
    "pattern": "step_{step:int}",
    "ready": {"marker": "DONE"},
    "task": {"run": "judge {checkpoint}"},
}
Scene = Callable[[Bench, "TrainingCluster"], Awaitable[None]]


class TrainingCluster(FakeCluster):
    """A cluster with a folder of checkpoints. Its evaluations end by themselves, with their step as the score."""

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints: dict[str, FoundCheckpoint] = {}
        self.unreadable = ""
        self.listings = 0
        self.pinned: set[str] = set()
        self.silent_source = False
        self.late_reads = 0
        """How often a log is read without its last line."""
        self.partial_logs = False
        """Whether it is said then that more is to come."""
        self.kept: set[str] = set()
        """Evaluations of these checkpoints do not end."""

    def save(self, step: int, *, complete: bool = True, size: int = 1) -> None:
        """Write a checkpoint."""
        name = f"step_{step}"
        marker = FoundMarker(0, size) if complete else None
        self.checkpoints[name] = FoundCheckpoint(name, True, files=(FoundFile("w", size),), marker=marker)

    async def list_checkpoints(self, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        await asyncio.sleep(0)
        if self.silent_source:
            raise Unreachable("no route to the cluster")
        self.listings += 1
        return [self._list(folder) for folder in folders]

    def _list(self, folder: WatchedFolder) -> FolderListing:
        request = folder.request
        self.pinned = set(request.pins)
        if self.unreadable:
            return FolderListing(request.key, unreadable=self.unreadable)
        pattern = parse_pattern("step_{step:int}")
        assert request.parts == pattern.parts
        known = [found for found in self.checkpoints.values() if found.name not in request.settled]
        gone = tuple(name for name in request.settled if name not in self.checkpoints)
        return FolderListing(request.key, tuple(known), gone)

    async def logs(self, request: LogRequest) -> LogPart:
        evaluation = self.evaluation_of(request.handle)
        text = f"RESULT {evaluation.removeprefix('step_') or 0}\n".encode()
        late = self.late_reads > 0
        if late:
            self.late_reads -= 1
            text = b"what was printed before\n"
        partial = late and self.partial_logs
        return LogPart(text[request.offset :], request.offset, len(text), "/run/out", partial=partial)

    def evaluation_of(self, handle: str) -> str:
        """The checkpoint of a launch; empty for another job's."""
        job = next(job for job in self.launched if f"{job.id}.{job.launch}" == handle)
        return job.spec.evaluation.checkpoint if job.spec.evaluation is not None else ""

    def evaluated(self) -> list[str]:
        """The checkpoints that were launched, in order."""
        return [job.spec.evaluation.checkpoint for job in self.launched if job.spec.evaluation is not None]

    def go_on(self, at: float) -> None:
        """Start and end each evaluation that was launched; start all else."""
        for job in self.launched:
            handle = f"{job.id}.{job.launch}"
            if not self.journals[handle]:
                ends = job.spec.evaluation is not None and job.spec.evaluation.checkpoint not in self.kept
                done = events.NodeEnded(at, job.spec.tasks[0].name, 0, 0, 0)
                self.tell(handle, *begin(job, at), *((done,) if ends else ()))


def write_group(header: str = "", **keys: Any) -> str:
    """A group with one watch."""
    return GROUP.format(watch=json.dumps({**WATCH, **keys}), header=header)


async def pass_time(bench: Bench, cluster: TrainingCluster, seconds: float) -> None:
    """Let time pass, in which the cluster's jobs go on."""
    for _ in range(round(seconds * 4)):
        await asyncio.sleep(0.25)
        cluster.go_on(bench.clock.now)


def play(scene: Scene) -> None:
    """Run a scene on a clock that jumps; memory and store agree afterwards."""
    clock = VirtualClock()
    cluster = TrainingCluster()
    bench = Bench(cluster)
    bench.clock, bench.reader = clock, parsing.read

    async def run() -> None:
        await bench.start()
        try:
            await scene(bench, cluster)
            bench.check()
        finally:
            await bench.controller.close()

    run_virtually(clock, run)


async def submit(bench: Bench, text: str) -> int:
    """Submit a job file."""
    return await bench.submit(text, kind=JOB_FILE, file="job.yaml", directory="/w")


def end_training(bench: Bench, cluster: TrainingCluster, exit_code: int = 0) -> None:
    """Let the trainer end."""
    cluster.tell("1.0", *end(bench.repository.jobs[1].job, bench.clock.now, exit_code))


async def describe(bench: Bench) -> dict[str, Any]:
    """The only watch."""
    (watch,) = await bench.controller.evaluations.describe("1")
    return watch
