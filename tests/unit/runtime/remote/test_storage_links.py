"""Links to what was brought from object stores, when a run ends while the next one of its job has begun."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.slurm.run_files import SharedFiles


@pytest.mark.parametrize("requeued", [False, True])
def test_a_run_that_ends_late_leaves_the_links_of_the_next_one(tmp_path: Path, requeued: bool) -> None:
    files = SharedFiles(RunDirectory(str(tmp_path), 0))
    link = tmp_path / "out"
    link.symlink_to(tmp_path / "data")
    files._links = {str(link): os.readlink(link)}
    if requeued:
        Path(RunDirectory(str(tmp_path), 1).file("plan.json")).touch()
    files.remove_links()
    assert link.is_symlink() == requeued
