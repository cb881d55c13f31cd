"""The port of checkpoint sources: how an adapter looks at the folders where jobs write checkpoints.

A source only looks and keeps lease files. Which checkpoint is complete, and what is done about it, is decided by the
daemon from two listings (`bridge/model/checkpoints/readiness.py`), alike for all sources.
`bridge/runtime/checkpoints/scan.py` does all the looking: its text runs alone wherever Python 3.9 is, given
`encode_requests` on stdin; `decode_listings` reads its answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from overspan.bridge.model.checkpoints.listings import FolderListing, ListingRequest
from overspan.bridge.model.job import Job


@dataclass(frozen=True)
class WatchedFolder:
    """What is looked at, and for whom: `task` of `job` writes checkpoints there.

    `handle` is the job's present launch there, empty where it has none: the job may be over, and its last checkpoints
    be looked for still. The job tells what a source may need besides: its owner, images and volumes.
    """

    request: ListingRequest
    job: Job
    task: str
    handle: str = ""


@runtime_checkable
class CheckpointSource(Protocol):
    """The adapter can look at folders of its cluster. It is asked once a tick, for all watches at once."""

    async def list_checkpoints(self, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        """A listing of each, in order.

        What is wrong with one folder is in its listing (`unreadable`). Raises Unreachable when the cluster does not
        answer: then nothing was seen, and it is asked again.
        """
        ...


@runtime_checkable
class FolderCheck(Protocol):
    """A source that knows of a job that waits whether its folder can be looked at."""

    def check_folder(self, job: Job, task: str, path: str) -> None:
        """Raise InvalidRequest for a folder that this source could not look at."""
        ...


@runtime_checkable
class CheckpointNews(Protocol):
    """A source that is told of changes: it is asked again at once, and only now and then besides."""

    async def await_changes(self, folders: Sequence[WatchedFolder], timeout: float) -> bool:
        """Wait until something may have changed in one of them, at most `timeout` seconds; whether it has."""
        ...
