"""A bucket of an S3-compatible store, by the standard library alone: http.client and Signature Version 4.

Buckets are in the path of the URL, which every such store takes. A connection is kept for each thread. A request is
sent once: who asks decides whether to try again (`StoreTrouble`).
"""

from __future__ import annotations

import calendar
import hashlib
import http.client
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, Optional
from urllib.parse import urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.data.credentials import CredentialsReader, CredentialsSource
from overspan.bridge.runtime.data.object_store import ObjectStoreError, SentPart, StoredObject, StoreTrouble
from overspan.bridge.runtime.data.signature import (
    EMPTY,
    UNSIGNED,
    Credentials,
    SignedRequest,
    quote_path,
    quote_query,
    sign,
)

ANSWER_SECONDS = 60.0
"""Silence of a store after which a request has failed."""
PART_SIZE = "overspan-part-size"
"""Metadata of an object that was sent in parts: with their size its etag can be checked."""
_SMALL = 64 * 1024
_FIRST_REGION = "us-east-1"
_REGION = (
    '<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    "<LocationConstraint>{}</LocationConstraint></CreateBucketConfiguration>"
)
_SILENT = frozenset({408, 429, 500, 502, 503, 504})
_EXPIRED = frozenset({"ExpiredToken", "TokenRefreshRequired", "RequestTimeTooSkewed", "InvalidToken"})
"""Codes that come with 400, and mean other credentials, or another time, all the same."""


class _StoreRequest(NamedTuple):
    """A request: its key in the bucket, parameters, headers and payload."""

    method: str
    key: str = ""
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = {}
    data: bytes = b""


class _PlainConnection(http.client.HTTPConnection):
    """Sends the head of a request in one write with a small payload, so that the store reads both at once."""

    holds_head = False
    _head = b""

    def send(self, data: Any) -> None:
        """Send a part of a request; `holds_head`: the first one waits for the next."""
        if self.holds_head:
            self.holds_head, self._head = False, data
            return
        data, self._head = (self._head + data if self._head else data), b""
        super().send(data)


class _SecureConnection(_PlainConnection, http.client.HTTPSConnection):
    """The same over TLS."""


class S3Store:
    """One bucket (`object_store.ObjectStore`)."""

    def __init__(
        self,
        access: StoreAccess,
        bucket: str,
        clock: Callable[[], float] = time.time,
        patience: float = ANSWER_SECONDS,
        credentials: Optional[CredentialsReader] = None,
    ) -> None:
        self._patience = patience
        self._access = access
        self._bucket = bucket
        self._clock = clock
        self._credentials: CredentialsReader = credentials or CredentialsSource(access)
        self._url = urlsplit(access.address)
        self._threads = threading.local()
        self._connections: set[_PlainConnection] = set()
        """Those of all threads."""

    def close(self) -> None:
        """Close all connections."""
        while self._connections:
            self._connections.pop().close()

    def list_objects(self, prefix: str, *, level: bool = False) -> Iterator[StoredObject]:
        """All objects whose key begins so; with `level` those of further folders as one whose key ends in a slash."""
        token = ""
        while True:
            query = [("list-type", "2"), ("max-keys", "1000"), ("prefix", prefix)]
            if level:
                query.append(("delimiter", "/"))
            if token:
                query.append(("continuation-token", token))
            answer = _parse(self._ask(_StoreRequest("GET", query=tuple(query))))
            for entry in answer.iter("Contents"):
                yield _read_entry(entry)
            for entry in answer.iter("CommonPrefixes"):
                yield StoredObject(entry.findtext("Prefix") or "", 0, "")
            token = answer.findtext("NextContinuationToken") or ""
            if not token:
                return

    def find(self, key: str) -> StoredObject:
        """One object's facts."""
        response = self._send(_StoreRequest("HEAD", key))
        response.read()
        return _read_headers(key, response)

    def open(self, key: str, offset: int = 0, etag: str = "", size: int = 0) -> S3Reader:
        """An object's content; with an etag only of that version, with a size no more than so many bytes."""
        headers = {"if-match": f'"{etag}"'} if etag else {}
        if offset or size:
            headers["range"] = f"bytes={offset}-{offset + size - 1 if size else ''}"
        response = self._send(_StoreRequest("GET", key, headers=headers))
        return S3Reader(self, key, response)

    def put(self, key: str, data: bytes, *, new: bool = False) -> str:
        """Write an object in one request, and give its etag; `new`: only where there is none."""
        headers = {"if-none-match": "*"} if new else {}
        response = self._send(_StoreRequest("PUT", key, headers=headers, data=data))
        response.read()
        return _strip(response.headers.get("etag", ""))

    def begin_upload(self, key: str, part_size: int) -> str:
        """Begin an upload in parts and give its id."""
        headers = {f"x-amz-meta-{PART_SIZE}": str(part_size)}
        answer = _parse(self._ask(_StoreRequest("POST", key, (("uploads", ""),), headers)))
        return answer.findtext("UploadId") or ""

    def put_part(self, key: str, upload: str, number: int, data: bytes) -> SentPart:
        """Send one part."""
        query = (("partNumber", str(number)), ("uploadId", upload))
        response = self._send(_StoreRequest("PUT", key, query, data=data))
        response.read()
        return SentPart(number, _strip(response.headers.get("etag", "")))

    def finish_upload(self, key: str, upload: str, parts: Sequence[SentPart]) -> str:
        """Make the parts one object, and give its etag."""
        rows = "".join(
            f"<Part><PartNumber>{part.number}</PartNumber><ETag>&quot;{escape(part.etag)}&quot;</ETag></Part>"
            for part in parts
        )
        body = f"<CompleteMultipartUpload>{rows}</CompleteMultipartUpload>".encode()
        answer = _parse(self._ask(_StoreRequest("POST", key, (("uploadId", upload),), data=body)))
        if answer.tag.rpartition("}")[2] == "Error":
            # S3 answers 200 before it knows.
            raise ObjectStoreError(
                StoreTrouble.SILENT, self._name(f"{answer.findtext('Code')}: {answer.findtext('Message')}")
            )
        return _strip(answer.findtext("ETag") or "")

    def abandon_upload(self, key: str, upload: str) -> None:
        """Remove the parts of an upload."""
        self._ask(_StoreRequest("DELETE", key, (("uploadId", upload),)))

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is fine."""
        self._ask(_StoreRequest("DELETE", key))

    # --- the bucket itself -------------------------------------------------------------------------------------------

    def has_bucket(self) -> bool:
        """Whether it is there. DENIED for another owner's, and where these credentials may not ask."""
        try:
            self._ask(_StoreRequest("HEAD"))
        except ObjectStoreError as error:
            if error.trouble is StoreTrouble.MISSING:
                return False
            raise
        return True

    def make_bucket(self) -> bool:
        """Make it; False where it was there and is this owner's. TAKEN where it is another owner's."""
        region = self._access.region
        # Of its first region Amazon takes no name.
        body = b"" if region == _FIRST_REGION else _REGION.format(escape(region)).encode()
        try:
            self._ask(_StoreRequest("PUT", data=body))
        except ObjectStoreError as error:
            if error.code == "BucketAlreadyOwnedByYou":
                return False
            raise
        return True

    def remove_bucket(self) -> None:
        """Remove all that is in it, and it; one that is not there is fine."""
        try:
            for stored in list(self.list_objects("")):
                self.delete(stored.key)
            self._ask(_StoreRequest("DELETE"))
        except ObjectStoreError as error:
            if error.trouble is not StoreTrouble.MISSING:
                raise

    # --- requests ----------------------------------------------------------------------------------------------------

    def _ask(self, request: _StoreRequest) -> bytes:
        response = self._send(request)
        return self.read(response)

    def read(self, response: http.client.HTTPResponse, size: Optional[int] = None) -> bytes:
        """Bytes of an answer. Raises ObjectStoreError where it breaks off."""
        try:
            return response.read(size)
        except (OSError, http.client.HTTPException) as error:
            self.drop_connection()
            raise self._silence(error) from None

    def _send(self, request: _StoreRequest) -> http.client.HTTPResponse:
        """Send a request and give its answer, whose status says that it worked.

        Once more where the credentials do not count and there are others by now.
        """
        credentials = self._credentials.load()
        try:
            return self._send_signed(request, credentials)
        except ObjectStoreError as error:
            if error.trouble is not StoreTrouble.DENIED:
                raise
            self._credentials.doubt()
            fresh = self._credentials.load()
            if fresh == credentials:
                raise
        return self._send_signed(request, fresh)

    def _send_signed(self, request: _StoreRequest, credentials: Optional[Credentials]) -> http.client.HTTPResponse:
        path = f"{self._url.path.rstrip('/')}/{quote_path(self._bucket)}/{quote_path(request.key)}"
        headers = self._authorise(request, path, credentials)
        target = f"{path}?{quote_query(request.query)}" if request.query else path
        reused, connection = self._connect()
        try:
            response = self._exchange(connection, request, target, headers)
        except (OSError, http.client.HTTPException) as error:
            self.drop_connection()
            if not reused or isinstance(error, TimeoutError):
                raise self._silence(error) from None
            # A kept connection that the store has closed meanwhile.
            response = self._exchange_anew(request, target, headers)
        if response.status >= 300:
            raise self._refuse(response, request)
        return response

    def _exchange_anew(
        self, request: _StoreRequest, target: str, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        try:
            return self._exchange(self._connect()[1], request, target, headers)
        except (OSError, http.client.HTTPException) as error:
            self.drop_connection()
            raise self._silence(error) from None

    def _exchange(
        self, connection: _PlainConnection, request: _StoreRequest, target: str, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        connection.holds_head = 0 < len(request.data) <= _SMALL
        connection.request(request.method, target, request.data or None, dict(headers))
        return connection.getresponse()

    def _authorise(self, request: _StoreRequest, path: str, credentials: Optional[Credentials]) -> dict[str, str]:
        headers = dict(request.headers)
        if request.data or request.method in ("PUT", "POST"):
            headers["content-length"] = str(len(request.data))
        if credentials is None:
            return headers
        if self._url.scheme == "https" and len(request.data) > _SMALL:
            payload = UNSIGNED
        else:
            payload = hashlib.sha256(request.data).hexdigest() if request.data else EMPTY
        signed = SignedRequest(request.method, self._url.netloc, path, request.query, headers, payload)
        return sign(signed, credentials, self._access.region, self._clock())

    def _connect(self) -> tuple[bool, _PlainConnection]:
        """This thread's connection, and whether it was in use before."""
        kept: Optional[_PlainConnection] = getattr(self._threads, "connection", None)
        if kept is not None:
            return True, kept
        host, port = self._url.hostname or "", self._url.port
        made: _PlainConnection
        if self._url.scheme == "https":
            context = ssl.create_default_context()
            made = _SecureConnection(host, port, timeout=self._patience, context=context)
        else:
            made = _PlainConnection(host, port, timeout=self._patience)
        self._threads.connection = made
        self._connections.add(made)
        return False, made

    def drop_connection(self) -> None:
        """Close this thread's connection: what is on it is of no use any more."""
        kept: Optional[_PlainConnection] = getattr(self._threads, "connection", None)
        if kept is not None:
            kept.close()
            self._connections.discard(kept)
            self._threads.connection = None

    # --- failures ----------------------------------------------------------------------------------------------------

    def _silence(self, error: Exception) -> ObjectStoreError:
        return ObjectStoreError(StoreTrouble.SILENT, self._name(f"does not answer: {error or type(error).__name__}"))

    def _refuse(self, response: http.client.HTTPResponse, request: _StoreRequest) -> ObjectStoreError:
        try:
            body = response.read(_SMALL)
            if response.length:
                self.drop_connection()
        except (OSError, http.client.HTTPException):
            self.drop_connection()
            body = b""
        code, message = _read_error(body)
        status, what = response.status, " ".join(filter(None, (code, message))) or response.reason
        words = self._name(f"answers {status} to {request.method} {self._bucket}/{request.key}: {what[:300]}")
        if status in _SILENT:
            return ObjectStoreError(StoreTrouble.SILENT, words, code)
        if status in (401, 403) or code in _EXPIRED:
            return ObjectStoreError(StoreTrouble.DENIED, words, code)
        if status == 404:
            return ObjectStoreError(StoreTrouble.MISSING, words, code)
        if status in (409, 412):
            return ObjectStoreError(StoreTrouble.TAKEN, words, code)
        return ObjectStoreError(StoreTrouble.REFUSED, words, code)

    def _name(self, text: str) -> str:
        return f"the store {self._access.name} ({self._url.netloc}) {text}"


class S3Reader:
    """The content of an object, as it comes (`object_store.ObjectReader`)."""

    def __init__(self, store: S3Store, key: str, response: http.client.HTTPResponse) -> None:
        self._store = store
        self._response = response
        self.stored = _read_headers(key, response)
        text = response.headers.get(f"x-amz-meta-{PART_SIZE}", "")
        self.part_size = int(text) if text.isdigit() else 0
        headers = response.headers
        hidden = "x-amz-server-side-encryption-customer-algorithm" in headers
        self.etag_is_hash = not hidden and "kms" not in headers.get("x-amz-server-side-encryption", "")

    def read(self, size: int) -> bytes:
        """The next bytes, empty at the end. Raises ObjectStoreError."""
        return self._store.read(self._response, size)

    def close(self) -> None:
        """Leave the rest: the connection is of no use then."""
        if not self._response.isclosed():
            self._store.drop_connection()


def _read_entry(entry: ElementTree.Element) -> StoredObject:
    text = entry.findtext
    modified = _read_time(text("LastModified") or "", "%Y-%m-%dT%H:%M:%S")
    return StoredObject(text("Key") or "", int(text("Size") or 0), _strip(text("ETag") or ""), modified)


def _read_headers(key: str, response: http.client.HTTPResponse) -> StoredObject:
    headers = response.headers
    # Of a part of an object, the whole size is in Content-Range: bytes 5-9/10.
    size = headers.get("content-range", "").rpartition("/")[2] or headers.get("content-length", "0")
    modified = _read_time(headers.get("last-modified", ""), "%a, %d %b %Y %H:%M:%S")
    return StoredObject(key, int(size) if size.isdigit() else 0, _strip(headers.get("etag", "")), modified)


def _read_time(text: str, form: str) -> float:
    try:
        return float(calendar.timegm(time.strptime(text.partition(".")[0].replace(" GMT", "").rstrip("Z"), form)))
    except ValueError:
        return 0.0


def _parse(body: bytes) -> ElementTree.Element:
    """An answer's document, with names that are free of its namespace."""
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError:
        raise ObjectStoreError(StoreTrouble.SILENT, "the store answers with something that is no XML") from None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def _read_error(body: bytes) -> tuple[str, str]:
    try:
        root = _parse(body)
    except ObjectStoreError:
        return "", ""
    return root.findtext("Code") or "", root.findtext("Message") or ""


def _strip(etag: str) -> str:
    return etag.strip('"')
