"""The logs of an array's elements, read as if they were the logs of one job."""

from __future__ import annotations

from typing import Protocol

from overspan.bridge.client.log_reading import LogSource
from overspan.bridge.client.messages import LogPart, Outcome, Stream, StreamKey
from overspan.bridge.client.records import JobFilter, Listing
from overspan.bridge.model.errors import OverspanError


class ElementSource(LogSource, Protocol):
    """What reading the logs of elements needs of a client."""

    def queue(self, wanted: JobFilter) -> Listing:
        """Jobs that have not ended."""

    def history(self, wanted: JobFilter) -> Listing:
        """Jobs of any age."""


class ArrayLogs:
    """Lists the logs of every element that has started; `N` is all of an array, `N_[1-3]` some of it.

    The logs of an element that has ended are listed once.
    """

    def __init__(self, client: ElementSource) -> None:
        self._client = client
        self._ended: dict[tuple[str, bool], list[Stream]] = {}
        """By element, and whether its times were asked for."""

    def streams(self, ref: str, times: bool = False) -> list[Stream]:
        """The logs of all elements. Raises the reason if there is none."""
        trouble: OverspanError | None = None
        found: list[Stream] = []
        for row in self._client.history(JobFilter(ids=(ref,))).rows:
            if row.array_index is None:
                continue
            streams = self._ended.get((row.ref, times))
            if streams is None:
                try:
                    streams = [stream._replace(job=row.ref) for stream in self._client.streams(row.ref, times)]
                except OverspanError as error:
                    # An element that cannot be read hides no other's output.
                    trouble = error
                    continue
                if row.ended_at is not None:
                    self._ended[row.ref, times] = streams
            found += streams
        if trouble is not None and not found:
            raise trouble
        return found

    def log_part(self, ref: str, key: StreamKey, offset: int = 0, limit: int = 1 << 20) -> LogPart:
        """Bytes of one element's log."""
        return self._client.log_part(key.job, key, offset, limit)

    def wait(self, ref: str, timeout: float | None = None) -> Outcome:
        """Wait for the end of the elements."""
        if "[" not in ref:
            return self._client.wait(ref, timeout)
        rows = self._client.queue(JobFilter(ids=(ref,))).rows
        if not rows:
            return Outcome(True, "COMPLETED")
        return self._client.wait(rows[0].ref, timeout)._replace(over=False)
