"""Object stores, as the daemon reaches them: `Client().storage`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from overspan.bridge.client.connection import ConnectionClosed
from overspan.bridge.client.transport import FORMAT, quote_part
from overspan.bridge.model.errors import Unreachable, error_from_document

if TYPE_CHECKING:
    from overspan.bridge.client.client import Client

SILENT_SECONDS = 120.0
RESCUE_SECONDS = 3700.0
"""The longest time of a rescue, which answers at its end; a cluster gives up after an hour."""


class TransferStep(NamedTuple):
    """How far a transfer is: files and bytes, and those that there are; 0 while that is not known.

    `links` are symbolic links that are left out, since no store can hold them.
    """

    files: int
    size: int
    total_files: int
    total_size: int
    links: int = 0


class StorageCalls:
    """What can be asked of object stores."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list_objects(self, url: str, deep: bool = False) -> dict[str, Any]:
        """What is below a URL: {objects: [{key, size, etag, modified}], truncated}; folders end in a slash."""
        return self._client._post("/v1/storage/list", {"url": url, "deep": deep})

    def measure(self, url: str) -> tuple[int, int]:
        """How many objects are below a URL, and their bytes."""
        answer = self._client._post("/v1/storage/measure", {"url": url})
        return int(answer["files"]), int(answer["size"])

    def remove(self, url: str, deep: bool = False) -> int:
        """Remove an object, or all below a URL; how many there were."""
        return int(self._client._post("/v1/storage/remove", {"url": url, "deep": deep})["removed"])

    def put(self, path: str, url: str) -> Iterator[TransferStep]:
        """Send a file or folder of this machine; how far that is, until it is done."""
        return self._transfer("/v1/storage/put", path, url)

    def get(self, url: str, path: str) -> Iterator[TransferStep]:
        """Fetch an object or folder to this machine; how far that is, until it is done."""
        return self._transfer("/v1/storage/get", path, url)

    def upload(
        self, uploads: Sequence[Mapping[str, Any]], follow: Callable[[Iterable[TransferStep]], Any]
    ) -> list[str]:
        """Send what the answer to a submission names, before it is given again; notes for the submitter."""
        notes = []
        for upload in uploads:
            links = 0

            def count(steps: Iterator[TransferStep]) -> Iterator[TransferStep]:
                nonlocal links
                for step in steps:
                    links = step.links
                    yield step

            follow(count(self._follow("/v1/storage/upload", upload)))
            if links:
                what = f"{links} symbolic link{'s' * (links != 1)}"
                notes.append(f"{what} left out: the bucket {upload['bucket']} holds files alone")
        return notes

    def rescue(self, ref: str) -> dict[str, Any]:
        """Send the data that an ended job could not: {files, size, newer}."""
        return self._wait_long(f"/v1/jobs/{quote_part(ref)}/rescue", {})

    def list_unsent(self, cluster: str = "") -> dict[str, Any]:
        """What ended jobs could not send: {unsent: [{cluster, job, task, url, store, files, size, written_at, state,
        place, until}], notes}, of a cluster or of all."""
        return self._wait_long("/v1/unsent/list", {"cluster": cluster})

    def remove_unsent(self, ref: str) -> dict[str, Any]:
        """Remove what an ended job could not send: {job, cluster, files, size}."""
        return self._wait_long(f"/v1/jobs/{quote_part(ref)}/unsent/remove", {})

    def _wait_long(self, target: str, body: Mapping[str, Any]) -> dict[str, Any]:
        data = json.dumps({"format": FORMAT, **body}).encode()
        return self._client._read(self._client._request("POST", target, data, timeout=RESCUE_SECONDS))

    def _transfer(self, target: str, path: str, url: str) -> Iterator[TransferStep]:
        return self._follow(target, {"path": os.path.abspath(path), "url": url})

    def _follow(self, target: str, body: Mapping[str, Any]) -> Iterator[TransferStep]:
        with self._client._sibling() as own:
            data = json.dumps({"format": FORMAT, **body}).encode()
            answer = own._request("POST", target, data, timeout=SILENT_SECONDS)
            try:
                for line in answer.lines():
                    document = json.loads(line)
                    if "error" in document:
                        raise error_from_document(document["error"])
                    if document.get("done"):
                        return
                    yield TransferStep(**document)
            except (ConnectionClosed, OSError) as error:
                raise Unreachable(f"the daemon went away in the middle of it: {error}") from None
        raise Unreachable("the daemon went away in the middle of it", remedy="give the command again: it goes on")
