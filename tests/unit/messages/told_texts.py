"""What users are told, by where they look; and a daemon over real adapters, whose parts a situation breaks."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.fakes.slurm_world import SlurmWorld
from tests.unit.controller.fakes import Bench

from overspan.adapters.contract import ClusterConfig
from overspan.adapters.installed import find_opener
from overspan.bridge.cli.jobs.show import job_text
from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.controller import Controller
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.controller.submission.parsing import read
from overspan.bridge.controller.submission.submitter import Submitted
from overspan.bridge.controller.views.listing import Selection
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.readers.submission import JOB_FILE, SCRIPT, Submission

Told = dict[str, str]
"""Texts by where they stand: submit, squeue, show, timeline, scancel, ping, clusters, check, log."""


class Stage(NamedTuple):
    """Where a situation plays: its folder, and how it changes what is around the product."""

    folder: Path
    patch: pytest.MonkeyPatch

    def slurm(self, story: Callable[[SlurmWorld], Coroutine[Any, Any, Told]]) -> Told:
        """Play on the fake Slurm."""
        world = SlurmWorld(self.folder, self.patch)
        told: Told = {}

        async def tell() -> None:
            told.update(await story(world))

        world.play(tell())
        return told

    def daemon(self, story: Callable[[Opened], Awaitable[Told]], **clusters: Mapping[str, Any]) -> Told:
        """Play with a daemon that opens these clusters by their own adapters; the first is the default."""

        async def tell() -> Told:
            bench = Opened(self.folder)
            bench.configure(**clusters)
            await bench.start()
            try:
                return await story(bench)
            finally:
                await bench.controller.close()

        return asyncio.run(tell())


class Opened(Bench):
    """A controller whose clusters are those of the configuration."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.reader = read
        self.state_dir = str(folder / "state")
        # The adapters' own clock: what they tell is neither long ago nor to come.
        self.clock.now = time.time()

    def configure(self, **clusters: Mapping[str, Any]) -> None:
        """Have these clusters when a daemon starts next."""
        self.settings = Settings.model_validate({"clusters": clusters, "default_cluster": next(iter(clusters))})

    async def stop(self) -> None:
        """Kill the daemon; what it had open is closed, as the kernel does."""
        await self.kill()
        await self.controller.clusters.close()

    def _open(self, config: ClusterConfig) -> Any:
        return find_opener(config.kind)(config)


async def hear(controller: Controller, number: int | None = None) -> Told:
    """What the daemon says now, and of a job."""
    clusters = [f"{row['name']} {row['state']}: {row['message']}" for row in controller.health.list_clusters()]
    told = {"ping": "\n".join(controller.problems), "clusters": "\n".join(clusters)}
    if number is not None:
        listing = json.loads(controller.queue(Selection(states=frozenset({"ALL"}), tasks=True)))
        rows = [dict(zip(listing["columns"], row, strict=True)) for row in listing["rows"]]
        told["squeue"] = "\n".join(f"{row['name']} {row['state']} {row['reason']} {row['node_list']}" for row in rows)
        told["show"] = job_text(await controller.job(str(number)))
        lines = [f"{row.task} {row.end} {row.text}" for row in await controller.timeline(str(number))]
        told["timeline"] = "\n".join(lines)
    return told


async def submit(controller: Controller, text: str, *words: str, **more: Any) -> tuple[int, Told]:
    """Submit a job file, or a batch script, and hear what is said about it."""
    kind = SCRIPT if text.startswith("#!") else JOB_FILE
    submission = Submission(kind, text, "job", argv=words, directory="/home/ada", user="ada", **more)
    try:
        done: Submitted = await controller.submit(submission)
    except OverspanError as error:
        return 0, {"submit": str(error)}
    return done.id, {"submit": "\n".join(done.notes)}


async def cancel(controller: Controller, number: int, signal: str = "") -> Told:
    """Cancel a job, or send it a signal, and hear what scancel says."""
    outcome = await controller.orders.cancel(CancelRequest((str(number),), signal=signal, by="ada"))
    return {"scancel": "\n".join([outcome.note, *(str(error) for _, error in outcome.errors)]).strip()}
