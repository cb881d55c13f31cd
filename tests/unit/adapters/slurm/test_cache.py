"""The cache of a Slurm cluster, told and cleaned by the application, which is brought there first."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from overspan.adapters.contract import ClusterConfig
from overspan.adapters.slurm.commands.queries import Queries, Site
from overspan.adapters.slurm.files.cache import SlurmCache
from overspan.adapters.slurm.settings import Settings, read_settings
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.bridge.model.errors import Conflict, InvalidRequest
from overspan.bridge.runtime.data.cache import ContentCache
from overspan.bridge.runtime.data.object_store import StoredObject


class HomeQueries(Queries):
    """Queries of a site that is this machine."""

    async def site(self) -> Site:
        return Site((22, 5, 8), {}, "ada", os.environ["HOME"])


def open_cache(folder: Path, size: int | None = None) -> SlurmCache:
    settings = Settings(data_cache=str(folder / "cache"), data_cache_size=size, python=sys.executable)
    return SlurmCache(HomeQueries(LocalTransport(), 60.0), settings, str(folder / "root"))


def bring(part: str) -> None:
    Path(part).write_bytes(b"hello")


def fill(folder: Path, users: int) -> None:
    """A content with that many users."""
    cache = ContentCache(str(folder / "cache"))
    cache.make()
    for number in range(users + 1):
        cache.link(StoredObject("a", 5, "etag"), "s3/lab", str(folder / f"user{number}"), bring)
    (folder / "user0").unlink()


def test_what_it_has_is_told_and_removed(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, 100)
    assert asyncio.run(cache.list_cache()) == (f"{tmp_path}/cache", 100 << 20, ())
    fill(tmp_path, users=1)
    (content,) = asyncio.run(cache.list_cache()).contents
    assert (content.name, content.size, content.links, content.whole) == ("s3/lab/a", 5, 1, True)
    assert time.time() - content.used_at < 60
    assert asyncio.run(cache.clean_cache(0)) == (0, 0, 1)
    (tmp_path / "user1").unlink()
    assert asyncio.run(cache.clean_cache(3600)) == (0, 0, 1)
    assert asyncio.run(cache.clean_cache(0)) == (1, 5, 0)
    assert os.listdir(tmp_path / "cache") == []


def test_without_a_size_it_is_a_part_of_the_disk(tmp_path: Path) -> None:
    fill(tmp_path, users=0)
    assert asyncio.run(open_cache(tmp_path).list_cache()).limit == ContentCache(str(tmp_path / "cache")).limit


def test_what_cannot_be_done_there_is_told(tmp_path: Path) -> None:
    fill(tmp_path, users=0)
    (lock,) = (tmp_path / "cache").glob("*.lock")
    lock.unlink()
    lock.mkdir()
    with pytest.raises(Conflict, match="the login node could not look at the cache"):
        asyncio.run(open_cache(tmp_path).clean_cache(0))


def test_it_needs_a_root_that_the_nodes_see() -> None:
    config = ClusterConfig("c", "slurm", {"shared": False, "shared_root": False, "data_cache": "/x"})
    with pytest.raises(InvalidRequest, match="want a root that the compute nodes see"):
        read_settings(config)
