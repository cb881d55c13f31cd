"""Jobs that wait for other jobs on a real Slurm: in its own queue where it decides as Overspan would, else here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.gates import Gate
from tests.system.slurm.groups import connect, native_of
from tests.system.slurm.listings import list_all
from tests.waiting import WaitUntil

from overspan.adapters.contract import Accepted, Awaited, Launch, Refusal, Unmet
from overspan.adapters.slurm import SlurmCluster
from overspan.adapters.slurm.transports.transport import Call, Done
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Dependency, DependencyKind, JobNeed
from overspan.bridge.model.states import State


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


@pytest.fixture
def gate(site: Site) -> Gate:
    return Gate(site)


def submit(span: Span, *words: str) -> str:
    return span.run("sbatch", "--parsable", "-M", "rig", "--mem=50", *words).stdout.partition(";")[0].strip()


def shown(site: Site, native: str) -> list[str]:
    """State, reason and dependency of a native job."""
    return site.slurm("squeue", "-ht", "all", "-j", native, "-o", "%T|%r|%E").strip().split("|")


def until_shown(span: Span, site: Site, native: str, *wanted: str) -> None:
    span.wait_until(lambda: shown(site, native) == list(wanted), 20, f"{native} to be {wanted}")


class TestInSlurmsQueue:
    def test_a_dependant_waits_there_and_goes_on_without_a_daemon(self, remote: Span, site: Site, gate: Gate) -> None:
        first = submit(remote, "--wrap", gate.wait)
        there = native_of(remote, first)
        second = submit(remote, f"--dependency=afterok:{first}", "--wrap", "echo after")
        here = native_of(remote, second)
        assert shown(site, here) == ["PENDING", "Dependency", f"afterok:{there}(unfulfilled)"]
        job = remote.job(second)
        assert (job["state"], job["reason"]) == ("PENDING", "Dependency")
        assert remote.run("squeue", "-h", "-j", second, "-o", "%E").stdout.strip() == f"afterok:{first}(unfulfilled)"
        remote.kill_daemon()
        gate.open()
        until_shown(remote, site, here, "COMPLETED", "None", "(null)")
        ended = remote.until(second, "COMPLETED")
        assert ended["started_at"] >= remote.until(first, "COMPLETED")["ended_at"]
        assert remote.log(second) == "after\n"

    def test_after_a_failure_it_never_starts(self, remote: Span, site: Site, gate: Gate) -> None:
        first = submit(remote, "--wrap", f"{gate.wait}; exit 3")
        assert native_of(remote, first)
        stays = submit(remote, f"--dependency=afterok:{first}", "--wrap", "echo never")
        killed = submit(remote, f"--dependency=afterok:{first}", "--kill-on-invalid-dep=yes", "--wrap", "echo never")
        goes = submit(remote, f"--dependency=afternotok:{first}", "--wrap", "echo sorry")
        natives = {job: native_of(remote, job) for job in (first, stays, killed, goes)}
        assert all(natives.values())
        gate.open()
        remote.until(goes, "COMPLETED")
        remote.until(killed, "CANCELLED")
        assert remote.job(killed)["reason"] == "DependencyNeverSatisfied"
        remote.wait_until(lambda: remote.job(stays)["reason"] == "DependencyNeverSatisfied", 20, "Slurm's reason")
        until_shown(
            remote, site, natives[stays], "PENDING", "DependencyNeverSatisfied", f"afterok:{natives[first]}(failed)"
        )
        assert remote.job(stays)["state"] == "PENDING"

    def test_an_operator_changes_what_it_waits_for(self, remote: Span, site: Site, gate: Gate) -> None:
        first, other = (submit(remote, "--wrap", gate.wait) for _ in range(2))
        assert native_of(remote, first) and native_of(remote, other)
        second = submit(remote, f"--dependency=afterok:{first}", "--wrap", "true")
        native = native_of(remote, second)
        remote.run("scontrol", "update", f"JobId={second}", f"Dependency=afterany:{other}")
        until_shown(remote, site, native, "PENDING", "Dependency", f"afterany:{native_of(remote, other)}(unfulfilled)")
        remote.wait_until(
            lambda: (
                remote.run("squeue", "-h", "-j", second, "-o", "%E").stdout.strip() == f"afterany:{other}(unfulfilled)"
            ),
            20,
            "the change to be told",
        )
        remote.run("scontrol", "update", f"JobId={second}", "Dependency=")
        remote.until(second, "COMPLETED")

    def test_any_of_several_and_the_only_one_of_a_name(self, remote: Span, site: Site, gate: Gate) -> None:
        first, other = (submit(remote, "--job-name=solo", "--wrap", gate.wait) for _ in range(2))
        assert native_of(remote, first) and native_of(remote, other)
        only = submit(remote, "--job-name=solo", "--dependency=singleton", "--wrap", "true")
        either = submit(remote, f"--dependency=afterok:{first}?afterok:{other}", "--wrap", "true")
        assert shown(site, native_of(remote, only))[1:] == ["Dependency", "singleton(unfulfilled)"]
        wanted = "?".join(f"afterok:{native_of(remote, job)}(unfulfilled)" for job in (first, other))
        assert shown(site, native_of(remote, either))[1:] == ["Dependency", wanted]
        gate.open()
        started = remote.until(only, "COMPLETED")["started_at"]
        assert started >= remote.until(other, "COMPLETED")["ended_at"]
        remote.until(either, "COMPLETED")

    def test_a_group_and_an_element(self, remote: Span, site: Site, gate: Gate) -> None:
        array = submit(remote, "--array=3-4", "--wrap", gate.wait)
        remote.until(f"{array}_4", "RUNNING")
        text = f"name: duo\nneeds: ['afterok:{array}_4']\nexecution: parallel\ncluster: rig\n"
        text += "".join(f"---\nname: {name}\nresources: {{memory: 50M}}\nrun: echo {name}\n" for name in "ab")
        group = remote.submit(text)
        native = native_of(remote, str(group))
        assert shown(site, native)[0:2] == ["PENDING", "Dependency"]
        gate.open()
        remote.until(group, "COMPLETED", timeout=40)


class TestHeldHere:
    def test_what_may_get_another_id(self, remote: Span, gate: Gate) -> None:
        budget = "job_recovery: {max_restarts_on_errors: 1}"
        text = f"name: again\ncluster: rig\nresources: {{memory: 50M, {budget}}}\nrun: {gate.wait}\n"
        first = remote.submit(text)
        second = submit(remote, f"--dependency=afterok:{first}", "--wrap", "true")
        remote.wait_until(lambda: remote.job(second)["reason"] == "Dependency", 20, "the reason")
        assert remote.job(second)["native_id"] == ""
        gate.open()
        remote.until(second, "COMPLETED", timeout=40)


def dependant(site: Site, first: Job, handle: str) -> Launch:
    """A job that waits for the success of another."""
    need = JobNeed(DependencyKind.AFTEROK, first.id)
    job = replace(site.job("echo after"), dependency=Dependency((need,)))
    return Launch(f"site-{job.id}-0", job, needs=(Unmet(need, (Awaited(first, handle),)),))


class TestTheLastMoment:
    @pytest.mark.parametrize(("code", "state"), [(0, "COMPLETED|None"), (3, "PENDING|DependencyNeverSatisfied")])
    def test_an_end_between_the_look_and_sbatch(
        self, site: Site, gate: Gate, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil, code: int, state: str
    ) -> None:
        async def story(cluster: SlurmCluster) -> None:
            first = site.job(f"{gate.wait}; exit {code}")
            handle, follower = await site.start(cluster, first)
            native = handle.split(".")[1]
            await follower.until_state(handle, State.RUNNING)
            whole = cluster.transport.run_all

            async def run_all(calls: Sequence[Call], timeout: float = 60.0) -> list[Done | None]:
                if any(call.argv[0] == "sbatch" for call in calls):
                    gate.open()
                    wait_until(lambda: shown(site, native)[0] in ("COMPLETED", "FAILED"), 20, "the end")
                return await whole(calls, timeout)

            monkeypatch.setattr(cluster.transport, "run_all", run_all)
            (answer,) = await cluster.submit([dependant(site, first, handle)])
            assert isinstance(answer, Accepted), answer
            wait_until(lambda: "|".join(shown(site, answer.native_id)[:2]) == state, 20, state)
            site.slurm("scancel", answer.native_id)

        site.play(story)

    def test_an_end_before_the_look(self, site: Site, wait_until: WaitUntil) -> None:
        async def story(cluster: SlurmCluster) -> None:
            first = site.job("exit 3")
            handle, _ = await site.start(cluster, first)
            wait_until(lambda: shown(site, handle.split(".")[1])[0] == "FAILED", 20, "the end")
            before = list_all(site)
            (answer,) = await cluster.submit([dependant(site, first, handle)])
            assert isinstance(answer, Refusal) and answer.transient and answer.reason == "Dependency"
            assert list_all(site) <= before

        site.play(story)
