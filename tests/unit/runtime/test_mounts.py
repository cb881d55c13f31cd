"""Links of launches: who uses them, who may replace them, when they go."""

from __future__ import annotations

from pathlib import Path

import pytest

from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.runtime.core.mounts import LinkRecords, await_links, link_mounts, sweep_links


class Cluster:
    """A cluster's folder with live launches, and a folder to work in."""

    def __init__(self, root: Path) -> None:
        self.root, self.work = root, root / "work"
        for name in ("work", "tickets", "one", "two"):
            (root / name).mkdir()

    def start(self, handle: str, source: str) -> None:
        (self.root / "tickets" / handle).touch()
        spec = TaskSpec("t", file_mounts={"in": str(self.root / source)})
        link_mounts(spec, str(self.work), str(self.root / "volumes"), LinkRecords(str(self.root), handle))

    def end(self, handle: str, swept: bool = True) -> None:
        (self.root / "tickets" / handle).unlink()
        if swept:
            sweep_links(str(self.root), handle)

    @property
    def source(self) -> str:
        """What the link leads to; empty for none."""
        link = self.work / "in"
        return link.readlink().name if link.is_symlink() else ""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_the_last_one_removes_the_link(cluster: Cluster) -> None:
    cluster.start("1.0", "one")
    cluster.start("2.0", "one")
    cluster.end("1.0")
    assert cluster.source == "one"
    cluster.end("2.0")
    assert cluster.source == ""


def test_a_link_that_nobody_swept_is_replaced(cluster: Cluster) -> None:
    cluster.start("1.0", "one")
    cluster.end("1.0", swept=False)
    cluster.start("2.0", "two")
    assert cluster.source == "two"
    sweep_links(str(cluster.root))
    assert cluster.source == "two"
    cluster.end("2.0")
    assert cluster.source == ""


@pytest.mark.parametrize("other", ["1.0", "2.0"])
def test_a_link_in_use_is_not_replaced_not_even_by_its_own_launch(other: str, cluster: Cluster) -> None:
    cluster.start("1.0", "one")
    with pytest.raises(OSError, match="there is something else"):
        cluster.start(other, "two")
    assert cluster.source == "one"


def test_what_somebody_put_there_instead_stays(cluster: Cluster) -> None:
    cluster.start("1.0", "one")
    (cluster.work / "in").unlink()
    (cluster.work / "in").write_text("mine")
    cluster.end("1.0")
    assert (cluster.work / "in").read_text() == "mine"
    with pytest.raises(OSError, match="there is something else"):
        cluster.start("2.0", "two")


def test_a_link_that_another_machine_makes_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    with pytest.raises(OSError, match="mount it in a shared folder"):
        await_links({str(tmp_path / "out"): str(tmp_path / "files")}, 0.0)
    (tmp_path / "out").symlink_to(tmp_path / "files")
    await_links({str(tmp_path / "out"): str(tmp_path / "files")}, 0.0)
    with pytest.raises(OSError, match="is not seen here"):
        await_links({str(tmp_path / "out"): str(tmp_path / "gone")}, 0.0)
