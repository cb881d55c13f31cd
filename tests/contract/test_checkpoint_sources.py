"""The suite of checkpoint sources on this machine: those of all adapters, and the scanner as it is sent."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.contract.checkpoint_sources import (
    JOB,
    FolderRig,
    SourceConformance,
    SourceRig,
    look,
    names,
    request,
    run_list,
    write_safetensors,
)
from tests.unit.adapters.kubernetes.checkpoint_pods import HANDLE, PodCluster, make_writer
from tests.unit.adapters.kubernetes.samples import configure
from tests.unit.controller.buckets import Bucket

from overspan.adapters.checkpoint_sources import WatchedFolder
from overspan.adapters.local.checkpoints import source
from overspan.adapters.local.checkpoints.source import LocalCheckpoints
from overspan.adapters.slurm.files.checkpoints import SlurmCheckpoints
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.bridge.controller.features.evaluations.bucket_folders import list_folder
from overspan.bridge.model.checkpoints.listings import FolderListing, ListingRequest, decode_listings, encode_requests
from overspan.bridge.model.checkpoints.readiness import SETTLE, judge, sight
from overspan.bridge.model.evaluations import Readiness, ReadyRule
from overspan.bridge.model.storage import parse_object_url
from overspan.bridge.runtime.checkpoints import scan


class SentRig(FolderRig):
    """The scanner's text alone, given to an interpreter that has nothing of ours."""

    def list(self, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        asked = json.dumps(encode_requests(folder.request for folder in folders)).encode()
        words = [sys.executable, "-I", "-S", "-c", Path(scan.__file__).read_text()]
        answer = subprocess.run(words, input=asked, stdout=subprocess.PIPE, check=True, timeout=60)
        return decode_listings(json.loads(answer.stdout))


class LoginRig(FolderRig):
    """The source of a Slurm cluster, over the transport that runs its commands on this machine."""

    def list(self, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        async def look() -> list[FolderListing]:
            return await SlurmCheckpoints(LocalTransport(), sys.executable, 60.0).list(folders)

        return asyncio.run(look())


class PodRig(FolderRig):
    """The source of a Kubernetes cluster, whose pods run their commands on this machine."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        volume = {"hostPath": {"path": str(folder)}, "path": str(folder)}
        self.cluster = PodCluster(configure(volumes={"scratch": volume}))
        self.job = make_writer({})

    def list(self, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        async def look() -> list[FolderListing]:
            try:
                return await self.cluster.source.list(folders)
            finally:
                await self.cluster.source.close()

        return asyncio.run(look())

    def folder(self, request: ListingRequest) -> WatchedFolder:
        return WatchedFolder(request, self.job, "trainer", HANDLE)


class BucketRig:
    """A folder of an object store in memory. An object whose name ends in `/` stands for an empty folder."""

    path = "s3://lab/run"

    def __init__(self) -> None:
        self.bucket: Any = Bucket()
        self.bucket.objects = {}

    def list(self, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        url = parse_object_url(self.path)
        return [list_folder(self.bucket, url, folder.request) for folder in folders]

    def write(self, name: str, data: bytes = b"x") -> None:
        self.bucket.objects[f"run/{name}"] = b"" if name.endswith("/") else data

    def remove(self, name: str) -> None:
        for key in [key for key in self.bucket.objects if f"{key}/".startswith(f"run/{name}/")]:
            del self.bucket.objects[key]

    def read(self, name: str) -> bytes | None:
        found: bytes | None = self.bucket.objects.get(f"run/{name}")
        return found

    def folder(self, request: ListingRequest) -> WatchedFolder:
        return WatchedFolder(request, JOB, "trainer")


class TestBucketFolders(SourceConformance):
    """Two things differ by design: an object appears whole, and no lease files are kept in a store."""

    @pytest.fixture
    def rig(self) -> Iterator[BucketRig]:
        yield BucketRig()

    def test_formats_that_tell_whether_they_are_whole(self, rig: SourceRig) -> None:
        rig.write("step_1/model-1-of-1.safetensors", write_safetensors(64))
        rig.write("step_1/model.safetensors.index.json", b'{"weight_map": {"w": "model-1-of-1.safetensors"}}')
        rig.write("step_2/model.safetensors.index.json", b'{"weight_map": {"w"')
        one, two = look(rig).found
        assert (one.shards, two.shards) == (("model-1-of-1.safetensors",), None)
        assert [file.whole for file in one.files] == [True, None]

    def test_what_is_read_has_a_lease_and_only_that(self, rig: SourceRig) -> None:
        rig.write("step_1/w")
        assert look(rig, pins=("step_1",), owner="7.1").unpinned == ""
        assert rig.read(".step_1.overspan-lease") is None


class TestLocalFolders(SourceConformance):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[FolderRig]:
        yield FolderRig(tmp_path)


class TestSentScanner(SourceConformance):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[SentRig]:
        yield SentRig(tmp_path)


class TestSlurmFolders(SourceConformance):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[LoginRig]:
        yield LoginRig(tmp_path)


class TestFoldersOfPods(SourceConformance):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[PodRig]:
        yield PodRig(tmp_path)


class TestFoldersOfWatcherPods(SourceConformance):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[PodRig]:
        rig = PodRig(tmp_path)
        rig.job = make_writer({}, over=True)
        # The first look makes the pod.
        rig.list([rig.folder(request(rig))])
        yield rig


LAYOUTS: dict[str, Sequence[tuple[str, bytes]]] = {
    "marker": [("step_1/w", b"w" * 100), ("step_1/deep/er", b"e" * 50), ("step_1/DONE", b"")],
    "PyTorch": [("step_1/__0_0.distcp", b"a" * 99), ("step_1/__1_0.distcp", b"b" * 9), ("step_1/.metadata", b"m")],
    "Trainer": [
        ("checkpoint-1/model.safetensors", write_safetensors(64)),
        ("checkpoint-1/optimizer.pt", b"o" * 40),
        ("checkpoint-1/trainer_state.json", b"{}"),
    ],
    "shards": [
        ("step_1/model-1-of-2.safetensors", write_safetensors(64)),
        (
            "step_1/model.safetensors.index.json",
            b'{"weight_map": {"a": "model-1-of-2.safetensors", "b": "m2.safetensors"}}',
        ),
        ("step_1/m2.safetensors", write_safetensors(9)),
    ],
}
"""Files in the order in which they are written."""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_part_of_a_checkpoint_counts_as_whole(tmp_path: Path, layout: str) -> None:
    """DT06: looked at after every few bytes that are written, it is complete after the last of them and not before."""
    rig, files = FolderRig(tmp_path), LAYOUTS[layout]
    rule = Readiness(ReadyRule.MARKER, "DONE") if layout == "marker" else Readiness()
    now, seen = 0.0, None

    def is_ready() -> bool:
        nonlocal now, seen
        listing = look(rig, "{name}", marker=rule.marker)
        for found in listing.found:
            seen = sight(found, seen, now)
            if judge(rule, found, listing, seen, now).ready:
                return True
        return False

    for place, (name, data) in enumerate(files):
        for end in sorted({0, 1, 8, len(data) // 2, len(data) - 1, len(data)} & set(range(len(data) + 1))):
            rig.write(name, data[:end])
            now += 1.0
            last = place == len(files) - 1 and end == len(data)
            assert last or not is_ready(), (name, end)
    # What is written in place has to stay as it is for a moment.
    is_ready()
    now += 2 * SETTLE
    assert is_ready()


def test_an_answer_that_is_none_is_refused() -> None:
    for answer in ({"key": "k"}, [{"found": 1}], [{"key": "k", "found": [{"name": "x", "files": [1]}]}]):
        with pytest.raises(ValueError, match="not an answer"):
            decode_listings(answer)


def test_a_pipe_where_a_text_is_wanted_keeps_nobody_waiting(tmp_path: Path) -> None:
    rig = FolderRig(tmp_path)
    rig.write("step_1/w")
    os.mkfifo(Path(rig.path, "latest"))
    os.mkfifo(Path(rig.path, "step_1", "DONE"))
    os.mkfifo(Path(rig.path, "step_2"))
    listing = look(rig, marker="DONE")
    assert names(listing) == ["step_1", "step_2"] and listing.found[0].marker is None
    assert "neither a folder nor a file" in listing.found[1].unreadable


def test_ten_thousand_checkpoints_that_are_settled_cost_one_listing(tmp_path: Path) -> None:
    rig = FolderRig(tmp_path)
    for step in range(10_000):
        Path(rig.path, f"step_{step}").mkdir(parents=True)
    rig.write("step_10000/w")
    settled = tuple(f"step_{step}" for step in range(10_000))
    assert names(look(rig, settled=settled)) == ["step_10000"]


def test_changes_are_told_at_once_also_in_folders_that_came_later(tmp_path: Path) -> None:
    """By inotify: a folder that appears, one in it, and a file in that."""
    rig = FolderRig(tmp_path)

    async def scene() -> None:
        source = LocalCheckpoints()
        folders = [rig.folder(request(rig))]
        for change in ("other/w", "step_1/", "step_1/w", "step_1/deep/er/w"):
            await source.list(folders)
            while await source.wait(folders, 0.2):
                # Folders that are watched from now on.
                await source.list(folders)
            waits = asyncio.ensure_future(source.wait(folders, 60))
            await asyncio.sleep(0.05)
            assert not waits.done()
            rig.write(change)
            assert await asyncio.wait_for(waits, 10)
        source.close()

    asyncio.run(scene())


def test_where_inotify_is_not_to_be_had_folders_are_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(24, "too many")

    monkeypatch.setattr(source, "Inotify", refuse)
    monkeypatch.setattr(source, "POLL_SECONDS", 0.01)
    rig = FolderRig(tmp_path)
    folders = [rig.folder(request(rig))]
    assert asyncio.run(LocalCheckpoints().wait(folders, 60)) is True


def test_the_local_adapter_is_a_source(tmp_path: Path) -> None:
    from overspan.adapters.checkpoint_sources import CheckpointNews, CheckpointSource
    from overspan.adapters.contract import ClusterConfig
    from overspan.adapters.local.cluster import open_cluster

    adapter = open_cluster(ClusterConfig("local", "local", {}, root=str(tmp_path)))
    assert isinstance(adapter, CheckpointSource) and isinstance(adapter, CheckpointNews)
    rig = FolderRig(tmp_path)
    rig.write("step_1/w")
    assert names(run_list(adapter, [rig.folder(request(rig))])[0]) == ["step_1"]
