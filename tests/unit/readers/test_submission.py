"""The one way in: both kinds of submission, and anything at all in their place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from overspan.bridge.model.documents import encode
from overspan.bridge.model.errors import InvalidRequest, OverspanError
from overspan.bridge.readers.header_fields import HEADER, SINGLE, TASK
from overspan.bridge.readers.resource_fields import RESOURCES
from overspan.bridge.readers.submission import Submission, read_submission

DATA = Path(__file__).parent / "data"
CLUSTERS = {"local": "local", "hpc": "slurm"}


def test_a_job_file() -> None:
    request = Submission(
        kind="job_file",
        text="run: echo\nenvs: {A: }\n",
        file="x/train.yaml",
        directory="/w",
        user="ann",
        uid=7,
        umask=0o027,
        command=("span", "submit", "x/train.yaml"),
        env={"A": "1"},
        overrides=("num_nodes=2",),
        cluster="local",
        hold=True,
    )
    job = read_submission(request, CLUSTERS)
    assert (job.name, job.clusters, job.hold, job.tasks[0].num_nodes) == ("train", ("local",), True, 2)
    assert (job.origin.user, job.origin.uid, job.origin.umask, job.origin.file) == ("ann", 7, 0o027, "x/train.yaml")
    assert job.origin.text == request.text
    assert job.origin.command == request.command


def test_a_script() -> None:
    request = Submission(
        kind="script",
        text="#!/bin/sh\n#SBATCH -n 2\necho $1\n",
        file="job.sh",
        argv=("-p", "gpu", "job.sh", "7"),
        directory="/w",
        environment={"SBATCH_ACCOUNT": "lab"},
    )
    job = read_submission(request, CLUSTERS)
    assert (job.name, job.partition, job.account) == ("job.sh", "gpu", "lab")
    assert (job.tasks[0].args, job.tasks[0].ntasks) == (("7",), 2)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Submission(kind="letter", text=""), "is not a kind of submission"),
        (Submission(kind="job_file", text="run: x", directory="w"), "is not absolute"),
        (Submission(kind="script", text="#!/bin/sh\n", overrides=("a=1",)), "--set is for job files"),
        (Submission(kind="job_file", text=""), "stdin: the job file is empty"),
    ],
)
def test_refused_requests(request_: Submission, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_submission(request_)
    assert message in str(caught.value)


def check(text: str, **fields: Any) -> None:
    """Read a job file; anything but a job or a located error fails."""
    try:
        job = read_submission(Submission(kind="job_file", text=text, **fields), CLUSTERS)
    except OverspanError as error:
        assert error.message
        json.dumps(error.to_document())
    else:
        json.dumps(encode(job), allow_nan=False)


KEYS = sorted({*HEADER.fields, *TASK.fields, *SINGLE.fields, *RESOURCES.fields, "default", "tcp", "a", "b"})
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-5, 10**20)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["a", "b", "parallel", "serial", "4+", "H100:8", "30s", "kubernetes", "slurm/hpc/p", "$A", "12:00"]
    )
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)
DOCUMENTS = st.lists(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6), min_size=1, max_size=4)


@settings(max_examples=300, deadline=None)
@given(DOCUMENTS)
def test_any_documents_are_read_or_refused(documents: list[dict[str, Any]]) -> None:
    check(yaml.safe_dump_all(documents, allow_unicode=True))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(DATA.glob("*.yaml"))), st.data())
def test_damaged_files_are_read_or_refused(path: Path, data: st.DataObject) -> None:
    text = path.read_text()
    at = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 20))
    check(text[:at] + data.draw(st.text(max_size=5)) + text[at + length :])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.sampled_from("ab.*=: {}[]-0x\n"), max_size=12), max_size=3).map(tuple))
def test_any_overrides_are_read_or_refused(overrides: tuple[str, ...]) -> None:
    check("name: g\nexecution: parallel\n---\nname: a\n---\nname: b\n", overrides=overrides)
