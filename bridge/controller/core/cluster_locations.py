"""Binds a cluster's name to one place (a kind and an address) for as long as launches live there.

A handle means nothing outside the place that gave it. Another place would answer that it does not know the launch, and
the job would be started a second time. So nothing is asked of a name that leads elsewhere now, and the jobs of a name
that is no longer configured are left as they are. Both are reported as troubles.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from overspan.adapters.abilities import Trace, Traces
from overspan.adapters.contract import Accepted
from overspan.bridge.controller.core.across.projection import find_handle
from overspan.bridge.controller.core.clusters import Cluster, Clusters
from overspan.bridge.controller.core.outbox import SUBMIT
from overspan.bridge.controller.core.recording import Recorder
from overspan.bridge.lifecycle.stages import is_under_way
from overspan.bridge.model.errors import OverspanError, Unreachable

log = logging.getLogger(__name__)


class ClusterLocations:
    """Stores the place of each cluster's launches, and compares it with the configured one."""

    def __init__(self, recorder: Recorder, clusters: Clusters) -> None:
        self._recorder = recorder
        self.clusters = clusters
        self._homes: dict[str, str] = {}
        """The places of clusters that are no longer configured."""

    async def load(self) -> None:
        """Read the places of launches, before any call to a cluster. Raises StoreFailed."""
        for cluster in self.clusters:
            cluster.settle(await self._recorder.repository.meta(_key(cluster.name)) or "")

    async def look_for_absent(self) -> None:
        """Read the places of clusters that the configuration does not name. Raises StoreFailed."""
        for name in {each for place in self.count_absent() for each in self._list_missing(place)}:
            self._homes[name] = await self._recorder.repository.meta(_key(name)) or ""

    def _list_missing(self, place: str) -> list[str]:
        """The clusters of a place that the configuration does not name."""
        return [name for name in self.clusters.list_single(place) if self.clusters.find(name) is None]

    async def leave(self, cluster: Cluster) -> None:
        """Give up the old place before launches are sent. Raises Unreachable while launches live there."""
        for single in map(self.clusters.get, self.clusters.list_single(cluster.name)):
            if single.displaced:
                # If all that is left is a submission in doubt, no observation loop asks.
                await self.find_again(single)
            _ = single.adapter
            if single.home and single.home != single.place:
                await self._set(single, "")

    async def keep(self, cluster: Cluster, answers: list[object]) -> None:
        """Store the present place once the cluster has accepted a launch there."""
        if not any(isinstance(answer, Accepted) for answer in answers):
            return
        for single in map(self.clusters.get, self.clusters.list_single(cluster.name)):
            if single.home != single.place:
                await self._set(single, single.place)

    async def find_again(self, cluster: Cluster) -> bool:
        """Whether a displaced cluster is the same place at another address, since it has one of the launches.

        Raises Unreachable.
        """
        adapter = cluster.open()
        if not isinstance(adapter, Traces) or self._leads_to_sibling(cluster):
            return False
        name, traces = cluster.name, await adapter.find_traces()
        in_doubt, watched = self._list_in_doubt(name), self._list_watched(name)
        if not any(trace.token in in_doubt or self._is_ours(trace, watched, name) for trace in traces):
            return False
        log.info(
            "cluster %s: %s is the same place as %s",
            cluster.name,
            cluster.place,
            cluster.home,
            extra={"cluster": cluster.name},
        )
        await self._set(cluster, cluster.place)
        # What was ordered meanwhile is due now.
        await self._recorder.change(set(watched.values()), lambda units: None)
        return True

    def count_absent(self) -> Counter[str]:
        """How many live jobs each cluster has that the configuration does not name."""
        places = [name for entry in self._recorder.registry if not entry.job.over for name in set(entry.places())]
        return Counter(name for name in places if name and self.clusters.find(name) is None)

    def find_trouble(self, name: str) -> OverspanError | None:
        """Why the jobs of a cluster are left as they are; None if they are watched."""
        cluster = self.clusters.find(name)
        if cluster is not None:
            try:
                _ = cluster.displaced and cluster.adapter
            except OverspanError as error:
                return error
            return None
        count = self.count_absent()[name]
        if not count:
            return None
        missing = self._list_missing(name)
        homes = [each + (f", which was {self._homes[each]}" if self._homes.get(each) else "") for each in missing]
        live, left = ("live job", "is left as it is") if count == 1 else ("live jobs", "are left as they are")
        whose = f"its {count} {live}" if missing == [name] else f"{count} {live} of {name}"
        return Unreachable(
            f"the configuration does not name the cluster {' and '.join(homes)}: {whose} {left}",
            remedy=f"name it {' and '.join(missing)} again to follow them; `span config` shows the files",
        )

    def list_troubles(self) -> dict[str, OverspanError]:
        """Every cluster whose jobs are left as they are, and why."""
        names = [*(cluster.name for cluster in self.clusters if cluster.home), *sorted(self.count_absent())]
        found = {name: self.find_trouble(name) for name in names}
        return {name: trouble for name, trouble in found.items() if trouble is not None}

    def _leads_to_sibling(self, cluster: Cluster) -> bool:
        """Whether it leads to the place of another side of its groups across: these have their tokens there too."""
        sides = {side for place in self._list_places(cluster.name) for side in self.clusters.list_single(place)}
        found = {side: self.clusters.find(side) for side in sides - {cluster.name}}
        homes = {self._homes.get(side, "") if each is None else each.home for side, each in found.items()}
        return cluster.place in homes

    def _list_places(self, name: str) -> list[str]:
        """The cluster, and what it is a part of, where something is watched or in doubt."""
        queues = {key[0] for key in self._recorder.outbox.queue_keys() if key[1] == SUBMIT}
        places = {*self._recorder.registry.watched_clusters(), *queues}
        return sorted(place for place in places if place == name or name in self.clusters.list_single(place))

    def _list_watched(self, name: str) -> dict[str, int]:
        """Job ids by handle of what is watched on a cluster, of groups across by the handle of their part there."""
        watched = {place: self._recorder.registry.watched(place) for place in self._list_places(name)}
        own = watched.pop(name, {})
        parts = {find_handle(text, name): job for jobs in watched.values() for text, job in jobs.items()}
        # A group may have none there yet.
        return own | {handle: job for handle, job in parts.items() if handle}

    def _is_ours(self, trace: Trace, watched: Mapping[str, int], name: str) -> bool:
        """Whether a trace on a cluster is of a watched launch: by its handle, or by its token."""
        if trace.handle in watched:
            return True
        entry = self._recorder.registry.get(trace.job)
        if trace.installation != self._recorder.completion.installation or entry is None:
            return False
        if find_handle(entry.handle, name) in watched and (
            trace.launch == entry.handle_launch or (trace.resumes and trace.launch < entry.handle_launch)
        ):
            return True
        bids = entry.job.bids
        return any(find_handle(bid.handle, name) in watched and bid.launch == trace.launch for bid in bids)

    def has_launches(self, name: str) -> bool:
        """Whether a cluster has, or may have, launches that are not over, or what a next stage needs."""
        registry = self._recorder.registry
        if any(registry.watched(place) for place in self._list_places(name)) or self._list_in_doubt(name):
            return True
        return any(entry.cluster == name and is_under_way(entry.job) for entry in registry)

    def _list_in_doubt(self, name: str) -> set[str]:
        """The tokens of submissions in doubt: the cluster may have them although it has not answered."""
        outbox = self._recorder.outbox
        tokens = {row.token for place in self._list_places(name) for row in outbox.of_queue((place, SUBMIT))}
        return {token for token in tokens if outbox.tried(token) and not outbox.is_first(token)}

    async def _set(self, cluster: Cluster, home: str) -> None:
        await self._recorder.repository.set_meta(_key(cluster.name), home)
        cluster.settle(home)


def _key(cluster: str) -> str:
    return f"place:{cluster}"
