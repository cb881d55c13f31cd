"""What listings tell of a job that no field of it holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.adapters.slurm.samples import read_file, read_script

from overspan.adapters.abilities import Written
from overspan.bridge.controller.core.derived_fields import given_spec, sizes, stream_paths, work_dir
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.model.job import Placement
from overspan.bridge.model.spec import TaskSpec


def test_the_folder_of_a_script_is_the_one_that_it_names() -> None:
    assert work_dir(JobEntry(read_script("#!/bin/sh\n#SBATCH -D /data\ntrue\n"), "c", "ada")) == "/data"
    assert work_dir(JobEntry(read_script("#!/bin/sh\ntrue\n"), "c", "ada")) == "/home/ada"
    file = read_file("name: one\nworkdir: /data\nrun: echo\n")
    assert work_dir(JobEntry(file, "c", "ada")) == file.spec.origin.directory


def test_where_a_launch_works_and_writes_is_its_clusters_to_say() -> None:
    job = read_script("#!/bin/sh\n#SBATCH -o out.%j\n#SBATCH -e err\ntrue\n", number=8)
    name = job.tasks[0].name

    def paths(*written: str) -> tuple[str, ...]:
        entry = JobEntry(job, "c", "ada", written=Written(*written))
        return (work_dir(entry), *stream_paths(entry, name)[:2])

    assert paths() == ("/home/ada", "/home/ada/out.8", "/home/ada/err")
    assert paths("/r/runs/i-8") == ("/r/runs/i-8", "/r/runs/i-8/out.8", "/r/runs/i-8/err")
    assert paths("/r", "/r/out.4711") == ("/r", "/r/out.4711", "/r/out.4711")
    assert paths("", "/home/ada/out.4711", "/e") == ("/home/ada", "/home/ada/out.4711", "/e")


@pytest.mark.parametrize(
    ("devices", "gpus", "kind"),
    [
        ((), 16, "A100"),
        (((0, 1), (0, 1)), 4, "H100"),
        ((range(8), range(8)), 16, "A100"),
        (((0, 1, 2, 3), (4, 5, 6, 7)), 8, ""),
        (((0,), (0,)), 16, "A100"),
    ],
)
def test_of_alternatives_the_gpus_are_those_that_were_given(
    devices: tuple[tuple[int, ...], ...], gpus: int, kind: str
) -> None:
    text = "name: t\nnum_nodes: 2\nresources: {gpus: ['A100:8', 'H100:2', 'V100:4', 'T4:4']}\nrun: x\n"
    placed = tuple(Placement("t", index, "n", gpus=tuple(own)) for index, own in enumerate(devices))
    job = replace(read_file(text), placements=placed)
    given = given_spec(job, job.spec.tasks[0])
    assert sizes((given,))[3] == gpus
    assert given.resources.need().gpu_kind == kind


def test_a_task_that_shares_nodes_runs_on_some_and_brings_none() -> None:
    host, guest = TaskSpec("host", num_nodes=4), TaskSpec("guest", num_nodes=2, share="host")
    assert sizes((host, guest))[0] == 4
    assert sizes((guest,))[0] == 2
