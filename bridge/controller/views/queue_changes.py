"""Changes of the queue behind a version that a client holds: the whole rows of each job that changed."""

from __future__ import annotations

import asyncio
import json
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.bridge.controller.core.recording import Clock
from overspan.bridge.controller.core.registry import JobEntry, Registry
from overspan.bridge.controller.core.rows import send_rows
from overspan.bridge.controller.views.cluster_health import ClusterHealth
from overspan.bridge.controller.views.listing import ALL, RowChoices, RowView, Selection, read_choices

LOOK_AT_CLUSTERS = 5.0
"""Seconds after which a waiting client learns that a cluster does not answer any more."""


class Version(NamedTuple):
    """What a client holds: rows at a revision of one run of the daemon, and the state of the clusters (a checksum)."""

    run: str
    revision: int
    clusters: int

    def __str__(self) -> str:
        return f"{self.run}.{self.revision}.{self.clusters:08x}"


def parse_version(text: str) -> Version | None:
    """Read a version; None for one that this daemon cannot have given."""
    run, _, rest = text.partition(".")
    revision, _, clusters = rest.partition(".")
    try:
        return Version(run, int(revision), int(clusters, 16))
    except ValueError:
        return None


def sum_up_clusters(stale: Sequence[Mapping[str, Any]]) -> int:
    """A checksum of what listings tell of clusters that do not answer."""
    return zlib.crc32(json.dumps(stale, sort_keys=True).encode())


class ChangeFeed:
    """Answers clients that hold the queue and ask for what is new; a version counts for this run of the daemon only."""

    def __init__(self, registry: Registry, health: ClusterHealth, settle: Callable[[], None], clock: Clock) -> None:
        self._registry = registry
        self._changes = registry.changes
        self._health = health
        self._settle = settle
        self._clock = clock
        self._run = uuid.uuid4().hex[:8]
        self._closing = False

    def close(self) -> None:
        """End all waits."""
        self._closing = True
        self._changes.wakeup.wake()

    async def read(self, selection: Selection, version: str, timeout: float) -> bytes:
        """The rows of each job that changed since a version, waiting for a change at most `timeout` seconds.

        A document: `changed` has the jobs whose rows are replaced; one without rows is gone, or does not fit the
        selection any more. `whole`: the rows are all that there are, because the version is not known here.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        held = parse_version(version)
        if held is not None and held.run != self._run:
            held = None
        while True:
            seen = self._changes.wakeup.count
            self._settle()
            stale = self._health.list_stale()
            new = Version(self._run, self._changes.revision, sum_up_clusters(stale))
            left = deadline - loop.time()
            if held != new or left <= 0 or self._closing:
                break
            # No job's change tells that a cluster has fallen silent.
            await self._changes.wakeup.wait(min(left, LOOK_AT_CLUSTERS), seen)
        return self._write(selection, held, new, stale)

    def _write(self, selection: Selection, held: Version | None, new: Version, stale: Sequence[Any]) -> bytes:
        found = None if held is None else self._changes.list_since(held.revision)
        head = {
            "format": 1,
            "now": self._clock(),
            "version": str(new),
            "columns": selection.columns,
            "stale": stale,
            "whole": found is None,
            "changed": found or [],
        }
        entries = iter(self._registry) if found is None else filter(None, map(self._registry.get, found))
        rows = send_rows(list_rows(self._registry, selection, entries), selection.extent)
        return json.dumps(head).encode()[:-1] + b', "rows":[' + b",".join(rows) + b"]}"


def list_rows(registry: Registry, selection: Selection, entries: Iterable[JobEntry]) -> list[bytes]:
    """The encoded rows of those entries that fit; without states in the selection, ended ones have rows too."""
    states = selection.states or frozenset((ALL,))
    choices = read_choices(registry, selection.ids)
    view = RowView(selection, states, choices, registry)
    rows: list[bytes] = []
    for entry in entries:
        if _is_chosen(entry, choices) and selection.fits(entry):
            rows.extend(view.rows(entry))
    return rows


def _is_chosen(entry: JobEntry, choices: RowChoices | None) -> bool:
    """Whether the ids asked for name the job, or the array that it is an element of."""
    element = entry.job.element
    return choices is None or entry.job.id in choices or (element is not None and element.array in choices)
