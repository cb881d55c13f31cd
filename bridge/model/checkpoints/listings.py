"""What is asked of a source of checkpoints, and what it answers.

A source only looks: it lists one folder for each watch, says what it saw, and keeps lease files there. Whether a
checkpoint is complete is decided from two of its answers (`checkpoint_readiness.py`), so all sources agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

from overspan.bridge.model.records import dataclass

MAX_MARKER = 4096
"""Bytes of a marker that are read."""
MAX_FILES = 4096
"""Files of one checkpoint that are told."""
MAX_CHECKPOINTS = 50_000
"""Checkpoints that one listing tells; above that it is truncated."""


@dataclass(frozen=True)
class ListingRequest:
    """One watched folder.

    `parts` are the pattern's regular expressions, one a folder level. `marker` is a name inside a checkpoint, or, with
    `{name}` in it, beside it. Names in `settled` are not looked at: only that one is gone is told. `pins` are the
    checkpoints that are being read: each has a lease file beside it, and those of others that Overspan wrote there for
    this `owner` are removed.
    """

    key: str
    path: str
    parts: tuple[str, ...]
    marker: str = ""
    settled: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    owner: str = ""


@dataclass(frozen=True)
class FoundFile:
    """A file of a checkpoint: its name below it, and its bytes.

    `whole` is whether its own format says that it is complete (safetensors, zip); None where the format cannot tell.
    """

    name: str
    size: int
    whole: Optional[bool] = None


@dataclass(frozen=True)
class FoundMarker:
    """The marker of a checkpoint. `time` is its mtime in nanoseconds; `text` its first 4 KiB, escaped."""

    size: int
    time: int
    text: str = ""


@dataclass(frozen=True)
class FoundCheckpoint:
    """One name that fits the pattern.

    `files` are all files below a folder, or the file itself with an empty name; `truncated` is whether some were left
    out. `shards` are the files that a safetensors index names. `unreadable` says why it could not be looked into.
    """

    name: str
    folder: bool
    time: float = 0.0
    """Its mtime in seconds since the epoch, by the source's clock: shown, never compared."""
    files: tuple[FoundFile, ...] = ()
    marker: Optional[FoundMarker] = None
    shards: Optional[tuple[str, ...]] = None
    truncated: bool = False
    unreadable: str = ""

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class FolderListing:
    """What was seen for one request, which `key` names: what fits and is not settled, and what of the settled is gone.

    `beside` are the texts of small files in the watched folder that name the newest complete checkpoint (DeepSpeed's
    `latest`, Megatron's `latest_checkpointed_iteration.txt`). `others` are a few names that do not fit the pattern.
    `unreadable` says why nothing could be seen; `found` is empty then. `unpinned` says why a lease was not written.
    """

    key: str
    found: tuple[FoundCheckpoint, ...] = ()
    gone: tuple[str, ...] = ()
    beside: tuple[tuple[str, str], ...] = ()
    others: tuple[str, ...] = ()
    unreadable: str = ""
    missing: bool = False
    """Whether the folder is not there, which is no fault before the first checkpoint."""
    truncated: bool = False
    unpinned: str = ""

    def text_beside(self, name: str) -> Optional[str]:
        """The text of a small file in the watched folder; None where there is none."""
        return dict(self.beside).get(name)


def encode_requests(requests: Iterable[ListingRequest]) -> list[dict[str, Any]]:
    """The requests as the scanner reads them (`runtime/checkpoints/scan.py`): plain data."""
    return [encode_request(request) for request in requests]


def encode_request(request: ListingRequest) -> dict[str, Any]:
    """One request as plain data."""
    return {
        "key": request.key,
        "path": request.path,
        "parts": list(request.parts),
        "marker": request.marker,
        "settled": list(request.settled),
        "pins": list(request.pins),
        "owner": request.owner,
    }


def decode_listings(answers: Any) -> list[FolderListing]:
    """The listings of what the scanner answered. Raises ValueError for what it never answers."""
    try:
        return [_decode_listing(answer) for answer in answers]
    except (TypeError, KeyError, AttributeError, IndexError) as error:
        raise ValueError(f"not an answer of the checkpoint scanner: {type(error).__name__}: {error}") from None


def fail_listing(request: ListingRequest, why: str) -> FolderListing:
    """The listing of a folder that could not be looked at."""
    return FolderListing(request.key, unreadable=why)


def _decode_listing(answer: Any) -> FolderListing:
    return FolderListing(
        key=str(answer["key"]),
        found=tuple(map(_decode_checkpoint, answer.get("found", ()))),
        gone=tuple(map(str, answer.get("gone", ()))),
        beside=tuple((str(name), str(text)) for name, text in answer.get("beside", {}).items()),
        others=tuple(map(str, answer.get("others", ()))),
        unreadable=str(answer.get("unreadable", "")),
        missing=bool(answer.get("missing", False)),
        truncated=bool(answer.get("truncated", False)),
        unpinned=str(answer.get("unpinned", "")),
    )


def _decode_checkpoint(found: Any) -> FoundCheckpoint:
    marker, shards = found.get("marker"), found.get("shards")
    return FoundCheckpoint(
        str(found["name"]),
        bool(found.get("folder", False)),
        time=float(found.get("time", 0.0)),
        files=tuple(FoundFile(str(name), int(size), whole) for name, size, whole in found.get("files", ())),
        marker=None if marker is None else FoundMarker(int(marker[0]), int(marker[1]), str(marker[2])),
        shards=None if shards is None else tuple(map(str, shards)),
        truncated=bool(found.get("truncated", False)),
        unreadable=str(found.get("unreadable", "")),
    )
