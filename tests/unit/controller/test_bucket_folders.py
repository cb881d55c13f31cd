"""Checkpoints in an object store, as a watch sees them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.buckets import Bucket

from overspan.bridge.controller.features.evaluations.bucket_folders import BucketFolders, list_folder
from overspan.bridge.model.checkpoints.listings import FolderListing, FoundFile, ListingRequest
from overspan.bridge.model.checkpoints.readiness import judge, sight
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.evaluations import Readiness, ReadyRule
from overspan.bridge.model.storage import parse_object_url


def look(objects: dict[str, bytes], *parts: str, marker: str = "", settled: tuple[str, ...] = ()) -> FolderListing:
    bucket: Any = Bucket()
    bucket.objects = objects
    request = ListingRequest("1", "s3://lab/run", parts or (r"step_\d+",), marker, settled)
    return list_folder(bucket, parse_object_url("s3://lab/run"), request)


def test_folders_and_files_that_fit_are_found() -> None:
    found = look({"run/step_1/a": b"1", "run/step_1/in/b": b"22", "run/step_2": b"3", "run/log": b"", "runs/x": b""})
    assert [(each.name, each.folder, each.files) for each in found.found] == [
        ("step_1", True, (FoundFile("a", 1), FoundFile("in/b", 2))),
        ("step_2", False, (FoundFile("", 1),)),
    ]
    assert found.others == ("log",)
    assert not found.missing


def test_a_pattern_of_several_levels() -> None:
    found = look({"run/a/step_1/x": b"", "run/b/step_2/x": b""}, "[ab]", r"step_\d+")
    assert [each.name for each in found.found] == ["a/step_1", "b/step_2"]


def test_a_folder_that_is_not_there_is_missing() -> None:
    assert look({}).missing


def test_markers_inside_and_beside() -> None:
    inside = look({"run/step_1/DONE": b"yes", "run/step_1/a": b""}, marker="DONE").found[0]
    assert inside.marker is not None and inside.marker.text == "yes"
    beside = look({"run/step_1.ok": b"ok", "run/step_1/a": b""}, marker="{name}.ok").found[0]
    assert beside.marker is not None and beside.marker.text == "ok"
    assert look({"run/step_1/a": b""}, marker="DONE").found[0].marker is None


def test_what_is_settled_is_only_told_when_it_is_gone() -> None:
    found = look({"run/step_1/a": b""}, settled=("step_1", "step_2"))
    assert (found.found, found.gone) == ((), ("step_2",))


def test_small_files_beside_name_the_newest() -> None:
    assert look({"run/latest": b"step_1\n", "run/step_1/a": b""}).beside == (("latest", "step_1"),)


@pytest.mark.parametrize(
    ("objects", "ready"),
    [
        ({"run/step_1/a.distcp": b"1", "run/step_1/.metadata": b"m"}, True),
        ({"run/step_1/a.distcp": b"1"}, False),
        ({"run/step_1/trainer_state.json": b"{}", "run/step_1/model.safetensors": b"1"}, True),
    ],
)
def test_whole_is_what_its_layout_says(objects: dict[str, bytes], ready: bool) -> None:
    listing = look(objects)
    seen = sight(listing.found[0], None, 0.0)
    assert judge(Readiness(ReadyRule.LAYOUT), listing.found[0], listing, seen, 1.0).ready is ready


def test_shards_are_those_of_the_index() -> None:
    index = b'{"weight_map": {"x": "b.safetensors", "y": "a.safetensors"}}'
    found = look({"run/step_1/model.safetensors.index.json": index}).found[0]
    assert found.shards == ("a.safetensors", "b.safetensors")


def test_a_store_that_is_not_configured_is_told() -> None:
    with pytest.raises(InvalidRequest, match="no entry of `stores` in the configuration reaches s3://lab/run"):
        BucketFolders({}).check("s3://lab/run")
