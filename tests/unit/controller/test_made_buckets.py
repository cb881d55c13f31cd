"""Buckets that are not to stay: when they go, and what keeps them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from overspan.bridge.config.store_settings import StoreSettings
from overspan.bridge.controller.submission import made_buckets
from overspan.bridge.controller.submission.made_buckets import KEPT_SECONDS, UNUSED_SECONDS, MadeBuckets
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.storage import MountMode, StorageMount
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoreTrouble

KEY = ("s3", "bucket-1")


def make_spec(persistent: bool = False, bucket: str = "bucket-1") -> JobSpec:
    mount = StorageMount("/x", f"s3://{bucket}", MountMode.COPY, "s3", named=True, persistent=persistent)
    return JobSpec("j", (TaskSpec("a", run="x", storage=(mount,)),))


@dataclass
class World:
    """A daemon's live jobs, its clock, and a store that may refuse."""

    folder: Path
    now: float = 1000.0
    live: list[JobSpec] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    trouble: StoreTrouble | None = None

    def open(self) -> MadeBuckets:
        return MadeBuckets(str(self.folder), {"s3": StoreSettings()}, lambda: self.now, lambda: self.live)

    def make(self, buckets: MadeBuckets) -> None:
        buckets.expect(KEY)
        buckets.confirm(KEY)

    def step(self, buckets: MadeBuckets, seconds: float = 0.0) -> None:
        """One look, so much later."""
        self.now += seconds

        async def look() -> None:
            for record in buckets.list_due():
                await buckets._remove(record)

        asyncio.run(look())

    @property
    def file(self) -> Path:
        return self.folder / "buckets.json"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)

    class Store:
        def __init__(self, access: Any, bucket: str, **_: Any) -> None:
            self.bucket = bucket

        def remove_bucket(self) -> None:
            if world.trouble is not None:
                raise ObjectStoreError(world.trouble, "no")
            world.removed.append(self.bucket)

        def close(self) -> None:
            pass

    monkeypatch.setattr(made_buckets, "S3Store", Store)
    return world


def test_it_goes_with_the_last_job_that_mounts_it(world: World) -> None:
    buckets = world.open()
    world.make(buckets)
    for _ in range(2):
        buckets.note_job(make_spec())
        world.live.append(make_spec())
    world.step(buckets)
    world.live.pop()
    world.step(buckets)
    assert world.removed == []
    # Another daemon goes on.
    world.live.pop()
    world.step(world.open())
    assert world.removed == ["bucket-1"] and json.loads(world.file.read_text()) == []


def test_a_job_that_wants_it_makes_it_stay(world: World) -> None:
    buckets = world.open()
    world.make(buckets)
    buckets.note_job(make_spec(persistent=True))
    world.step(buckets, KEPT_SECONDS)
    assert world.removed == []


def test_one_without_a_job_goes_some_time_after_files_were_sent_to_it(world: World) -> None:
    buckets = world.open()
    asyncio.run(buckets.hold(KEY))
    world.make(buckets)
    world.step(buckets, UNUSED_SECONDS * 2)
    buckets.release(KEY)
    world.step(buckets, UNUSED_SECONDS / 2)
    assert world.removed == []
    world.step(buckets, UNUSED_SECONDS)
    assert world.removed == ["bucket-1"]


def test_one_that_may_be_somebody_else_s_stays(world: World) -> None:
    # The daemon was killed before the store had confirmed it.
    world.open().expect(KEY)
    world.step(world.open(), KEPT_SECONDS)
    assert world.removed == []


@pytest.mark.parametrize("trouble", [StoreTrouble.SILENT, StoreTrouble.DENIED, StoreTrouble.TAKEN])
def test_a_store_that_does_not_let_it_go_is_asked_again_for_a_week(world: World, trouble: StoreTrouble) -> None:
    buckets = world.open()
    world.make(buckets)
    buckets.note_job(make_spec())
    world.trouble = trouble
    for _ in range(10):
        world.step(buckets, 400)
    assert json.loads(world.file.read_text())[0]["bucket"] == "bucket-1"
    world.trouble = None
    world.step(buckets, 400)
    assert world.removed == ["bucket-1"]
    world.make(buckets)
    buckets.note_job(make_spec())
    world.trouble = trouble
    world.step(buckets, KEPT_SECONDS + 1)
    assert json.loads(world.file.read_text()) == []


@pytest.mark.parametrize("text", ["{", '[{"store": 1}]', "7"])
def test_of_a_damaged_file_nothing_counts(world: World, text: str) -> None:
    world.file.write_text(text)
    buckets = world.open()
    world.step(buckets)
    world.make(buckets)
    assert json.loads(world.file.read_text())[0]["made"] is True
