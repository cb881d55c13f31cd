"""srun and salloc outside of a job: allocations that last as long as their client."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.system.conftest import Span

SPAN = str(Path(sys.executable).with_name("span"))


def told(text: str) -> list[str]:
    """The lines of stderr without what a busy machine adds: that the job waited."""
    waits = ("Pending job allocation", "queued and waiting", "has been allocated resources")
    return [line for line in text.splitlines() if not any(word in line for word in waits)]


@contextmanager
def start(span: Span, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that runs on, ended at the end."""
    process = subprocess.Popen(
        [SPAN, *words],
        env=span.environment,
        cwd=span.folder,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_srun_outside_of_a_job_makes_one(span: Span) -> None:
    done = span.run("srun", "-N2", "-n4", "-l", "sh", "-c", "cat; exit $SLURM_PROCID", stdin="in\n", check=False)
    assert sorted(done.stdout.splitlines()) == ["0: in", "1: in", "2: in", "3: in"]
    assert done.returncode == 3
    assert "srun: error: batch-1: task 3: Exited with exit code 3" in done.stderr
    assert span.until(1, "FAILED")["exit_code"] == 3
    assert told(span.run("srun", "true").stderr) == []
    span.until(2, "COMPLETED")
    assert not list(span.folder.glob("slurm-*"))


def test_salloc_holds_nodes_while_its_command_runs(span: Span) -> None:
    # `srun` is found by its name: the folder of Slurm's names is the first on PATH.
    command = "echo $SLURM_JOB_NUM_NODES; hostname; srun -l hostname; command -v srun; exit 4"
    done = span.run("salloc", "-N2", "sh", "-c", command, check=False)
    assert done.returncode == 4
    assert done.stdout.splitlines()[:2] == ["2", os.uname().nodename]
    assert sorted(done.stdout.splitlines()[2:4]) == ["0: batch-0", "1: batch-1"]
    assert done.stdout.splitlines()[4] == str(span.state / "shims" / "srun")
    assert told(done.stderr) == ["salloc: Granted job allocation 1", "salloc: Relinquishing job allocation 1"]
    span.until(1, "COMPLETED")


def test_an_allocation_without_a_command_stays(span: Span) -> None:
    done = span.run("salloc", "--no-shell", "-N2")
    assert (done.stdout, told(done.stderr)) == ("", ["salloc: Granted job allocation 1"])
    assert span.job(1)["name"] == "no-shell"
    assert sorted(span.run("srun", "--jobid=1", "hostname").stdout.split()) == ["batch-0", "batch-1"]
    assert span.job(1)["state"] == "RUNNING"
    span.run("scancel", "1")
    span.until(1, "CANCELLED")


def test_refusals_are_in_the_words_of_the_verb(span: Span) -> None:
    for verb, text in (("srun", "Unable to allocate resources"), ("salloc", "Job submit/allocate failed")):
        done = span.run(verb, "-p", "nowhere", "true", check=False)
        assert done.returncode == 1
        assert f"{verb}: error: {text}: Invalid partition name specified" in done.stderr
        assert span.run(verb, "--nope", "true", check=False).returncode == 255


def test_an_allocation_ends_with_its_client(span: Span) -> None:
    with start(span, "salloc", "sh", "-c", "echo $$; exec sleep 600") as client:
        assert client.stdout is not None
        command = int(client.stdout.readline())
        client.kill()
        span.until(1, "FAILED")
        # As with Slurm, the command on this host goes on.
        os.kill(command, signal.SIGKILL)


def test_a_cancelled_allocation_ends_its_step(span: Span) -> None:
    with start(span, "srun", "sh", "-c", "echo ready; sleep 600") as client:
        assert client.stdout is not None and client.stdout.readline() == "ready\n"
        span.run("scancel", "1")
        _, words = client.communicate(timeout=200)
        assert client.returncode == 128 + signal.SIGTERM, words
        assert "task 0: Terminated" in words
    span.until(1, "CANCELLED")


def test_interrupts_end_a_step(span: Span) -> None:
    with start(span, "srun", "sh", "-c", "trap 'echo interrupted; exit 9' INT; echo ready; sleep 600 & wait") as client:
        assert client.stdout is not None and client.stdout.readline() == "ready\n"
        assert client.stderr is not None
        client.send_signal(signal.SIGINT)
        told_first = False
        for line in iter(client.stderr.readline, ""):
            if line == "srun: interrupt (one more within 1 sec to abort)\n":
                # One that comes later than that is a first one again.
                told_first = True
                client.send_signal(signal.SIGINT)
            if line.startswith("srun: sending Ctrl-C to StepId="):
                break
        assert told_first
        out, _ = client.communicate(timeout=200)
        assert (client.returncode, out) == (9, "interrupted\n")
    span.until(1, "FAILED")


def test_a_step_joins_a_running_job(span: Span) -> None:
    job = span.wrap("sleep 600", "-N2")
    span.until(job, "RUNNING")
    done = span.run("srun", f"--jobid={job}", "-l", "hostname")
    assert sorted(done.stdout.splitlines()) == ["0: batch-0", "1: batch-1"]
    with start(span, "srun", f"--jobid={job}", "-n1", "-N1", "sh", "-c", "echo ready; sleep 600") as client:
        assert client.stdout is not None and client.stdout.readline() == "ready\n"
        span.run("scancel", str(job))
        client.communicate(timeout=200)
        assert client.returncode == 128 + signal.SIGKILL


def test_an_allocation_that_waits_is_told_and_given_up(span: Span) -> None:
    span.until(span.wrap("sleep 600", "-c64"), "RUNNING")
    with start(span, "salloc", "-c2", "true") as client:
        assert client.stderr is not None
        lines = [client.stderr.readline() for _ in range(2)]
        assert lines == ["salloc: Pending job allocation 2\n", "salloc: job 2 queued and waiting for resources\n"]
        client.send_signal(signal.SIGINT)
        assert client.communicate(timeout=200)[1] == "salloc: Job allocation 2 has been revoked.\n"
        assert client.returncode == 1
    span.until(2, "CANCELLED")


def test_a_job_that_is_over_has_no_steps(span: Span) -> None:
    job = span.wrap("true", "-N2")
    span.until(job, "COMPLETED")

    def ask() -> Any:
        return span.run("srun", "true", environment={"SLURM_JOB_ID": str(job)}, check=False)

    # Until its step daemons have ended it is told as one that is completing.
    span.wait_until(lambda: "already completing" not in ask().stderr, 10, "the end of its step daemons")
    done = ask()
    assert done.returncode == 1
    assert f"srun: error: Unable to confirm allocation for job {job}: Invalid job id specified" in done.stderr


def test_unknown_jobs_are_refused(span: Span) -> None:
    done = span.run("srun", "--jobid=77", "true", check=False)
    assert done.returncode == 1
    assert "srun: error: Unable to confirm allocation for job 77: Invalid job id specified" in done.stderr


def test_a_terminal(span: Span) -> None:
    span.run("ping")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(SPAN, ["span", "srun", "--pty", "bash", "--norc"], span.environment)
    seen = b""

    def read_until(word: bytes) -> None:
        nonlocal seen
        deadline = time.monotonic() + 300
        while word not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([terminal], [], [], 0.2)[0]:
                seen += os.read(terminal, 4096)

    read_until(b"# " if os.getuid() == 0 else b"$ ")
    os.write(terminal, b"test -t 0 && echo is-$((20 + 1))-tty\n")
    read_until(b"is-21-tty")
    os.write(terminal, b"sleep 100; echo code-$?\n")
    read_until(b"sleep 100")
    span.wait_until(lambda: sleeps(span), 10, "the sleep")
    os.write(terminal, b"\x03")
    read_until(b"^C")
    os.write(terminal, b"exit 7\n")
    read_until(b"Exited with exit code 7")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    os.close(terminal)


def sleeps(span: Span) -> bool:
    mark = str(span.state).encode()
    for name in os.listdir("/proc"):
        try:
            mine = mark in Path(f"/proc/{name}/environ").read_bytes()
            if mine and Path(f"/proc/{name}/cmdline").read_bytes() == b"sleep\x00100\x00":
                return True
        except OSError:
            continue
    return False
