"""The plan of a launch on a node that is not the submitting machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import Form, JobSpec, Origin, Streams, TaskSpec
from overspan.bridge.runtime.pool.unshared import move_here

OWN = {"PATH": "/node/bin", "HOME": "/node/home", "OVERSPAN_JOB_ID": "7", "SPAN_JOB_ACCESS": "/secret", "LANG": "C"}


def move(task: TaskSpec, folder: Path, **spec: Any) -> Job:
    """The job as a worker in `folder` runs it."""
    found = new_job(3, JobSpec("j", (task,), **spec), 0.0)
    document = encode(found)
    return decode(Job, move_here(document, str(folder / "run"), OWN, str(folder)))


def test_what_describes_the_machine_is_this_nodes(tmp_path: Path) -> None:
    given = {"PATH": "/home/ana/bin", "HOME": "/home/ana", "LANG": "de_DE", "SEED": "4"}
    job = move(TaskSpec("t"), tmp_path, environment=given)
    assert job.spec.environment == {"PATH": "/node/bin", "HOME": "/node/home", "LANG": "de_DE", "SEED": "4"}


def test_a_folder_that_is_here_is_kept(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    task = TaskSpec("t", form=Form.BATCH, workdir=str(tmp_path / "here"), streams=Streams(output="o-%j"))
    job = move(task, tmp_path, origin=Origin(directory=str(tmp_path / "here")))
    assert job.spec.origin.directory == job.spec.tasks[0].workdir == str(tmp_path / "here")
    assert job.spec.tasks[0].streams == task.streams


@pytest.mark.parametrize(
    ("form", "streams", "expected"),
    [
        (Form.BATCH, Streams(), Streams()),
        (Form.BATCH, Streams(output="/gone/o-%j"), Streams(output="RUN/o-%j")),
        (Form.BATCH, Streams(output="none", error="/gone/%x"), Streams(output="none", error="RUN/%x")),
        (Form.RUN, Streams(), Streams()),
        (Form.RUN, Streams(output="logs/o"), Streams(output="RUN/o")),
    ],
)
def test_output_without_its_folder_goes_into_the_run_directory(
    tmp_path: Path, form: Form, streams: Streams, expected: Streams
) -> None:
    job = move(TaskSpec("t", form=form, workdir="/gone", streams=streams), tmp_path, origin=Origin(directory="/gone"))
    # The worker's own folder takes the place of one that is not here.
    assert job.spec.origin.directory == job.spec.tasks[0].workdir == str(tmp_path)
    found = job.spec.tasks[0].streams
    run = str(tmp_path / "run")
    assert (found.output.replace(run, "RUN"), found.error.replace(run, "RUN")) == (expected.output, expected.error)


def test_a_default_output_goes_where_it_can_be_written() -> None:
    document = encode(new_job(3, JobSpec("j", (TaskSpec("t", form=Form.BATCH),)), 0.0))
    job = decode(Job, move_here(document, "/run/here", OWN, "/proc/self/no"))
    assert job.spec.tasks[0].streams.output == "/run/here/slurm-%j.out"
