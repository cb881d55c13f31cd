"""Single jobs on the local cluster. Rows MJ, SL25 and UX of docs/acceptance.md."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

import pytest

from overspan.bridge.runtime.core import kernel

pytestmark = pytest.mark.shared_daemon


def test_an_id_is_answered_and_the_job_survives_a_crash_at_once(span: Any) -> None:
    span.run("ping")
    job = span.wrap("sleep 0.5; echo done")
    span.kill_daemon()
    assert span.run("wait", str(job)).returncode == 0
    assert span.log(job) == "done\n"
    assert len(span.job(job)["tasks"][0]["attempts"]) == 1


@pytest.mark.parametrize(
    ("text", "state", "reason"),
    [
        ("run: exit 7", "FAILED", "NonZeroExitCode"),
        ("run: kill -SEGV $$", "FAILED", "RaisedSignal"),
        ("setup: exit 2\nrun: 'true'", "FAILED", "SetupFailed"),
        ("run: sleep 600\ntime: 1s\ngrace_period: 1s", "TIMEOUT", "TimeLimit"),
        ("run: 'true'\nworkdir: /no/such/folder", "FAILED", "JobLaunchFailure"),
    ],
)
def test_every_terminal_cause_has_its_own_state_and_reason(span: Any, text: str, state: str, reason: str) -> None:
    job = span.submit(f"name: single\nresources: {{cpus: 0.1}}\n{text}\n")
    span.run("wait", str(job), check=False)
    shown = span.job(job)
    assert (shown["state"], shown["reason"]) == (state, reason)


@pytest.mark.own_daemon
def test_a_request_that_can_never_fit_is_refused_in_slurms_words(span: Any) -> None:
    done = span.run("sbatch", "--cpus-per-task", "1000", "--wrap", "true", check=False)
    assert done.returncode == 1
    assert "Requested node configuration is not available" in done.stderr
    assert span.run("squeue", "--noheader", "-t", "all").stdout == ""


def test_restarts_on_errors_are_counted_over_a_crash_and_the_third_failure_is_final(span: Any) -> None:
    job = span.submit(
        "name: again\nrun: sleep 0.3; exit 5\nresources: {cpus: 0.1}\n"
        "max_restarts_on_errors: 2\nbackoff: {first: 0.5, factor: 1}\n"
    )
    span.wait_until(lambda: len(span.job(job)["tasks"][0]["attempts"]) >= 2, 20, "a second attempt")
    span.kill_daemon()
    assert span.run("wait", str(job), check=False).returncode == 5
    task = span.job(job)["tasks"][0]
    assert len(task["attempts"]) == 3
    assert [attempt["exit_code"] for attempt in task["attempts"]] == [5, 5, 5]


def test_recovery_on_exit_codes_is_bounded_by_the_total_cap(span: Any) -> None:
    job = span.submit(
        "name: codes\nrun: exit 42\nresources: {cpus: 0.1}\n"
        "recover_on_exit_codes: [42]\nmax_restarts: 3\nbackoff: {first: 0.05, factor: 1}\n"
    )
    assert span.run("wait", str(job), check=False).returncode == 42
    assert len(span.job(job)["tasks"][0]["attempts"]) == 4


def test_backoff_shows_its_reason_and_next_time(span: Any) -> None:
    job = span.submit(
        "name: later\nrun: exit 1\nresources: {cpus: 0.1}\nmax_restarts_on_errors: 1\n"
        "backoff: {first: 3600, limit: 3600}\n"
    )
    task = span.wait_until(lambda: (t := span.job(job)["tasks"][0])["next_start"] and t, 10, "the backoff")
    assert task["state"] == "PENDING" and task["reason"] == "BeginTime"
    assert 2700 <= task["next_start"] - task["attempts"][0]["ended_at"] <= 4500
    assert "BeginTime" in span.run("squeue", "-j", str(job)).stdout
    span.run("scancel", str(job))
    span.until(job, "CANCELLED")


def test_wall_time_ends_the_job_and_a_notice_signal_comes_before(span: Any) -> None:
    script = (
        "#!/bin/bash\n#SBATCH --time=120\n#SBATCH --signal=B:USR1@3600\n"
        "trap 'echo warned; exit 3' USR1\ntouch up\nwhile :; do sleep 0.1; done\n"
    )
    file = span.folder / "limit.sh"
    file.write_text(script)
    job = int(span.run("sbatch", "--parsable", str(file)).stdout)
    span.wait_until((span.folder / "up").exists, 20, "the trap")
    assert span.log(job) == ""
    # With this limit the hour before it has begun.
    span.run("scontrol", "update", f"jobid={job}", "timelimit=60")
    assert span.run("wait", str(job), check=False).returncode == 3
    assert span.log(job) == "warned\n"


@pytest.mark.own_daemon
def test_priority_goes_first_and_equals_in_order(span: Any) -> None:
    span.config.write_text("clusters:\n  local: {kind: local, cpus: 1, memory: 4G}\n")
    order = span.folder / "order"
    go = span.folder / "go"
    first = span.wrap(f"until [ -e {go} ]; do sleep 0.05; done")
    span.until(first, "RUNNING")
    jobs = [span.wrap(f"echo {number} >> {order}") for number in range(12)]
    urgent = span.wrap(f"echo urgent >> {order}", "--priority=1000000")

    def list_reasons() -> list[str]:
        """Why each job waits, as soon as it is in the cluster's queue."""
        return sorted(span.run("squeue", "-h", "-t", "PD", "-o", "%r").stdout.split())

    span.wait_until(lambda: list_reasons() == ["Priority"] * 12 + ["Resources"], 20, "all to be in the cluster's queue")
    go.touch()
    for job in [first, *jobs, urgent]:
        span.run("wait", str(job))
    assert order.read_text().split() == ["urgent", *map(str, range(12))]


@pytest.mark.parametrize(
    ("how", "why"), [("scancel", ""), ("time", " DUE TO TIME LIMIT"), ("requeue", " DUE TO JOB REQUEUE")]
)
def test_the_last_line_of_an_output_is_slurms_own(span: Any, how: str, why: str) -> None:
    """In the script's stderr, and in the words that people grep for (slurmstepd/req.c)."""
    up = span.folder / f"up-{how}"
    script = span.folder / f"{how}.sh"
    script.write_text(
        f"#!/bin/bash\n#SBATCH -o {how}.out -e {how}.err --open-mode=append\necho out\ntouch {up}\nsleep 600\n"
    )
    job = int(span.run("sbatch", "--parsable", "-t", "120", str(script)).stdout)
    span.wait_until(up.exists, 20, "the start")
    host = span.run("squeue", "-h", "-j", str(job), "-o", "%N").stdout.strip()
    if how == "time":
        span.run("scontrol", "update", f"jobid={job}", "timelimit=0:01")
        span.until(job, "TIMEOUT")
    elif how == "requeue":
        span.run("scontrol", "requeue", str(job))
        span.wait_until(lambda: (span.folder / f"{how}.out").read_text() == "out\nout\n", 30, "the second start")
    else:
        span.run("scancel", str(job))
        span.until(job, "CANCELLED")
    (line,) = (span.folder / f"{how}.err").read_text().splitlines()
    when = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
    assert re.fullmatch(rf"slurmstepd: error: \*\*\* JOB {job} ON {host} CANCELLED AT {when}{why} \*\*\*", line)
    span.run("scancel", str(job), check=False)


def test_a_group_has_no_last_line_of_slurms(span: Any) -> None:
    job = span.submit("name: own\nresources: {cpus: 0.1}\nrun: echo up; sleep 600\n")
    span.wait_until(lambda: "up" in span.log(job), 10, "the start")
    span.run("scancel", str(job))
    span.until(job, "CANCELLED")
    assert span.log(job) == "up\n"


def test_graceful_cancel_flushes_and_then_kills(span: Any) -> None:
    flush = span.submit(
        "name: flush\nresources: {cpus: 0.1}\ngrace_period: 10m\n"
        "run: trap 'sleep 0.3; echo flushed; exit 0' TERM; echo up; while :; do sleep 0.05; done\n"
    )
    stubborn = span.submit(
        "name: stubborn\nresources: {cpus: 0.1}\ngrace_period: 1s\n"
        "run: trap '' TERM; echo up; while :; do sleep 0.05; done\n"
    )
    for job in (flush, stubborn):
        span.wait_until(lambda job=job: "up" in span.log(job), 10, "the start")
    span.run("scancel", str(flush), str(stubborn))
    span.until(flush, "CANCELLED")
    assert "flushed" in span.log(flush)
    ended = span.until(stubborn, "CANCELLED")
    assert ended["tasks"][0]["signal"] == signal.SIGKILL


def test_a_thousand_waiting_jobs_are_cancelled_in_one_go(span: Any) -> None:
    from overspan import Client

    span.run("ping")
    with Client(environment=span.environment) as client:
        jobs = [client.submit({"name": "held", "run": "true"}, hold=True).id for _ in range(1000)]
    assert len(span.run("squeue", "--noheader", "-t", "PD").stdout.splitlines()) == 1000
    span.run("scancel", "--me", "-t", "PENDING")
    assert span.run("squeue", "--noheader").stdout == ""
    # All of them in one change, which has one time.
    assert len({span.job(job)["ended_at"] for job in (jobs[0], jobs[1], jobs[500], jobs[-1])}) == 1


def test_logs_of_running_finished_and_cancelled_jobs_by_id_name_and_attempt(span: Any) -> None:
    job = span.submit(
        "name: talker\nresources: {cpus: 0.1}\nmax_restarts_on_errors: 1\nbackoff: {first: 0.05}\n"
        "run: echo attempt $OVERSPAN_ATTEMPT; [ $OVERSPAN_ATTEMPT -gt 0 ] || exit 1; echo up; exec sleep 600\n"
    )
    span.wait_until(lambda: "up" in span.log(job), 20, "the second attempt")
    assert span.log(job, "", "--attempt", "0") == "attempt 0\n"
    assert "attempt 1" in span.log("talker")
    span.run("scancel", str(job))
    span.until(job, "CANCELLED")
    assert span.log(job, "", "--attempt", "1") == "attempt 1\nup\n"


def test_timeline_has_every_transition_with_time_and_cause(span: Any) -> None:
    job = span.wrap("exit 3")
    span.run("wait", str(job), check=False)
    rows = [row for row in span.timeline(job) if not row["task"] and row["end"]]
    assert [row["end"] for row in rows if row["start"] != row["end"]][-3:] == ["CONFIGURING", "RUNNING", "FAILED"]
    assert all(row["at"] and row["cause"] for row in rows)


def test_failed_job_keeps_its_resources_for_a_look(span: Any) -> None:
    job = span.wrap("exit 1", "--hold-on-failure=1h")
    shown = span.until(job, "COMPLETING")
    assert shown["reason"] == "HeldOnFailure"
    used = json.loads(span.run("sinfo", "--json").stdout)["sinfo"][0]["cpus"]["allocated"]
    assert used >= 1
    span.run("scancel", str(job))
    assert span.until(job, "FAILED")


def test_hold_release_and_requeue(span: Any) -> None:
    job = span.wrap("echo run $SLURM_RESTART_COUNT; sleep 600", "--hold")
    assert span.job(job)["reason"] == "JobHeldUser"
    span.run("release", str(job))
    span.wait_until(lambda: "run" in span.log(job), 10, "the start")
    span.until(job, "RUNNING")
    span.run("requeue", str(job))
    span.wait_until(lambda: "run 1" in span.log(job), 20, "the second run")
    assert span.job(job)["restarts"] == 1
    span.run("scancel", str(job))
    span.until(job, "CANCELLED")


def test_batch_scripts_run_with_their_directives_and_exit_code(span: Any) -> None:
    script = (
        "#!/bin/bash\n#SBATCH --job-name=hello --output=%x-%j.log\n#SBATCH -c 2\n"
        'echo "$SLURM_JOB_NAME $SLURM_CPUS_PER_TASK $1"; exit 6\n#SBATCH --job-name=ignored\n'
    )
    file = span.folder / "hello.sh"
    file.write_text(script)
    done = span.run("sbatch", "--wait", str(file), "word", check=False)
    assert done.returncode == 6
    job = done.stdout.removeprefix("Submitted batch job ").strip()
    assert job.isdigit() and done.stdout == f"Submitted batch job {job}\n"
    assert (span.folder / f"hello-{job}.log").read_text() == "hello 2 word\n"


def test_wait_gives_the_jobs_code_and_124_when_it_takes_too_long(span: Any) -> None:
    assert span.run("wait", str(span.wrap("exit 9")), check=False).returncode == 9
    job = span.wrap("sleep 600")
    assert span.run("wait", str(job), "--timeout", "0.3", check=False).returncode == 124
    assert span.run("wait", "4711", check=False).returncode == 4
    span.run("scancel", str(job))


@pytest.mark.own_daemon
def test_json_on_every_listing(span: Any) -> None:
    job = span.wrap("true")
    span.run("wait", str(job))
    for words in (
        ["squeue", "-t", "all"],
        ["sacct"],
        ["sinfo"],
        ["clusters"],
        ["timeline", str(job)],
        ["show", str(job)],
        ["check", "local"],
        ["ping"],
    ):
        assert isinstance(json.loads(span.run(*words, "--json").stdout), dict), words


def test_python_api(span: Any) -> None:
    from overspan import Client

    with Client(environment=span.environment) as client:
        job = client.submit({"name": "api", "run": "echo from the api; exit 2", "resources": {"cpus": 0.1}})
        result = job.wait(timeout=300)
        assert (result.state, result.exit_code) == ("FAILED", 2)
        assert "from the api" in "".join(str(line) for line in job.logs())


@pytest.mark.own_daemon
def test_the_first_listing_after_a_crash_knows_what_ended_meanwhile(span: Any) -> None:
    job = span.wrap("until [ -e go ]; do sleep 0.05; done; exit 3")
    span.until(job, "RUNNING")
    span.kill_daemon()
    (span.folder / "go").touch()
    journal = span.state / "clusters" / "local" / "runs" / str(job) / "journal.0.jsonl"
    span.wait_until(lambda: '"end":true' in journal.read_text(), 20, "the end in the journal")

    def list_states() -> str:
        return str(span.run("squeue", "--noheader", "-t", "all", "-o", "%T").stdout.strip())

    if list_states() != "FAILED":
        # A daemon whose machine is too busy to look within a second says so, and looks later.
        assert "local is looked at later" in (span.state / "daemon.log").read_text()
        span.wait_until(lambda: list_states() == "FAILED", 10, "the later look")


@pytest.mark.own_daemon
def test_a_shutdown_ends_with_the_daemon(span: Any) -> None:
    """What comes next starts another daemon, which finds nobody in its place."""
    ended = span.daemon
    span.run("shutdown")
    process = kernel.read_process(ended)
    assert process is None or process.state in "ZX"
    assert span.daemon != ended


def test_an_empty_word_is_no_job(span: Any) -> None:
    job = span.wrap("true", "--hold")
    for verb in ("release", "hold", "requeue", "restart", "show"):
        assert span.run(verb, "", check=False).returncode == 2, verb
    assert span.run("show", f"{job}.nosuch", check=False).returncode == 4
    assert span.job(job)["held"] is True
