"""A job again with changes, on a real daemon with local jobs. Row TU05 of docs/acceptance.md."""

from __future__ import annotations

from typing import Any

import pytest

from overspan.bridge.client import Client
from overspan.bridge.model.errors import Conflict, InvalidRequest

pytestmark = pytest.mark.shared_daemon

GROUP = """\
name: pair
execution: parallel
---
name: a
resources: {cpus: 0.1}
run: echo "$SLURM_CPUS_ON_NODE of a"
---
name: b
resources: {cpus: 0.1}
run: echo b
"""


def read_end(span: Any, job: int) -> tuple[str, str]:
    """A job's state at its end, and what it wrote."""
    span.run("wait", str(job), check=False)
    return span.job(job)["state"], span.log(job)


def test_a_job_that_needed_more_time_gets_it_and_keeps_the_rest(span: Any, tmp_path: Any) -> None:
    file = tmp_path / "long.yaml"
    file.write_text(
        "name: long\ntime: 1s\nresources: {cpus: 0.1}\nsecrets: {KEY: hush}\ngrace_period: 1\n"
        "run: |\n  echo $COLOUR $KEY $PWD\n  sleep 3\n"
    )
    words = ("submit", "--parsable", "--env", "COLOUR=blue", str(file))
    job = int(span.run(*words, cwd=tmp_path).stdout)
    state, said = read_end(span, job)
    assert state == "TIMEOUT"
    again = int(span.run("resubmit", str(job), "--time", "1m", "--comment", "more", "--parsable").stdout)
    assert read_end(span, again) == ("COMPLETED", said) and said.startswith("blue hush ")
    assert span.job(again)["tasks"][0]["time_limit"] == 60 and span.job(again)["comment"] == "more"
    first = span.timeline(again)[0]["text"]
    assert first == f"submitted again from job {job} with --time=1m --comment=more"


def test_a_script_sees_what_it_was_given_anew(span: Any) -> None:
    job = span.wrap("echo $SLURM_CPUS_PER_TASK $SLURM_MEM_PER_NODE $SLURM_JOB_NAME", "-c1", "--mem=100", "-J", "x")
    assert read_end(span, job) == ("COMPLETED", "1 100 x\n")
    again = int(span.run("resubmit", str(job), "-c2", "--mem", "200M", "--name", "y", "--parsable").stdout)
    assert read_end(span, again) == ("COMPLETED", "2 200 y\n")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--mem", "lots"), 2, "Invalid --mem specification"),
        (("--mem", "900T"), 1, "Requested node configuration is not available"),
        (("--partition", "nowhere"), 1, "invalid partition specified: nowhere"),
        (("--cluster", "moon"), 4, "no cluster 'moon'"),
        (("--task", "other", "--mem", "1G"), 2, "the job has no task 'other'"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_cannot_be_is_refused_and_no_job_is_made(span: Any, words: tuple[str, ...], code: int, said: str) -> None:
    job = span.wrap("true", "--mem=1M")
    span.run("wait", str(job))
    before = span.look("sacct", "-XnP", "-o", "jobid")
    refused = span.run("resubmit", str(job), *words, check=False)
    assert refused.returncode == code and said in refused.stderr, refused.stderr
    assert span.look("sacct", "-XnP", "-o", "jobid") == before


def test_one_task_of_a_group_is_changed_and_a_dead_daemon_changes_nothing(span: Any) -> None:
    job = span.submit(GROUP)
    span.run("wait", str(job))
    refused = span.run("resubmit", str(job), "--cpus-per-task", "2", check=False)
    assert refused.returncode == 2 and "its tasks: a, b" in refused.stderr
    span.kill_daemon()
    again = int(span.run("resubmit", str(job), "--task", "a", "-c", "2", "--parsable").stdout)
    span.run("wait", str(again))
    assert "2 of a" in span.log(again)
    assert [task["cpus"] for task in span.job(again)["tasks"]] == [2, 1]


def test_python_asks_for_the_values_and_changes_them(span: Any) -> None:
    job = span.wrap("exit 3", "-t", "5", "-c1")
    span.run("wait", str(job), check=False)
    with Client(environment=span.environment) as client:
        values = client.resubmit_values(str(job))
        assert (values["time"], values["cpus-per-task"], values["clusters"]) == ("5:00", "1", "local")
        again = client.resubmit(str(job), failed=True, changes={"time": "7", "begin": "now+1hour"})
        assert client.resubmit_values(str(again.id))["time"] == "7:00"
        assert client.show(str(again.id))["reason"] == "BeginTime"
        client.hold(str(again.id))
        with pytest.raises(InvalidRequest, match="cannot be changed by a resubmission"):
            client.resubmit(str(job), changes={"wrap": "true"})
        with pytest.raises(Conflict, match="has not failed"):
            client.resubmit(str(again.id), failed=True)
        span.run("scancel", str(again.id))
