"""Causes of ends that the agent cannot know, from the messages of srun and slurmstepd. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from overspan.bridge.model.causes import Cause, is_stopped
from overspan.bridge.model.records import NamedTuple

# slurmstepd's words on srun's standard error (slurmstepd/req.c), and srun's own (srun/libsrun).
_WORDS: tuple[tuple[re.Pattern[str], Cause], ...] = (
    (re.compile(r"DUE TO TIME LIMIT"), Cause.TIME),
    (re.compile(r"DUE TO PREEMPTION"), Cause.PREEMPTION),
    (re.compile(r"DUE TO NODE FAILURE|[Nn]ode failure"), Cause.NODE),
    (re.compile(r"oom[-_]kill|[Oo]ut [Oo]f [Mm]emory"), Cause.MEMORY),
)
_ENDED_BY_SLURM = re.compile(r"Job step aborted|DUE TO JOB REQUEUE")
_TRANSIENT = re.compile(
    r"[Uu]nable to contact slurm|[Ss]ocket timed out|[Cc]onnection (?:refused|reset|timed out)|[Cc]ommunication"
    r"|[Nn]ode failure|already completing|has expired|Zero Bytes|[Pp]rolog|not responding|temporarily"
    # Steps are planned into the allocation, so what one lacks is held by one that is still ending.
    r"|Memory required by task is not available|Insufficient GRES available|nodes are busy"
)
_NOISE = re.compile(
    r"Exited with exit code|: (?:Terminated|Killed)$|got SIGCONT|forcing job termination|Waiting up to"
    r"|pyxis: child \d+ "
)


class EndVerdict(NamedTuple):
    """A cause, where one is known beside exit code and signal, and what to show."""

    cause: Optional[Cause]
    detail: str


def judge_start(said: Sequence[str], status: int) -> EndVerdict:
    """A step that never ran: a transient error is charged to the infrastructure, any other is a failed launch."""
    detail = pick_line(said) or f"srun ended with status {status} before the program was started"
    return EndVerdict(Cause.NODE if any(map(_TRANSIENT.search, said)) else Cause.LAUNCH, detail)


def judge_loss(said: Sequence[str], status: int) -> EndVerdict:
    """A program whose agent vanished: the cause that Slurm names, else its node counts as lost."""
    told = judge_words(said)
    detail = pick_line(said) or f"srun ended with status {status}, and nothing told how the program did"
    return EndVerdict(told or Cause.NODE, detail)


def judge_end(said: Sequence[str], doubtful: bool) -> EndVerdict:
    """An end that Slurm may have brought about, if it is no plain success: a cause only where Slurm says so."""
    cause = judge_words(said) if doubtful else None
    return EndVerdict(cause, pick_line(said) if cause is not None else "")


def judge_words(said: Sequence[str]) -> Optional[Cause]:
    """The cause that Slurm names; CANCEL where it ended the step and gave none."""
    for pattern, cause in _WORDS:
        if any(map(pattern.search, said)):
            return cause
    return Cause.CANCEL if any(map(_ENDED_BY_SLURM.search, said)) else None


def is_doubtful(exit_code: int, signal: int, told: bool) -> bool:
    """Whether Slurm may have caused an end that was not ordered: the report then waits for what Slurm does next."""
    return told or is_stopped(exit_code, signal)


def pick_line(said: Sequence[str]) -> str:
    """The line that says most: the first error that is not about an exit code; empty when nothing was said.

    Of an image it is the first of enroot's, which Pyxis hands on.
    """
    lines = [line for line in said if not _NOISE.search(line)]
    errors = [line for line in lines if "error:" in line]
    images = [line for line in errors if "[ERROR]" in line]
    return (images or errors or lines or [""])[0]
