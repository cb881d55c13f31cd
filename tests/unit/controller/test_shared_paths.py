"""Folders that places share under names of their own: paths are translated when work moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from overspan.bridge.controller.core.shared_paths import HERE, SharedPaths
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, Origin, Streams, TaskSpec

PATHS = SharedPaths(
    {
        HERE: {"lab": "/scratch", "fast": "/scratch/fast", "alone": "/home"},
        "leo": {"lab": "/lustre/lab", "fast": "/nvme"},
        "kube": {"lab": "/mnt/lab"},
        "far": {},
    }
)


@pytest.mark.parametrize(
    ("path", "source", "target", "found"),
    [
        ("/scratch/ana/run", HERE, "leo", "/lustre/lab/ana/run"),
        ("/scratch", HERE, "leo", "/lustre/lab"),
        ("/scratch/fast/x", HERE, "leo", "/nvme/x"),
        ("/scratch/fast/x", HERE, "kube", "/mnt/lab/fast/x"),
        ("/nvme/x", "leo", HERE, "/scratch/fast/x"),
        ("/lustre/lab/a b/%j", "leo", "kube", "/mnt/lab/a b/%j"),
        ("/scratchy/x", HERE, "leo", None),
        ("/home/ana", HERE, "leo", None),
        ("/scratch/x", HERE, "far", None),
        ("/scratch/x", HERE, "unknown", None),
        ("relative", HERE, "leo", None),
        ("", HERE, "leo", None),
    ],
)
def test_a_path_is_translated_by_the_innermost_folder_that_both_have(
    path: str, source: str, target: str, found: str | None
) -> None:
    assert PATHS.translate(path, source, target) == found
    if found is not None and (source, target) != (HERE, "kube"):
        assert PATHS.translate(found, target, source) == path


def make(**origin: Any) -> Job:
    task = TaskSpec(
        name="main",
        workdir="/scratch/ana",
        file_mounts={"/data": "/scratch/data", "/etc/x": "/etc/x"},
        streams=Streams(output="/scratch/ana/%j.out", error="e.txt", input="/home/in"),
    )
    spec = JobSpec("j", (task,), origin=Origin(user="ana", directory="/scratch/ana", **origin))
    return new_job(7, spec, 0.0)


def test_a_job_moves_with_its_folders_and_files() -> None:
    moved = PATHS.move(make(), "leo").spec
    (task,) = moved.tasks
    assert (moved.origin.directory, task.workdir) == ("/lustre/lab/ana", "/lustre/lab/ana")
    assert dict(task.file_mounts) == {"/data": "/lustre/lab/data", "/etc/x": "/etc/x"}
    assert task.streams == Streams(output="/lustre/lab/ana/%j.out", error="e.txt", input="/home/in")


def test_what_shares_nothing_is_the_same_object() -> None:
    job = make()
    assert PATHS.move(job, "far") is job and PATHS.move(job, "unknown") is job
    assert SharedPaths({"leo": {"lab": "/x"}}).move(job, "leo") is job


def test_what_a_job_submits_names_its_own_clusters_paths() -> None:
    inside = make(job=3)
    assert PATHS.move(inside, "leo") is inside
    assert PATHS.move(replace(inside, spec=make().spec), "leo") is not inside
    assert PATHS.locate_of(inside, "/scratch/x", "leo") == "/scratch/x"
    assert PATHS.locate_of(make(), "/scratch/x", "leo") == "/lustre/lab/x"
