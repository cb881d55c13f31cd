"""Credentials in run directories follow their source, whatever fails meanwhile."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

from overspan.adapters.slurm.files import store_renewals
from overspan.adapters.slurm.files.store_renewals import StoreRenewals
from overspan.adapters.slurm.groups.handles import GroupHandle, GroupPart
from overspan.adapters.slurm.transports.transport import Done, Transport
from overspan.adapters.store_files import render_store
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.storage import StoreAccess

HANDLE = str(GroupHandle(7, 0, 30, "/home/u/runs/i-7", (GroupPart(42),)))
FILE = "/home/u/runs/i-7/stores/s3.json"


class Cluster:
    """What is written there, and what it has of stores."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked = 0
        self.away = False

    async def run(self, argv: list[str], **_: Any) -> Done:
        self.asked += 1
        if self.away:
            raise Unreachable("away")
        found = [path for path in self.files if path.rpartition("/stores/")[0] in argv]
        return Done(0, "\n".join(found).encode(), b"")

    async def write(self, path: str, data: bytes) -> None:
        if self.away:
            raise Unreachable("away")
        self.files[path] = data


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "credentials"
    write(path, "first")
    return path


def write(path: Path, key: str) -> None:
    path.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n")


def open_renewals(cluster: Cluster, source: Path) -> StoreRenewals:
    known = {"s3": StoreAccess("s3", "http://store", credentials_file=str(source))}
    return StoreRenewals(cast(Transport, cluster), 10, known)


def look(renewals: StoreRenewals, *handles: str) -> None:
    async def run() -> None:
        renewals._due = 0.0
        renewals.begin(handles)
        await renewals.settle()

    asyncio.run(run())


def sent(cluster: Cluster) -> str:
    return str(json.loads(cluster.files[FILE])["access_key"])


def test_what_was_sent_with_the_submission_is_sent_again_when_it_changes(source: Path) -> None:
    cluster = Cluster()
    renewals = open_renewals(cluster, source)
    renewals.note({FILE: render_store(StoreAccess("s3", "http://store", credentials_file=str(source)))})
    look(renewals, HANDLE)
    assert cluster.files == {}, "it is as it was"
    write(source, "second")
    look(renewals, HANDLE)
    assert sent(cluster) == "second" and cluster.asked == 0


def test_another_daemon_asks_once_and_sends_it_once(source: Path) -> None:
    cluster = Cluster()
    cluster.files[FILE] = b"{}"
    renewals = open_renewals(cluster, source)
    for _ in range(2):
        look(renewals, HANDLE)
    assert (sent(cluster), cluster.asked) == ("first", 1)
    # A launch without stores is not asked again either.
    other = str(GroupHandle(8, 0, 30, "/home/u/runs/i-8", (GroupPart(43),)))
    for _ in range(2):
        look(renewals, HANDLE, other)
    assert cluster.asked == 2 and list(cluster.files) == [FILE]


def test_a_launch_that_is_over_is_left_alone(source: Path) -> None:
    cluster = Cluster()
    renewals = open_renewals(cluster, source)
    renewals.note({FILE: b"{}"})
    look(renewals)
    look(renewals, "42:x")
    assert cluster.files == {}


def test_a_cluster_that_is_away_gets_it_later(source: Path) -> None:
    cluster = Cluster()
    renewals = open_renewals(cluster, source)
    renewals.note({FILE: b"{}"})
    cluster.away = True
    look(renewals, HANDLE)
    cluster.away = False
    look(renewals, HANDLE)
    assert sent(cluster) == "first"


@pytest.mark.parametrize("text", [None, "garbage", "[default]\n"])
def test_a_source_that_cannot_be_read_leaves_what_is_there(
    source: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    cluster.files[FILE] = b"old"
    if text is None:
        source.unlink()
    else:
        source.write_text(text)
    renewals = open_renewals(cluster, source)
    for _ in range(3):
        look(renewals, HANDLE)
    assert cluster.files == {FILE: b"old"}
    assert caplog.text.count("credentials of running jobs are not renewed") == 1


def test_looks_are_some_seconds_apart(source: Path) -> None:
    cluster = Cluster()
    renewals = open_renewals(cluster, source)

    async def run() -> None:
        for _ in range(5):
            renewals.begin([HANDLE])
            await renewals.settle()

    asyncio.run(run())
    assert cluster.asked == 1 and store_renewals.LOOK_SECONDS >= 5
