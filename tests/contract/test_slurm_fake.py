"""The suite against the fake Slurm, so that what the fake does is what the real one does, case by case."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract import conformance
from tests.contract.conformance import Conformance, Rig
from tests.fakes.slurm_jobs import Behaviour
from tests.fakes.slurm_world import SlurmWorld

from overspan.adapters.contract import Adapter
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.spec import Form, JobSpec, Origin, TaskSpec

LONG = "exec sleep 300"


HELPER = TaskSpec(name="helper", run=LONG, primary=False, resources=Resources(memory_mib=50))


def behave(text: str) -> Behaviour:
    """What the jobs of the suite do."""
    if LONG in text:
        return Behaviour(300)
    code = int(text.rpartition("exit ")[2].split()[0].strip("'\""))
    return Behaviour(0.5, code, output="one\ntwo\nthree\n")


class FakeRig:
    """The fake cluster, and small jobs for it."""

    task = "main"

    def __init__(self, world: SlurmWorld, kind: str) -> None:
        self.world = world
        self._group = kind == "group"
        self._form = Form.BATCH if kind == "script" else Form.RUN
        self._ids = itertools.count(1)
        world.transport.behave = lambda job: behave(job.request.script)
        world.transport.programs = lambda task: behave(task.run)

    def open(self) -> Adapter:
        return self.world.open({"tick": 0.5})

    def short_job(self, exit_code: int = 0) -> Job:
        return self._job(f"printf 'one\\ntwo\\nthree\\n'; exit {exit_code}")

    def long_job(self) -> Job:
        return self._job(LONG)

    def impossible_job(self) -> Job:
        return self._job("exit 0", 99_000_000)

    def clean(self) -> None:
        """Nothing outlives the world."""

    def _job(self, text: str, memory: int = 50) -> Job:
        head = f"#!/bin/bash\n#SBATCH --mem={memory}M\n#SBATCH --job-name=contract\n"
        script = f"{head}{text}\n" if self._form is Form.BATCH else text
        task = TaskSpec(name=self.task, form=self._form, run=script, resources=Resources(memory_mib=memory))
        origin = Origin(directory="/nowhere", command=("sbatch", "x"))
        tasks = (task, HELPER) if self._group else (task,)
        spec = JobSpec(name="contract", tasks=tasks, group=self._group, origin=origin)
        return new_job(next(self._ids), spec, time.time())


class TestFakeSlurm(Conformance):
    @pytest.fixture(params=["task", "script", "group"])
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
        world = SlurmWorld(tmp_path, monkeypatch)

        def run(rig: Rig, story: Callable[[Adapter], Coroutine[Any, Any, None]]) -> None:
            world.play(conformance.tell(rig, story))

        monkeypatch.setattr(conformance, "run", run)
        yield FakeRig(world, request.param)
