"""What srun and scontrol know in a pod."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from overspan.bridge.runtime.core.allocation import AllocatedNode, Endpoint, find_endpoint, read_key
from overspan.bridge.runtime.srun.pod_commands import Mounted, main, open_allocation
from overspan.bridge.runtime.srun.step_runner import node_variables

POD = {"OVERSPAN_TASK": "work", "OVERSPAN_NODE_INDEX": "1", "SLURMD_NODENAME": "work-1", "OVERSPAN_ADDR": "10.1.2.3"}


def mount(folder: Path, **changes: Any) -> Mounted:
    """A pod's files, with a document of a job file's task unless it is changed."""
    document = {
        "format": 1,
        "job": 7,
        "launch": 0,
        "name": "one",
        "user": "ada",
        "array": None,
        "batch": False,
        "components": [],
        "environment": {},
        "pods": True,
        "port": 6818,
        **changes,
    }
    (folder / "allocation.json").write_text(json.dumps(document))
    (folder / "key").write_text("ab" * 32)
    return Mounted(str(folder / "run"), str(folder / "allocation.json"), str(folder))


def test_a_pod_of_a_job_file_is_an_allocation_of_one_node(tmp_path: Path) -> None:
    mounted = mount(tmp_path)
    found = open_allocation(mounted, {**POD, "SLURM_GPUS_ON_NODE": "2"})
    assert found.pods and not found.batch
    assert found.components[0].nodes == (AllocatedNode("work", 1, "work-1", "10.1.2.3", (0, 1), False),)
    assert read_key(found.folder) == bytes.fromhex("ab" * 32)
    assert open_allocation(mounted, {**POD, "SLURM_GPUS_ON_NODE": "2"}) == found


def test_a_program_with_an_empty_environment_has_one_node_too(tmp_path: Path) -> None:
    (node,) = open_allocation(mount(tmp_path), {}).components[0].nodes
    assert (node.number, node.name, node.gpus) == (0, os.uname().nodename, ())


def test_the_pods_of_a_script_are_found_by_name_and_port(tmp_path: Path) -> None:
    row = {"task": "batch", "name": "", "gpus": []}
    nodes = [
        {**row, "index": 0, "address": "batch-0.x", "served": False},
        {**row, "index": 1, "address": "batch-1.x", "served": True, "port": 6818},
    ]
    component = {"nodes": nodes, "ntasks": 0, "ntasks_per_node": 0, "cpus": 0}
    found = open_allocation(mount(tmp_path, batch=True, components=[component]), POD)
    first, second = found.components[0].nodes
    assert find_endpoint(found.folder, second) == Endpoint("batch-1.x", 6818)
    assert find_endpoint(found.folder, first) is None


def test_another_job_cannot_be_reached(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mounted = mount(tmp_path)
    assert main(["srun", "--jobid=8", "true"], mounted) == 1
    told = capfd.readouterr().err
    assert "cannot be reached from a pod" in told and "allocation for job 8" in told


def test_what_is_missing_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    nowhere = Mounted(str(tmp_path / "run"), str(tmp_path / "none"), str(tmp_path))
    assert main(["srun", "true"], nowhere) == 1
    assert "Unable to confirm allocation" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        ("show hostnames n[1-2],m", 0, "n1\nn2\nm\n", ""),
        ("show hostnames", 0, "e1\ne2\n", ""),
        ("show host", 0, "e1\ne2\n", ""),
        ("show hostlist a1,a2", 0, "a[1-2]\n", ""),
        ("show hostlistsorted a2,a1", 0, "a[1-2]\n", ""),
        ("show hostnames n[1", 0, "", "Invalid hostlist: n[1"),
        ("show hostlist", 1, "", "invalid encode argument"),
        ("--version", 0, "slurm 24.05.8\n", ""),
        ("show job 1", 1, "", "cannot be reached from a pod"),
        ("requeue 1", 1, "", "cannot be reached from a pod"),
        ("", 1, "", "cannot be reached from a pod"),
    ],
)
def test_scontrol(
    words: str,
    code: int,
    out: str,
    err: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_NODELIST", "e[1-2]")
    assert main(["scontrol", *words.split()], mount(tmp_path)) == code
    told = capfd.readouterr()
    assert told.out == out and err in told.err and (err or not told.err)


def test_ranks_find_what_their_own_pod_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "GPU-1")
    assert node_variables(("NVIDIA_VISIBLE_DEVICES",))["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"
    assert "NVIDIA_VISIBLE_DEVICES" not in node_variables()
