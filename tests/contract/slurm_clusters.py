"""A real Slurm as the conformance suite sees it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.rigs.reach import SshAccess
from tests.waiting import wait_until

from overspan.adapters.contract import Adapter, ClusterConfig
from overspan.adapters.slurm import open_cluster
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.spec import Form, JobSpec, Origin, TaskSpec

HELPER = TaskSpec(name="helper", run="exec sleep 300", primary=False, resources=Resources(memory_mib=50))


SCRIPT = "#!/bin/bash\n#SBATCH --mem={memory}M\n#SBATCH --job-name=contract\n{text}\n"


class RemoteSlurm:
    """The rig's cluster as an adapter's settings, and small jobs for it."""

    task = "main"

    def __init__(self, access: SshAccess, kind: str, ids: Iterator[int]) -> None:
        self._access = access
        self._group = kind == "group"
        self._form = Form.BATCH if kind == "script" else Form.RUN
        self._ids = ids

    def open(self) -> Adapter:
        settings = {"transport": "ssh", "tick": 0.5, **self._access.settings}
        return open_cluster(ClusterConfig("rig", "slurm", settings))

    def short_job(self, exit_code: int = 0) -> Job:
        return self._job(f"printf 'one\\ntwo\\nthree\\n'; exit {exit_code}")

    def long_job(self) -> Job:
        return self._job("exec sleep 300")

    def impossible_job(self) -> Job:
        return self._job("true", 99_000_000)

    def clean(self) -> None:
        """End all jobs, those that others left too, and wait until their nodes are free."""
        rig = self._access.rig
        rig.run(["scancel", "--user=researcher"])
        wait_until(
            lambda: not rig.run(["squeue", "--noheader", "--user=researcher"]).stdout.strip(),
            30,
            "the queue to be empty",
        )

    def _job(self, text: str, memory: int = 50) -> Job:
        script = SCRIPT.format(memory=memory, text=text) if self._form is Form.BATCH else text
        task = TaskSpec(name=self.task, form=self._form, run=script, resources=Resources(memory_mib=memory))
        origin = Origin(directory="/nowhere", command=("sbatch", "x"))
        tasks = (task, HELPER) if self._group else (task,)
        spec = JobSpec(name="contract", tasks=tasks, group=self._group, origin=origin)
        return new_job(next(self._ids), spec, time.time())
