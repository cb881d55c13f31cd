"""What slurmstepd says at the end of an output."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from overspan.bridge.model.job import Job, Placement, new_job
from overspan.bridge.model.spec import Form, JobSpec, Origin, TaskSpec
from overspan.bridge.runtime.core.cancellation_message import forget_end, is_ending, read_reason, say_end
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.core.streams import NodeKey, StreamPaths, record_paths

AT = 1_700_000_000.0
WHEN = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(AT))


def _job(form: Form = Form.BATCH) -> Job:
    job = new_job(42, JobSpec("train", (TaskSpec("job", form=form),), origin=Origin(user="alice")), 0.0)
    return replace(job, placements=(Placement("job", 0, "box1", "127.1.0.1", ()),))


def _say(folder: Path, cause: str, paths: StreamPaths, job: Job | None = None) -> None:
    directory = RunDirectory(str(folder), 0)
    record_paths(directory, NodeKey("job", 0, 0, 0), paths)
    say_end(job or _job(), "job", 0, cause, directory, AT)


@pytest.mark.parametrize(
    ("cause", "why"),
    [
        ("cancel", ""),
        ("time", " DUE TO TIME LIMIT"),
        ("preemption", " DUE TO PREEMPTION"),
        ("requeue", " DUE TO JOB REQUEUE"),
        ("deadline", ""),
    ],
)
def test_the_line_is_in_the_file_of_errors(tmp_path: Path, cause: str, why: str) -> None:
    output, error = tmp_path / "o", tmp_path / "e"
    output.write_text("out\n")
    error.write_text("err\n")
    _say(tmp_path, cause, StreamPaths("", str(output), str(error), True))
    assert output.read_text() == "out\n"
    assert error.read_text() == f"err\nslurmstepd: error: *** JOB 42 ON box1 CANCELLED AT {WHEN}{why} ***\n"
    assert read_reason(str(tmp_path)) == why and is_ending(str(tmp_path)) and not is_ending("")
    forget_end(RunDirectory(str(tmp_path), 0))
    forget_end(RunDirectory(str(tmp_path), 0))
    assert read_reason(str(tmp_path)) == "" and not is_ending(str(tmp_path))


def test_one_file_for_both_has_it(tmp_path: Path) -> None:
    output = tmp_path / "o"
    output.touch()
    _say(tmp_path, "cancel", StreamPaths("", str(output), str(output), True))
    assert output.read_text().startswith("slurmstepd: error: *** JOB 42 ON box1 CANCELLED")


def test_what_is_no_end_of_slurms_or_no_file_has_none(tmp_path: Path) -> None:
    output, pipe = tmp_path / "o", tmp_path / "pipe"
    output.touch()
    os.mkfifo(pipe)
    for cause, job in (("primaries_done", _job()), ("cancel", _job(Form.RUN))):
        _say(tmp_path, cause, StreamPaths("", str(output), str(output), True), job)
    for place, path in enumerate(("", str(pipe), "/dev/null", str(tmp_path / "missing"))):
        folder = tmp_path / str(place)
        folder.mkdir()
        _say(folder, "cancel", StreamPaths("", path, path, True))
    assert output.read_text() == "" and not (tmp_path / "missing").exists()


def test_damage_is_no_reason(tmp_path: Path) -> None:
    (tmp_path / "ending").write_bytes(b"\xff\x1b[31m")
    assert read_reason(str(tmp_path)) == read_reason("/nonexistent") == ""
    (tmp_path / "ending").write_text(" DUE TO ME")
    assert read_reason(str(tmp_path)) == ""
