"""A cluster whose nodes share no folder: settings, what is refused, where jobs run, how output is read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.unit.adapters.slurm.samples import read_file, read_script
from tests.unit.adapters.slurm.test_submission import SITE

from overspan.adapters.contract import ClusterConfig, Launch
from overspan.adapters.slurm.rendering import Renderer
from overspan.adapters.slurm.settings import Settings, read_settings
from overspan.adapters.slurm.transports.channel import Done
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.adapters.slurm.transports.programs import NO_FILE
from overspan.adapters.slurm.unshared import read_there, refuse_files, refuse_unshared
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound, Rejected, Unreachable

RENDERER = Renderer(Settings(shared=False, shared_root=False), "/r", "rig")


def test_without_a_shared_root_jobs_do_not_see_this_machines_files() -> None:
    assert not read_settings(ClusterConfig("c", "slurm", {"shared_root": False})).shared
    with pytest.raises(InvalidRequest, match="with `shared: true`"):
        read_settings(ClusterConfig("c", "slurm", {"shared_root": False, "shared": True}))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("name: g\nexecution: parallel\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n", "supervisor"),
        ("name: t\nnum_nodes: 2\nrun: x\n", "supervisor"),
        ("name: t\nsecrets: {KEY: s3cret}\nrun: x\n", "secrets"),
    ],
)
def test_what_needs_a_shared_folder_is_refused_with_a_remedy(text: str, what: str) -> None:
    with pytest.raises(Rejected, match=what) as caught:
        RENDERER.render(Launch("i-7-0", read_file(text)), SITE)
    assert "set `root`" in caught.value.remedy


def test_what_slurm_carries_is_not_refused() -> None:
    refuse_unshared(read_file("name: t\nenvs: {A: b}\nrun: x\n"))
    refuse_unshared(read_script("#!/bin/sh\n"))


def test_files_of_this_machine_are_refused_and_the_clusters_own_are_not(tmp_path: Path) -> None:
    refuse_files(read_file("name: t\nworkdir: /nowhere/at/all\nrun: x\n"))
    with pytest.raises(Rejected, match="cannot be brought"):
        refuse_files(read_file(f"name: t\nworkdir: {tmp_path}\nrun: x\n"))


def test_a_task_runs_and_writes_where_every_node_has_a_folder() -> None:
    launch = Launch("i-7-0", read_file("name: t\nrun: x\n"))
    script = RENDERER.render(launch, SITE).call.stdin.decode()
    assert "#SBATCH --chdir=/tmp\n" in script and "/r/runs" not in script
    assert RENDERER.paths(launch, 42, SITE)[0] == "/tmp/slurm-42.out"


class OnNode(LocalTransport):
    """Runs here what srun is to run there, or ends as it was told to."""

    def __init__(self, done: Done | None = None) -> None:
        super().__init__("")
        self.done = done

    async def run(self, argv: object, *rest: object, **named: object) -> Done:
        words = list(argv)  # type: ignore[call-overload]
        assert words[:3] == ["srun", "--jobid=42", "--overlap"]
        return self.done or await super().run(words[-1:], *rest, **named)  # type: ignore[arg-type]


def test_output_is_read_beside_the_job(tmp_path: Path) -> None:
    file = tmp_path / "slurm-42.out"
    file.write_text("0123456789")
    piece = asyncio.run(read_there(OnNode(), "42", str(file), 3, 4))
    assert (piece.data, piece.size) == (b"3456", 10)


@pytest.mark.parametrize(
    ("done", "kind", "words"),
    [
        (Done(NO_FILE, b"", b""), NotFound, "there is no file /tmp/x"),
        (
            Done(1, b"", b"srun: error: Unable to create step for job 42: Job/step already completing"),
            Conflict,
            "/tmp/x",
        ),
        (Done(1, b"", b"srun: error: Unable to contact slurm controller"), Unreachable, "Unable to contact"),
    ],
)
def test_what_cannot_be_read_is_told_in_words(done: Done, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        asyncio.run(read_there(OnNode(done), "42", "/tmp/x", 0, 10))
