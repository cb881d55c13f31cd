"""What a failed scancel says: only of jobs that may be alive is it a failure."""

from __future__ import annotations

import pytest

from overspan.adapters.slurm.commands.errors import FailureKind
from overspan.adapters.slurm.orders.job_commands import read_failures

GONE = "scancel: error: Kill job error on job id 7: Invalid job id specified"
OVER = "scancel: error: Kill job error on job id 8: Job/step already completing or completed"
AWAY = "scancel: error: Kill job error on job id 9: Unable to contact slurm controller (connect failure)"
DENIED = "scancel: error: Kill job error on job id 10: Access/permission denied"


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        ([GONE, OVER], []),
        ([GONE, AWAY], [FailureKind.UNREACHABLE]),
        ([OVER, DENIED], [FailureKind.DENIED]),
        ([], [FailureKind.NO_ANSWER]),
    ],
    ids=["over", "away", "denied", "killed"],
)
def test_jobs_that_have_ended_are_no_failure(lines: list[str], kinds: list[FailureKind]) -> None:
    assert [failure.kind for failure in read_failures("\n".join(lines), 1 if lines else 137)] == kinds
