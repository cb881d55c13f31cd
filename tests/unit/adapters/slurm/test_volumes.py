"""Volumes of a task on Slurm: folders below the cluster's root, made and linked by the script itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.unit.adapters.slurm.samples import read_file

from overspan.adapters.contract import Launch
from overspan.adapters.slurm.commands.queries import Site
from overspan.adapters.slurm.rendering.renderer import Renderer
from overspan.adapters.slurm.rendering.volumes import place_volumes
from overspan.adapters.slurm.settings import Settings

TASK = """
name: x
volumes: {{{where}/in/data: corpus, {where}/own: {where}/elsewhere}}
run: echo it >{where}/in/data/f
"""


def run(folder: Path) -> subprocess.CompletedProcess[bytes]:
    job = read_file(TASK.format(where=folder))
    rendered = Renderer(Settings(), str(folder / "root")).render(
        Launch("i-7-0", job), Site((22, 5, 8), {}, "ada", "/home/ada")
    )
    return subprocess.run(["bash", "-s"], input=rendered.call.stdin, capture_output=True, timeout=30)


def test_a_volume_is_made_once_and_linked(tmp_path: Path) -> None:
    for _ in range(2):
        done = run(tmp_path)
        assert (done.returncode, done.stderr) == (0, b"")
    folder = tmp_path / "root" / "volumes" / "corpus"
    assert (folder / "f").read_text() == "it\n" and folder.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "own").resolve() == tmp_path / "elsewhere"


def test_a_path_that_is_taken_fails_the_task(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    done = run(tmp_path)
    assert done.returncode == 1 and b"there is something else" in done.stderr


def test_a_job_without_volumes_stays_as_it_is() -> None:
    job = read_file("name: x\nrun: x\n")
    assert place_volumes(job, "/root") is job
