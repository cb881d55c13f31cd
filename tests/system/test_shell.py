"""`span shell` on the local cluster: beside what runs, and what failed and is kept; with a terminal and without."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.terminals import read_until

WAIT = "while [ ! -e $OVERSPAN_RUN_DIR/stop ]; do sleep 0.05; done"
PAIR = (
    "name: g\nexecution: parallel\nprimary_tasks: [a]\nhold_on_failure: {hold}\n"
    "---\nname: a\nnum_nodes: 2\nworkdir: {folder}\n"
    'envs: {{GREETING: "it\'s here"}}\nrun: {run}\n---\nname: b\nrun: |\n  echo $$; ' + WAIT + "\n"
)
TELL = 'echo "$GREETING|$OVERSPAN_NODE_INDEX|$OVERSPAN_ATTEMPT|$PWD"; getent hosts b-0.g'


def pair(span: Span, run: str = "|\n  " + WAIT, hold: str = "0") -> int:
    return span.submit(PAIR.format(folder=span.folder, run=run, hold=hold))


def test_a_command_has_what_the_member_has(span: Span) -> None:
    job = pair(span)
    span.until(job, "RUNNING", task="b")
    span.until(job, "RUNNING", task="a")
    done = span.run("shell", f"{job}.a", "--node", "1", "--", "sh", "-c", f"{TELL}; hostname; exit 7", check=False)
    assert done.returncode == 7, done.stderr
    told, address, host = done.stdout.splitlines()
    assert told == f"it's here|1|0|{span.folder}"
    assert address.split()[1:] == ["b-0.g", "b-0"]
    found = span.run("check", "local", check=False)
    assert host == ("a-1" if "namespace" in found.stdout else os.uname().nodename)
    program = span.wait_until(lambda: span.log(job, "b").split(), 10, "the program's pid")[0]
    same = span.run("shell", f"{job}+1", "--", "sh", "-c", f"readlink /proc/self/ns/mnt /proc/{program}/ns/mnt")
    assert len(set(same.stdout.split())) == 1
    assert span.run("shell", str(job), "a", stdin="echo $OVERSPAN_TASK\nexit 3\n", check=False).stdout == "a\n"
    assert span.job(job)["state"] == "RUNNING"


def test_a_failed_job_that_is_kept_is_entered_until_it_is_given_back(span: Span) -> None:
    job = pair(span, run="exit 5", hold="10m")
    span.wait_until(lambda: span.job(job)["reason"] == "HeldOnFailure", 20, "the hold")
    done = span.run("shell", str(job), "--node=1", "--", "sh", "-c", f"{TELL}; hostname")
    told, address, _ = done.stdout.splitlines()
    assert told == f"it's here|1|0|{span.folder}" and address.split()[1] == "b-0.g"
    span.run("scancel", str(job))
    span.until(job, "FAILED")
    refused = span.run("shell", str(job), check=False)
    assert refused.returncode == 1 and f"job {job} has ended: FAILED" in refused.stderr
    assert not list(Path(f"/tmp/overspan-nodes-{os.getuid()}").glob("*/image-hosts"))


def test_what_cannot_be_entered_is_told_in_one_sentence(span: Span) -> None:
    held = span.wrap("true", "--hold")
    job = pair(span)
    ended = span.wrap("true")
    span.until(ended, "COMPLETED")
    for task in ("a", "b"):
        span.until(job, "RUNNING", task=task)
    for words, code, text in (
        ([str(held)], 1, f"job {held} does not run yet: PENDING (JobHeldUser)"),
        ([str(ended)], 1, f"job {ended} has ended: COMPLETED"),
        ([f"{job}.b", "--node", "1"], 4, f"b of job {job} has no node 1"),
        ([str(job), "c"], 2, f"job {job} has no task 'c'"),
        (["999"], 4, "no job 999"),
    ):
        done = span.run("shell", *words, "--", "true", check=False)
        assert done.returncode == code and text in done.stderr, (words, done)
    missing = span.run("shell", f"{job}.b", "--", "no-such-program", check=False)
    assert missing.returncode == 127 and "no-such-program: No such file" in missing.stderr


@pytest.mark.parametrize("signal", ["", "\x03"])
def test_a_terminal_is_the_shells_own(span: Span, signal: str) -> None:
    job = span.wrap("while :; do sleep 0.05; done")
    span.until(job, "RUNNING")
    leader, follower = pty.openpty()
    words = [str(Path(sys.executable).with_name("span")), "shell", str(job)]
    environment = {**span.environment, "SHELL": "/bin/sh", "TERM": "dumb"}
    process = subprocess.Popen(
        words, stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True
    )
    os.close(follower)
    try:
        read_until(leader, b"the job goes on")
        if signal:
            # An interrupt ends what runs in the shell, not the shell.
            os.write(leader, b"sleep 60\n")
            read_until(leader, b"sleep 60")
            os.write(leader, signal.encode())
        os.write(leader, b"tty; echo task=$OVERSPAN_TASK; exit 4\n")
        shown = read_until(leader, b"task=batch")
        assert b"/dev/pts/" in shown
        assert process.wait(20) == 4
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    assert span.job(job)["state"] == "RUNNING"
