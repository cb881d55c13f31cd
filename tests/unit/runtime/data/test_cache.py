"""The cache of contents that are only read: fetched once, checked, bounded, and never taken from who uses it."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from overspan.bridge.runtime.data import cache as cache_module
from overspan.bridge.runtime.data.cache import (
    CachedContent,
    ContentCache,
    name_cache_settings,
    open_cache,
    render_cache_settings,
)
from overspan.bridge.runtime.data.object_store import StoredObject

A = StoredObject("data/a", 5, "etag-a")
B = StoredObject("data/b", 100, "etag-b")


class Source:
    """What a store would send."""

    def __init__(self) -> None:
        self.asked = 0

    def bring(self, data: bytes, pause: float = 0.0) -> Callable[[str], None]:
        def fetch(part: str) -> None:
            self.asked += 1
            time.sleep(pause)
            Path(part).write_bytes(data)

        return fetch


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def cache(tmp_path: Path) -> ContentCache:
    made = ContentCache(str(tmp_path / "cache"))
    made.make()
    return made


def kept(cache: ContentCache) -> list[str]:
    """The names of all that it has."""
    return [content.name for content in cache.describe().contents]


class TestUse:
    def test_a_content_is_fetched_once_and_told_with_its_users(
        self, cache: ContentCache, source: Source, tmp_path: Path
    ) -> None:
        for name in ("one", "two"):
            cache.link(A, "s3/lab", str(tmp_path / name), source.bring(b"hello"))
        assert source.asked == 1 and cache.has(A, "s3/lab")
        assert os.path.samefile(tmp_path / "one", tmp_path / "two")
        (content,) = cache.describe().contents
        assert content._replace(used_at=0) == CachedContent("s3/lab/data/a", 5, 0, 2)

    @pytest.mark.parametrize("other", [A._replace(etag="new"), A._replace(size=6), A._replace(key="data/c")])
    def test_another_version_is_another_content(
        self, cache: ContentCache, source: Source, tmp_path: Path, other: StoredObject
    ) -> None:
        cache.link(A, "s3/lab", str(tmp_path / "one"), source.bring(b"hello"))
        assert not cache.has(other, "s3/lab") and not cache.has(A, "s3/other")
        cache.link(other, "s3/lab", str(tmp_path / "two"), source.bring(b"other"))
        assert (tmp_path / "one").read_bytes() == b"hello" and (tmp_path / "two").read_bytes() == b"other"

    def damage_content(self, path: Path) -> None:
        path.chmod(0o644)
        path.write_bytes(b"spoilt")

    def cut_content(self, path: Path) -> None:
        os.truncate(path, 2)

    def lose_content(self, path: Path) -> None:
        path.unlink()

    def lose_state(self, path: Path) -> None:
        Path(f"{path}.state").unlink()

    def damage_state(self, path: Path) -> None:
        Path(f"{path}.state").write_bytes(b'["s3/lab/da\n\xff')

    @pytest.mark.parametrize("damage", ["damage_content", "cut_content", "lose_content", "lose_state", "damage_state"])
    def test_a_damaged_or_half_entry_is_fetched_anew(
        self, cache: ContentCache, source: Source, tmp_path: Path, damage: str
    ) -> None:
        cache.link(A, "s3/lab", str(tmp_path / "one"), source.bring(b"hello"))
        (path,) = (entry for entry in Path(cache.path).iterdir() if not entry.suffix)
        getattr(self, damage)(path)
        assert not cache.has(A, "s3/lab")
        cache.link(A, "s3/lab", str(tmp_path / "two"), source.bring(b"hello"))
        assert source.asked == 2 and (tmp_path / "two").read_bytes() == b"hello" and cache.has(A, "s3/lab")

    def test_two_jobs_at_once_fetch_once(self, cache: ContentCache, source: Source, tmp_path: Path) -> None:
        jobs = [
            threading.Thread(
                target=cache.link, args=(A, "s3/lab", str(tmp_path / str(number)), source.bring(b"hello", 0.3))
            )
            for number in range(4)
        ]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        assert source.asked == 1
        assert cache.describe().contents[0].links == 4

    def test_a_fetch_that_fails_leaves_its_part_for_the_next_one(
        self, cache: ContentCache, source: Source, tmp_path: Path
    ) -> None:
        def fail(part: str) -> None:
            Path(part).write_bytes(b"he")
            raise OSError(errno.ENOSPC, "full")

        with pytest.raises(OSError, match="full"):
            cache.link(A, "s3/lab", str(tmp_path / "one"), fail)
        (content,) = cache.describe().contents
        assert (content.size, content.whole) == (2, False)
        seen: list[bytes] = []
        cache.link(A, "s3/lab", str(tmp_path / "one"), lambda part: seen.append(Path(part).read_bytes()))
        assert seen == [b"he"]

    @pytest.mark.parametrize("number", sorted(cache_module._NO_LINKS))
    def test_where_no_link_can_be_it_is_a_copy(
        self, cache: ContentCache, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        def refuse(*words: str) -> None:
            raise OSError(number, "no")

        monkeypatch.setattr(os, "link", refuse)
        cache.link(A, "s3/lab", str(tmp_path / "one"), source.bring(b"hello"))
        assert (tmp_path / "one").read_bytes() == b"hello" and (tmp_path / "one").stat().st_mode & 0o222 == 0
        assert cache.describe().contents[0].links == 0
        assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "one"]

    @pytest.mark.parametrize("number", sorted(cache_module._NO_LOCKS))
    def test_where_files_cannot_be_locked_nobody_writes_to_another_s_part(
        self, cache: ContentCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        def refuse(*words: object) -> None:
            raise OSError(number, "no")

        parts: list[str] = []

        def fetch(part: str) -> None:
            parts.append(part)
            if len(parts) == 1:
                cache.link(A, "s3/lab", str(tmp_path / "two"), fetch)
            Path(part).write_bytes(b"hello")

        monkeypatch.setattr("fcntl.flock", refuse)
        cache.link(A, "s3/lab", str(tmp_path / "one"), fetch)
        assert len(set(parts)) == 2
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes() == b"hello"
        # Somebody may be about to link what was used lately; a trim has to go on all the same.
        for name in ("one", "two"):
            (tmp_path / name).unlink()
        assert not cache.clean(0).removed
        (state,) = Path(cache.path).glob("*.state")
        os.utime(state, (1, 1))
        assert cache.clean(0).removed == 1


class TestRemoval:
    @pytest.fixture
    def filled(self, cache: ContentCache, source: Source, tmp_path: Path) -> ContentCache:
        """Four contents of 100 bytes, the oldest of which is named `oldest`; `used` is in use."""
        for age, name in enumerate(("newest", "older", "used", "oldest")):
            stored = B._replace(key=name)
            cache.link(stored, "s3/lab", str(tmp_path / name), source.bring(b"x" * 100))
            at = time.time() - 1000 * age
            os.utime(f"{cache._place(stored, 's3/lab')}.state", (at, at))
            if name != "used":
                (tmp_path / name).unlink()
        return cache

    def test_what_was_used_longest_ago_goes_first_and_what_is_used_stays(self, filled: ContentCache) -> None:
        ContentCache(filled.path, 250).trim()
        assert kept(filled) == ["s3/lab/newest", "s3/lab/used"]
        assert len(os.listdir(filled.path)) == 6
        ContentCache(filled.path, 0).trim()
        assert kept(filled) == ["s3/lab/used"]

    def test_the_usual_limit_is_a_part_of_the_disk(self, filled: ContentCache, monkeypatch: pytest.MonkeyPatch) -> None:
        status = os.statvfs(filled.path)
        monkeypatch.setattr(cache_module, "CACHE_PART", 250 / (status.f_blocks * status.f_frsize))
        filled.trim()
        assert kept(filled) == ["s3/lab/newest", "s3/lab/used"]

    def test_room_is_made_of_what_nobody_uses(self, filled: ContentCache, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cache_module, "_measure_free", lambda path: 500 - 100 * len(kept(filled)))
        filled.make_room(150)
        assert kept(filled) == ["s3/lab/newest", "s3/lab/older", "s3/lab/used"]
        with pytest.raises(OSError, match=r"1000B do not fit, 400B are free|1000 B do not fit|do not fit"):
            filled.make_room(1000)
        assert kept(filled) == ["s3/lab/used"]

    def test_a_clean_spares_what_is_used_and_what_was_used_lately(self, filled: ContentCache) -> None:
        assert filled.clean(2500) == (1, 100, 3)
        assert filled.clean(0) == (2, 200, 1)
        assert kept(filled) == ["s3/lab/used"]

    def test_nothing_is_removed_under_who_fetches_it(self, cache: ContentCache, tmp_path: Path) -> None:
        cleaned: list[int] = []

        def fetch(part: str) -> None:
            Path(part).write_bytes(b"he")
            cleaned.append(cache.clean(0).removed)
            ContentCache(cache.path, 0).trim()
            Path(part).write_bytes(Path(part).read_bytes() + b"llo")

        cache.link(A, "s3/lab", str(tmp_path / "one"), fetch)
        assert cleaned == [0] and (tmp_path / "one").read_bytes() == b"hello"

    def test_whoever_waits_for_a_content_that_is_removed_fetches_it(
        self, cache: ContentCache, source: Source, tmp_path: Path
    ) -> None:
        cache.link(A, "s3/lab", str(tmp_path / "one"), source.bring(b"hello"))
        (tmp_path / "one").unlink()
        with cache_module._lock(f"{cache._place(A, 's3/lab')}.lock"):
            job = threading.Thread(target=cache.link, args=(A, "s3/lab", str(tmp_path / "two"), source.bring(b"hello")))
            job.start()
            time.sleep(0.2)
            for entry in os.listdir(cache.path):
                os.unlink(os.path.join(cache.path, entry))
        job.join()
        assert (tmp_path / "two").read_bytes() == b"hello" and source.asked == 2 and kept(cache) == ["s3/lab/data/a"]

    def test_a_cache_that_is_not_there_is_empty(self, tmp_path: Path) -> None:
        cache = ContentCache(str(tmp_path / "none"))
        cache.trim()
        assert cache.describe().contents == () and cache.clean(0) == (0, 0, 0)


class TestSettings:
    def test_without_any_it_is_below_the_root(self, tmp_path: Path) -> None:
        cache = open_cache(str(tmp_path))
        assert (cache.path, cache._limit) == (f"{tmp_path}/data/cache", None)

    def test_place_and_limit(self, tmp_path: Path) -> None:
        path = Path(name_cache_settings(str(tmp_path)))
        path.parent.mkdir()
        path.write_bytes(render_cache_settings("~/shared", 1000))
        cache = open_cache(str(tmp_path))
        assert (cache.path, cache.limit) == (os.path.expanduser("~/shared"), 1000)
        path.write_bytes(render_cache_settings("", 1000))
        assert open_cache(str(tmp_path)).path == f"{tmp_path}/data/cache"

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", json.dumps({"path": "/x"}), json.dumps({"path": "/x", "limit": "y"})]
    )
    def test_a_damaged_file_means_the_usual_place(self, tmp_path: Path, text: str) -> None:
        path = Path(name_cache_settings(str(tmp_path)))
        path.parent.mkdir()
        path.write_text(text)
        assert open_cache(str(tmp_path)).path == f"{tmp_path}/data/cache"
