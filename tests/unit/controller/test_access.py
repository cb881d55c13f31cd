"""Logins, and jobs that a cluster has already, through the controller and its routes."""

from __future__ import annotations

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, begin, end, play, until

from overspan.adapters.contract import Accepted as Taken
from overspan.adapters.contract import Foreign, Invitation, Launch, Refusal
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound, Rejected
from overspan.bridge.model.spec import Form, JobSpec, RetryPolicy, TaskSpec


class OpenCluster(FakeCluster):
    """A cluster with a login, and a foreign job 42."""

    refuses = ""

    async def login(self) -> Invitation:
        return Invitation("open", ("ssh", "-fN", "login"), ("ssh", "-O", "check"))

    async def find_job(self, native: str) -> Foreign:
        if native != "42":
            raise NotFound(f"Slurm knows no job {native}")
        task = TaskSpec("batch", Form.BATCH, "#!/bin/sh\n", retry=RetryPolicy(max_recoveries=0))
        return Foreign(JobSpec("foreign", (task,), adopted=native), 1_600_000_000.0)

    def _take(self, launch: Launch) -> Taken | Refusal:
        if self.refuses:
            return Refusal(launch.token, self.refuses)
        answer = super()._take(launch)
        assert isinstance(answer, Taken)
        return answer


def test_a_foreign_job_is_watched_to_its_end() -> None:
    async def scene(bench: Bench) -> None:
        entry = await bench.controller.access.take_in("local", "42", "me")
        assert (entry.job.submitted_at, entry.job.spec.adopted, entry.user) == (1_600_000_000.0, "42", "me")
        assert entry.launched and bench.ledger.jobs[1].handle == "0:1.0"
        bench.cluster.tell("1.0", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now, 3))
        await until(lambda: bench.state() == "FAILED")
        assert bench.job().launch == 0 and bench.job().tasks[0].attempts[0].exit_code == 3

    play(scene, OpenCluster())


def test_a_job_is_watched_once() -> None:
    async def scene(bench: Bench) -> None:
        await bench.controller.access.take_in("local", "42", "me")
        with pytest.raises(Conflict, match="local:42 is job 1"):
            await bench.controller.access.take_in("local", "42", "me")
        with pytest.raises(NotFound, match="no job 43"):
            await bench.controller.access.take_in("local", "43", "me")
        assert list(bench.ledger.jobs) == [1]

    play(scene, OpenCluster())


def test_a_refusal_is_told() -> None:
    async def scene(bench: Bench) -> None:
        assert isinstance(bench.cluster, OpenCluster)
        bench.cluster.refuses = "it has gone"
        with pytest.raises(Rejected, match="it has gone"):
            await bench.controller.access.take_in("local", "42", "me")
        assert bench.job().over

    play(scene, OpenCluster())


def test_logins() -> None:
    async def with_login(bench: Bench) -> None:
        assert (await bench.controller.access.login("local")).words == ("ssh", "-fN", "login")
        with pytest.raises(NotFound):
            await bench.controller.access.login("moon")

    async def without(bench: Bench) -> None:
        invitation = await bench.controller.access.login("local")
        assert not invitation.words and "nothing to log in to" in invitation.message
        with pytest.raises(InvalidRequest, match="cannot watch"):
            await bench.controller.access.take_in("local", "42", "me")

    play(with_login, OpenCluster())
    play(without)
