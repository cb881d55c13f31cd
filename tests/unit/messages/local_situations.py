"""A run directory is damaged, the disk is full, no process can be had, a server does not become ready."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.controller.fakes import until
from tests.unit.messages.told_texts import Opened, Stage, Told, cancel, hear, submit

from overspan.adapters.local import cluster
from overspan.adapters.local.files.launch_files import LaunchFiles, append_lines
from overspan.bridge.model import events
from overspan.bridge.model.job import Job
from overspan.bridge.runtime.core.journal import Journal
from overspan.bridge.runtime.core.loss_records import Loss, name_loss, word_damage, write_loss
from overspan.bridge.store.sqlite_errors import translate

SCRIPT = "#!/bin/sh\ntrain\n"
WAITING = """
name: pair
execution: parallel
primary_tasks: [t]
---
name: t
resources: {cpus: 0.1}
run: train
needs: s
---
name: s
resources: {cpus: 0.1}
run: serve
ready: {tcp: 9999, timeout: 10m}
on_failure: fail_group
"""


def configure(stage: Stage) -> dict[str, Any]:
    """A machine of two CPUs on which no process can be started."""

    def lack(*words: Any, **more: Any) -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    stage.patch.setattr(os, "posix_spawn", lack)
    return {"kind": "local", "root": str(stage.folder / "local"), "cpus": 2}


async def start(bench: Opened, text: str) -> tuple[int, LaunchFiles]:
    """Submit a job and have it granted; gives its run directory."""
    number, _ = await submit(bench.controller, text)
    place = LaunchFiles(str(Path(bench.settings.clusters["local"].root)), number, 0)
    await until(lambda: os.path.exists(place.grant))
    return number, place


def write(place: LaunchFiles, *told: events.Event) -> None:
    """Have a supervisor's journal say this."""
    append_lines(place.journal, [events.event_to_document(event) for event in told])


def launch(job: Job, at: float, *names: str) -> list[events.Event]:
    """The beginning of these tasks."""
    told: list[events.Event] = [events.Granted(at, tuple((task.name, 0, "me", "127.1.0.1", ()) for task in job.tasks))]
    for name in names:
        told += [events.Launch(at, name, 0), events.NodeStarted(at, name, 0, 0)]
    return told


def damage(stage: Stage, break_files: Callable[[LaunchFiles, int], None]) -> Told:
    """The files of a job that runs are damaged while no daemon is there."""
    # What has no supervisor is looked at in turns.
    stage.patch.setattr(cluster, "LOOK_SECONDS", 0.01)

    async def story(bench: Opened) -> Told:
        number, place = await start(bench, SCRIPT)
        write(place, *launch(bench.job(number), bench.clock.now, "batch"))
        await until(lambda: bench.state(number) == "RUNNING")
        await bench.stop()
        break_files(place, number)
        await bench.start()
        await until(lambda: bench.job(number).over)
        return await hear(bench.controller, number)

    return stage.daemon(story, local=configure(stage))


def lose_the_folder(stage: Stage) -> Told:
    """The run directory is removed."""
    return damage(stage, lambda place, _: shutil.rmtree(place.folder))


def tear_the_journal(stage: Stage) -> Told:
    """The journal has a line that is none, which the next supervisor meets."""

    def tear(place: LaunchFiles, number: int) -> None:
        with open(place.journal, "a", encoding="utf-8") as file:
            file.write("GARBAGE {{{\n")
        try:
            Journal(place.journal, number, 0)
        except ValueError as error:
            write_loss(name_loss(place.root, place.folder, 0), Loss(time.time(), word_damage(error)))

    return damage(stage, tear)


def fill_the_disk(stage: Stage) -> Told:
    """The store cannot be written while a job is cancelled."""

    async def story(bench: Opened) -> Told:
        number, place = await start(bench, SCRIPT)
        write(place, *launch(bench.job(number), bench.clock.now, "batch"))
        await until(lambda: bench.state(number) == "RUNNING")
        full = sqlite3.OperationalError("database or disk is full")
        full.sqlite_errorcode = sqlite3.SQLITE_FULL
        bench.repository.broken, bench.repository.trouble = True, translate(full, "overspan.db")
        said = await cancel(bench.controller, number)
        told = await hear(bench.controller, number)
        bench.repository.broken = False
        return {**told, **said}

    return stage.daemon(story, local=configure(stage))


def lack_processes(stage: Stage) -> Told:
    """No process can be had for a launch."""

    async def story(bench: Opened) -> Told:
        number, _ = await start(bench, SCRIPT)
        await until(lambda: "Resources" in bench.job(number).reason, 20)
        return await hear(bench.controller, number)

    return stage.daemon(story, local=configure(stage))


def wait_for_readiness(stage: Stage) -> Told:
    """A task waits for one that listens nowhere."""

    async def story(bench: Opened) -> Told:
        number, place = await start(bench, WAITING)
        write(place, *launch(bench.job(number), bench.clock.now, "s"))
        write(place, events.Probed(bench.clock.now, "s", 0, 8, "connection refused"))
        await until(lambda: bench.job(number).task("s").probe is not None)
        return await hear(bench.controller, number)

    return stage.daemon(story, local=configure(stage))
