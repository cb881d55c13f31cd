"""A daemon of this version starts on what the old one left, on a machine that was started anew in between.

No cluster but this machine answers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.system.conftest import Span
from tests.upgrade.asking import read_accounts, read_timeline
from tests.upgrade.corpus import CORPUS, restore
from tests.upgrade.installation import configure
from tests.waiting import WaitUntil

SAID: Mapping[str, Any] = json.loads((CORPUS / "said.json").read_text())
JOBS: Mapping[str, int] = SAID["jobs"]
LIVED_HERE = ("running", "requeued", "array-live", "group-running", "staged", "wide", "dependent")
"""Jobs of this machine that go on by themselves when a daemon starts."""
GROUP_SAID = ["server-0  | begun", "server-1  | begun", "trainer-0 | begun"]
ANEW = "the machine was started anew"


class Upgraded(Span):
    """The commands of this version, on a copy of the corpus."""

    def __init__(self, folder: Path, wait_until: WaitUntil) -> None:
        super().__init__(folder, wait_until)
        restore(folder, time.time())
        configure(folder)

    def end_jobs(self) -> None:
        """Those of this machine; the other clusters do not answer."""
        self.look("scancel", "--me", check=False)
        self.wait_until(lambda: not self.look("squeue", "-M", "local", "--noheader").strip(), 40, "all jobs to end")


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory, wait_until: WaitUntil) -> Iterator[Upgraded]:
    """One for all tests; what is left of it afterwards is ended."""
    found = Upgraded(tmp_path_factory.mktemp("upgraded"), wait_until)
    yield found
    found.close()


def test_listings_tell_what_the_old_version_told(upgraded: Upgraded) -> None:
    own = {str(JOBS[name]) for name in LIVED_HERE}

    def leave_out(lines: list[str]) -> list[str]:
        return [line for line in lines if line.replace("+", "_").split("|")[0].split("_")[0] not in own]

    assert leave_out(read_accounts(upgraded)) == leave_out(SAID["accounts"])
    # Lines of several tasks come in any order: the old version has not kept when they were written.
    logs = {name: sorted(upgraded.log(JOBS[name]).splitlines()) for name in SAID["logs"]}
    assert logs == {name: sorted(text.splitlines()) for name, text in SAID["logs"].items()}
    assert upgraded.log(f"{JOBS['array-ended']}_2") == "2\n"
    assert {name: read_timeline(upgraded, JOBS[name]) for name in SAID["timelines"]} == SAID["timelines"]
    shown = {name: upgraded.job(JOBS[name]) for name in JOBS}
    assert {name: job["job_id"] if "job_id" in job else job["id"] for name, job in shown.items()} == dict(JOBS)
    assert "not-a-secret" not in json.dumps(shown)


def test_nothing_is_damaged_and_nothing_went_wrong(upgraded: Upgraded) -> None:
    upgraded.look("ping")
    told = [json.loads(line) for line in (upgraded.state / "daemon.log").read_text().splitlines()]
    assert not [line for line in told if line["level"] in ("error", "critical") or "Traceback" in json.dumps(line)]
    assert not list(upgraded.state.rglob("*damaged*")) + list((upgraded.state / "clusters/local").glob("lost/*"))
    assert "nightly" in upgraded.look("cron", "list")


def test_jobs_of_clusters_that_do_not_answer_are_kept_as_they_were(upgraded: Upgraded) -> None:
    told = [line.split("|") for line in SAID["accounts"] if line.split("|")[2] in ("slurm", "pods")]
    live = {row[0]: row[3] for row in told if row[3] in ("RUNNING", "PENDING")}

    def ask() -> dict[str, str]:
        rows = (
            line.split("|") for line in upgraded.look("squeue", "-h", "-o", "%i|%T", "-M", "slurm,pods").splitlines()
        )
        return {row[0]: row[1] for row in rows if len(row) == 2}

    listed = upgraded.wait_until(lambda: (found := ask()) and live.items() <= found.items() and found, 20, str(live))
    assert upgraded.job(JOBS["slurm-held"])["reason"] == "JobHeldUser"
    assert f"{JOBS['slurm-array']}_[1-3%1]" in listed
    assert "has not answered" in upgraded.run("squeue").stderr
    assert upgraded.job(JOBS["away"])["state"] == "PENDING"


@pytest.mark.parametrize(("name", "attempt"), [("running", 1), ("requeued", 2), ("group-running", 1), ("staged", 1)])
def test_jobs_whose_processes_are_gone_are_told_as_lost_and_run_again(
    upgraded: Upgraded, name: str, attempt: int
) -> None:
    upgraded.until(JOBS[name], "RUNNING", "CANCELLED")
    texts = [row["text"] for row in upgraded.timeline(JOBS[name])]
    assert ANEW in texts
    assert f"attempt {attempt}" in texts[texts.index(ANEW) :]


def test_what_waited_runs_to_its_end(upgraded: Upgraded) -> None:
    for name in ("running", "requeued", "array-live", "group-running", "staged"):
        upgraded.run("scancel", str(JOBS[name]))
    for name in ("held", "held-group"):
        upgraded.run("release", str(JOBS[name]))
    for name, said in (("dependent", "after\n"), ("wide", "wide\n"), ("held", "held\n")):
        assert upgraded.until(JOBS[name], "COMPLETED", "FAILED")["state"] == "COMPLETED"
        assert upgraded.log(JOBS[name]) == said
    assert upgraded.until(JOBS["held-group"], "COMPLETED", "FAILED")["state"] == "COMPLETED"
    assert upgraded.job(JOBS["later"])["reason"] == "BeginTime"
    assert upgraded.job(JOBS["never"])["reason"] == "DependencyNeverSatisfied"
    # What the old version has put into a run directory is packed with the rest, and read from there.
    runs = upgraded.state / "clusters/local/runs"
    packs = [runs / str(JOBS[name]) / "pack.zip" for name in ("running", "group-running", "wide")]
    upgraded.wait_until(lambda: all(pack.exists() for pack in packs), 20, "them to be packed")
    assert sorted(upgraded.log(JOBS["group-running"], "", "--attempt", "0").splitlines()) == GROUP_SAID
    assert int(upgraded.wrap("true")) > max(JOBS.values())
