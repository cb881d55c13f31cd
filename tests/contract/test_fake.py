"""The suite against the scripted adapter."""

from __future__ import annotations

import itertools
import time

import pytest
from tests.contract.conformance import OUTPUT, Conformance, Rig
from tests.contract.fake import MOST_CPUS, FakeAdapter, FakeWorld

from overspan.adapters.contract import Adapter
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.spec import JobSpec, TaskSpec

ANY = Resources()


class FakeRig:
    """A cluster in memory."""

    task = "main"

    def __init__(self) -> None:
        self._world = FakeWorld()
        self._ids = itertools.count(1)

    def open(self) -> Adapter:
        return FakeAdapter(self._world)

    def short_job(self, exit_code: int = 0) -> Job:
        return self._job(f"{OUTPUT.decode()}exit {exit_code}")

    def long_job(self) -> Job:
        return self._job("wait")

    def impossible_job(self) -> Job:
        return self._job("wait", Resources(cpus=MOST_CPUS + 1))

    def clean(self) -> None:
        pass

    def _job(self, run: str, resources: Resources = ANY) -> Job:
        task = TaskSpec(name=self.task, run=run, resources=resources)
        return new_job(next(self._ids), JobSpec(name="fake", tasks=(task,)), time.time())


class TestFake(Conformance):
    @pytest.fixture
    def rig(self) -> Rig:
        return FakeRig()
