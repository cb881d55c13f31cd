"""The suite against real processes on this machine."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.conformance import Conformance, Rig
from tests.system.local.machine import end_supervisors

from overspan.adapters.contract import Adapter, ClusterConfig
from overspan.adapters.local import open_cluster
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec

ANY = Resources()


class LocalRig:
    """A local cluster of four CPUs in a folder of its own."""

    task = "main"

    def __init__(self, root: Path, group: bool) -> None:
        self._root = root
        self._group = group
        self._ids = itertools.count(1)

    def open(self) -> Adapter:
        return open_cluster(ClusterConfig("local", "local", {"cpus": 4, "memory": "4G"}, str(self._root)))

    def short_job(self, exit_code: int = 0) -> Job:
        return self._job(f"printf 'one\\ntwo\\nthree\\n'; exit {exit_code}")

    def long_job(self) -> Job:
        return self._job("exec sleep 300")

    def impossible_job(self) -> Job:
        return self._job("true", Resources(cpus=5))

    def clean(self) -> None:
        end_supervisors(self._root)

    def _job(self, run: str, resources: Resources = ANY) -> Job:
        task = TaskSpec(name=self.task, run=run, resources=resources)
        spec = JobSpec(name="contract", tasks=(task,), group=self._group, origin=Origin(directory=str(self._root)))
        return new_job(next(self._ids), spec, time.time())


class TestLocal(Conformance):
    @pytest.fixture(params=[False, True], ids=["single", "group"])
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
        rig = LocalRig(tmp_path, request.param)
        yield rig
        rig.clean()
