"""Files of web servers: read whole or from where a try has ended, and never as a mixture of two versions."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.web_site import Site, make_certificate, run_site

from overspan.bridge.model.storage import MountMode, StorageMount, parse_web_url
from overspan.bridge.runtime.data.cache import ContentCache
from overspan.bridge.runtime.data.fetching import FetchPlace, download, fetch
from overspan.bridge.runtime.data.folder_state import FolderState
from overspan.bridge.runtime.data.mounts import MountFolder
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoreTrouble
from overspan.bridge.runtime.data.web import WebStore


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of this machine's own, with its key."""
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def host(site: Site, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The server's name and port; its certificate counts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with run_site(site, certificate) as host:
        yield host


def bring(host: str, tmp_path: Path, name: str = "one", key: str = "data/file.bin?sig=s3cret") -> Path:
    """Fetch as a mover does; where the file is."""
    cache = ContentCache(str(tmp_path / "cache"))
    cache.make()
    place = FetchPlace(str(tmp_path / name), FolderState(str(tmp_path / f"{name}.jsonl")), cache)
    with ThreadPoolExecutor(1) as executor:
        fetch(WebStore(host), key, place, executor, f"https/{host}")
    return tmp_path / name


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("etag", ['"one"', 'W/"one"', ""])
@pytest.mark.parametrize("data", [b"0123456789", b""])
def test_a_file_is_read_whole(site: Site, host: str, tmp_path: Path, ranges: bool, etag: str, data: bytes) -> None:
    site.ranges, site.etag, site.data = ranges, etag, data
    assert bring(host, tmp_path).read_bytes() == data
    assert all(path == "/data/file.bin?sig=s3cret" for path, _ in site.asked)


def test_the_same_version_is_fetched_once_and_told_without_what_lets_one_read_it(
    site: Site, host: str, tmp_path: Path
) -> None:
    bring(host, tmp_path)
    bring(host, tmp_path, "two")
    assert [wanted for _, wanted in site.asked] == ["bytes=0-0", "", "bytes=0-0"]
    (content,) = ContentCache(str(tmp_path / "cache")).describe().contents
    assert (content.name, content.links) == (f"https/{host}/data/file.bin", 2)
    site.etag, site.data = '"two"', b"other"
    assert bring(host, tmp_path, "three").read_bytes() == b"other"
    assert (tmp_path / "one").read_bytes() == b"0123456789"


@pytest.mark.parametrize(("ranges", "asked"), [(True, ["bytes=4-"]), (False, ["bytes=4-", "bytes=0-0", ""])])
def test_a_fetch_that_broke_off_goes_on_where_that_is_possible(
    site: Site, host: str, tmp_path: Path, ranges: bool, asked: list[str]
) -> None:
    store = WebStore(host)
    stored = store.find("file")
    part = tmp_path / "part"
    part.write_bytes(b"0123")
    site.ranges = ranges
    site.asked.clear()
    download(store, stored, str(part))
    assert part.read_bytes() == b"0123456789" and [wanted for _, wanted in site.asked] == asked


def test_a_version_that_comes_meanwhile_is_no_mixture(site: Site, host: str, tmp_path: Path) -> None:
    store = WebStore(host)
    stored = store.find("file")
    part = tmp_path / "part"
    part.write_bytes(b"0123")
    site.etag, site.data = '"two"', b"abcdefgh"
    download(store, stored, str(part))
    assert part.read_bytes() == b"abcdefgh"


@pytest.mark.parametrize(
    ("status", "trouble"),
    [(404, StoreTrouble.MISSING), (403, StoreTrouble.DENIED), (503, StoreTrouble.SILENT), (400, StoreTrouble.REFUSED)],
)
def test_what_an_answer_means_and_no_message_has_the_signature(
    site: Site, host: str, tmp_path: Path, status: int, trouble: StoreTrouble
) -> None:
    site.status = status
    with pytest.raises(ObjectStoreError, match=f"https://{host}/data/file.bin answers {status}") as caught:
        WebStore(host).find("data/file.bin?sig=s3cret")
    assert caught.value.trouble is trouble and "s3cret" not in str(caught.value)


def test_a_redirect_is_followed_but_not_to_where_anybody_could_change_the_file(
    site: Site, host: str, tmp_path: Path
) -> None:
    site.redirect = f"https://{host}/moved"
    assert bring(host, tmp_path).read_bytes() == site.data
    site.redirect = "http://localhost:9/moved"
    with pytest.raises(ObjectStoreError, match="leads to a place without TLS") as caught:
        WebStore(host).find("file")
    assert caught.value.trouble is StoreTrouble.REFUSED


def test_a_server_that_is_not_who_it_says_is_refused_and_one_that_is_away_asked_again(
    site: Site, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(ObjectStoreError, match="certificate") as caught:
        WebStore(host).find("file")
    assert caught.value.trouble is StoreTrouble.REFUSED
    with pytest.raises(ObjectStoreError, match="cannot be asked") as caught:
        WebStore("localhost:9").find("file")
    assert caught.value.trouble is StoreTrouble.SILENT


def test_a_file_of_unknown_length_is_refused(site: Site, host: str) -> None:
    site.ranges = site.sized = False
    with pytest.raises(ObjectStoreError, match="does not say how long it is"):
        WebStore(host).find("file")


@pytest.mark.parametrize(
    ("text", "parts"),
    [("https://a.b/c/d.tgz", ("a.b", "c/d.tgz")), ("HTTPS://a:8443/d?x=1&y=/z#top", ("a:8443", "d?x=1&y=/z"))],
)
def test_a_url_has_a_host_and_a_file(text: str, parts: tuple[str, str]) -> None:
    url = MountFolder("", StorageMount("/x", text, MountMode.COPY)).url
    assert (url.bucket, url.key) == parts


@pytest.mark.parametrize("rest", ["", "a", "a/", "a/b/", "u:p@a/b", "a/b c", "a/?b"])
def test_what_names_no_file(rest: str) -> None:
    with pytest.raises(ValueError, match="is no URL of a file"):
        parse_web_url(f"https://{rest}")
