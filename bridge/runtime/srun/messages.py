"""srun's messages on stderr, in Slurm's words, and its exit codes."""

from __future__ import annotations

import os
import signal
import sys

from overspan.bridge.runtime.srun.output import write_all


def say(text: str, verb: str = "srun") -> None:
    """One line on stderr, unbuffered."""
    write_all(2, f"{verb}: {text}\n".encode("utf-8", "surrogateescape"))


def complain(text: str, verb: str = "srun") -> None:
    """An error."""
    say(f"error: {text}", verb)


def describe_end(status: int) -> str:
    """How a rank ended, from its wait status; empty for exit code 0."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        text = signal.strsignal(number) or f"signal {number}"
        return text + (" (core dumped)" if os.WCOREDUMP(status) else "")
    code = os.WEXITSTATUS(status)
    return f"Exited with exit code {code}" if code else ""


def code_of(status: int) -> int:
    """The exit code that a wait status stands for: 128 and the signal's number where one ended it."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def fail(text: str, verb: str = "srun") -> int:
    """Complain, and give the exit code of a step that could not be made."""
    sys.stdout.flush()
    complain(text, verb)
    return error_code()


def error_code() -> int:
    """The exit code of srun's own errors: SLURM_EXIT_ERROR, else 1."""
    code = os.environ.get("SLURM_EXIT_ERROR", "")
    return int(code) if code.isdigit() and int(code) < 256 else 1
