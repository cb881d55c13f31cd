from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from overspan.adapters.slurm.commands.errors import FailureKind, clean, read_failure, read_submitted
from overspan.bridge.model.errors import Denied, NotFound, Rejected, TimedOut, Unreachable

FAILED = "sbatch: error: Batch job submission failed: "
NO_CONTACT = "Unable to contact slurm controller (connect failure)\n"
POLICY = f"{FAILED}Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n"
NO_PARTITION = "sbatch: error: invalid partition specified: nope\n" + FAILED + "Invalid partition name specified\n"
NO_STEP = "srun: error: Unable to create step for job 5: Job/step already completing or completed\n"


@pytest.mark.parametrize(
    ("stderr", "kind", "error"),
    [
        (f"{FAILED}Socket timed out on send/recv operation\n", FailureKind.NO_ANSWER, TimedOut),
        (f"{FAILED}Zero Bytes were transmitted or received\n", FailureKind.NO_ANSWER, TimedOut),
        (f"{FAILED}Unable to contact slurm controller (connect failure)\n", FailureKind.UNREACHABLE, Unreachable),
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
            FailureKind.UNREACHABLE,
            Unreachable,
        ),
        (
            "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n",
            FailureKind.BUSY,
            Unreachable,
        ),
        (f"{FAILED}Unexpected message received\n", FailureKind.NO_ANSWER, TimedOut),
        ("slurm_load_jobs error: Communication connection failure\n", FailureKind.NO_ANSWER, TimedOut),
        (f"{FAILED}Resource temporarily unavailable\n", FailureKind.BUSY, Unreachable),
        ("squeue: error: Rate limit exceeded\n", FailureKind.BUSY, Unreachable),
        (f"{FAILED}Protocol authentication error\n", FailureKind.BUSY, Unreachable),
        (f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{POLICY}", FailureKind.LIMIT, Rejected),
        (f"sbatch: error: QOSMaxNodePerUserLimit\n{POLICY}", FailureKind.REJECTED, Rejected),
        (POLICY, FailureKind.REJECTED, Rejected),
        ("slurm_load_jobs error: Invalid job id specified\n", FailureKind.UNKNOWN_JOB, NotFound),
        ("scancel: error: Kill job error on job id 7: Access/permission denied\n", FailureKind.DENIED, Denied),
        (
            "srun: error: Unable to create step for job 5: Job/step already completing or completed\n",
            FailureKind.ENDED,
            NotFound,
        ),
        ("Slurm accounting storage is disabled\n", FailureKind.NO_ACCOUNTING, Unreachable),
        ("squeue: unrecognized option '--only-job-state'\nTry \"squeue --help\"\n", FailureKind.OLD_CLIENT, Rejected),
        ("bash: line 1: sbatch: command not found\n", FailureKind.MISSING, Unreachable),
        (
            NO_PARTITION,
            FailureKind.REJECTED,
            Rejected,
        ),
        (f"{FAILED}Job dependency problem\n", FailureKind.REJECTED, Rejected),
        ("sbatch: error: Invalid generic resource (gres) specification\n", FailureKind.REJECTED, Rejected),
        (f"{FAILED}Requested node configuration is not available\n", FailureKind.REJECTED, Rejected),
        ("lua: your job needs an account\n" + FAILED + "Unspecified error\n", FailureKind.REJECTED, Rejected),
    ],
)
def test_failures_by_their_texts(stderr: str, kind: FailureKind, error: type[Exception]) -> None:
    failure = read_failure(stderr, 1)
    assert failure.kind is kind
    assert isinstance(failure.error(), error)
    assert failure.error().transient is failure.transient


def test_only_a_lost_answer_is_uncertain() -> None:
    assert read_failure(f"{FAILED}Socket timed out on send/recv operation\n", 1).uncertain
    assert not read_failure(f"{FAILED}Unable to contact slurm controller (connect failure)\n", 1).uncertain


def test_a_rejection_keeps_slurms_words() -> None:
    failure = read_failure(NO_PARTITION, 1)
    assert failure.message == (
        "invalid partition specified: nope\nBatch job submission failed: Invalid partition name specified"
    )
    assert failure.remedy and not failure.transient


def test_a_dead_link_is_told_from_sbatch_ending_with_255() -> None:
    assert read_failure("ssh: connect to host login port 22: Connection timed out\n", 255).transient
    assert read_failure("Connection closed by 10.0.0.1 port 22\n", 255).kind is FailureKind.UNREACHABLE
    assert read_failure("Invalid --time specification\n", 255).kind is FailureKind.REJECTED
    assert read_failure("", 127).kind is FailureKind.MISSING
    assert "code 5" in read_failure("", 5).message


def test_warnings_are_left_out() -> None:
    assert clean("sbatch: warning: can't run 1 processes\nsbatch: error: x\n\nsbatch: error: x\n") == "x"


@pytest.mark.parametrize(
    ("stdout", "native"),
    [
        ("17\n", "17"),
        ("17;rig\n", "17"),
        ("Submitted batch job 17 on cluster rig\n", "17"),
        ("Welcome to the site!\n17\n", "17"),
        ("17\nQuota: 80%\n", "17"),
        ("", ""),
        ("none\n", ""),
    ],
)
def test_the_id_of_a_new_job(stdout: str, native: str) -> None:
    assert read_submitted(stdout) == native


@given(st.text(), st.integers(0, 255))
def test_any_text_is_a_failure_of_some_kind(stderr: str, code: int) -> None:
    assert read_failure(stderr, code).message
    read_submitted(stderr)
