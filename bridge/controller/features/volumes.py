"""`span volume`: makes, lists and removes volumes on the cluster that is named, or the default one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.adapters.abilities import VolumeKeeper
from overspan.bridge.controller.core.clusters import Cluster, Clusters
from overspan.bridge.controller.core.registry import Registry
from overspan.bridge.model.errors import Conflict, Denied, InvalidRequest, OverspanError
from overspan.bridge.model.parts import split_clusters
from overspan.bridge.model.spec import Origin, TaskSpec
from overspan.bridge.model.volumes import VolumeRecord, check_present_name
from overspan.bridge.readers.read_context import ReadContext
from overspan.bridge.readers.volume_file import read_volume


class VolumeOrder(NamedTuple):
    """What `span volume apply` says: options by the keys of a volume file, that file's text, and -M."""

    values: Mapping[str, Any]
    text: str = ""
    file: str = ""
    cluster: str = ""


class VolumeListing(NamedTuple):
    """The volumes of clusters, and what keeps those of others from being listed."""

    volumes: list[dict[str, Any]]
    notes: list[str]


class Volumes:
    """The volumes of the clusters."""

    def __init__(self, clusters: Clusters, registry: Registry, shared: bool) -> None:
        self._clusters = clusters
        self._registry = registry
        self._shared = shared

    async def apply(self, order: VolumeOrder, user: str) -> dict[str, Any]:
        """Have a volume be there: {volume, done, notes}. Raises OverspanError, as all of this."""
        self._check_personal()
        context = ReadContext(clusters=self._clusters.kinds(), cluster=order.cluster, origin=Origin(user=user))
        plan = read_volume(dict(order.values), order.text, order.file, context)
        cluster = self._clusters.get(plan.cluster)
        applied = await self._open(cluster).apply(plan.request)
        return {
            "volume": self._describe(cluster.name, applied.volume),
            "done": applied.done,
            "notes": [*plan.notes, *applied.notes],
        }

    async def list(self, name: str = "") -> VolumeListing:
        """The volumes of a cluster, or of all that have some; one that does not answer is a note then."""
        self._check_personal()
        if name:
            cluster = self._clusters.get(name)
            return VolumeListing([self._describe(name, each) for each in await self._open(cluster).list()], [])
        volumes: list[dict[str, Any]] = []
        notes: list[str] = []
        for cluster in self._clusters:
            try:
                keeper = cluster.adapter.traits.volumes
                found = await keeper.list() if keeper is not None else []
            except OverspanError as error:
                notes.append(f"the volumes of {cluster.name} are not listed: {error.line}")
                continue
            volumes += [self._describe(cluster.name, each) for each in found]
        return VolumeListing(volumes, notes)

    async def delete(self, volume: str, name: str = "") -> str:
        """Remove a volume with all that is in it; the cluster that had it. Conflict while live jobs mount it."""
        self._check_personal()
        cluster = self._clusters.get(name)
        keeper = self._open(cluster)
        try:
            check_present_name(volume)
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        users = self._list_users(cluster.name, volume)
        if users:
            jobs = ", ".join(map(str, users))
            raise Conflict(
                f"the volume {volume} on {cluster.name} is mounted by live jobs: {jobs}",
                remedy="wait for their ends, or cancel them: `span scancel " + " ".join(map(str, users)) + "`",
            )
        await keeper.delete(volume)
        return cluster.name

    def _check_personal(self) -> None:
        if self._shared:
            raise Denied(
                "the shared daemon makes and lists no volumes",
                remedy="a daemon of your own does: put SPAN_SERVER= before the command",
            )

    def _open(self, cluster: Cluster) -> VolumeKeeper:
        keeper = cluster.adapter.traits.volumes
        if keeper is None:
            names = [each.name for each in self._clusters if each.opened and each.traits.volumes is not None]
            raise InvalidRequest(
                f"the cluster {cluster.name} has no volumes by name",
                remedy=f"-M NAME chooses another one{': ' + ', '.join(names) if names else ''}",
            )
        return keeper

    def _describe(self, cluster: str, volume: VolumeRecord) -> dict[str, Any]:
        return {"cluster": cluster, **volume._asdict(), "used_by": self._list_users(cluster, volume.name)}

    def _list_users(self, cluster: str, volume: str) -> Sequence[int]:
        """The live jobs that mount a volume, or are to mount it once they are on its cluster."""
        return sorted(
            entry.job.id
            for entry in self._registry
            if not entry.job.over
            and volume in _list_names(entry.job.spec.tasks)
            and cluster
            in {part for place in (*entry.places(), *entry.job.spec.clusters) for part in _split_place(place)}
        )


def _list_names(tasks: Iterable[TaskSpec]) -> Iterator[str]:
    """The volumes that tasks name, also where they mount a folder of one."""
    for task in tasks:
        for name in task.volumes.values():
            yield name
            yield name.partition("/")[0]


def _split_place(place: str) -> tuple[str, ...]:
    """The clusters that a place consists of."""
    return split_clusters(place) or (place,)
