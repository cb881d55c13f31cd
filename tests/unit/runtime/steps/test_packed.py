"""A job ends, and its run directory is packed, between the moment it is found and the moment a step begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from overspan.bridge.cli.slurm.allocations import become
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.runtime.srun import sattach, srun


@pytest.mark.parametrize(
    ("main", "words", "told"),
    [
        (srun.main, ("true",), "srun: error: Unable to confirm allocation for job 7: Invalid job id specified\n"),
        (sattach.main, ("0",), "sattach: error: Could not get job step info: Invalid job id specified\n"),
    ],
)
def test_a_step_of_a_job_that_was_packed_is_refused_in_slurms_words(
    main: Callable[[Sequence[str]], int],
    words: Sequence[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OVERSPAN_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert main(words) == 1
    assert capfd.readouterr().err == told


def test_the_program_of_a_job_that_was_packed_is_not_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="job 7: Invalid job id specified"):
        become("srun", ("true",), str(tmp_path / "7"), {})
