"""What a launch of this machine was sent as: the plan in its run directory, packed or not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from overspan.adapters.abilities import KeptForm
from overspan.adapters.contract import FORMAT, ClusterConfig
from overspan.adapters.local.cluster import LocalCluster
from overspan.adapters.local.files.launch_files import LaunchFiles
from overspan.adapters.local.files.run_packs import pack_run
from overspan.bridge.model.documents import encode
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.job import new_job
from overspan.bridge.readers.submission import Submission, read_submission

FILE = "name: fit\nsecrets: {KEYED: geheim}\nrun: echo hi\n"


def ask(root: Path) -> KeptForm | None:
    cluster = LocalCluster(ClusterConfig("local", "local", root=str(root)))
    return asyncio.run(cluster.read_sent("3.0"))


@pytest.fixture
def place(tmp_path: Path) -> LaunchFiles:
    """A launch that was recorded and granted."""
    place = LaunchFiles(str(tmp_path), 3, 0)
    Path(place.folder).mkdir(parents=True)
    job = new_job(3, read_submission(Submission("job_file", FILE, "f.yaml"), now=1.0), 1.0)
    Path(place.plan).write_text(json.dumps({"format": FORMAT, "token": "t", "job": encode(job)}))
    Path(place.grant).write_text(json.dumps({"members": [["fit", 0, "n1", "127.0.0.9", [2, 3]]], "variant": 0}))
    return place


def test_the_plan_names_what_was_granted(place: LaunchFiles) -> None:
    for packed in (False, True):
        if packed:
            pack_run(place.folder)
            assert not Path(place.plan).exists()
        found = ask(Path(place.root))
        assert found is not None and "  fit-0: 1 CPU on n1 (127.0.0.9), GPU 2,3" in found.text
        assert "    echo hi" in found.text and "geheim" not in found.text


def test_a_launch_without_a_grant_waits(place: LaunchFiles) -> None:
    Path(place.grant).unlink()
    found = ask(Path(place.root))
    assert found is not None and "which waits for its resources" in found.text


def test_no_files_tell_nothing_and_damaged_ones_are_said(place: LaunchFiles) -> None:
    Path(place.plan).write_text('{"job": 7}')
    with pytest.raises(Unreachable, match="holds no plan"):
        ask(Path(place.root))
    Path(place.plan).unlink()
    assert ask(Path(place.root)) is None
