"""Requests to an S3-compatible store."""

from __future__ import annotations

import http.client
import http.server
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.stores import TestStore
from tests.web_site import Site, make_certificate, run_site

from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoreTrouble
from overspan.bridge.runtime.data.s3 import S3Store
from overspan.bridge.runtime.data.stores import StoreFile, write_stores

Answer = Callable[[int, bytes], StoreAccess]
Reach = Callable[[StoreAccess, str], S3Store]
ODD = "a folder/ü+%&=?#'\"~.bin"


def read(store: S3Store, key: str, offset: int = 0, etag: str = "") -> bytes:
    reader = store.open(key, offset, etag)
    parts = []
    while part := reader.read(1000):
        parts.append(part)
    return b"".join(parts)


class TestObjects:
    @pytest.fixture
    def bucket(self, store: TestStore, reach: Reach) -> S3Store:
        store.make_bucket("objects")
        return reach(store.access(), "objects")

    @pytest.mark.parametrize("key", ["a", "a/b/c.bin", ODD, "..x/.hidden"])
    def test_any_key_comes_back(self, bucket: S3Store, key: str) -> None:
        etag = bucket.put(key, b"hello")
        assert etag == "5d41402abc4b2a76b9719d911017c592"
        found = bucket.find(key)
        assert (found.size, found.etag) == (5, etag)
        assert read(bucket, key) == b"hello"
        assert [each.key for each in bucket.list_objects(key)] == [key]
        bucket.delete(key)
        bucket.delete(key)
        assert list(bucket.list_objects(key)) == []

    def test_a_long_listing_has_several_pages(self, bucket: S3Store) -> None:
        for number in range(1005):
            bucket.put(f"many/{number:04}", b"")
        found = list(bucket.list_objects("many/"))
        assert [each.key for each in found] == [f"many/{number:04}" for number in range(1005)]
        assert all(each.modified > 1_700_000_000 for each in found)

    def test_a_part_of_an_object_and_only_of_one_version(self, bucket: S3Store) -> None:
        etag = bucket.put("part", b"0123456789")
        assert read(bucket, "part", 6, etag) == b"6789"
        assert bucket.open("part", 6, etag).stored.size == 10
        bucket.put("part", b"abcdefghij")
        with pytest.raises(ObjectStoreError) as failed:
            bucket.open("part", 6, etag)
        assert failed.value.trouble is StoreTrouble.TAKEN

    def test_only_one_of_several_writes_what_was_not_there(self, bucket: S3Store) -> None:
        bucket.put("once", b"first", new=True)
        with pytest.raises(ObjectStoreError) as failed:
            bucket.put("once", b"second", new=True)
        assert failed.value.trouble is StoreTrouble.TAKEN
        assert read(bucket, "once") == b"first"

    def test_parts_are_one_object_in_the_end_and_nothing_before(self, bucket: S3Store) -> None:
        size = 5 << 20
        upload = bucket.begin_upload("large", size)
        parts = [bucket.put_part("large", upload, number, bytes([number]) * size) for number in (1, 2)]
        parts.append(bucket.put_part("large", upload, 3, b"end"))
        assert list(bucket.list_objects("large")) == []
        etag = bucket.finish_upload("large", upload, parts)
        assert etag.endswith("-3")
        assert bucket.find("large").size == 2 * size + 3
        assert bucket.open("large").part_size == size

    def test_an_upload_that_is_abandoned_leaves_nothing(self, bucket: S3Store) -> None:
        upload = bucket.begin_upload("left", 5 << 20)
        part = bucket.put_part("left", upload, 1, b"x")
        bucket.abandon_upload("left", upload)
        with pytest.raises(ObjectStoreError):
            bucket.finish_upload("left", upload, [part])


class TestFailures:
    def test_a_store_that_is_gone_and_comes_back(self, whole: TestStore, reach: Reach) -> None:
        whole.make_bucket("gone")
        bucket = reach(whole.access(), "gone")
        bucket.put("a", b"1")
        whole.proxy.cut()
        with pytest.raises(ObjectStoreError, match=r"the store s3 .* does not answer") as failed:
            bucket.put("a", b"2")
        assert failed.value.trouble is StoreTrouble.SILENT
        whole.proxy.mend()
        bucket.put("a", b"3")
        assert read(bucket, "a") == b"3"

    def test_what_is_not_there(self, store: TestStore, reach: Reach) -> None:
        with pytest.raises(ObjectStoreError, match=r"answers 404 .*NoSuchBucket") as failed:
            list(reach(store.access(), "no-such-bucket").list_objects(""))
        assert failed.value.trouble is StoreTrouble.MISSING

    @pytest.mark.parametrize(
        ("status", "code", "trouble"),
        [
            (403, "AccessDenied", StoreTrouble.DENIED),
            (400, "ExpiredToken", StoreTrouble.DENIED),
            (503, "SlowDown", StoreTrouble.SILENT),
            (400, "InvalidRequest", StoreTrouble.REFUSED),
        ],
    )
    def test_what_a_refusal_means(
        self, answer: Answer, reach: Reach, status: int, code: str, trouble: StoreTrouble
    ) -> None:
        access = answer(status, f"<Error><Code>{code}</Code><Message>why</Message></Error>".encode())
        with pytest.raises(ObjectStoreError, match=f"{code} why") as failed:
            reach(access, "bucket").put("key", b"data")
        assert failed.value.trouble is trouble
        assert "hidden" not in str(failed.value)

    @pytest.mark.parametrize("body", [b"", b"<html>", b"\x00\xff"])
    def test_an_answer_that_is_no_xml(self, answer: Answer, reach: Reach, body: bytes) -> None:
        with pytest.raises(ObjectStoreError):
            list(reach(answer(200, body), "bucket").list_objects(""))

    def test_an_error_that_comes_with_200_is_one(self, answer: Answer, reach: Reach) -> None:
        access = answer(200, b"<Error><Code>InternalError</Code><Message>m</Message></Error>")
        with pytest.raises(ObjectStoreError, match="InternalError"):
            reach(access, "bucket").finish_upload("key", "1", [])


class TestCredentials:
    def test_a_file_that_changes_is_read_anew(self, answer: Answer, reach: Reach, tmp_path: Path) -> None:
        file = tmp_path / "credentials"
        file.write_text("[lab]\naws_access_key_id = OLD\naws_secret_access_key = hidden\n")
        access = StoreAccess("s3", answer(200, b"").address, credentials_file=str(file), profile="lab")
        store = reach(access, "b")
        store.put("k", b"d")
        assert "Credential=OLD/" in ANSWERED[-1]
        file.write_text("[lab]\naws_access_key_id = FRESH\naws_secret_access_key = hidden\naws_session_token = t\n")
        store.put("k", b"d")
        assert "Credential=FRESH/" in ANSWERED[-1]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("[default]\naws_access_key_id = A\n", "has no aws_secret_access_key in \\[default\\]"),
            ("[other]\n", "has no profile \\[default\\]"),
            ("hidden", "is no file of credentials in AWS's form"),
        ],
    )
    def test_a_file_that_does_not_say_them(self, tmp_path: Path, text: str, words: str) -> None:
        file = tmp_path / "credentials"
        file.write_text(text)
        with pytest.raises(ObjectStoreError, match=words) as failed:
            S3Store(StoreAccess("s3", "http://127.0.0.1:1", credentials_file=str(file)), "b").find("k")
        assert failed.value.trouble is StoreTrouble.DENIED
        assert "hidden" not in str(failed.value)

    def test_a_file_that_is_not_there(self) -> None:
        with pytest.raises(ObjectStoreError, match="the credentials of the store s3 cannot be read: /none"):
            S3Store(StoreAccess("s3", "http://127.0.0.1:1", credentials_file="/none"), "b").find("k")


ANSWERED: list[str] = []
"""The authorisations that came with the requests."""


@pytest.fixture
def reach() -> Iterator[Reach]:
    """Opens buckets, and closes their connections after the test."""
    opened = []

    def open_bucket(access: StoreAccess, bucket: str) -> S3Store:
        opened.append(S3Store(access, bucket))
        return opened[-1]

    yield open_bucket
    for each in opened:
        each.close()


@pytest.fixture
def answer() -> Iterator[Answer]:
    """A server that gives each request one answer."""
    servers = []

    def serve(status: int, body: bytes) -> StoreAccess:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                ANSWERED.append(self.headers.get("authorization", ""))
                self.rfile.read(int(self.headers.get("content-length", 0)))
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_DELETE = _answer

            def log_message(self, *words: object) -> None:
                """Nothing."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        address = f"http://127.0.0.1:{server.server_port}"
        return StoreAccess("s3", address, access_key="AKIA", secret_key="hidden")

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


class TestRenewedCredentials:
    @pytest.fixture
    def place(self, whole: TestStore, tmp_path: Path) -> Path:
        """A folder with the file of the store, whose bucket `renewed` is there."""
        whole.make_bucket("renewed")
        write_stores(str(tmp_path), [whole.access("s3")])
        return tmp_path

    def test_a_refused_request_is_sent_again_with_those_of_now(self, whole: TestStore, place: Path) -> None:
        store = S3Store(whole.access("s3"), "renewed", credentials=StoreFile(str(place), "s3"))
        store.put("a", b"1")
        whole.proxy.refused_key = "testing"
        with pytest.raises(ObjectStoreError, match="ExpiredToken") as failed:
            store.put("b", b"2")
        assert failed.value.trouble is StoreTrouble.DENIED
        file = place / "stores/s3.json"
        known = file.stat()
        # The same file, time and size: only the refusal has it read.
        file.write_text(file.read_text().replace('"access_key": "testing"', '"access_key": "renewed"'))
        os.utime(file, ns=(known.st_atime_ns, known.st_mtime_ns))
        store.put("b", b"2")
        assert whole.texts("renewed", "b") == {"b": b"2"}
        store.close()

    def test_those_that_were_read_last_count_where_the_file_is_gone(self, whole: TestStore, place: Path) -> None:
        store = S3Store(whole.access("s3"), "renewed", credentials=StoreFile(str(place), "s3"))
        store.put("c", b"3")
        for damage in (lambda file: file.write_text("{"), Path.unlink):
            damage(place / "stores/s3.json")
            store.put("c", b"4")
        store.close()
        with pytest.raises(ObjectStoreError, match="does not say how the store is reached"):
            StoreFile(str(place), "s3").load()


class TestWrites:
    """How a request is written to its connection."""

    @pytest.fixture
    def written(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The length of each write."""
        lengths: list[int] = []
        real = http.client.HTTPConnection.send

        def send(connection: http.client.HTTPConnection, data: bytes) -> None:
            lengths.append(len(data))
            real(connection, data)

        monkeypatch.setattr(http.client.HTTPConnection, "send", send)
        return lengths

    def test_a_small_payload_goes_with_its_head(self, answer: Answer, reach: Reach, written: list[int]) -> None:
        store = reach(answer(200, b""), "any")
        for size in (100, 0, 64 << 10):
            written.clear()
            store.put("a", b"x" * size)
            assert len(written) == 1 and written[0] > size
        written.clear()
        store.put("a", b"x" * (100 << 10))
        assert len(written) == 2 and written[1] == 100 << 10

    def test_over_tls_too(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: list[int]) -> None:
        certificate = make_certificate(tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with run_site(Site(), certificate) as host:
            store = S3Store(StoreAccess("s3", f"https://{host}"), "any")
            # The server takes none, and says so.
            with pytest.raises(ObjectStoreError, match="501"):
                store.put("a", b"x" * 100)
            store.close()
        assert len(written) == 1
