"""`span srun` and `span salloc` outside of a job as a user runs them: with pipes, or on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.system.conftest import Span
from tests.system.terminals import read_until

Begin = Callable[..., "subprocess.Popen[str]"]
SPAN = str(Path(sys.executable).with_name("span"))


@contextmanager
def open_commands(span: Span) -> Iterator[Begin]:
    """Starts commands with pipes, in a session of their own; they are ended with the block."""
    begun = []

    def start(*words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [SPAN, *words],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            env=span.environment,
            start_new_session=True,
        )
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def newest(span: Span) -> int:
    """The number of the newest job."""
    listed = span.wait_until(lambda: span.run("sacct", "-nXPo", "jobid").stdout.split(), 30, "a job")
    return int(listed[-1])


def check_terminal(span: Span, *options: str) -> None:
    """A step with --pty has a terminal of its own, takes what is typed, and gives its exit code."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [SPAN, "srun", *options, "--pty", "sh"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=span.environment,
        start_new_session=True,
    )
    os.close(follower)
    try:
        os.write(leader, b"tty; echo sum=$((40 + 2)); exit 4\n")
        assert b"/dev/pts/" in read_until(leader, b"sum=42")
        assert process.wait(120) == 4
    finally:
        process.kill()
        process.wait()
        os.close(leader)
