"""Jobs for the tests of the Slurm adapter, read from text as users write it, and its golden files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from overspan.bridge.model.job import Job, new_job
from overspan.bridge.readers.submission import Submission, read_submission

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = Path(__file__).parents[4] / "examples"
NOW = 1_800_000_000.0


def read_file(text: str, number: int = 7) -> Job:
    """The job of a job file."""
    request = Submission("job_file", text, "job.yaml", directory="/home/ada", user="ada")
    return new_job(number, read_submission(request, now=NOW), NOW)


def read_script(
    text: str, words: Sequence[str] = ("train.sh",), number: int = 8, env: dict[str, str] | None = None
) -> Job:
    """The job of a batch script that was submitted with these words after `sbatch`."""
    request = Submission(
        "script",
        text,
        "train.sh",
        argv=tuple(words),
        command=("sbatch", *words),
        directory="/home/ada",
        environment=env or {},
        user="ada",
    )
    return new_job(number, read_submission(request, now=NOW), NOW)


def check_golden(name: str, text: str) -> None:
    """Compare with a golden file; OVERSPAN_WRITE_GOLDEN=1 writes it."""
    path = GOLDEN / name
    if os.environ.get("OVERSPAN_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
