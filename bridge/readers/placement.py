"""Placement: resolves `infra`, `cluster` and --cluster to names of clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from overspan.bridge.model.errors import Place
from overspan.bridge.model.pools import POOL_KIND
from overspan.bridge.readers.read_context import ReadContext
from overspan.bridge.validation.diagnostics import Diagnostics, Fault, nearest

POOL_REMEDY = "`span pool apply -p NAME FILE` makes a pool"
KINDS = {"kubernetes": "kubernetes", "k8s": "kubernetes", "slurm": "slurm", "local": "local"}
_REMEDY = "choose a configured cluster with --cluster, or write `infra: kubernetes`, `infra: slurm` or `infra: local`"


class ClusterTarget(NamedTuple):
    """A cluster and perhaps its partition."""

    cluster: str
    partition: str = ""


class Infra(NamedTuple):
    """Where to run, in SkyPilot's three parts; empty leaves a part open. A context of Kubernetes is a region."""

    cloud: str = ""
    region: str = ""
    zone: str = ""

    def __str__(self) -> str:
        """As `infra` has it."""
        parts = [part or "*" for part in self]
        while len(parts) > 1 and parts[-1] == "*":
            parts.pop()
        return "/".join(parts)


class ClusterRequest(NamedTuple):
    """The clusters that one task asks for, and the position in the text for messages."""

    clusters: tuple[str, ...]
    place: Place


def split_infra(text: str, place: Place) -> Infra:
    """Read `cloud[/region[/zone]]`, where `*` leaves a part open. Raises Fault."""
    parts = [_open_part(part) for part in text.strip().strip("/").split("/")]
    if _kind_of(parts[0]) == "kubernetes":
        # Names of contexts may have slashes in them.
        return Infra(parts[0], "/".join(parts[1:]).strip("/"))
    if len(parts) > 3:
        raise Fault(f"{text!r} has too many parts; write cloud/region/zone", place)
    return Infra(*parts)


def join_infra(values: Mapping[str, Any]) -> Infra:
    """The older keys `cloud`, `region` and `zone`; `*` and null leave a part open."""
    return Infra(*(_open_part(str(values.get(key) or "")) for key in Infra._fields))


def overlay_infra(below: Infra, above: Infra) -> Infra:
    """Overlay one place on another: from the first part that `above` names differently, all parts are its own."""
    for depth, part in enumerate(above):
        if part and part != below[depth]:
            return Infra(*below[:depth], *above[depth:])
    return below


def resolve_infra(infra: Infra, place: Place, context: ReadContext, found: Diagnostics) -> ClusterTarget | None:
    """The target of a place; None where it leaves the choice open.

    Raises Fault for a cloud that is neither a kind of cluster nor configured under that name.
    """
    first, second, third = infra
    if not first:
        if second or third:
            found.note(f"{place}: {infra} has no effect: it names no cloud; write kubernetes/CONTEXT or slurm/CLUSTER")
        return None
    if context.clusters is not None and first in context.clusters and not (_kind_of(first) and second):
        return ClusterTarget(first, second if context.kind_of(first) == "slurm" else "")
    kind = _kind_of(first)
    if kind is None:
        raise Fault(f"{first!r} is no cluster that Overspan knows", place, _REMEDY)
    if third and kind != "slurm":
        found.note(f"{place}: the zone {third} has no effect: only Slurm has zones, which are its partitions")
    return ClusterTarget(_cluster_of(kind, second, place, context), third if kind == "slurm" else "")


def _kind_of(cloud: str) -> str | None:
    return KINDS.get(cloud.lower())


def _open_part(text: str) -> str:
    text = text.strip()
    return "" if text == "*" else text


def _cluster_of(kind: str, name: str, place: Place, context: ReadContext) -> str:
    """The cluster of a kind: the one named `name`, else the one named like the kind, else the only one."""
    if context.clusters is None:
        return name or kind
    known = [cluster for cluster, its_kind in context.clusters.items() if its_kind == kind]
    if name:
        if name not in known:
            raise Fault(f"there is no {kind} cluster named {name!r}{nearest(name, known)}", place, _known(context))
        return name
    if not known:
        raise Fault(f"no {kind} cluster is configured", place, _known(context))
    if kind not in known and len(known) > 1:
        raise Fault(f"there are several {kind} clusters: {', '.join(known)}", place, f"write {kind}/NAME")
    return kind if kind in known else known[0]


def check_clusters(names: Sequence[str], place: Place, context: ReadContext) -> tuple[str, ...]:
    """Names of clusters, each once. Raises Fault for one that is not configured."""
    for name in names:
        if context.clusters is not None and name not in context.clusters:
            raise Fault(f"there is no cluster named {name!r}{nearest(name, context.clusters)}", place, _known(context))
    return tuple(dict.fromkeys(names))


def check_pool(name: str, context: ReadContext) -> str:
    """The name of a pool. Raises ValueError for one that there is not."""
    if context.clusters is not None and context.kind_of(name) != POOL_KIND:
        pools = [pool for pool, kind in context.clusters.items() if kind == POOL_KIND]
        listed = f"; the pools are {', '.join(pools)}" if pools else ""
        raise ValueError(f"there is no pool named {name!r}{nearest(name, pools)}{listed}")
    return name


def _known(context: ReadContext) -> str:
    names = ", ".join(context.clusters or ())
    return f"the clusters are {names}; --cluster NAME chooses one" if names else "configure one first"


def _is_chosen(name: str, context: ReadContext) -> bool:
    """Whether --cluster names a cluster, or one of the kind that a text of `infra` leaves open."""
    kind, _, rest = name.partition("/")
    named = _kind_of(kind)
    if name in context.chosen or named is None:
        return name in context.chosen
    return any(context.kind_of(own) == named and rest.partition("/")[0] in ("", own) for own in context.chosen)


class JobPlacement(NamedTuple):
    """The job's clusters in order, each task's own cluster (empty: none), and lists that cannot be carried out."""

    clusters: tuple[str, ...]
    of_task: tuple[str, ...]
    later: Mapping[str, Any]


def place_job(
    header: tuple[str, ...],
    requests: Sequence[ClusterRequest],
    names: Sequence[str],
    context: ReadContext,
    found: Diagnostics,
) -> JobPlacement:
    """Combine the clusters of the header and the tasks. --cluster replaces them all, with a note."""
    if context.cluster:
        ignored = sorted({cluster for request in requests for cluster in request.clusters} | set(header))
        other = [name for name in ignored if not _is_chosen(name, context)]
        if other:
            found.note(f"{', '.join(other)} in the file is ignored: --cluster {context.cluster} was given")
        return JobPlacement(context.chosen, ("",) * len(requests), {})
    choices = {request.clusters for request in requests}
    if not header and len(choices) == 1:
        return JobPlacement(choices.pop(), ("",) * len(requests), {})
    own = [request.clusters if request.clusters != header else () for request in requests]
    later = {f"{name}.cluster": list(request) for name, request in zip(names, own, strict=True) if len(request) > 1}
    return JobPlacement(header, tuple(request[0] if request else "" for request in own), later)
