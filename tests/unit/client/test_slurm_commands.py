"""Slurm's listing and control verbs against a scripted daemon: the exact argv of the programs that call them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from overspan.bridge.cli import main
from overspan.bridge.client import JobRow

ROW = JobRow(id=7, raw_id=7, name="train", user="root", partition="main", cluster="local", submitted_at=50.0)
NODE = {
    "name": "n1",
    "cluster": "local",
    "partition": "main",
    "default": True,
    "state": "idle",
    "cpus": 4,
    "memory": 4000,
}


def _listing(*rows: JobRow) -> dict[str, Any]:
    return {"format": 1, "now": 100.0, "columns": list(JobRow._fields), "rows": [list(row) for row in rows]}


def _serve(daemon: Any, *rows: JobRow) -> None:
    daemon.routes["GET /v1/queue"] = daemon.routes["GET /v1/history"] = lambda request: _listing(*rows)
    daemon.routes["GET /v1/nodes"] = lambda request: {"now": 100.0, "clusters": [], "nodes": [NODE]}
    daemon.routes["GET /v1/clusters"] = lambda request: {"clusters": [{"name": "local", "default": True}]}
    daemon.routes["GET /v1/ping"] = lambda request: {"host": "box", "since": 1.0, "state_dir": "/s"}


ARRAY = ROW._replace(array_id=7, array_waiting="3-6%2", reason="JobArrayTaskLimit")
ELEMENT = ROW._replace(raw_id=8, array_id=7, array_index=1, state="RUNNING", started_at=60.0, node_list="n1")


@pytest.mark.parametrize(
    ("words", "out"),
    [
        # submitit, snakemake, Nextflow, PSI/J, TorchX.
        (["sacct", "-o", "JobID,State,NodeList", "--parsable2", "-j", "7", "-j", "7"],
         "JobID|State|NodeList\n7_1|RUNNING|n1\n7_1.batch|RUNNING|n1\n7_[3-6%2]|PENDING|None assigned\n"),
        (["sacct", "-X", "--parsable2", "--clusters", "all", "--noheader", "--format=JobIdRaw,State", "--starttime",
          "1970-01-01T00:00", "--endtime", "now", "--name", "train"], "8|RUNNING\n"),
        (["squeue", "--format=%i|%T", "--states=all", "--noheader", "--name", "train"],
         "7_[3-6%2]|PENDING\n7_1|RUNNING\n"),
        (["squeue", "--noheader", "-o", "%i %t", "-t", "all", "-p", "main", "-u", "root"], "7_[3-6%2] PD\n7_1 R\n"),
        (["squeue", "--noheader", "-o", "%i %t", "-t", "all", "--only-job-state"], "7_[3-6%2] PD\n7_1 R\n"),
        (["squeue", "-O", "JobArrayID,StateCompact,Reason", "-t", "all", "--me"],
         "JOBID               ST                  REASON              \n"
         "7_[3-6%2]           PD                  JobArrayTaskLimit   \n"
         "7_1                 R                   None                \n"),
        (["squeue", "--me", "-o", "%i", "-h", "-r", "-t", "all"], "7_3\n7_4\n7_5\n7_6\n7_1\n"),
        (["sinfo", "-o", "%P"], "PARTITION\nmain*\n"),
        (["sinfo", "--format", "%P,%m", "--noconvert"], "PARTITION,MEMORY\nmain*,4000\n"),
        (["sacctmgr", "-n", "-s", "list", "user", "root", "format=account%256"], ""),
        (["sshare", "-U", "--format", "Account%256", "--noheader"], ""),
    ],
)  # fmt: skip
def test_what_clients_ask(daemon: Any, words: list[str], out: str, capsys: pytest.CaptureFixture[str]) -> None:
    _serve(daemon, ELEMENT, ARRAY)
    assert main(words) == 0
    assert capsys.readouterr() == (out, "")


def test_the_configuration_is_read_by_patterns(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _serve(daemon)
    assert main(["scontrol", "show", "config"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "MinJobAge               = 300 sec" in lines
    assert "MaxArraySize            = 1001" in lines
    assert "ClusterName             = local" in lines
    assert lines[-1] == "Slurmctld(primary) at box is UP"


@pytest.mark.parametrize(
    ("words", "code", "err"),
    [
        (["sacct", "-nu", "root", "-o", "Account%256", "|", "tail", "-1"], 1, "sacct: invalid option -- '1'\n"),
        (["sacct", "-j", "abc"], 1, "sacct: fatal: Bad job/step specified: abc\n"),
        (["sacct", "-o", "nonsense"], 1, 'sacct: error: Invalid field requested: "nonsense"\n'),
        (["sacct", "-s", "nonsense"], 1, "sacct: fatal: unrecognized job state value 'nonsense'\n"),
        (["sacct", "-S", "yesterdayish"], 1, "Invalid time specification (pos=0): yesterdayish\n"),
        (["sacct", "-u", "no-such-user"], 1, "sacct: error: Invalid user id: no-such-user\n"),
        (["squeue", "-j", "0"], 1, "squeue: error: Invalid job id: 0\n"),
        (["squeue", "-w", "nodeX"], 1, "squeue: error: Invalid node name nodeX\n"),
        (["squeue", "-o", "%i", "-O", "JobID"], 1,
         "squeue: error: -O (--Format) is incompatible with -o (--format)\n"),
        (["squeue", "-i", "abc"], 1, "squeue: error: --iterate=abc\n\n"),
        (["scancel", "abc"], 1, "scancel: error: Invalid job id abc\n"),
        (["scancel"], 1, "scancel: error: No job identification provided\n"),
        (["scancel", "-s", "FOO", "1"], 1, "Unknown job signal: FOO\n"),
        (["scontrol", "show", "nonsense"], 1, "invalid entity:nonsense for keyword:show \n"),
        (["scontrol", "show"], 1, "too few arguments for keyword:show\n"),
        (["scontrol", "nonsense"], 1, "invalid keyword: nonsense\n"),
        (["scontrol", "show", "job", "abc"], 1, "scontrol_print_job error: Invalid job id specified\n"),
        (["scontrol", "--nope"], 1,
         "scontrol: unrecognized option '--nope'\nTry \"scontrol --help\" for more information\n"),
        (["scontrol", "show", "hostnames"], 0, "scontrol: error: host list is empty\n"),
        (["sstat"], 1, "sstat: error: You didn't give me any jobs to stat.\n"),
    ],
)  # fmt: skip
def test_mistakes_in_slurms_words(
    daemon: Any,
    words: list[str],
    code: int,
    err: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _serve(daemon)
    monkeypatch.delenv("SLURM_NODELIST", raising=False)
    assert main(words) == code
    assert capsys.readouterr() == ("", err)


def test_scancel_of_unknown_and_ended_jobs(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        kinds = {"9": ("not_found", "no job 9"), "8": ("conflict", "job 8: Job/step already completing or completed")}
        errors = [
            {"ref": ref, "error": {"code": kinds[ref][0], "message": kinds[ref][1]}} for ref in request["body"]["refs"]
        ]
        return {"done": [], "errors": errors}

    daemon.routes["POST /v1/cancel"] = answer
    unknown = "scancel: error: Kill job error on job id 9: Invalid job id specified\n"
    for words, code, err in (
        (["9"], 0, ""),
        (["-Q", "9"], 0, ""),
        (["8"], 0, ""),
        (["-v", "9"], 0, "scancel: Terminating job 9\n" + unknown),
        (["-s", "USR1", "9"], 1, unknown),
        (["9", "--signal", "SIGTERM"], 1, unknown),
        (["-s", "TERM", "8"], 1, unknown.replace("9", "8")),
    ):
        assert main(["scancel", *words]) == code
        assert capsys.readouterr() == ("", err)
    assert main(["scancel", "-t", "PD", "-w", "n[1-2]", "-A", "x", "-q", "y"]) == 0
    filters = daemon.requests[-1]["body"]["filters"]
    assert (filters["states"], filters["nodes"], filters["accounts"], filters["qos"]) == (
        ["PENDING"],
        ["n1", "n2"],
        ["x"],
        ["y"],
    )


def test_orders_and_updates_reach_every_job(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for order in ("hold", "release", "suspend", "resume", "top", "requeue", "update"):
        daemon.routes[f"POST /v1/jobs/7/{order}"] = lambda request: {}
        daemon.routes[f"POST /v1/jobs/7_%5B1-2%5D/{order}"] = lambda request: {}
    for verb in ("hold", "uhold", "release", "suspend", "resume", "top", "requeue", "requeuehold"):
        assert main(["scontrol", verb, "7,7_[1-2]"]) == 0
    assert [request["body"].get("hold") for request in daemon.requests[-4:]] == [False, False, True, True]
    assert main(["scontrol", "update", "jobid=7", "TimeLimit=1:00:00", "nice=5", "Dependency=afterok:3"]) == 0
    assert daemon.requests[-1]["body"] == {"format": 1, "time_limit": 3600, "nice": 5, "dependency": "afterok:3"}
    assert capsys.readouterr() == ("", "")


def test_documents_have_slurms_shape(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _serve(daemon, ELEMENT)
    for words, key in (
        (["squeue", "--json"], "jobs"),
        (["squeue", "--json=v0.0.40"], "jobs"),
        (["squeue", "--yaml"], "jobs"),
        (["sacct", "--json"], "jobs"),
        (["scontrol", "show", "job", "7", "--json"], "jobs"),
        (["scontrol", "show", "node", "--json"], "nodes"),
        (["scontrol", "show", "partition", "--json"], "partitions"),
        (["sinfo", "--json"], "sinfo"),
    ):
        assert main(words) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["errors"] == document["warnings"] == []
        assert document["meta"]["plugin"]["data_parser"] == "data_parser/v0.0.40"
        assert len(document[key]) == 1
        if words[0] == "squeue":
            (job,) = document["jobs"]
            assert (job["job_id"], job["job_state"], job["array_task_id"]["number"]) == (8, ["RUNNING"], 1)
            assert job["job_resources"]["allocated_nodes"][0]["nodename"] == "n1"
        if words[0] == "sacct":
            assert document["jobs"][0]["state"]["current"] == ["RUNNING"]


@pytest.mark.parametrize(
    "verb", ["squeue", "sacct", "sinfo", "scancel", "scontrol", "sprio", "sstat", "sdiag", "sacctmgr", "sshare"]
)
def test_versions_are_two_words(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--version"]) == 0
    name, number = capsys.readouterr().out.split()
    assert name == "slurm"
    assert len([int(part) for part in number.split(".")]) == 3
