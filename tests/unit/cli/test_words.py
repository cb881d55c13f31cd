"""Command lines: the script among sbatch's words, ids, states, exit codes, help."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.jobs.exit_status import exit_code
from overspan.bridge.cli.program import COMMANDS, help_page, main
from overspan.bridge.cli.references import check_refs, is_ref, parse_states
from overspan.bridge.cli.slurm import sacct, sbatch, scancel, sinfo, squeue
from overspan.bridge.cli.slurm.sbatch import scan
from overspan.bridge.cli.slurm.scontrol_update import JobUpdate, explain_refusal, parse_update
from overspan.bridge.cli.tables.sacct_fields import FIELDS
from overspan.bridge.cli.tables.squeue_tables import choose_layout
from overspan.bridge.client import Accepted, CancelOrder, JobFilter, Outcome
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.getopt import parse

_FORBIDDEN = ("pydantic", "sqlalchemy", "sqlmodel", "textual", "kubernetes", "rich", "asyncio", "http.client", "yaml")


_OTHERS = [line.split() for line in ("scontrol show config", "scontrol update jobid=1 nice=2", "sstat -j 1", "sshare")]


def test_finds_the_script_among_sbatch_words() -> None:
    found = scan(["-N2", "-J", "a b", "--parsable", "--exclusive", "train.sh", "-x", "--lr=1"])
    assert (found.script, found.args) == ("train.sh", ("-x", "--lr=1"))
    assert found.has("parsable") and found.last("job-name") == "a b"
    assert scan(["-n", "1", ":", "-n", "2", "t.sh"]).script == "t.sh"
    assert scan(["--wrap", "hostname"]).script == ""
    with pytest.raises(InvalidRequest, match="unrecognized"):
        scan(["--nonsense", "t.sh"])
    # The daemon refuses arguments beside --wrap, in sbatch's words and with its code.
    assert scan(["--wrap=x", "t.sh", "arg"]).args == ("arg",)


def test_sbatch_answer_and_wait_codes() -> None:
    accepted = Accepted(7, cluster="gpu")
    assert sbatch.submitted_line(accepted, {}) == "Submitted batch job 7\n"
    assert sbatch.submitted_line(accepted, {"clusters": "gpu"}) == "Submitted batch job 7 on cluster gpu\n"
    assert sbatch.submitted_line(accepted, {"parsable": True, "quiet": True}) == "7\n"
    assert sbatch.submitted_line(accepted, {"parsable": True, "clusters": True}) == "7;gpu\n"
    assert sbatch.submitted_line(accepted, {"quiet": True}) == ""
    ends = [Outcome(True, "COMPLETED"), Outcome(True, "FAILED", 3), Outcome(True, "FAILED", 0, 9)]
    ends.append(Outcome(True, "CANCELLED"))
    assert [sbatch.exit_code(end) for end in ends] == [0, 3, 1, 1]
    # 0:53 is how Slurm writes a launch that failed: no signal has that number.
    ends.append(Outcome(True, "FAILED", 0, 53))
    assert [exit_code(end) for end in ends] == [0, 3, 137, 1, 1]


def test_ids_and_states() -> None:
    assert all(map(is_ref, ["1", "42+1", "42_3", "42_[1-3,5]", "42.trainer-a", "gpu:77"]))
    assert not any(map(is_ref, ["", "a", "-1", "4a", "4 2", "1/2"]))
    with pytest.raises(InvalidRequest, match="Invalid job id: abc"):
        check_refs(["1", "abc"])
    assert parse_states(["pd", "RUNNING", "oom", "PD"]) == ("PENDING", "RUNNING", "OUT_OF_MEMORY")
    assert parse_states(["R", "all"]) == ("all",)
    with pytest.raises(InvalidRequest, match="Invalid job state specified: X"):
        parse_states(["X"])


def test_scancel_orders() -> None:
    def order(*words: str) -> CancelOrder:
        return scancel.make_order(parse(words, scancel.OPTIONS))

    assert order("4", "5_1", "--signal", "SIGUSR1", "-b") == CancelOrder(("4", "5_1"), signal="USR1", batch_only=True)
    assert order("4", "trainer") == order("4.trainer") == CancelOrder(("4",), task="trainer")
    assert order("rlhf", "trainer", "-s", "USR1") == CancelOrder(("rlhf",), task="trainer", signal="USR1")
    assert order("-t", "PD", "-u", "root").filter == JobFilter(states=("PENDING",), users=("root",))
    with pytest.raises(InvalidRequest, match="Invalid job id abc"):
        order("abc")
    for words in (("abc", "4"), ("0", "trainer"), ("7.batch", "7.extern")):
        with pytest.raises(InvalidRequest, match="Invalid job id"):
            order(*words)
    with pytest.raises(InvalidRequest, match="No job identification provided"):
        order()


def test_squeue_filters_and_variables() -> None:
    words = parse(["-j1,2+1", "-t", "R", "-M", "all"], squeue.OPTIONS)
    environment = {"SQUEUE_USERS": "a,b", "SQUEUE_STATES": "PD", "SQUEUE_FORMAT": "%i"}
    wanted = squeue.make_filter(words, environment)
    assert wanted == JobFilter(states=("RUNNING",), users=("a", "b"), ids=("1", "2+1"), tasks=True)
    assert len(choose_layout(words, environment).fields) == 1
    assert len(choose_layout(parse(["-O", "JobID,Name,State"], squeue.OPTIONS), {}).fields) == 3
    with pytest.raises(InvalidRequest, match="is incompatible with"):
        choose_layout(parse(["-o", "%i%j", "-O", "JobID"], squeue.OPTIONS), {})


def test_sacct_windows() -> None:
    now = time.mktime((2026, 3, 4, 12, 0, 0, 0, 0, -1))

    def since(*words: str) -> float | None:
        return sacct.make_filter(parse(words, sacct.OPTIONS), now).since

    assert since() == now - 12 * 3600
    assert since("-j", "4.batch") is None
    assert since("-S", "now-2hours") == now - 7200
    assert since("-s", "R") == now
    with pytest.raises(InvalidRequest, match="is after end time"):
        since("-S", "now", "-E", "now-1hour")
    assert {"JobID", "State", "NodeList", "SubmitLine"} <= set(FIELDS)


def test_scontrol_updates() -> None:
    words = ["JobId=4,5", "timelim=1:00:00", "Priority=7", "JobName=x y", "Nice", "ArrayTaskThrottle=3", "NumCPUs=2"]
    changes = parse_update(words, 0)
    values = {"time_limit": 3600, "priority": 7, "name": "x y", "nice": 100, "throttle": 3, "cpus": 2}
    assert changes == JobUpdate(("4", "5"), "", values)
    words = ["JobId=4", "NumNodes=2-3", "MinMemoryNode=2G", "Requeue=0", "Comment=-x", "QOS=high", "CPUs/Task=3"]
    sizes = {"nodes": 2, "memory": 2048, "requeue": False, "comment": "-x", "qos": "high", "cpus_per_task": 3}
    assert parse_update(words, 0).values == sizes
    assert parse_update(["JobId=4", "Features=x", "QOS+=y"], 0).refused == ("Features", "QOS+")
    assert explain_refusal(("Features",)) == "Invalid feature specification"
    assert parse_update(["JobId=4", "TimeLimit+=10"], 0).values == {"time_limit_by": 600}
    assert parse_update(["JobId=4", "TimeLimit=-5"], 0).values == {"time_limit_by": -300}
    assert parse_update(["Name=x", "Dependency=after:4"], 0) == JobUpdate((), "x", {"dependency": "after:4"})
    for words, message in (
        (["TimeLimit=5"], "scontrol: error: No job ID specified"),
        (["JobId=4"], "No changes specified"),
        (["JobId=4", "Colour=red"], "Update of this parameter is not supported: Colour=red\nRequest aborted"),
        (["JobId=4", "x"], "Invalid input: x\nRequest aborted"),
        (["JobId=4", "Nice=a"], "scontrol: error: Invalid Nice value: a"),
        (["JobId=4", "TimeLimit=x"], "scontrol: error: Invalid TimeLimit value"),
        (["JobId=4", "NumNodes=0"], 'scontrol: error: Invalid numeric value "0" for requested node count.'),
    ):
        with pytest.raises(InvalidRequest) as caught:
            parse_update(words, 0)
        assert caught.value.message == message


def test_sinfo_formats() -> None:
    assert sinfo.fit_widths("%#P|%#N", []) == "%9P|%9N"
    assert sinfo.choose_format(parse(["-Nl"], sinfo.OPTIONS)).startswith("%#N")


def test_help_is_short_and_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(help_page().splitlines()) <= 42
    assert "span sbatch --wrap" in help_page()
    for name, command in COMMANDS.items():
        if command.summary:
            assert f"  {name}" in help_page()
            assert main(["help", name]) == 0
            output = capsys.readouterr()
            # sbatch has a page of its own, with every option: tests/unit/cli/test_sbatch.py.
            assert name == "sbatch" or "usage: span" in output.out
            # resubmit takes its options.
            assert name in ("sbatch", "resubmit") or len(output.out.splitlines()) < 40
            assert not output.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["squeu"], 2, "span: error: there is no command 'squeu'\n  did you mean `span squeue`?\n"),
        (["delete"], 2, "span: error: there is no command 'delete'\n  did you mean `span scancel`?\n"),
        (["squeue", "--zzz"], 1, "squeue: unrecognized option '--zzz'\nTry \"squeue --help\" for"),
        (["squeue", "-j", "abc"], 1, "squeue: error: Invalid job id: abc\n"),
        (["sbatch", "--zzz"], 255, "sbatch: unrecognized option '--zzz'\nTry \"sbatch --help\" for more information\n"),
        (["sbatch", "/no/such"], 1, "sbatch: error: Unable to open file /no/such\n  No such file"),
        (["scancel"], 1, "scancel: error: No job identification provided\n"),
        (["wait"], 2, "span: error: the following arguments are required: JOB\n"),
        (["submit", "--env", "x", "/dev/null"], 2, "span: error: --env x: the variable is not set here"),
        (["logs", "--json", "--node", "x", "1"], 2, '{"error": {"code": "invalid"'),
    ],
)
def test_mistakes(words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == code
    output = capsys.readouterr()
    assert output.err.startswith(message)
    assert not output.out


def test_a_bug_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(call: Invocation) -> int:
        raise KeyError("job")

    monkeypatch.setattr("overspan.bridge.cli.service.version.run", fail)
    assert main(["version"]) == 1
    assert capsys.readouterr().err.startswith("span: error: internal error, KeyError: 'job'\n")


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(call: Invocation) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("overspan.bridge.cli.service.version.run", interrupt)
    assert main(["version"]) == 130


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    # The pipe is closed before the command writes.
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "overspan.bridge.cli", "--help"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_traceback(closed: str, tmp_path: Path) -> None:
    environment = {"SPAN_STATE_DIR": str(tmp_path), "SPAN_AUTOSTART": "0", "PATH": "/usr/bin:/bin"}
    command = f"{sys.executable} -m overspan.bridge.cli squeue {closed}"
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert ("not running" in done.stderr) == ("2>" not in closed)


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["squeue"],
        ["sbatch", "--wrap=x"],
        ["scancel", "1"],
        ["sinfo"],
        ["sacct"],
        ["top", "--help"],
        *_OTHERS,
    ],
)
def test_hot_commands_import_the_standard_library_only(words: list[str], tmp_path: Path) -> None:
    code = (
        "import sys\nfrom overspan.bridge.cli import main\n"
        f"main({words!r})\n"
        f"print([n for n in sys.modules if n.split('.')[0] in {_FORBIDDEN!r} or n in {_FORBIDDEN!r}])\n"
        "from overspan.bridge.cli.program import COMMANDS\n"
        "print(sorted({e.module for e in COMMANDS.values() if f'overspan.bridge.cli.{e.module}' in sys.modules}))"
    )
    environment = {"SPAN_STATE_DIR": str(tmp_path), "SPAN_AUTOSTART": "0", "PATH": "/usr/bin"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    forbidden, commands = done.stdout.splitlines()[-2:]
    assert forbidden == "[]"
    if words[0] in ("squeue", "sbatch", "scancel", "sinfo"):
        assert commands == f"['slurm.{words[0]}']"
