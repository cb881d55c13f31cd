"""Logins, and jobs that a cluster has already, through the controller and its routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, begin, end, play, read, start_job, until

from overspan.adapters.abilities import Entrance, Foreign, Invitation, ShellRequest
from overspan.adapters.contract import Accepted as Taken
from overspan.adapters.contract import Launch, Refusal
from overspan.bridge.controller.features.access import ShellParameters
from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.model import events
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound, Rejected
from overspan.bridge.model.spec import Form, JobSpec, RetryPolicy, TaskSpec
from overspan.bridge.readers.submission import Submission


class OpenCluster(FakeCluster):
    """A cluster with a login, shells, and a foreign job 42."""

    refuses = ""

    def state(self) -> dict[str, Any]:
        return {"login": self.login, "find_job": self.find_job}

    async def enter(self, request: ShellRequest) -> Entrance:
        return Entrance((request.handle, request.task, str(request.node), request.host, *request.command))

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
        assert entry.launched and bench.repository.jobs[1].handle == "0:1.0"
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
        assert list(bench.repository.jobs) == [1]

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


def keep(bench: Bench) -> None:
    """Have failed jobs keep their nodes."""

    def read_kept(submission: Submission, kinds: Mapping[str, str], now: float) -> ParsedSubmission:
        reading = read(submission, kinds, now)
        return replace(reading, spec=replace(reading.spec, hold_on_failure=600))

    bench.reader = read_kept


def test_a_shell_is_at_the_member_that_is_meant() -> None:
    async def scene(bench: Bench) -> None:
        waits = await bench.submit("a hold")
        with pytest.raises(Conflict, match=f"job {waits} does not run yet: PENDING"):
            await bench.controller.access.enter(str(waits), ShellParameters())
        job = await start_job(bench, "a b")
        entrance, place = await bench.controller.access.enter(f"{job}+1", ShellParameters(command=("x", "y")))
        assert entrance.words == (f"{job}.0", "b", "0", "me", "x", "y")
        assert place == f"b-0 of job {job} on me"
        for wish, error, text in (
            (ShellParameters(node=1), NotFound, f"a of job {job} has no node 1"),
            (ShellParameters("c"), InvalidRequest, "no task 'c'"),
        ):
            with pytest.raises(error, match=text):
                await bench.controller.access.enter(str(job), wish)

    play(scene, OpenCluster())


def test_what_has_ended_is_entered_only_while_its_nodes_are_kept() -> None:
    async def scene(bench: Bench) -> None:
        access = bench.controller.access
        await start_job(bench, "a b")
        bench.cluster.tell("1.0", events.NodeEnded(bench.clock.now, "b", 0, 0))
        await until(lambda: bench.job().task("b").over)
        with pytest.raises(Conflict, match="b of job 1 has ended: COMPLETED"):
            await access.enter("1.b", ShellParameters())
        assert (await access.enter("1.a", ShellParameters()))[0].words[1] == "a"
        bench.cluster.tell("1.0", events.NodeEnded(bench.clock.now, "a", 0, 0, exit_code=3))
        await until(lambda: bench.job().reason == "HeldOnFailure")
        assert (await access.enter("1.b", ShellParameters()))[0].words[1] == "b"
        bench.cluster.tell("1.0", events.HoldOver(bench.clock.now))
        await until(lambda: bench.state() == "FAILED")
        with pytest.raises(Conflict, match="job 1 has ended: FAILED"):
            await access.enter("1.b", ShellParameters())

    play(scene, OpenCluster(), keep)


def test_a_cluster_without_shells_says_so() -> None:
    async def scene(bench: Bench) -> None:
        job = await start_job(bench)
        with pytest.raises(InvalidRequest, match="gives no shells"):
            await bench.controller.access.enter(str(job), ShellParameters())

    play(scene)
