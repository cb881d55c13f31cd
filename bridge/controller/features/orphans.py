"""Reconciles a cluster's launches with the store (`span fsck`): orphans, and jobs whose launch is missing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from overspan.adapters.abilities import Cleanup, Trace, Traces
from overspan.adapters.contract import Adapter
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.recording import Recorder
from overspan.bridge.controller.core.releases import LaunchReleases


class LaunchStanding(StrEnum):
    """What the store says of a launch that a cluster has."""

    LIVE = "live"
    """Its job is watched, or its submission owed."""
    LEFT = "left"
    """An orphan: this installation made it, and no job wants it."""
    OTHER = "other"
    """Another installation's: only that one knows."""


@dataclass(frozen=True)
class FoundLaunch:
    """One launch on a cluster; `removed` tells that it was taken away just now."""

    trace: Trace
    standing: LaunchStanding
    removed: bool = False


@dataclass(frozen=True)
class OrphanReport:
    """What a check found; `missing` are jobs that the cluster is to have and has nothing of.

    `looked` is False where launches leave nothing that could be listed.
    """

    installation: str
    looked: bool = True
    found: tuple[FoundLaunch, ...] = ()
    missing: tuple[int, ...] = ()
    damaged: tuple[str, ...] = ()
    """Rows of the store that cannot be read, a sentence each; what they are about is left as it is."""


@dataclass(frozen=True)
class OrphanRemoval:
    """What to remove: this installation's orphans, and everything of `installations`, or of all others."""

    release: bool = False
    installations: tuple[str, ...] = ()
    all_installations: bool = False

    def takes(self, found: FoundLaunch) -> bool:
        """Whether a launch is to go."""
        if not self.release or found.standing is LaunchStanding.LIVE:
            return False
        return (
            found.standing is LaunchStanding.LEFT
            or self.all_installations
            or found.trace.installation in self.installations
        )


class OrphanCheck:
    """Finds and removes what launches have left."""

    def __init__(self, recorder: Recorder, clusters: Clusters, releases: LaunchReleases) -> None:
        self._recorder = recorder
        self._clusters = clusters
        self._releases = releases

    async def check(self, name: str, sweep: OrphanRemoval) -> OrphanReport:
        """Compare a cluster with the store, and remove what is asked for. NotFound, Unreachable, Denied."""
        installation = self._recorder.completion.installation
        adapter = self._clusters.get(name).adapter
        if not isinstance(adapter, Traces):
            return await self._release(name, adapter, installation, sweep)
        before = frozenset(self._recorder.registry.watched(name))
        traces = await adapter.find_traces()
        # After the look: what is submitted from here on is not among them.
        handles, tokens = self._releases.wanted()
        live = {entry.job.id for entry in self._recorder.registry if not entry.job.over}
        found = [_judge(trace, installation, handles, tokens, live) for trace in traces]
        going = [one.trace for one in found if sweep.takes(one)]
        if going:
            await adapter.remove_traces(going)
        absent = (before & self._recorder.registry.watched(name).keys()) - {trace.handle for trace in traces}
        missing = [
            entry.job.id for entry in self._recorder.registry if entry.cluster == name and entry.handle in absent
        ]
        told = tuple(FoundLaunch(one.trace, one.standing, sweep.takes(one)) for one in found)
        return OrphanReport(installation, True, told, tuple(sorted(missing)), self._list_damages(name))

    async def _release(self, name: str, adapter: Adapter, installation: str, sweep: OrphanRemoval) -> OrphanReport:
        """Have a cluster that cannot list its launches remove the unwanted ones."""
        if sweep.release and isinstance(adapter, Cleanup):
            await adapter.release(installation, *self._releases.wanted())
        return OrphanReport(installation, looked=False, damaged=self._list_damages(name))

    def _list_damages(self, name: str) -> tuple[str, ...]:
        """What cannot be read of jobs on a cluster, and of what is on none."""
        damages = self._recorder.repository.damages
        return tuple(damage.text for damage in damages if damage.cluster in ("", name))


def _judge(
    trace: Trace, installation: str, handles: Collection[str], tokens: Collection[str], live: Collection[int]
) -> FoundLaunch:
    if trace.handle in handles or trace.token in tokens:
        return FoundLaunch(trace, LaunchStanding.LIVE)
    if trace.installation != installation:
        return FoundLaunch(trace, LaunchStanding.OTHER)
    # What the next launch of a live job takes over is that job's, whether it has been submitted or not.
    return FoundLaunch(trace, LaunchStanding.LIVE if trace.resumes and trace.job in live else LaunchStanding.LEFT)
