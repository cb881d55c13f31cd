"""Where a job runs: `infra`, `cluster` and --cluster to names of clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from overspan.bridge.model.errors import Place
from overspan.bridge.readers.context import ReadContext
from overspan.bridge.readers.findings import Fault, Findings, nearest

KINDS = {"kubernetes": "kubernetes", "k8s": "kubernetes", "slurm": "slurm", "local": "local"}
_REMEDY = "choose a configured cluster with --cluster, or write `infra: kubernetes`, `infra: slurm` or `infra: local`"


class Target(NamedTuple):
    """A cluster and perhaps its partition."""

    cluster: str
    partition: str = ""


class Wish(NamedTuple):
    """What one task says of its place: the clusters to try, and the position to point at."""

    clusters: tuple[str, ...]
    place: Place


def resolve_infra(infra: str, place: Place, context: ReadContext) -> Target | None:
    """The target of `cloud[/region[/zone]]`; None where it leaves the choice open.

    Raises Fault for a cloud that is neither a kind of cluster nor configured under that name.
    """
    first, second, third = _parts(infra, place)
    if not first:
        return None
    if context.clusters is not None and first in context.clusters and not (first in KINDS and second):
        return Target(first, second if context.kind_of(first) == "slurm" else "")
    kind = KINDS.get(first.lower())
    if kind is None:
        raise Fault(f"{first!r} is no cluster that Overspan knows", place, _REMEDY)
    # A zone means something on Slurm alone: its partition.
    return Target(_cluster_of(kind, second, place, context), third if kind == "slurm" else "")


def _parts(infra: str, place: Place) -> tuple[str, str, str]:
    # Names of Kubernetes contexts may have slashes in them.
    parts = ["" if part == "*" else part for part in infra.strip().strip("/").split("/")]
    if parts[0].lower() in ("kubernetes", "k8s"):
        parts = [parts[0], "/".join(parts[1:])]
    if len(parts) > 3:
        raise Fault(f"{infra!r} has too many parts; write cloud/region/zone", place)
    first, second, third = [*parts, "", ""][:3]
    return first, second, third


def _cluster_of(kind: str, name: str, place: Place, context: ReadContext) -> str:
    """The cluster of a kind: the one that is named, else the one that carries the kind's name, else the only one."""
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


def _known(context: ReadContext) -> str:
    names = ", ".join(context.clusters or ())
    return f"the clusters are {names}; --cluster NAME chooses one" if names else "configure one first"


class Placed(NamedTuple):
    """Clusters of the job in order, the cluster of each task that has one of its own, and lists left for later."""

    clusters: tuple[str, ...]
    of_task: tuple[str, ...]
    later: Mapping[str, Any]


def place_job(
    header: tuple[str, ...], wishes: Sequence[Wish], names: Sequence[str], context: ReadContext, found: Findings
) -> Placed:
    """Bring together what the header and the tasks say; --cluster replaces all of it, with a note."""
    if context.cluster:
        ignored = sorted({cluster for wish in wishes for cluster in wish.clusters} | set(header))
        other = [cluster for cluster in ignored if cluster not in context.chosen]
        if other:
            found.note(f"{', '.join(other)} in the file is ignored: --cluster {context.cluster} was given")
        return Placed(context.chosen, ("",) * len(wishes), {})
    choices = {wish.clusters for wish in wishes}
    if not header and len(choices) == 1:
        return Placed(choices.pop(), ("",) * len(wishes), {})
    own = [wish.clusters if wish.clusters != header else () for wish in wishes]
    later = {f"{name}.cluster": list(wish) for name, wish in zip(names, own, strict=True) if len(wish) > 1}
    return Placed(header, tuple(wish[0] if wish else "" for wish in own), later)
