"""What users have typed and written wrongly, an input a row: what is said, and the exit code.

A new finding is a new row. Words are those behind `span`; {held} is a held job, {group} a group with the tasks a and b
that waits, {array} a held array of 1-3. A row's file is there under its name.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest
from tests.system.conftest import Span

pytestmark = pytest.mark.shared_daemon

RUN = "name: x\nrun: echo hi\n"
GROUP = "name: g\nexecution: parallel\n---\nname: a\nrun: 'true'\n---\nname: b\nrun: 'true'\n"


class Row(NamedTuple):
    """An input, and what has to come of it; `says` are pieces of the talk, `never` of neither stream."""

    words: str
    code: int
    says: tuple[str, ...]
    file: str = ""
    text: str | bytes = ""
    never: str = "Traceback"
    variables: Mapping[str, str] = {}


def job_file(text: str, code: int, *says: str) -> Row:
    """A job file with these lines more, which begin at line 3."""
    return Row("submit x.yaml --hold", code, says, "x.yaml", RUN + text)


COMMANDS: dict[str, Row] = {
    "U2-cancel-task": Row("scancel {group} wrong", 1, ("has no task 'wrong'", "its tasks: a, b")),
    "U2-logs-task": Row("logs -f {group} wrong", 4, ("has no task 'wrong'", "its tasks: a, b")),
    "S10-logs-number": Row("logs {group} 0", 4, ("task a of job", "has not started")),
    "S10-logs-wrong-number": Row("logs {group} 2", 4, ("has no task '2'", "its tasks: a, b")),
    "U4-logs-not-started": Row("logs {held}", 4, ("has not started: PENDING (JobHeldUser)",)),
    "U3-logs-array": Row("logs {array}", 4, ("has not started: PENDING (JobHeldUser)",)),
    "U13-since": Row("logs --since soon {held}", 2, ("'soon' is no time", "how long ago")),
    "U13-attempt": Row("logs --attempt x {held}", 2, ("give a number from 0, or all",)),
    "U11-resubmit": Row("resubmit {held} --failed", 1, ("has not failed", "submits all of it again")),
    "U10-wait": Row("wait {held} --timeout 0", 124, ("still not over", "PENDING")),
    "U12-requeue": Row("requeue {held}", 1, ("Job is pending execution",)),
    "U12-restart": Row("restart {group} wrong", 4, ("no task 'wrong'",)),
    "U18-unknown-need": Row(
        "sbatch --hold -d afterok:99999 --wrap true", 0, ("no job 99999 is known", "counts as met")
    ),
    "U20-folder": Row("sbatch /tmp", 1, ("Batch script is empty!", "/tmp is a directory")),
    "U20-crontab": Row("cron tab", 2, ("tab:2:1", "'x' is not a schedule"), "tab", "0 3 * * * true\nx\n"),
    "U22-delete": Row("delete {held}", 2, ("did you mean `span scancel`?",)),
    "U22-status": Row("status", 2, ("did you mean `span squeue`?",)),
    "U22-list": Row("list", 2, ("did you mean `span squeue`?",)),
    "U22-env": Row("scrontab", 2, ("did you mean `span cron`?",)),
    "U25-env-name": Row("submit x.yaml --env 1X=2", 2, ("'1X' is not the name of a variable",), "x.yaml", RUN),
    "U25-set-task": Row("submit g.yaml --set c.run=x", 2, ("no task is named 'c'", "a, b"), "g.yaml", GROUP),
    "S12-reservation": Row("sbatch --reservation=no-such --wrap true", 1, ("Requested reservation is invalid",)),
    "K21-node": Row("sbatch -w nosuch --wrap true", 1, ("Invalid node name specified",)),
    "K21-partition": Row("sbatch -p nosuch --wrap true", 1, ("Invalid partition name specified",)),
    "R4-cluster": Row("submit x.yaml -M far", 2, ("no cluster named 'far'", "the clusters are local"), "x.yaml", RUN),
    "R4-sbatch-cluster": Row("sbatch -M far --wrap true", 1, ("No cluster 'far' known",)),
    "deadline-over": Row("sbatch --deadline=2001-01-01 --wrap true", 1, ("the deadline is over",)),
    "signal": Row("sbatch --signal=99 --wrap true", 255, ("there is no signal 99",)),
    "array": Row("sbatch --array=x --wrap true", 1, ("Invalid job array specification",)),
    "state": Row("squeue -t nosuch", 1, ("Invalid job state specified: nosuch",)),
    "U6-sizes": Row("sbatch -c 100000 --wrap true", 1, ("Requested node configuration", "100000 CPUs are wanted")),
    "U6-held": Row("sbatch --hold -c 100000 --wrap true", 1, ("100000 CPUs are wanted",)),
    "U6-dependent": Row("sbatch -d afterok:{held} -c 100000 --wrap true", 1, ("100000 CPUs are wanted",)),
    "U23-name-task": Row("scancel {held}.wrong", 1, ("has no task 'wrong'", "its tasks: batch")),
    "R11-fsck": Row("fsck nosuch", 4, ("no cluster 'nosuch'",)),
}

FILES: dict[str, Row] = {
    "S1-cloud": job_file("resources: {cloud: kubernetes}\n", 2, "x.yaml:3:20", "no kubernetes cluster is configured"),
    "S4-bucket": job_file("file_mounts:\n  /data: s3://bucket/x\n", 2, "x.yaml:4:10", "reaches s3://bucket/x"),
    "S5-service": job_file("service: {readiness_probe: /}\n", 0, "x.yaml:3:1: service has no effect", "one job"),
    "S10-image": job_file("image_id: docker:x\n", 2, "x.yaml:3:1", "it belongs under `resources`"),
    "S11-placement": job_file("placement: x\n", 2, "x.yaml:3:1", "it belongs in the header of a group"),
    "S11-region": job_file('resources: {infra: "*/region"}\n', 0, "x.yaml:3:20: */region has no effect"),
    "S11-hooks": job_file("config: {hooks: {}}\n", 0, "x.yaml:3:10: hooks has no effect"),
    "U20-missing-mount": job_file("file_mounts:\n  ~/x: ./missing\n", 2, "x.yaml:4:8", "/missing to mount"),
    "U25-nul": Row("submit x.yaml", 2, ("x.yaml:2:6", "NUL"), "x.yaml", 'name: x\nrun: "a\\0b"\n'),
    "U25-envs": job_file("envs: {1X: 2}\n", 2, "x.yaml:3:8", "not the name of a variable"),
    "U1-ready": job_file("ready: {tcp: 99999}\n", 2, "x.yaml:3:14", "it must be from 1 to 65535"),
    "S2-gpus": job_file("resources: {accelerators: H100:8}\n", 1, "Requested node configuration is not available"),
    "S3-same": job_file(
        "resources: {any_of: [{accelerators: H100:8}, {accelerators: H100:8}]}\n", 1, "8 H100 GPUs are wanted"
    ),
    "time": job_file("time: never\n", 2, "x.yaml:3:7", "'never' is not a wall time"),
    "cron": job_file('cron: "61 * * * *"\n', 2, "x.yaml:3:7", "'61' is no minute"),
    "U18-needs": job_file("needs: [99999]\n", 0, "no job 99999 is known"),
    "damaged-yaml": Row("submit x.yaml", 2, ("x.yaml:2:",), "x.yaml", "name: x\n  run: [\n"),
    "damaged-bytes": Row("submit x.yaml", 2, ("x.yaml",), "x.yaml", b"\x00\xff\xfe{"),
    "damaged-script": Row("sbatch x.sh", 1, ("sbatch: error: ",), "x.sh", b"\x7fELF\x00\x01"),
}

FOLDERS: dict[str, Row] = {
    f"R12-{name}": Row(
        "ping", 5, ("is open to all users", "SPAN_STATE_DIR and SPAN_RUNTIME_DIR"), variables={name: "{open}"}
    )
    for name in ("SPAN_STATE_DIR", "SPAN_RUNTIME_DIR")
}

ROWS = {**COMMANDS, **FILES, **FOLDERS}


@pytest.mark.parametrize("name", ROWS)
def test_what_was_found_is_said(span: Span, name: str) -> None:
    row = ROWS[name]
    if row.file:
        data = row.text if isinstance(row.text, bytes) else row.text.encode()
        (span.folder / row.file).write_bytes(data)
    places = {key: str(make(span)) for key, make in _MAKERS.items() if f"{{{key}}}" in row.words}
    variables = {key: value.format(open=_make_open(span)) for key, value in row.variables.items()}
    words = [word.format(**places) for word in row.words.split()]
    done = span.run(*words, check=False, environment=variables)
    told = f"span {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
    assert done.returncode == row.code, told
    assert all(piece in done.stderr for piece in row.says), told
    assert row.never not in done.stdout + done.stderr and "internal error" not in done.stderr, told
    # An error is no data, and no essay; nothing is said twice.
    assert not (row.code and done.stdout) and len(done.stderr) < 1500, told
    lines = done.stderr.splitlines()
    assert len(set(lines)) == len(lines), told


def _submit_group(span: Span) -> int:
    return span.submit(GROUP, "--hold")


_MAKERS: dict[str, Callable[[Span], int]] = {
    "held": lambda span: span.wrap("true", "--hold"),
    "group": _submit_group,
    "array": lambda span: span.wrap("true", "--hold", "-a", "1-3"),
}


def _make_open(span: Span) -> str:
    """A folder that is open to all users, as /tmp is."""
    folder = span.folder / "open"
    folder.mkdir(exist_ok=True)
    os.chmod(folder, 0o1777)
    return str(folder)


def test_a_folder_that_is_everybodys_stays_so(span: Span) -> None:
    folder = _make_open(span)
    span.run("ping", check=False, environment={"SPAN_RUNTIME_DIR": folder})
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o1777


def test_hostile_names_reach_no_column_of_another_row(span: Span) -> None:
    """U24: on a terminal control characters are `?`; a pipe gets them as they are."""
    job = span.wrap("true", "--hold", "-J", "a\nb\x1b[31m")
    listed = span.run("squeue", "-h", "-j", str(job), "-o", "%i|%j|%t").stdout
    assert listed == f"{job}|a\nb\x1b[31m|PD\n"
    assert span.run("show", str(job), "--json").stdout.count("\x1b") == 0
