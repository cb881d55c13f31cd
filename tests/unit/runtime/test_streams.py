"""Where node runs read and write."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from overspan.bridge.model.job import Element, Job, new_job
from overspan.bridge.model.spec import Form, JobSpec, Origin, Streams, TaskSpec
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.core.streams import NodeKey, StreamPaths, choose_paths, names_folder, record_paths

FIRST = NodeKey("job", 0, 0, 0)


def _job(form: Form = Form.BATCH, streams: Streams = Streams()) -> Job:  # noqa: B008 - frozen
    spec = JobSpec("train", (TaskSpec("job", form=form, streams=streams),), origin=Origin(user="alice"))
    return new_job(42, spec, 0.0)


def _choose(job: Job, folder: Path, key: NodeKey = FIRST) -> StreamPaths:
    return choose_paths(job, key, RunDirectory(str(folder), job.launch), "/work", "box1.site")


def test_run_form_has_a_file_for_each_stream_of_each_run(tmp_path: Path) -> None:
    paths = _choose(_job(Form.RUN), tmp_path, NodeKey("job", 2, 1, 3))
    logs = tmp_path / "logs"
    assert paths == StreamPaths("", str(logs / "job.2.1.3.out"), str(logs / "job.2.1.3.err"), True)
    assert logs.is_dir()


@pytest.mark.parametrize(
    ("streams", "output", "error", "source"),
    [
        (Streams(), "/work/slurm-42.out", "/work/slurm-42.out", ""),
        (Streams(output="o"), "/work/o", "/work/o", ""),
        (Streams(output="/abs/%x.%j", error="../e-%u"), "/abs/train.42", "/e-alice", ""),
        (Streams(error="e"), "/work/slurm-42.out", "/work/e", ""),
        (Streams(output="none", error="e"), "", "/work/e", ""),
        (Streams(output="%N-%n-%t-%r"), "/work/box1-0-0-0", "/work/box1-0-0-0", ""),
        (Streams(output="o%%5j", input="in-%5j"), "/work/o%5j", "/work/o%5j", "/work/in-00042"),
        (Streams(input="none"), "/work/slurm-42.out", "/work/slurm-42.out", ""),
    ],
)
def test_patterns_of_sbatch(tmp_path: Path, streams: Streams, output: str, error: str, source: str) -> None:
    assert _choose(_job(streams=streams), tmp_path) == StreamPaths(source, output, error, False)


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("logs/%j/%j.out", True),
        ("/x/%5A-%a/out", True),
        ("%a/0.out", True),
        ("logs/%j.out", False),
        ("%j", False),
        ("%%j/out", False),
        ("%x/%j", False),
        ("a\\b/%j/out", False),
        ("", False),
    ],
)
def test_only_a_folder_of_the_jobs_own_is_waited_for(tmp_path: Path, pattern: str, named: bool) -> None:
    assert names_folder(pattern) is named
    assert _choose(_job(streams=Streams(output=pattern)), tmp_path).folders_awaited is named
    assert _choose(_job(streams=Streams(output="o", error=pattern)), tmp_path).folders_awaited is named


@pytest.mark.parametrize(
    ("key", "launch", "streams", "append"),
    [
        (FIRST, 0, Streams(), False),
        (FIRST._replace(attempt=1), 0, Streams(), True),
        (FIRST._replace(run=1), 0, Streams(), True),
        (FIRST, 1, Streams(), True),
        (FIRST, 0, Streams(append=True), True),
    ],
)
def test_what_is_kept(tmp_path: Path, key: NodeKey, launch: int, streams: Streams, append: bool) -> None:
    job = replace(_job(streams=streams), launch=launch)
    assert _choose(job, tmp_path, key).append is append


def _recorded(folder: Path) -> list[tuple[str, str, int]]:
    lines = [json.loads(line) for line in (folder / "streams.jsonl").read_text().splitlines()]
    return [(line["stream"], line["path"], line["start"]) for line in lines]


def test_list_of_streams(tmp_path: Path) -> None:
    directory = RunDirectory(str(tmp_path), 0)
    old = tmp_path / "old"
    old.write_text("12345")
    record_paths(directory, FIRST, StreamPaths("", str(old), "/new", True))
    record_paths(directory, FIRST, StreamPaths("", str(old), str(old), False))
    record_paths(directory, FIRST, StreamPaths("", "", "/e", False))
    record_paths(directory, FIRST, StreamPaths("", "", "", False))
    expected = [("output", str(old), 5), ("error", "/new", 0), ("output", str(old), 0), ("error", "/e", 0)]
    assert _recorded(tmp_path) == expected
    assert (tmp_path / "streams.jsonl").stat().st_mode & 0o777 == 0o600


def test_an_element_of_an_array_writes_where_arrays_do(tmp_path: Path) -> None:
    job = replace(_job(), element=Element(40, 3))
    assert _choose(job, tmp_path).output == "/work/slurm-40_3.out"
    named = replace(_job(streams=Streams(output="%A-%a-%j.log")), element=Element(40, 3))
    assert _choose(named, tmp_path).output == "/work/40-3-42.log"
