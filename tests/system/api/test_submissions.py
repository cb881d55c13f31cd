"""Made-up job files, scripts, options and command lines against a real daemon: never a 500, never a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import count_examples

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.program import COMMANDS, run_command
from overspan.bridge.client.connection import HttpConnection
from overspan.bridge.model.options.sbatch import BY_NAME

PATIENCE = 120
"""Seconds that a single answer may take on a busy machine."""
KEYS = (
    "name", "run", "setup", "resources", "num_nodes", "envs", "secrets", "workdir", "file_mounts", "time", "restart",
    "grace_period", "needs", "ready", "ports", "share", "spread", "on_failure", "max_restarts_on_errors", "backoff",
    "primary_tasks", "termination_delay", "hold", "begin", "priority", "array", "cluster", "start", "start_timeout",
    "cpus", "memory", "accelerators", "notice_signal", "slurm", "kubernetes", "config", "labels", "image_id", "cron",
)  # fmt: skip
WORDS = (
    "true", "a", "b", "g-{id}", "", "1", "-1", "0", "1+", "8:1", "2h", "12:00", "1-00:00:00", "infinite", "ok", "task",
    "group", "together", "tcp", "A100:2", "0.5", "1e400", ".nan", "~", "2024-13-45", "now+1hour", "$HOME", "/tmp", "\n",
    "*", "é", "\u2028", "a" * 300, "{}", "%j", "USR1", "10-20", "no\tt",
)  # fmt: skip
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.sampled_from(WORDS), st.text(max_size=20)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS + WORDS), inner, max_size=4),
    max_leaves=8,
)
documents = st.dictionaries(st.sampled_from(KEYS), values, max_size=6)
job_files = st.one_of(
    st.lists(documents, min_size=1, max_size=3).map(lambda parts: "\n---\n".join(map(_dump, parts))),
    st.text(max_size=200),
    st.binary(max_size=200).map(lambda data: data.decode("latin-1").replace("\0", " ")),
)
options = st.tuples(st.sampled_from(sorted(BY_NAME)), st.sampled_from(WORDS) | st.text(max_size=12)).map(
    lambda pair: f"--{pair[0]}={pair[1]}" if pair[1] else f"--{pair[0]}"
)
directives = st.lists(options.map(lambda text: f"#SBATCH {text}") | st.text(max_size=40), max_size=5)
scripts = st.one_of(directives.map(lambda lines: "\n".join(["#!/bin/sh", *lines, "true", ""])), st.text(max_size=100))


def _dump(document: Any) -> str:
    # JSON is YAML, but for the words that only Python writes.
    return json.dumps(document).replace("NaN", ".nan").replace("Infinity", ".inf")


@dataclass
class Door:
    """Sends requests to a daemon."""

    span: Any

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request; it has to be one that the daemon meant."""
        connection = HttpConnection(str(self.span.state / "run" / "span.sock"), PATIENCE)
        try:
            answer = connection.request("POST", path, json.dumps(body).encode(), timeout=PATIENCE)
            text = answer.read().decode()
        finally:
            connection.close()
        document: dict[str, Any] = json.loads(text)
        assert answer.status in (200, 400, 404, 409, 422), f"{answer.status} {text}\n{json.dumps(body)}"
        if answer.status != 200:
            assert document["error"]["message"]
        return document


@pytest.fixture
def door(span: Any) -> Iterator[Door]:
    span.run("ping")
    pid = span.daemon
    yield Door(span)
    assert span.daemon == pid
    records = [json.loads(line) for line in (span.state / "daemon.log").read_text().splitlines()]
    assert [record for record in records if "traceback" in record] == []


def bounded(examples: int) -> settings:
    """Hypothesis without a database and with the same examples each time."""
    return settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )


def body_of(kind: str, text: str, argv: list[str]) -> dict[str, Any]:
    """A submission that stays held."""
    words = ["--hold", *argv] if kind == "script" else []
    return {"format": 1, "kind": kind, "text": text, "hold": True, "argv": words, "directory": "/tmp", "file": "made"}


def _check(door: Door, kind: str, text: str, argv: list[str]) -> None:
    body = body_of(kind, text, argv)
    door.post("/v1/plan", body)
    done = door.post("/v1/jobs", body)
    if done.get("id"):
        door.post("/v1/cancel", {"refs": [str(done["id"])]})


def test_made_up_job_files(door: Door) -> None:
    @bounded(count_examples(300))
    @given(text=job_files)
    def check(text: str) -> None:
        _check(door, "job_file", text, [])

    check()


def test_made_up_scripts(door: Door) -> None:
    @bounded(count_examples(300))
    @given(text=scripts, argv=st.lists(options.filter(lambda text: not text.startswith("--wrap")), max_size=3))
    def check(text: str, argv: list[str]) -> None:
        _check(door, "script", text, argv)

    check()


# --- command lines --------------------------------------------------------------------------------------------------

FLAGS = (
    "-h", "--help", "--json", "-o", "-O", "-t", "-j", "-u", "-p", "-S", "-n", "-a", "-l", "-s", "-q", "-w", "-M", "-e",
    "--format", "--state", "--node", "--attempt", "--stream", "--list", "--errors", "--lines", "--set", "--env",
    "--secret", "--name", "--hold", "--noheader", "--sort", "--steps", "--units", "--parsable", "--parsable2",
    "--starttime", "--endtime", "--name=", "--user=", "--format=", "-o%", "-o%i", "--json=x", "-", "--", "---", "--=",
    "--ho", "--test-only", "--signal", "--batch", "--full", "--me", "--array", "--groups", "--start", "-r", "-k",
)  # fmt: skip
THINGS = (
    "1", "2", "2+1", "2.b", "1_1", "1_[1-3]", "999999999999999999999", "local:1", "local:", ":", "held", "g", "show",
    "job", "jobs", "node", "partition", "config", "update", "jobid=1", "timelimit=5", "nice=x", "all", "RUNNING", "PD",
    "local", "bash", "now-1day", "2024-01-01", "%.8i %j", "jobid,name", "jobid:0", "a=b", "=", "", " ", "\t", "é",
    "\udc80", "%", "%%", "{", "nan", "-1", "1e9", "/dev/null", "/", "held.yaml", "job.sh",
)  # fmt: skip
# Commands and options that wait, follow or repeat by design; what is typed for them is bounded elsewhere.
PATIENT = {"wait": ("--timeout", "0")}
# They end the daemon, or make way for another program: this one would be gone.
LAST = ("daemon", "shutdown", "srun", "salloc")
QUIET = {verb for verb in COMMANDS if verb not in LAST}
# No argument of a process can hold a NUL.
typed_text = st.text(st.characters(exclude_characters="\0"), max_size=8)
words = st.lists(st.sampled_from(FLAGS) | st.sampled_from(THINGS) | typed_text, max_size=5)


def patient(verb: str, typed: list[str]) -> bool:
    """Whether the words ask a command to follow or to repeat."""
    for word in typed:
        letters = word.startswith("-") and not word.startswith("--") and bool(set(word) & set("fiWd"))
        if letters or word.startswith(("--f", "--i", "--w", "--d")):
            return True
    return verb in ("sbatch", "submit", "plan") and "-" in typed


def test_made_up_command_lines(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    span = door.span
    for name, text in (("held.yaml", "name: h\nrun: 'true'\n"), ("job.sh", "#!/bin/sh\n#SBATCH --hold\ntrue\n")):
        (span.folder / name).write_text(text)
    span.wrap("true", "--hold", "-J", "held")
    span.submit("name: g\n---\nname: a\nrun: 'true'\n---\nname: b\nrun: 'true'\n", "--hold")
    monkeypatch.chdir(span.folder)
    # An internal error is raised then instead of being told.
    environment = {**span.environment, "SPAN_DEBUG": "1", "EDITOR": "true", "VISUAL": "true"}

    @bounded(count_examples(600))
    @given(verb=st.sampled_from(sorted(QUIET)) | st.text(max_size=5), typed=words)
    def check(verb: str, typed: list[str]) -> None:
        if patient(verb, typed) or verb in LAST:
            return
        extra = ("--hold",) if verb in ("sbatch", "submit") else PATIENT.get(verb, ())
        code, told = run(Invocation(verb, (*extra, *typed), environment))
        shown = f"span {verb} {' '.join(map(repr, typed))}: {code}\n{told}"
        assert 0 <= code <= 255, shown
        assert "Traceback" not in told and "internal" not in told, shown

    check()


def run(call: Invocation) -> tuple[int, str]:
    """Run a command in this process with an empty standard input; its code and what it said."""
    out, err = Stream(), Stream()
    # What a command changes for the rest of its process is not for the next test.
    with open(os.devnull) as nothing, pytest.MonkeyPatch.context() as patch, mock.patch.dict(os.environ):
        patch.setattr("sys.stdin", nothing)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run_command(call)
    return int(code), err.text()


class Stream(io.TextIOWrapper):
    """A text stream that keeps what is written."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)

    def text(self) -> str:
        """All that was written."""
        self.flush()
        kept = self.buffer
        assert isinstance(kept, io.BytesIO)
        return kept.getvalue().decode(errors="replace")
