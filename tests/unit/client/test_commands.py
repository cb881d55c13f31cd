"""Whole commands against a scripted daemon: what goes out, what is printed, and the exit code."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from overspan.bridge.cli import main
from overspan.bridge.client import JobRow
from overspan.bridge.model.durations import format_timestamp

ROW = JobRow(id=7, raw_id=7, name="train", user="ann", partition="local", cluster="local", submitted_at=50.0)


def _listing(*rows: JobRow, **more: Any) -> dict[str, Any]:
    return {"format": 1, "now": 100.0, "columns": list(JobRow._fields), "rows": [list(row) for row in rows], **more}


def _error(code: str, message: str, status: int = 404, **more: Any) -> Any:
    return status, {"error": {"code": code, "message": message, **more}}, {}


def test_squeue_prints_and_asks(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    stale = [{"cluster": "gpu", "since": 0, "message": "down"}]
    daemon.routes["GET /v1/queue"] = lambda request: _listing(ROW, stale=stale)
    assert main(["squeue", "-h", "-o", "%i %t", "-u", "root"]) == 0
    output = capsys.readouterr()
    assert output.out == "7 PD\n"
    assert "cluster gpu has not answered" in output.err
    assert daemon.requests[0]["query"] == {"users": "root", "tasks": "1", "extent": "core"}


def test_squeue_prints_the_daemons_lines_where_nothing_else_is_asked_for(
    daemon: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # `squeue -r` sets it for its process.
    monkeypatch.delenv("SLURM_BITSTR_LEN", raising=False)
    stale = [{"cluster": "gpu", "since": 0, "message": "down"}]
    table = {"format": 1, "now": 100.0, "columns": [], "header": "JOBID", "lines": ["7", "8\u001b"], "stale": stale}

    def answer(request: Any) -> Any:
        return table if "lines" in request["query"] else _listing(ROW)

    daemon.routes["GET /v1/queue"] = answer
    assert main(["squeue", "-u", "root"]) == 0
    output = capsys.readouterr()
    assert output.out == "JOBID\n7\n8\x1b\n" and "cluster gpu has not answered" in output.err
    assert daemon.requests[0]["query"] == {"users": "root", "tasks": "1", "extent": "core", "lines": "1"}
    assert main(["squeue", "-h", "-t", "R"]) == 0
    assert capsys.readouterr().out == "7\n8\x1b\n"
    for words in (["-o", "%i"], ["-l"], ["-S", "i"], ["-j", "7"], ["-w", "a"], ["--groups", "-s"]):
        main(["squeue", *words])
        assert "lines" not in daemon.requests[-1]["query"]
    for name in ("SQUEUE_FORMAT", "SQUEUE_SORT", "SLURM_BITSTR_LEN", "SLURM_CLUSTERS"):
        with monkeypatch.context() as context:
            context.setenv(name, "")
            main(["squeue"])
            assert "lines" not in daemon.requests[-1]["query"]
    assert "8" not in capsys.readouterr().out


def test_squeue_json_is_one_document(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.routes["GET /v1/queue"] = lambda request: _listing(ROW)
    assert main(["squeue", "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (job["job_id"], job["job_state"], job["name"]) == (7, ["PENDING"], "train")
    assert job["submit_time"] == {"set": True, "infinite": False, "number": 50}
    assert job["time_limit"] == {"set": False, "infinite": True, "number": 0}
    assert main(["squeue", "--json=v0.0.99"]) == 1
    assert "data_parser/v0.0.99" in capsys.readouterr().err


def test_squeue_of_unknown_ids(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.routes["GET /v1/queue"] = lambda request: _listing()
    daemon.routes["GET /v1/history"] = lambda request: _listing()
    assert main(["squeue", "-j", "9"]) == 1
    assert capsys.readouterr() == ("", "slurm_load_jobs error: Invalid job id specified\n")
    assert main(["squeue", "-j", "9,9"]) == 0
    assert capsys.readouterr().out.startswith("             JOBID")
    daemon.routes["GET /v1/history"] = lambda request: _listing(ROW._replace(state="COMPLETED", ended_at=90.0))
    assert main(["squeue", "-h", "-j", "7"]) == 0
    assert capsys.readouterr() == ("", "")


def test_squeue_by_cluster(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.routes["GET /v1/queue"] = lambda request: _listing(ROW, ROW._replace(id=8, cluster="gpu"))
    daemon.routes["GET /v1/clusters"] = lambda request: {
        "clusters": [{"name": name} for name in ("gpu", "idle", "local")]
    }
    assert main(["squeue", "-M", "all", "-o", "%i"]) == 0
    assert capsys.readouterr().out == "CLUSTER: gpu\nJOBID\n8\n\nCLUSTER: local\nJOBID\n7\n"
    # Scripts read what -h leaves: no titles.
    assert main(["squeue", "-M", "all", "-h", "-o", "%i"]) == 0
    assert capsys.readouterr().out == "8\n7\n"
    # One that was asked for is named though it has no jobs.
    assert main(["squeue", "-M", "local,idle", "-o", "%i"]) == 0
    assert capsys.readouterr().out == "CLUSTER: local\nJOBID\n7\n\nCLUSTER: idle\nJOBID\n\nCLUSTER: gpu\nJOBID\n8\n"


def test_sbatch_sends_words_and_text(daemon: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.routes["POST /v1/jobs"] = lambda request: {"id": 8, "cluster": "local", "notes": ["--mem-bind does nothing"]}
    script = tmp_path / "t.sh"
    script.write_text("#!/bin/sh\n")
    words = ["-N", "2", str(script), "--lr", "1"]
    assert main(["sbatch", *words]) == 0
    assert capsys.readouterr() == ("Submitted batch job 8\n", "sbatch: --mem-bind does nothing\n")
    body = daemon.requests[0]["body"]
    assert (body["kind"], body["argv"], body["text"]) == ("script", words, "#!/bin/sh\n")
    assert main(["sbatch", "--parsable", "--wrap", "hostname"]) == 0
    assert capsys.readouterr().out == "8\n"
    assert daemon.requests[1]["body"]["text"] == ""


def test_sbatch_reads_standard_input(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.routes["POST /v1/jobs"] = lambda request: {"id": 8}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"#!/bin/sh\nid\n")))
    assert main(["sbatch"]) == 0
    assert daemon.requests[0]["body"]["text"] == "#!/bin/sh\nid\n"


def test_sbatch_waits_as_the_daemon_says(daemon: Any) -> None:
    daemon.routes["POST /v1/jobs"] = lambda request: {"id": 8, "options": {"wait": True}}
    daemon.routes["GET /v1/jobs/8/wait"] = lambda request: {"over": True, "state": "FAILED", "exit_code": 3}
    assert main(["sbatch", "--wrap", "exit 3"]) == 3


@pytest.mark.parametrize(("more", "code"), [({}, 1), ({"exit_code": 255}, 255)])
def test_sbatch_fails_in_slurms_words(
    daemon: Any, more: dict[str, int], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "invalid partition specified: p\nBatch job submission failed: Invalid partition name specified"
    daemon.routes["POST /v1/jobs"] = lambda request: _error("rejected", text, 422, **more)
    assert main(["sbatch", "--wrap", "x"]) == code
    assert capsys.readouterr().err == "".join(f"sbatch: error: {line}\n" for line in text.splitlines())


def test_submit_keeps_secrets_out_of_the_stored_command_line(daemon: Any, tmp_path: Path) -> None:
    daemon.routes["POST /v1/jobs"] = lambda request: {"id": 8, "cluster": "local", "notes": []}
    job = tmp_path / "j.yaml"
    job.write_text("run: true\n")
    words = ["submit", str(job), "--secret", "A=1", "--secret=B=2", "--env", "C=3"]
    assert main(words) == 0
    (sent,) = daemon.requests
    assert sent["body"]["command"] == ["span", "submit", str(job), "--secret", "A", "--secret=B", "--env", "C=3"]
    assert sent["body"]["secrets"] == {"A": "1", "B": "2"}


def test_submit_names_the_place_of_a_mistake(daemon: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = {"file": "j.yaml", "line": 2, "column": 3}
    daemon.routes["POST /v1/jobs"] = lambda request: _error("invalid", "no key runn", 400, place=place, remedy="run?")
    job = tmp_path / "j.yaml"
    job.write_text("runn: x\n")
    assert main(["submit", str(job)]) == 2
    assert capsys.readouterr().err == "span: error: j.yaml:2:3: no key runn\n  run?\n"
    assert main(["submit", "--json", str(job)]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["place"] == place


def test_scancel_is_silent_but_for_signals(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    errors = [{"ref": "9", "error": {"code": "not_found", "message": "no job 9"}}]
    daemon.routes["POST /v1/cancel"] = lambda request: {"done": [], "errors": errors}
    assert main(["scancel", "9"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["scancel", "-v", "9"]) == 0
    expected = "scancel: error: Kill job error on job id 9: Invalid job id specified\n"
    assert capsys.readouterr().err == "scancel: Terminating job 9\n" + expected
    assert main(["scancel", "-s", "USR1", "9"]) == 1
    assert capsys.readouterr().err == expected
    assert main(["scancel", "9", "trainer"]) == 1
    assert capsys.readouterr().err == "scancel: error: Invalid job id 9.trainer\n"
    assert daemon.requests[-1]["body"]["task"] == "trainer"


def test_scancel_of_an_unknown_task_names_the_jobs_tasks(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    error = {"code": "not_found", "message": "job 9 has no task 'x'", "remedy": "its tasks: a, b"}
    daemon.routes["POST /v1/cancel"] = lambda request: {"done": [], "errors": [{"ref": "9", "error": error}]}
    for words in (["9", "x"], ["9.x"]):
        assert main(["scancel", *words]) == 1
        assert capsys.readouterr().err == "scancel: error: job 9 has no task 'x'\n  its tasks: a, b\n"


def test_sacct_shows_every_run_where_duplicates_are_wanted(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    again = ROW._replace(restarts=1, state="RUNNING", started_at=50.0)
    fields = ("sacct", "-P", "-n", "-X", "-j", "7,8", "-o", "JobID,State,ExitCode")
    daemon.routes["GET /v1/history"] = lambda request: _listing(again, ROW._replace(id=8, raw_id=8, restarts=1))
    first = {"number": 0, "state": "CANCELLED", "cause": "requeue", "started_at": 20.0, "ended_at": 30.0, "signal": 15}
    task = {"attempts": [first, {"number": 1, "state": "RUNNING", "started_at": 50.0, "ended_at": None}]}
    daemon.routes["GET /v1/jobs/7"] = lambda request: {"job": {"tasks": [task]}}
    daemon.routes["GET /v1/jobs/8"] = lambda request: _error("not_found", "no job 8")
    assert main(list(fields)) == 0
    assert capsys.readouterr().out == "7|RUNNING|0:0\n8|PENDING|0:0\n"
    assert main([*fields, "-D"]) == 0
    assert capsys.readouterr().out == "7|REQUEUED|0:0\n7|RUNNING|0:0\n8|PENDING|0:0\n"
    assert main([*fields, "--duplicates", "-s", "RQ", "-S", "1970-01-01T00:00:15"]) == 0
    assert capsys.readouterr().out == "7|REQUEUED|0:0\n"
    assert "states" not in daemon.requests[-2]["query"]


def test_scancel_never_takes_a_step_for_the_job(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.routes["POST /v1/cancel"] = lambda request: {"done": request["body"]["refs"], "errors": []}
    daemon.routes["GET /v1/queue"] = lambda request: _listing(*([ROW] if request["query"]["ids"] == "7" else []))
    gone = "Invalid job id specified"
    assert main(["scancel", "7.0", "8"]) == 1
    assert capsys.readouterr().err == f"scancel: error: Kill job error on job step id 7.0: {gone}\n"
    assert daemon.requests[-1]["body"]["refs"] == ["8"]
    asked = len(daemon.requests)
    assert main(["scancel", "9.1"]) == 1
    assert "step id 9.1: Invalid job id specified" in capsys.readouterr().err
    assert [request["method"] for request in daemon.requests[asked:]] == ["GET"]
    assert main(["scancel", "7.batch"]) == 1
    assert capsys.readouterr().err == "scancel: error: Invalid job id 7.batch\n"


def test_scancel_of_a_task_takes_the_jobs_name(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.routes["POST /v1/cancel"] = lambda request: {"done": request["body"]["refs"], "errors": []}
    daemon.routes["GET /v1/queue"] = lambda request: _listing(*([ROW] if request["query"]["names"] == "train" else []))
    daemon.routes["GET /v1/history"] = lambda request: _listing()
    assert main(["scancel", "train", "a"]) == 0
    assert (daemon.requests[-1]["body"]["refs"], daemon.requests[-1]["body"]["task"]) == (["7"], "a")
    assert main(["scancel", "nobody", "a"]) == 1
    assert capsys.readouterr() == ("", "scancel: error: Invalid job id nobody\n")


def test_sacct_and_scontrol(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    task = ROW._replace(task_offset=1, raw_id=8, group="g", tasks=2)
    daemon.routes["GET /v1/history"] = lambda request: _listing(task)
    assert main(["sacct", "-P", "-n", "-j", "7", "-o", "JobID,JobIDRaw,State"]) == 0
    assert capsys.readouterr().out == "7+1|8|PENDING\n"
    assert "since" not in daemon.requests[0]["query"]
    assert main(["scontrol", "-o", "show", "job", "7"]) == 0
    record = capsys.readouterr().out
    assert record.startswith("JobId=8 HetJobId=7 HetJobOffset=1 JobName=train HetJobIdSet=7-8 UserId=ann(")
    assert record.count("\n") == 1
    daemon.routes["GET /v1/history"] = lambda request: _listing()
    assert main(["scontrol", "show", "job", "7"]) == 1
    assert capsys.readouterr().err == "slurm_load_jobs error: Invalid job id specified\n"
    daemon.routes["POST /v1/jobs/9/hold"] = lambda request: _error("not_found", "no job 9")
    assert main(["scontrol", "hold", "9"]) == 1
    assert capsys.readouterr().err == (
        "Invalid job id specified for job 9\nslurm_suspend error: Invalid job id specified\n"
    )


def test_sinfo_ends_with_1_where_a_cluster_does_not_answer(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    node = {"name": "n1", "cluster": "local", "partition": "local", "default": True, "state": "idle", "cpus": 4}
    silent = [{"name": "local", "message": ""}, {"name": "far", "message": "no route"}]
    daemon.routes["GET /v1/nodes"] = lambda request: {"now": 1, "clusters": silent, "nodes": [node]}
    for words in (["-h", "-o", "%R"], ["--json"]):
        assert main(["sinfo", *words]) == 1
        said = capsys.readouterr()
        assert "local" in said.out and "far" in said.err and "does not answer: no route" in said.err


def test_sinfo_and_clusters(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    node = {"name": "n1", "cluster": "local", "partition": "local", "default": True, "state": "idle", "cpus": 4}
    daemon.routes["GET /v1/nodes"] = lambda request: {"now": 1, "clusters": [], "nodes": [node]}
    daemon.routes["GET /v1/clusters"] = lambda request: {"clusters": [{"name": "local", "kind": "local"}]}
    assert main(["sinfo", "-h", "-o", "%R %t"]) == 0
    assert main(["sinfo", "-N"]) == 0
    assert main(["clusters"]) == 0
    assert capsys.readouterr().out == (
        "local idle\nNODELIST   NODES PARTITION STATE \nn1             1    local* idle  \n"
        "NAME   KIND   STATE  JOBS  SINCE  MESSAGE\nlocal  local         0     -\n"
    )


def test_sinfo_by_cluster(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    node = {"name": "n1", "cluster": "local", "partition": "local", "state": "idle"}
    nodes = [node, {**node, "cluster": "gpu", "partition": "big"}]
    daemon.routes["GET /v1/nodes"] = lambda request: {"now": 1, "clusters": [], "nodes": nodes}
    assert main(["sinfo", "-M", "all", "-o", "%R"]) == 0
    assert capsys.readouterr().out == "CLUSTER: local\nPARTITION\nlocal\n\nCLUSTER: gpu\nPARTITION\nbig\n"
    assert main(["sinfo", "-M", "all", "-h", "-o", "%R"]) == 0
    assert capsys.readouterr().out == "local\nbig\n"


def test_wait_gives_the_jobs_code_or_124(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.routes["GET /v1/queue"] = lambda request: _listing(ROW)
    daemon.routes["GET /v1/jobs/7/wait"] = lambda request: {"over": True, "state": "FAILED", "signal": 9}
    assert main(["wait", "train"]) == 137
    daemon.routes["GET /v1/jobs/7/wait"] = lambda request: {"over": False, "state": "RUNNING"}
    assert main(["wait", "7", "--timeout", "0"]) == 124
    assert "7 (RUNNING)" in capsys.readouterr().err
    daemon.routes["GET /v1/queue"] = daemon.routes["GET /v1/history"] = lambda request: _listing()
    assert main(["wait", "nobody"]) == 4


def test_orders_go_on_after_a_failure(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.routes["POST /v1/jobs/1/requeue"] = lambda request: _error("conflict", "job 1 is held", 409)
    daemon.routes["POST /v1/jobs/2/requeue"] = lambda request: {}
    daemon.routes["POST /v1/jobs/2/restart"] = lambda request: {}
    assert main(["requeue", "--hold", "1", "2"]) == 1
    assert [each["body"] for each in daemon.requests if each["method"] == "POST"][1] == {"format": 1, "hold": True}
    assert capsys.readouterr().err == "span: error: job 1 is held\n"
    assert main(["restart", "2", "trainer"]) == 0
    assert daemon.requests[-1]["body"]["task"] == "trainer"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["hold", "2"], "job 2 is held until `span release`"),
        (["release", "2"], "job 2 is released"),
        (["restart", "2", "a"], "task a of job 2 starts again in place"),
        (["restart", "2"], "job 2 starts again in place"),
        (["requeue", "2"], "job 2 is ended and goes back into the queue"),
        (["requeue", "--hold", "2"], "job 2 is ended and goes back into the queue, held until `span release`"),
    ],
)
def test_an_order_says_on_a_terminal_what_it_does(
    words: list[str], told: str, daemon: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.routes[f"POST /v1/jobs/2/{words[0]}"] = lambda request: {}
    daemon.routes["GET /v1/jobs/2/wait"] = lambda request: {"over": False, "state": "RUNNING"}
    assert main(words) == 0
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(words) == 0
    assert capsys.readouterr() == ("", f"span: {told}\n")


def test_a_requeue_of_a_completed_job_says_that_it_runs_again(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.routes["POST /v1/jobs/2/requeue"] = lambda request: {}
    daemon.routes["GET /v1/jobs/2/wait"] = lambda request: {"over": True, "state": "COMPLETED"}
    assert main(["requeue", "2"]) == 0
    assert capsys.readouterr().err == "span: job 2 was COMPLETED: it goes back into the queue and runs again\n"


def test_logs_of_a_group_are_prefixed(daemon: Any, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    names = ("trainer", "data")
    rows = [{"task": name, "node": 0, "attempt": 0, "stream": "output", "size": 3} for name in names]
    daemon.routes["GET /v1/jobs/7"] = lambda request: {"job": {"id": 7, "tasks": [{"name": n} for n in names]}}
    daemon.routes["GET /v1/jobs/7/streams"] = lambda request: {"streams": rows}
    daemon.routes["GET /v1/jobs/7/logs"] = lambda request: (200, b"hi\n"[int(request["query"]["offset"]) :], {})
    assert main(["logs", "7"]) == 0
    assert main(["logs", "7", "data"]) == 0
    assert capfdbinary.readouterr().out == b"trainer-0 | hi\ndata-0    | hi\nhi\n"


@pytest.mark.parametrize(("word", "named"), [("0", "b"), ("1", "0"), ("2", "a")])
def test_logs_of_a_task_by_its_number_unless_one_has_that_for_its_name(
    word: str, named: str, daemon: Any, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    names = ("b", "a", "c") if word == "0" else ("b", "0", "a")
    rows = [{"task": name, "node": 0, "attempt": 0, "stream": "output", "size": 1} for name in names]
    daemon.routes["GET /v1/jobs/7"] = lambda request: {"job": {"id": 7, "tasks": [{"name": n} for n in names]}}
    daemon.routes["GET /v1/jobs/7/streams"] = lambda request: {"streams": rows}
    daemon.routes["GET /v1/jobs/7/logs"] = lambda request: (
        200,
        request["query"]["task"].encode()[int(request["query"]["offset"]) :],
        {},
    )
    assert main(["logs", "7", word]) == 0
    assert capfdbinary.readouterr().out == named.encode()
    if word == "1":
        assert main(["logs", "7", "0"]) == 0
        assert capfdbinary.readouterr().out == b"0"


@pytest.mark.parametrize("words", [["7", "x"], ["7", "2"], ["-f", "7", "x"], ["-f", "7.x"], ["--list", "7", "x"]])
def test_logs_of_an_unknown_task_name_the_jobs_tasks(
    words: list[str], daemon: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.routes["GET /v1/jobs/7"] = lambda request: {"job": {"id": 7, "tasks": [{"name": "a"}, {"name": "b"}]}}
    assert main(["logs", *words]) == 4
    said = f"span: error: job 7 has no task {words[-1].removeprefix('7.')!r}\n  its tasks: a, b\n"
    assert capsys.readouterr() == ("", said)


def test_a_single_jobs_log_is_followed_as_it_is(daemon: Any, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    rows = [{"task": "main", "node": 0, "attempt": 0, "stream": "output", "size": 3}]
    daemon.routes["GET /v1/jobs/7"] = lambda request: {"job": {"id": 7, "tasks": [{"name": "main", "nodes": 1}]}}
    daemon.routes["GET /v1/jobs/7/streams"] = lambda request: {"streams": rows}
    daemon.routes["GET /v1/jobs/7/wait"] = lambda request: {"over": True, "state": "COMPLETED"}
    daemon.routes["GET /v1/jobs/7/logs"] = lambda request: (200, b"hi\n"[int(request["query"]["offset"]) :], {})
    assert main(["logs", "-f", "7"]) == 0
    assert capfdbinary.readouterr().out == b"hi\n"


def test_the_next_attempt_is_told_where_it_begins(daemon: Any, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    row = {"task": "main", "node": 0, "stream": "output", "size": 3}
    waits = iter([{"over": False, "state": "RUNNING"}, {"over": True, "state": "COMPLETED"}])
    attempts = [{**row, "attempt": 0}]

    def wait(request: Any) -> Any:
        attempts[1:] = [{**row, "attempt": 1}]
        return next(waits)

    daemon.routes["GET /v1/jobs/7"] = lambda request: {"job": {"id": 7, "tasks": [{"name": "main", "nodes": 1}]}}
    daemon.routes["GET /v1/jobs/7/streams"] = lambda request: {"streams": attempts}
    daemon.routes["GET /v1/jobs/7/wait"] = wait
    daemon.routes["GET /v1/jobs/7/logs"] = lambda request: (200, b"hi\n"[int(request["query"]["offset"]) :], {})
    assert main(["logs", "-f", "7"]) == 0
    assert capfdbinary.readouterr() == (b"hi\nhi\n", b"span: main-0: attempt 1 begins\n")
    assert main(["logs", "-t", "7"]) == 0
    unknown = b"span: main-0: when this was written is not known\n"
    assert capfdbinary.readouterr() == (b"-                   hi\n", unknown)
    assert main(["logs", "--attempt", "all", "7"]) == 0
    assert capfdbinary.readouterr() == (b"hi\nhi\n", b"span: main-0: attempt 1 begins\n")


def test_a_log_that_cannot_be_read_now_is_said(daemon: Any, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    row = {"node": 0, "attempt": 0, "stream": "output"}
    rows = [{**row, "task": "a", "size": 3}, {**row, "task": "b", "size": 0, "trouble": "node2 does not answer"}]
    daemon.routes["GET /v1/jobs/7"] = lambda request: {"job": {"id": 7, "tasks": [{"name": "a"}, {"name": "b"}]}}
    daemon.routes["GET /v1/jobs/7/streams"] = lambda request: {"streams": rows}
    daemon.routes["GET /v1/jobs/7/logs"] = lambda request: (200, b"hi\n"[int(request["query"]["offset"]) :], {})
    assert main(["logs", "7"]) == 0
    data, talk = capfdbinary.readouterr()
    assert (data, talk) == (b"hi\n", b"span: b-0: its log cannot be read now: node2 does not answer\n")
    assert main(["logs", "--list", "7"]) == 0
    assert b"node2 does not answer" in capfdbinary.readouterr().out


def test_lines_of_a_group_are_merged_by_time(daemon: Any, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    texts = {"a": b"a1\na2\na3\n", "b": b"b1\nb2\n"}
    marks = {"a": [[10, 3], [30, 6], [50, 9]], "b": [[20, 3], [40, 6]]}

    def streams(request: Any) -> Any:
        rows = [{"task": name, "node": 0, "attempt": 0, "stream": "output", "size": len(texts[name])} for name in "ab"]
        timed = bool(request["query"].get("times"))
        return {"streams": [{**row, "marks": marks[str(row["task"])]} if timed else row for row in rows]}

    def part(request: Any) -> Any:
        return 200, texts[request["query"]["task"]][int(request["query"]["offset"]) :], {}

    daemon.routes["GET /v1/jobs/7"] = lambda request: {"job": {"id": 7, "tasks": [{"name": "a"}, {"name": "b"}]}}
    daemon.routes["GET /v1/jobs/7/streams"] = streams
    daemon.routes["GET /v1/jobs/7/logs"] = part
    daemon.routes["GET /v1/jobs/7/wait"] = lambda request: {"over": True, "state": "COMPLETED"}
    merged = b"a-0 | a1\nb-0 | b1\na-0 | a2\nb-0 | b2\na-0 | a3\n"
    for follow in ((), ("-f",)):
        assert main(["logs", *follow, "7"]) == 0
        assert capfdbinary.readouterr() == (merged, b"")
    assert main(["logs", "-t", "7", "b"]) == 0
    first, second = format_timestamp(20).encode(), format_timestamp(40).encode()
    assert capfdbinary.readouterr().out == first + b" b1\n" + second + b" b2\n"
    assert main(["logs", "--since", format_timestamp(35), "7"]) == 0
    assert capfdbinary.readouterr().out == b"b-0 | b2\na-0 | a3\n"
    assert main(["logs", "--since", "soon", "7"]) == 2
    assert b"--since: 'soon' is no time; write how long ago" in capfdbinary.readouterr().err


def test_show_prints_tasks_and_failed_attempts(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    attempt = {"number": 0, "state": "FAILED", "cause": "exit", "exit_code": 3, "detail": "boom"}
    task = {"name": "trainer", "offset": 0, "state": "PENDING", "attempts": [attempt], "primary": True}
    job = {"id": 7, "name": "rlhf", "state": "PENDING", "reason": "Resources", "tasks": [task], "user": "ann"}
    daemon.routes["GET /v1/jobs/7"] = lambda request: {"now": 5, "job": job}
    assert main(["show", "7"]) == 0
    text = capsys.readouterr().out
    assert "State:       PENDING (Resources)\n" in text
    assert "trainer attempt 0: FAILED exit 3:0 boom\n" in text


def test_completion_knows_commands_options_and_jobs(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.routes["GET /v1/queue"] = lambda request: _listing(ROW)

    def candidates(*words: str) -> list[str]:
        assert main(["completion", "candidates", *words]) == 0
        return capsys.readouterr().out.split()

    assert candidates("sq") == ["squeue"]
    assert candidates("logs", "") == ["7", "train"]
    assert "--timeout" in candidates("wait", "--")
    assert "--partition" in candidates("squeue", "--p")
    daemon.routes["GET /v1/jobs/7"] = lambda request: {"now": 5, "job": {"tasks": [{"name": "a"}, {"name": "b"}]}}
    assert candidates("logs", "7", "") == ["a", "b"]
    daemon.routes["GET /v1/clusters"] = lambda request: {"clusters": [{"name": "local"}, {"name": "lab"}]}
    assert candidates("sbatch", "-M", "la") == ["lab"]
    assert candidates("help", "ti") == ["timeline"]
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        assert "span completion candidates" in capsys.readouterr().out


def test_ping_check_plan_schema_timeline(daemon: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.routes["GET /v1/ping"] = lambda request: {"version": "9.9", "pid": 1, "problems": ["disk full"]}
    assert main(["ping"]) == 1
    assert "problem: disk full" in capsys.readouterr().out
    finding = {"what": "names", "works": False, "seen": "no namespace", "remedy": "allow user namespaces"}
    daemon.routes["POST /v1/clusters/local/check"] = lambda request: {"findings": [finding]}
    assert main(["check", "local"]) == 1
    assert capsys.readouterr().out == "no   names  no namespace\n     allow user namespaces\n"
    daemon.routes["POST /v1/plan"] = lambda request: {"text": "#!/bin/sh", "notes": []}
    (tmp_path / "j.yaml").write_text("run: x")
    assert main(["plan", str(tmp_path / "j.yaml"), "-M", "local"]) == 0
    assert capsys.readouterr().out == "#!/bin/sh\n"
    daemon.routes["GET /v1/schema"] = lambda request: {"format": 1, "schema": {"type": "object"}}
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == {"type": "object"}
    rows = [{"seq": 1, "at": 5.25, "task": "", "start": "", "end": "PENDING", "reason": "None", "text": "submitted"}]
    daemon.routes["GET /v1/jobs/7/timeline"] = lambda request: {"rows": rows}
    assert main(["timeline", "7"]) == 0
    assert capsys.readouterr().out.endswith(".250  job           - -> PENDING submitted\n")
    rows.append({"seq": 2, "at": 6.0, "task": "a-task-of-a-long-name", "start": "", "end": "RUNNING", "text": "up"})
    assert main(["timeline", "7"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.index("- ->") == second.index("- ->")


def test_shutdown_without_and_with_a_daemon(
    daemon: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.routes["POST /v1/shutdown"] = lambda request: {}
    assert main(["shutdown"]) == 0
    assert len(daemon.requests) == 1
    monkeypatch.setenv("SPAN_STATE_DIR", str(tmp_path / "none"))
    assert main(["shutdown"]) == 0
    assert "was not running" in capsys.readouterr().err
    assert main(["ping"]) == 3


def test_a_daemon_that_does_not_tell_a_column_is_said_to_be_of_another_version(
    daemon: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    listing = _listing(ROW)
    place = listing["columns"].index("account")
    older = {**listing, "columns": listing["columns"][:place], "rows": [row[:place] for row in listing["rows"]]}
    daemon.routes["GET /v1/queue"] = daemon.routes["GET /v1/history"] = lambda request: older
    for words in (["squeue", "-h", "-o", "%i %a"], ["sacct", "-n"], ["scontrol", "show", "job", "7"]):
        assert main(words) == 0
        error = capsys.readouterr().err
        assert "another version" in error and " account, " in error and "span shutdown" in error, words
    # The columns that are asked for are all there.
    assert main(["squeue", "-h", "-o", "%i %t"]) == 0
    assert capsys.readouterr() == ("7 PD\n", "")


def test_squeue_on_a_terminal_fits_it_unless_a_format_is_given(
    daemon: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = ROW._replace(name="train-llama-70b", group="rlhf", task_offset=0)
    daemon.routes["GET /v1/queue"] = lambda request: _listing(task)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["squeue"]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert "GROUP" in header and "train-llama-70b rlhf" in " ".join(line.split())
    assert daemon.requests[-1]["query"] == {"tasks": "1", "extent": "core"}
    monkeypatch.setenv("COLUMNS", "70")
    assert main(["squeue"]) == 0
    assert "train-llama-" in (narrow := capsys.readouterr().out) and max(map(len, narrow.splitlines())) == 70
    for words in (["-o", "%.8j"], ["-O", "Name:8"], ["-l"], ["--start"]):
        assert main(["squeue", *words]) == 0
        assert "train-llama" not in capsys.readouterr().out, words
    monkeypatch.setattr("sys.stdout.isatty", lambda: False)
    assert main(["squeue"]) == 0
    assert "train-ll " in capsys.readouterr().out


def test_sinfo_on_a_terminal_tells_sizes_and_use_unless_a_format_is_asked_for(
    daemon: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = {"name": "n1", "cluster": "local", "partition": "local", "state": "idle", "cpus": 4, "memory": 2048}
    daemon.routes["GET /v1/nodes"] = lambda request: {"now": 1, "clusters": [], "nodes": [node]}
    daemon.routes["GET /v1/clusters"] = lambda request: {"clusters": [{"name": "local"}]}
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for words in ([], ["-N"], ["-M", "local"], ["-h"]):
        assert main(["sinfo", *words]) == 0
        shown = capsys.readouterr().out
        assert "0/4" in shown and "0/2G" in shown, words
        assert ("CPUS(A/T)" in shown) is ("-h" not in words)
    for words in (["-o", "%P %N"], ["-O", "Partition"], ["-l"], ["-s"], ["-R"], ["--json"]):
        assert main(["sinfo", *words]) == 0
        assert "0/2G" not in capsys.readouterr().out, words
    monkeypatch.setenv("SINFO_FORMAT", "%P")
    assert main(["sinfo"]) == 0
    assert "0/2G" not in capsys.readouterr().out
    monkeypatch.delenv("SINFO_FORMAT")
    monkeypatch.setattr("sys.stdout.isatty", lambda: False)
    assert main(["sinfo"]) == 0
    assert "0/2G" not in capsys.readouterr().out


def test_a_plan_is_of_the_file_with_its_changes_and_keeps_secrets_out_of_the_command_line(
    daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "hush")
    daemon.routes["POST /v1/plan"] = lambda request: {"text": "pods", "notes": []}
    file = tmp_path / "j.yaml"
    file.write_text("run: x")
    words = ["--env", "SEED=7", "--secret", "TOKEN", "--set", "time=2h", "-n", "trial", "--num-nodes", "3"]
    assert main(["plan", str(file), *words]) == 0
    body = daemon.requests[-1]["body"]
    assert (body["env"], body["secrets"], body["name"]) == ({"SEED": "7"}, {"TOKEN": "hush"}, "trial")
    assert body["overrides"] == ["*.num_nodes=3", "time=2h"]
    assert "hush" not in json.dumps(body["command"])
    script = tmp_path / "s.sh"
    script.write_text("#!/bin/sh\n")
    assert main(["plan", str(script), "--env", "SEED=7"]) == 2
    # As `span submit -p` has it; a script says it by its cluster.
    for words, named in (([str(file)], ("", ["pool=warm"])), ([str(script)], ("warm", []))):
        assert main(["plan", "-p", "warm", *words]) == 0
        body = daemon.requests[-1]["body"]
        assert (body.get("cluster") or "", body.get("overrides") or []) == named
