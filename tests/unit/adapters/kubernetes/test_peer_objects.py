"""What movers have left in a bucket is removed when the pods of their launch are gone, whoever was away meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.adapters.kubernetes.bench import INSTALLATION, Bench, make_job, play, token_of

from overspan.adapters.contract import Accepted
from overspan.adapters.kubernetes.launches import peer_objects
from overspan.adapters.kubernetes.launches.launches import Handle, Launches
from overspan.adapters.kubernetes.launches.peer_objects import KEPT_SECONDS, PeerObjects
from overspan.adapters.kubernetes.observation.launch_summaries import PeerBucket
from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.model.storage import MountMode, StorageMount, StoreAccess
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoredObject, StoreTrouble
from overspan.bridge.runtime.data.peers import FOLDER

TOKEN = "bench-7-0"


class Bucket:
    """A bucket that may be away."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.trouble: StoreTrouble | None = None
        self.asked = 0

    def list_objects(self, prefix: str) -> Iterator[StoredObject]:
        self.asked += 1
        if self.trouble is not None:
            raise ObjectStoreError(self.trouble, "the store is away")
        return iter([StoredObject(key, 0, "") for key in sorted(self.keys) if key.startswith(prefix)])

    def delete(self, key: str) -> None:
        self.keys.discard(key)

    def close(self) -> None:
        pass


class Pods:
    """The part of the launches that is asked."""

    def __init__(self) -> None:
        self.left: list[str] = []

    def calls(self, namespace: str) -> Pods:
        assert namespace == "lab"
        return self

    async def list(self, kind: str, selector: str) -> list[str]:
        return self.left if kind == "Pod" and selector.endswith(f"={TOKEN}") else []


class Desk:
    """The objects of one launch, and who removes them."""

    def __init__(self, folder: Path) -> None:
        self.pods, self.folder = Pods(), folder / "peers"

    def open(self) -> PeerObjects:
        return PeerObjects(cast(Launches, self.pods), str(self.folder), {"s3": StoreAccess("s3")})

    def look(self, objects: PeerObjects, times: int = 1) -> None:
        async def run() -> None:
            for _ in range(times):
                objects.begin()
                assert objects._look is not None
                await objects._look

        asyncio.run(run())

    @property
    def noted(self) -> list[str]:
        return sorted(os.listdir(self.folder))


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    made = Bucket()
    made.keys = {f"{FOLDER}{TOKEN}-0/m/done.0", f"{FOLDER}{TOKEN}-1/m/ask-x", f"{FOLDER}bench-70-0-0/m/done.0", "run/a"}
    monkeypatch.setattr(peer_objects, "S3Store", lambda *words, **named: made)
    monkeypatch.setattr(peer_objects, "_FIRST_PAUSE", 0.0)
    monkeypatch.setattr(peer_objects, "SETTLE_SECONDS", 0.0)
    return made


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def note(objects: PeerObjects) -> None:
    objects.note(Handle("lab", TOKEN), [PeerBucket("s3", "b")])


def test_nothing_is_removed_under_pods_that_are_there(desk: Desk, bucket: Bucket) -> None:
    objects = desk.open()
    note(objects)
    desk.pods.left = ["one"]
    desk.look(objects)
    assert bucket.asked == 0 and desk.noted == [f"{TOKEN}.json"]
    desk.pods.left = []
    desk.look(objects)
    assert bucket.keys == {f"{FOLDER}bench-70-0-0/m/done.0", "run/a"}
    assert desk.noted == []


def test_a_program_that_outlives_its_pod_is_looked_for_once_more(
    desk: Desk, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_objects, "SETTLE_SECONDS", 3600.0)
    objects = desk.open()
    note(objects)
    desk.look(objects)
    bucket.keys.add(f"{FOLDER}{TOKEN}-1/m/over.1")
    monkeypatch.setattr(peer_objects, "SETTLE_SECONDS", 0.0)
    desk.look(objects)
    assert not any(TOKEN in key for key in bucket.keys) and desk.noted == []


@pytest.mark.parametrize("trouble", [StoreTrouble.SILENT, StoreTrouble.DENIED])
def test_a_store_that_is_away_is_asked_again_by_the_next_daemon(
    desk: Desk, bucket: Bucket, trouble: StoreTrouble
) -> None:
    objects = desk.open()
    note(objects)
    bucket.trouble = trouble
    desk.look(objects, 3)
    assert desk.noted == [f"{TOKEN}.json"]
    bucket.trouble = None
    desk.look(desk.open())
    assert desk.noted == [] and not any(TOKEN in key for key in bucket.keys)


def test_a_store_is_asked_less_and_less_often(desk: Desk, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_objects, "_FIRST_PAUSE", 3600.0)
    objects = desk.open()
    note(objects)
    bucket.trouble = StoreTrouble.SILENT
    desk.look(objects, 3)
    assert bucket.asked == 1


@pytest.mark.parametrize("text", ["", "{", '{"namespace": 1, "buckets": [["s3"]]}', "[]"])
def test_a_damaged_file_and_a_bucket_that_is_gone_are_given_up(desk: Desk, bucket: Bucket, text: str) -> None:
    objects = desk.open()
    note(objects)
    bucket.trouble = StoreTrouble.MISSING
    (desk.folder / "bench-8-0.json").write_text(text)
    desk.look(objects)
    assert desk.noted == []


def test_what_nobody_can_remove_for_long_is_given_up(desk: Desk, bucket: Bucket) -> None:
    objects = desk.open()
    note(objects)
    bucket.trouble = StoreTrouble.SILENT
    path = desk.folder / f"{TOKEN}.json"
    at = path.stat().st_mtime - KEPT_SECONDS - 60
    os.utime(path, (at, at))
    desk.look(objects)
    assert desk.noted == []


def test_a_full_disk_costs_objects_and_no_removal(desk: Desk, tmp_path: Path) -> None:
    desk.folder.write_text("no folder")
    note(desk.open())


@pytest.mark.parametrize("known", [True, False])
def test_a_launch_that_is_removed_is_noted_before_its_anchor_goes(bench: Bench, known: bool) -> None:
    mounts = (StorageMount("./out", "s3://bucket/run", MountMode.MOUNT_CACHED, "s3"),)
    one = StorageMount("./out", "s3://other/run", MountMode.MOUNT_CACHED, "s3")
    job = make_job(
        TaskSpec(name="a", run="x", num_nodes=2, storage=mounts), TaskSpec(name="b", run="x", storage=(one,))
    )
    bench.config.stores["s3"] = StoreAccess("s3", "http://127.0.0.1:9", access_key="k", secret_key="s")  # type: ignore[index]

    async def story() -> None:
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, job)
            assert isinstance(answer, Accepted), answer
            if known:
                await cluster.release(INSTALLATION, (), ())
        if not known:
            async with bench.open() as cluster:
                await cluster.release(INSTALLATION, (), ())

    play(story)
    document: Any = json.loads((Path(bench.config.state) / "peers" / f"{token_of(job)}.json").read_text())
    assert document == {"namespace": "default", "buckets": [["s3", "bucket"]]}
