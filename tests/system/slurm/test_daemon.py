"""A daemon outside the cluster, reached by the commands: one job each from submission to its end, over ssh."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.daemons import link_up, remote, submit
from tests.system.slurm.gates import Gate

__all__ = ["remote"]


def test_a_job_that_ended_while_no_daemon_was_there(remote: Span, site: Site) -> None:
    gate = Gate(site)
    job = submit(remote, "--wrap", f"echo hello; {gate.wait}; sleep 2; exit 9")
    native = str(remote.until(job, "RUNNING")["native_id"])
    remote.kill_daemon()
    gate.open()
    state = ("squeue", "-ht", "all", "-j", native, "-o", "%T")
    remote.wait_until(lambda: site.slurm(*state).strip() == "FAILED", 20, "Slurm's end of it")
    ended = remote.until(job, "FAILED")
    assert ended["exit_code"] == 9
    asked = site.rig.run(["squeue", "-ht", "all", "-j", native, "-o", "%S %e"], env={"TZ": "UTC"})
    times = [datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() for text in asked.stdout.split()]
    assert [ended["started_at"], ended["ended_at"]] == times and times[1] - times[0] >= 2
    assert "hello" in remote.log(job)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-p", "nope", "--wrap", "true"], "Invalid partition name specified"),
        (["--mem=99999G", "--wrap", "true"], "Memory specification can not be satisfied"),
    ],
)
def test_a_rejection_is_told_at_submission(remote: Span, words: list[str], said: str) -> None:
    link_up(remote)
    done = remote.run("sbatch", "-M", "rig", *words, check=False)
    assert done.returncode == 1
    assert said in done.stderr
    assert not json.loads(remote.run("squeue", "--json").stdout)["jobs"]


def test_arguments_elements_and_named_variables_arrive(remote: Span) -> None:
    script = remote.folder / "a.sh"
    script.write_text('#!/bin/bash\n#SBATCH --mem=50\necho "$1|$SLURM_ARRAY_TASK_ID|$GREETING|$UNNAMED"\n')
    variables = {"GREETING": "it's", "UNNAMED": "x"}
    words = ("sbatch", "--parsable", "-M", "rig", "--array=1-2", "--export=ALL,GREETING", str(script), "x  y")
    array = remote.run(*words, environment=variables).stdout.partition(";")[0]
    remote.until(f"{array}_2", "COMPLETED")
    assert remote.log(f"{array}_2") == "x  y|2|it's|\n"


def test_a_cancel_and_a_requeue(remote: Span) -> None:
    job = submit(remote, "--wrap", "sleep 3600")
    remote.until(job, "RUNNING")
    remote.run("scontrol", "requeue", str(job))
    remote.until(job, "PENDING")
    remote.wait_until(lambda: remote.job(job)["reason"] == "BeginTime", 20, "Slurm's own reason")
    remote.run("scancel", str(job))
    remote.until(job, "CANCELLED")
