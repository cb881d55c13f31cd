"""What every source of checkpoints does: the suite runs on each, with a rig that makes folders where it looks."""

from __future__ import annotations

import asyncio
import json
import shutil
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from overspan.adapters.checkpoint_sources import WatchedFolder
from overspan.adapters.local.checkpoints.source import LocalCheckpoints
from overspan.bridge.model.checkpoints.listings import FolderListing, FoundCheckpoint, ListingRequest
from overspan.bridge.model.checkpoints.patterns import parse_pattern
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec

PATTERN = "step_{step:int}"


class SourceRig(Protocol):
    """A source, and the folders of its cluster."""

    path: str
    """A folder there that does not exist yet, in one that does."""

    def list(self, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        """Ask the source, which is to be open."""
        ...

    def write(self, name: str, data: bytes = b"x") -> None:
        """Write a file below the path, with the folders that it needs; an empty one for a name that ends in `/`."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file or a folder below the path."""
        ...

    def read(self, name: str) -> bytes | None:
        """A file below the path; None where there is none."""
        ...

    def folder(self, request: ListingRequest) -> WatchedFolder:
        """The request, for a job of the rig's."""
        ...


def request(rig: SourceRig, pattern: str = PATTERN, **values: Any) -> ListingRequest:
    """A request for the rig's folder."""
    return replace(ListingRequest("k", rig.path, parse_pattern(pattern).parts), **values)


def look(rig: SourceRig, pattern: str = PATTERN, **values: Any) -> FolderListing:
    """One listing of the rig's folder."""
    (listing,) = rig.list([rig.folder(request(rig, pattern, **values))])
    assert listing.key == "k"
    return listing


def names(listing: FolderListing) -> list[str]:
    """What was found."""
    return [found.name for found in listing.found]


def write_safetensors(size: int, header: dict[str, Any] | None = None) -> bytes:
    """A safetensors file of one tensor."""
    text = json.dumps(header or {"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(text)) + text + b"\0" * size


JOB = new_job(1, JobSpec("train", (TaskSpec("trainer"),)), 0.0)


class FolderRig:
    """A folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "checkpoints")

    def list(self, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        return asyncio.run(LocalCheckpoints().list(folders))

    def write(self, name: str, data: bytes = b"x") -> None:
        path = Path(self.path, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir()
        else:
            path.write_bytes(data)

    def remove(self, name: str) -> None:
        shutil.rmtree(Path(self.path, name))

    def read(self, name: str) -> bytes | None:
        path = Path(self.path, name)
        return path.read_bytes() if path.exists() else None

    def folder(self, request: ListingRequest) -> WatchedFolder:
        return WatchedFolder(request, JOB, "trainer")


class SourceConformance:
    """Subclasses have a fixture `rig`."""

    def test_a_folder_that_is_not_there_yet_is_no_fault(self, rig: SourceRig) -> None:
        listing = look(rig)
        assert listing.missing and not listing.unreadable and not listing.found

    def test_checkpoints_are_folders_and_files_with_all_that_is_in_them(self, rig: SourceRig) -> None:
        rig.write("step_2/a/weights", b"12345")
        rig.write("step_2/config", b"1")
        rig.write("step_10", b"123")
        rig.write("step_3/")
        rig.write("epoch_1")
        listing = look(rig)
        assert names(listing) == ["step_10", "step_2", "step_3"]
        by_name = {found.name: found for found in listing.found}
        assert [(file.name, file.size) for file in by_name["step_2"].files] == [("a/weights", 5), ("config", 1)]
        assert not by_name["step_10"].folder and by_name["step_10"].size == 3
        assert by_name["step_3"].folder and by_name["step_3"].files == ()
        assert listing.others == ("epoch_1",)

    def test_a_marker_is_told_with_its_size_time_and_text(self, rig: SourceRig) -> None:
        rig.write("step_1/DONE", b"all\n")
        rig.write("step_2/w")
        one, two = look(rig, marker="DONE").found
        assert one.marker is not None and (one.marker.size, one.marker.text) == (4, "all\n")
        assert one.marker.time > 0 and two.marker is None
        rig.write("step_2.done", b"")
        assert look(rig, marker="{name}.done").found[1].marker is not None

    def test_a_large_marker_is_read_in_part(self, rig: SourceRig) -> None:
        rig.write("step_1/DONE", b"a" * 10_000)
        (found,) = look(rig, marker="DONE").found
        assert found.marker is not None and (found.marker.size, len(found.marker.text)) == (10_000, 4096)

    def test_what_is_settled_is_not_looked_at_and_what_is_gone_is_told(self, rig: SourceRig) -> None:
        for step in (1, 2, 3):
            rig.write(f"step_{step}/w")
        rig.remove("step_2")
        listing = look(rig, settled=("step_1", "step_2"))
        assert (names(listing), listing.gone) == (["step_3"], ("step_2",))

    def test_folders_between_are_entered(self, rig: SourceRig) -> None:
        rig.write("run_1/epoch=2-step=30.ckpt")
        rig.write("run_2/other")
        rig.write("run_3", b"a file")
        assert names(look(rig, "run_{run:int}/epoch={epoch:int}-step={step:int}.ckpt")) == [
            "run_1/epoch=2-step=30.ckpt"
        ]

    def test_files_beside_name_the_newest(self, rig: SourceRig) -> None:
        rig.write("latest", b"global_step20\n")
        rig.write("latest_checkpointed_iteration.txt", b"20")
        listing = look(rig)
        assert listing.text_beside("latest") == "global_step20"
        assert listing.text_beside("latest_checkpointed_iteration.txt") == "20"

    def test_formats_that_tell_whether_they_are_whole(self, rig: SourceRig) -> None:
        whole = write_safetensors(64)
        rig.write("step_1/model-1-of-1.safetensors", whole)
        rig.write("step_1/model.safetensors.index.json", b'{"weight_map": {"w": "model-1-of-1.safetensors"}}')
        rig.write("step_2/model.safetensors", whole[:-1])
        rig.write("step_2/model.safetensors.index.json", b'{"weight_map": {"w"')
        rig.write("step_3/m.safetensors", b"\xff" * 40)
        found = {each.name: each for each in look(rig).found}
        assert found["step_1"].shards == ("model-1-of-1.safetensors",)
        assert _wholes(found["step_1"]) == {"model-1-of-1.safetensors": True, "model.safetensors.index.json": None}
        assert found["step_2"].shards is None and _wholes(found["step_2"])["model.safetensors"] is False
        assert _wholes(found["step_3"]) == {"m.safetensors": None}

    def test_what_is_read_has_a_lease_and_only_that(self, rig: SourceRig) -> None:
        rig.write("step_1/w")
        rig.write("step_2/w")
        rig.write(".step_2.overspan-lease", b"somebody else's")
        assert look(rig, pins=("step_1",), owner="7.1").unpinned == ""
        assert rig.read(".step_1.overspan-lease") is not None
        assert names(look(rig, pins=("step_1",), owner="7.1")) == ["step_1", "step_2"]
        look(rig, owner="8.1")
        assert rig.read(".step_1.overspan-lease") is not None, "another watch's"
        look(rig, owner="7.1")
        assert rig.read(".step_1.overspan-lease") is None
        assert rig.read(".step_2.overspan-lease") == b"somebody else's"

    def test_several_folders_are_answered_in_order(self, rig: SourceRig) -> None:
        rig.write("step_1/w")
        first = replace(request(rig), key="a")
        second = replace(request(rig, "none_{step:int}"), key="b")
        listings = rig.list([rig.folder(first), rig.folder(second)])
        assert [(each.key, names(each)) for each in listings] == [("a", ["step_1"]), ("b", [])]

    def test_names_that_are_strange_come_back_as_they_are(self, rig: SourceRig) -> None:
        rig.write("step_1 \u00e4'\"$(x)/w")
        (found,) = look(rig, "step_{what}").found
        assert found.name == "step_1 \u00e4'\"$(x)"


def _wholes(found: FoundCheckpoint) -> dict[str, bool | None]:
    return {file.name: file.whole for file in found.files}


def run_list(source: Any, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
    """Ask a source that needs no event loop of its own."""
    listings: list[FolderListing] = asyncio.run(source.list_checkpoints(folders))
    return listings
