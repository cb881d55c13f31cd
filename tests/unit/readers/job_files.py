"""Reading of job files on three clusters, one of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.readers.job_file import read_job_file
from overspan.bridge.readers.read_context import ReadContext

DATA = Path(__file__).parent / "data"
LOCAL = ReadContext(
    directory="/home/u/work",
    environment={"HOME": "/home/u"},
    clusters={"local": "local", "hpc": "slurm", "gpu-cloud": "kubernetes"},
    now=1_800_000_000.0,
)


def read(text: str, context: ReadContext = LOCAL) -> JobSpec:
    return read_job_file(text, "job.yaml", context=context)


def read_data(name: str, context: ReadContext = LOCAL) -> JobSpec:
    return read_job_file((DATA / name).read_text(), name, context=context)


def refusal(text: str, context: ReadContext = LOCAL) -> str:
    with pytest.raises(InvalidRequest) as caught:
        read(text, context)
    assert caught.value.exit_code == 2
    return str(caught.value)
