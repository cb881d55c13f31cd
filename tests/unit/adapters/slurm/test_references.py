"""What runs use together on a cluster goes with the last of them, and nothing else goes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.slurm_jobs import Behaviour
from tests.fakes.slurm_world import SlurmWorld
from tests.unit.adapters.slurm.samples import read_file

from overspan.adapters.slurm.files import references
from overspan.adapters.slurm.files.references import References, list_links, name_file
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.bridge.model.states import State

GROUP = "g.42.{}.0.30./r/runs/i-{}"
SINGLE = "s.43.0.{}.0.0.1.30.main||"


class Root:
    """A cluster's root in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = str(folder / "root")
        self.references = References(LocalTransport(""), 10)

    def add(self, run: str, *lines: str) -> None:
        asyncio.run(self.references.add(self.root, run, lines))

    def add_library(self, run: str, name: str) -> Path:
        asyncio.run(self.references.add_library(self.root, run))
        return self.make(f"root/lib/{name}")

    def release(self, *handles: str, tokens: tuple[str, ...] = ()) -> None:
        self.references.note_watched(SINGLE.format(number) for number in range(10))
        asyncio.run(self.references.release(self.root, "i", handles, tokens))

    def make(self, name: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path

    def link(self, name: str, source: Path) -> str:
        """Make a link as a job does; gives its line."""
        (self.folder / name).symlink_to(source)
        return self.line(name, source)

    def line(self, name: str, source: Path) -> str:
        return f"link\t{self.folder / name}\t{source}"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_a_file_goes_with_the_last_run_that_uses_it(root: Root) -> None:
    one, two = root.make("root/files/it's one"), root.make("root/files/two")
    root.add("i-1", name_file(str(one)), name_file(str(two)))
    root.add("i-2", name_file(str(one)))
    root.release(SINGLE.format(2))
    assert one.exists() and not two.exists()
    root.release(tokens=("i-2-1",))
    assert one.exists()
    root.release()
    assert not one.exists() and not any(root.folder.glob("**/*.gone"))


@pytest.mark.parametrize("watched", [True, False])
def test_what_was_added_after_the_first_release_goes_too(root: Root, watched: bool) -> None:
    root.release()
    one = root.make("root/files/one")
    root.add("i-1", name_file(str(one)))
    if watched:
        root.release(SINGLE.format(1))
        assert one.exists()
    else:
        root.references.refuse("i-1")
    root.release()
    assert not one.exists()


def test_another_process_and_another_installation(root: Root) -> None:
    one, two = root.make("root/files/one"), root.make("root/files/two")
    root.add("i-1", name_file(str(one)), name_file(str(two)))
    root.add("other-1", name_file(str(two)))
    later = Root(root.folder)
    later.release()
    assert not one.exists() and two.exists()


def test_what_a_call_that_died_had_taken_up_is_removed_by_the_next(root: Root) -> None:
    one = root.make("root/files/one")
    root.add("i-1", name_file(str(one)))
    folder = root.folder / "root" / "references"
    (folder / "i-1").rename(folder / "ended" / "i-1")
    root.add("i-2", name_file(str(root.make("root/files/two"))))
    root.release()
    assert not one.exists() and list((folder / "ended").iterdir()) == []


def test_links_go_with_the_last_run_and_those_of_others_stay(root: Root) -> None:
    source, other = root.make("data/source"), root.make("data/other")
    before = root.link("before", source)
    for run in ("i-1", "i-2"):
        root.add(run, before, root.line("x", source), root.line("taken", source))
        (root.folder / "x").unlink(missing_ok=True)
        root.link("x", source)
    root.link("taken", other)
    root.release(SINGLE.format(2))
    assert (root.folder / "x").is_symlink()
    root.release()
    assert not (root.folder / "x").is_symlink()
    assert (root.folder / "before").is_symlink() and (root.folder / "taken").is_symlink()
    assert source.exists()


def test_an_application_stays_for_its_groups_and_its_installation(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "name_archive", lambda: "old.pyz")
    old = root.add_library("i-1", "old.pyz")
    root.release()
    assert old.exists()
    root.add_library("i-2", "old.pyz")
    monkeypatch.setattr(references, "name_archive", lambda: "new.pyz")
    later = Root(root.folder)
    later.release(GROUP.format(2, 2))
    assert old.exists()
    new = later.add_library("i-3", "new.pyz")
    later.release()
    assert not old.exists() and new.exists()


def test_an_application_stays_while_a_group_without_references_runs(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "name_archive", lambda: "old.pyz")
    old = root.add_library("i-1", "old.pyz")
    monkeypatch.setattr(references, "name_archive", lambda: "new.pyz")
    root.release(GROUP.format(9, 9))
    assert old.exists()
    root.release()
    assert not old.exists()


def test_a_run_of_which_no_list_has_a_launch_yet_keeps_its_own(root: Root) -> None:
    one, two = root.make("root/files/one"), root.make("root/files/two")
    root.add("i-1", name_file(str(one)))
    root.add("i-2", name_file(str(two)))

    def release() -> None:
        asyncio.run(root.references.release(root.root, "i", (), ()))

    root.references.note_watched([SINGLE.format(1)])
    release()
    assert not one.exists() and two.exists()
    root.references.refuse("i-2")
    release()
    assert not two.exists()


def test_links_outside_of_the_run_directories(tmp_path: Path) -> None:
    task = "name: t\nfile_mounts:\n  ~/x: /data\n  y: /data\n  /z: /data\nrun: x\n"
    job = read_file(task)

    def list_them(workdir: str) -> list[str]:
        spec = replace(job.spec, tasks=(replace(job.spec.tasks[0], workdir=workdir),))
        return list_links(replace(job, spec=spec), "/home/ada", "/r/runs/")

    outside = ["link\t/home/ada/x\t/data", "link\t/z\t/data"]
    assert list_them("/r/runs/i-7") == outside
    assert list_them("/work") == [outside[0], "link\t/work/y\t/data", outside[1]]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmWorld]:
    yield SlurmWorld(tmp_path, monkeypatch)


def test_nothing_is_left_when_the_last_job_of_a_daemon_is_over(world: SlurmWorld, tmp_path: Path) -> None:
    world.transport.behave = lambda job: Behaviour(60)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("x")
    text = f"name: t\nfile_mounts: {{~/x: {tmp_path}/data}}\nrun: x\n"
    home, root = world.transport.home, world.transport.home / ".overspan"

    def find() -> list[Path]:
        return list(root.glob("files/*"))

    async def story() -> None:
        async with world.daemon() as daemon:
            first = await daemon.submit(text)
            await daemon.until(first, State.RUNNING)
            (copy,) = root.glob("runs/*/files/0/data")
            (home / "x").symlink_to(copy)
            await asyncio.sleep(30)
            second = await daemon.submit(text)
            await daemon.until(first, State.COMPLETED)
            await asyncio.sleep(5)
            assert len(find()) == 1
            await daemon.until(second, State.COMPLETED)
            await asyncio.sleep(5)
            assert find() == [] and not (home / "x").is_symlink()
            assert copy.joinpath("file").read_text() == "x"

    world.play(story())
