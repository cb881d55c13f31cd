"""How a job's document tells what became of its storage on the nodes of the newest attempt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.fakes import Bench, play, until

from overspan.bridge.controller.views.details import describe_job
from overspan.bridge.model import events
from overspan.bridge.model.job import Job
from overspan.bridge.model.storage import MountMode, StorageMount

COPY = StorageMount("/data", "s3://lab/data", MountMode.COPY, "s3")
CACHED = StorageMount("./out", "s3://lab/out", MountMode.MOUNT_CACHED, "s3")
MOUNT = StorageMount("./in", "s3://lab/in", MountMode.MOUNT_CACHED, "s3", read_through=True)


def describe(bench: Bench, job: Job) -> list[tuple[Any, ...]]:
    """(target, mode, state, why) of each row."""
    entry = bench.controller.recorder.registry.get(job.id)
    assert entry is not None
    spec = replace(job.spec, tasks=(replace(job.spec.tasks[0], storage=(COPY, CACHED, MOUNT)),))
    (task,) = describe_job(replace(entry, job=replace(job, spec=spec)))["tasks"]
    return [(row["target"], row["mode"], row["state"], row["why"]) for row in task["storage"]]


@pytest.mark.parametrize(
    ("told", "state", "why"),
    [("mounted", "mounted", ""), ("copied: no /dev/fuse: none", "copied", "no /dev/fuse: none"), ("", "", "")],
)
def test_a_folder_is_mounted_copied_or_cached(told: str, state: str, why: str) -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: "1.0" in bench.cluster.journals)
        waiting = [("/data", "COPY"), ("./out", "MOUNT_CACHED"), ("./in", "MOUNT")]
        assert describe(bench, bench.job()) == [(*row, "", "") for row in waiting]
        now = bench.clock.now
        bench.cluster.tell(
            "1.0",
            events.Granted(now, (("main", 0, "n1", "10.0.0.1", ()),)),
            events.Launch(now, bench.job().tasks[0].name, 0),
            events.NodeStarted(now, bench.job().tasks[0].name, 0, 0, 0, told),
        )
        await until(lambda: bench.job().state.value == "RUNNING")
        assert describe(bench, bench.job()) == [
            ("/data", "COPY", "copied", ""),
            ("./out", "MOUNT_CACHED", "cached", ""),
            ("./in", "MOUNT", state, why),
        ]

    play(scene)
