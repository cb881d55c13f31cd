"""What Slurm's words say of an end. The lines are from Slurm 22.05."""

from __future__ import annotations

import pytest

from overspan.bridge.model.causes import Cause
from overspan.bridge.runtime.slurm.verdicts import EndVerdict, is_doubtful, judge_end, judge_loss, judge_start

ABORTED = "srun: Job step aborted: Waiting up to 7 seconds for job step to finish."
CANCELLED = "slurmstepd-node2: error: *** STEP 20.1 ON node2 CANCELLED AT 2026-11-21T19:03:59 ***"
TIME = "slurmstepd-node2: error: *** STEP 20.1 ON node2 CANCELLED AT 2026-11-21T19:03:59 DUE TO TIME LIMIT ***"
NODE = "srun: error: Node failure on node2"
OOM = "slurmstepd-node1: error: Detected 1 oom_kill event in StepId=5.0. Some of the step tasks have been OOM Killed."
EXIT = "srun: error: node1: task 0: Exited with exit code 143"


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ([EXIT], None),
        ([CANCELLED, EXIT], None),
        ([ABORTED, CANCELLED, EXIT], Cause.CANCEL),
        ([ABORTED, TIME], Cause.TIME),
        ([OOM], Cause.MEMORY),
        ([NODE, ABORTED], Cause.NODE),
    ],
)
def test_an_end_has_a_cause_only_where_slurm_says_so(said: list[str], cause: Cause | None) -> None:
    assert judge_end(said, True).cause is cause
    assert judge_end(said, False) == EndVerdict(None, "")


def test_the_line_that_is_shown_is_the_first_that_says_something() -> None:
    assert judge_end([ABORTED, EXIT, CANCELLED], True).detail == CANCELLED
    assert judge_loss([EXIT], 137).detail == "srun ended with status 137, and nothing told how the program did"
    assert judge_start([], 1).detail == "srun ended with status 1 before the program was started"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("srun: error: Unable to create step for job 5: Requested node configuration is not available", Cause.LAUNCH),
        ("slurmstepd-node1: error: execve(): python3: No such file or directory", Cause.LAUNCH),
        (
            "srun: error: Unable to create step for job 5: Job/step already completing or completed",
            Cause.NODE,
        ),
        ("srun: error: Unable to contact slurm controller (connect failure)", Cause.NODE),
        ("srun: error: Unable to create step for job 5: Memory required by task is not available", Cause.NODE),
        ("srun: error: Unable to create step for job 5: Insufficient GRES available in allocation", Cause.NODE),
        ("srun: error: Unable to create step: Socket timed out on send/recv operation", Cause.NODE),
    ],
)
def test_what_passes_is_the_infrastructures_fault(line: str, cause: Cause) -> None:
    assert judge_start([line], 1) == EndVerdict(cause, line)


def test_a_vanished_agent_is_a_lost_node_unless_slurm_says_more() -> None:
    assert judge_loss([NODE], 1) == EndVerdict(Cause.NODE, NODE)
    assert judge_loss([TIME], 137).cause is Cause.TIME
    assert judge_loss([], 137).cause is Cause.NODE


@pytest.mark.parametrize(
    ("code", "number", "told", "doubtful"),
    [
        (0, 0, False, False),
        (0, 0, True, True),
        (1, 0, False, False),
        (143, 0, False, True),
        (137, 0, False, True),
        (0, 15, False, True),
        (0, 9, False, True),
        (0, 11, False, False),
    ],
)
def test_ends_by_term_and_kill_are_doubtful(code: int, number: int, told: bool, doubtful: bool) -> None:
    assert is_doubtful(code, number, told) is doubtful


def test_an_image_that_cannot_be_had_is_told_in_enroots_words() -> None:
    begin = "slurmstepd-node1: error: pyxis: "
    why = f"{begin}    [ERROR] No such file or directory: /images/x.sqsh"
    said = [f"{begin}child 77 failed with error code: 1", f"{begin}failed to create container filesystem", why, EXIT]
    assert judge_start(said, 1) == EndVerdict(Cause.LAUNCH, why)
    assert judge_start(said[:2], 1).detail == said[1]
