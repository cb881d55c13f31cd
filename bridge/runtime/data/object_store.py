"""The seam between what moves data and the object stores: what is asked of a store, and how it fails.

`S3Store` is the one that needs nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Protocol

from overspan.bridge.model.records import NamedTuple


class StoreTrouble(str, Enum):
    """What a failed request means for the next one."""

    SILENT = "silent"
    """No answer, or a fault of the store's: it may work in a moment."""
    DENIED = "denied"
    """The credentials do not count, or not any more: it may work with new ones."""
    MISSING = "missing"
    """There is no such bucket or object."""
    TAKEN = "taken"
    """The object is there already, or has changed."""
    REFUSED = "refused"
    """The request will never work."""


class ObjectStoreError(Exception):
    """A request to an object store failed. The text is a sentence without secrets; `code` is the store's, if any."""

    def __init__(self, trouble: StoreTrouble, text: str, code: str = "") -> None:
        super().__init__(text)
        self.trouble = trouble
        self.code = code


class StoredObject(NamedTuple):
    """An object as its store lists it: `etag` names its content, `modified` is seconds since the epoch."""

    key: str
    size: int
    etag: str
    modified: float = 0.0


class SentPart(NamedTuple):
    """A part of an upload that the store has confirmed; numbers count from 1."""

    number: int
    etag: str


class ObjectReader(Protocol):
    """The content of an object from some offset on, and the facts that came with it."""

    stored: StoredObject
    part_size: int
    """Bytes of each part of its upload but the last; 0 where it came in one, or the store does not tell."""
    etag_is_hash: bool
    """Whether the etag is made of MD5 sums of the content."""

    def read(self, size: int) -> bytes:
        """The next bytes, empty at the end. Raises ObjectStoreError."""

    def close(self) -> None:
        """Leave the rest."""


class ReadableStore(Protocol):
    """What can be read of a store. All methods raise ObjectStoreError, and may be called from several threads."""

    def list_objects(self, prefix: str, *, level: bool = False) -> Iterator[StoredObject]:
        """All objects whose key begins so; with `level` those of further folders as one whose key ends in a slash."""

    def find(self, key: str) -> StoredObject:
        """One object's facts."""

    def open(self, key: str, offset: int = 0, etag: str = "") -> ObjectReader:
        """An object's content; with an etag only of that version (TAKEN for another)."""

    def close(self) -> None:
        """Close all connections."""


class ObjectStore(ReadableStore, Protocol):
    """One bucket."""

    def put(self, key: str, data: bytes, *, new: bool = False) -> str:
        """Write an object in one request, and give its etag; `new`: only where there is none (TAKEN)."""

    def begin_upload(self, key: str, part_size: int) -> str:
        """Begin an upload in parts and give its id; nothing is seen of it before its end."""

    def put_part(self, key: str, upload: str, number: int, data: bytes) -> SentPart:
        """Send one part."""

    def finish_upload(self, key: str, upload: str, parts: Sequence[SentPart]) -> str:
        """Make the parts one object, and give its etag."""

    def abandon_upload(self, key: str, upload: str) -> None:
        """Remove the parts of an upload."""

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is fine."""
