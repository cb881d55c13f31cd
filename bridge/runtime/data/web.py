"""Files of web servers, as objects that are only read: one for each https:// URL, by the standard library alone.

A server is asked for the first byte, since one that gives a file may refuse HEAD for it (URLs that are signed). Who may
read is in the URL, so no message has the part of it behind `?`.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from email.message import Message
from typing import IO, Optional

from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoredObject, StoreTrouble

ANSWER_SECONDS = 60.0
"""Silence of a server after which a request has failed."""
_SILENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_FORBIDDEN = frozenset({401, 403, 407})
_MISSING = frozenset({404, 410})
_NO_RANGE = 416


class WebStore:
    """The files of one server, by the paths of their URLs (the reading part of `object_store.ObjectStore`)."""

    def __init__(self, host: str, patience: float = ANSWER_SECONDS) -> None:
        self._host = host
        self._patience = patience
        self._opener = urllib.request.build_opener(_SafeRedirects())

    def list_objects(self, prefix: str, *, level: bool = False) -> Iterator[StoredObject]:
        """The one file."""
        yield self.find(prefix)

    def find(self, key: str) -> StoredObject:
        """A file's facts. Its version is what the server gives: an etag, else the time of the last change."""
        try:
            with self._ask(key, {"Range": "bytes=0-0"}) as response:
                return _read_facts(key, response.status, response.headers, self._name(key))
        except _EmptyFile as empty:
            return _read_facts(key, _NO_RANGE, empty.headers, self._name(key))

    def open(self, key: str, offset: int = 0, etag: str = "") -> WebReader:
        """A file's content from there; TAKEN where this version of it is gone."""
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        try:
            response = self._ask(key, headers)
        except _EmptyFile:
            raise ObjectStoreError(StoreTrouble.TAKEN, f"{self._name(key)} has become shorter") from None
        found = _name_version(response.headers)
        if (offset and response.status != 206) or (etag and found and found != etag):
            response.close()
            raise ObjectStoreError(StoreTrouble.TAKEN, f"{self._name(key)} gives another version, or no part of it")
        return WebReader(StoredObject(key, 0, etag or found), response, self._name(key))

    def close(self) -> None:
        """Each request has a connection of its own."""

    def _ask(self, key: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        request = urllib.request.Request(
            f"https://{self._host}/{key}", headers={"Accept-Encoding": "identity", **headers}
        )
        try:
            response: http.client.HTTPResponse = self._opener.open(request, timeout=self._patience)
            return response
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == _NO_RANGE and "Range" in headers:
                raise _EmptyFile(error.headers) from None
            raise ObjectStoreError(
                _judge(error.code), f"{self._name(key)} answers {error.code} {error.reason}"
            ) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            refused = isinstance(reason, ssl.SSLCertVerificationError) or isinstance(error, ValueError)
            trouble = StoreTrouble.REFUSED if refused else StoreTrouble.SILENT
            raise ObjectStoreError(trouble, f"{self._name(key)} cannot be asked: {reason}") from None

    def _name(self, key: str) -> str:
        return f"https://{self._host}/{key.partition('?')[0]}"


class WebReader:
    """The content of a file, as it comes (`object_store.ObjectReader`)."""

    part_size = 0
    etag_is_hash = False

    def __init__(self, stored: StoredObject, response: http.client.HTTPResponse, name: str) -> None:
        self.stored = stored
        self._response = response
        self._name = name

    def read(self, size: int) -> bytes:
        """The next bytes, empty at the end. Raises ObjectStoreError."""
        try:
            return self._response.read(size)
        except (OSError, http.client.HTTPException) as error:
            raise ObjectStoreError(StoreTrouble.SILENT, f"{self._name} breaks off: {error}") from None

    def close(self) -> None:
        """Leave the rest."""
        self._response.close()


class _EmptyFile(Exception):
    """The server has no byte there."""

    def __init__(self, headers: Message) -> None:
        super().__init__()
        self.headers = headers


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect from https to http, where the file could be changed on its way."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> Optional[urllib.request.Request]:
        """The next request. Raises ValueError for one without TLS."""
        if not newurl.lower().startswith("https://"):
            fp.close()
            raise ValueError("it leads to a place without TLS")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _read_facts(key: str, status: int, headers: Message, name: str) -> StoredObject:
    # Of a part of a file, the whole size is in Content-Range: bytes 0-0/10.
    text = headers.get("content-range", "").rpartition("/")[2] if status != 200 else headers.get("content-length", "")
    if not text.isdigit():
        raise ObjectStoreError(StoreTrouble.REFUSED, f"{name} does not say how long it is")
    return StoredObject(key, int(text), _name_version(headers))


def _name_version(headers: Message) -> str:
    return (headers.get("etag") or headers.get("last-modified") or "").strip()


def _judge(status: int) -> StoreTrouble:
    if status in _SILENT:
        return StoreTrouble.SILENT
    if status in _FORBIDDEN:
        return StoreTrouble.DENIED
    return StoreTrouble.MISSING if status in _MISSING else StoreTrouble.REFUSED
