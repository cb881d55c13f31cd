"""What is known of the ways between the clusters of a group: refusals, notes, and comment lines of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from overspan.adapters.abilities import HostNetwork
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.known_reach import KnownReach
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.errors import Rejected, Unreachable
from overspan.bridge.model.job import Job
from overspan.bridge.model.reach import ReachFinding, ReachNeed, ReachSide, find_closed, judge_need
from overspan.bridge.model.spec import TaskSpec

HOST_NETWORK = "`kubernetes: {host_network: true}`"


def find_side(job: Job, task: TaskSpec, clusters: Clusters) -> ReachSide:
    """By which addresses a task of a group over several clusters is there. Raises as opening its cluster does."""
    adapter = clusters.get(task.cluster).adapter
    return ReachSide(task.cluster, isinstance(adapter, HostNetwork) and adapter.uses_host_network(job, task))


def list_needs(job: Job, clusters: Clusters) -> list[ReachNeed]:
    """The ways between tasks of different clusters, each once, with the ports that are named at their ends."""
    sides = {task.name: find_side(job, task, clusters) for task in job.spec.tasks}
    ports: dict[tuple[ReachSide, ReachSide], tuple[str, ...]] = {}
    for source in job.spec.tasks:
        for target in job.spec.tasks:
            if source.cluster != target.cluster:
                way = sides[source.name], sides[target.name]
                ports[way] = tuple(dict.fromkeys((*ports.get(way, ()), *target.ports)))
    return [ReachNeed(source, target, named) for (source, target), named in ports.items()]


def check_reach(job: Job, clusters: Clusters, known: KnownReach) -> tuple[str, ...]:
    """Notes on ways that are closed, or of which nothing is known. Rejected where the group could never work."""
    try:
        needs = list_needs(job, clusters)
    except Unreachable:
        # A cluster that cannot be opened now is asked at the submission.
        return ()
    findings = known.list_findings(job.spec.origin.user)
    closed = find_closed(needs, findings)
    if closed:
        raise Rejected("; ".join(map(word_finding, closed)), remedy=_name_remedy(closed, findings))
    notes, unknown = list[str](), dict[tuple[str, ...], bool]()
    for need in needs:
        found = judge_need(need, findings)
        if found is None:
            names = tuple(sorted((need.source.cluster, need.target.cluster)))
            unknown[names] = unknown.get(names, False) or bool(need.ports)
        elif not found.works:
            notes.append(f"{word_finding(found)}; members on {need.target.cluster} can connect the other way")
    notes += [_note_unknown(names, tried=tried) for names, tried in unknown.items()]
    return tuple(dict.fromkeys(notes))


def describe_reach(job: Job, clusters: Clusters, known: KnownReach) -> str:
    """Comment lines for a plan: each way, and what is known of it."""
    findings = known.list_findings(job.spec.origin.user)
    lines = []
    for need in list_needs(job, clusters):
        found = judge_need(need, findings)
        way = f"{word_side(need.source)} to {word_side(need.target)}"
        lines.append(f"# reach: {way} is not known\n" if found is None else f"# reach: {word_finding(found)}\n")
    return "".join(lines)


def word_side(side: ReachSide) -> str:
    """`kube`, or `kube (host network)`."""
    return f"{side.cluster} (host network)" if side.host_network else side.cluster


def word_finding(finding: ReachFinding) -> str:
    """One finding as a sentence."""
    verb = "reaches" if finding.works else "does not reach"
    way = f"{word_side(finding.source)} {verb} {word_side(finding.target)} on port {finding.port}"
    detail = f" ({finding.detail})" if finding.detail else ""
    return f"{way}{detail}, as of {format_timestamp(finding.at)}"


def _note_unknown(names: Sequence[str], *, tried: bool) -> str:
    """`tried`: some task names ports, so that the ways are tried before the start."""
    what = "it is tried before the group starts" if tried else f"`span check --across {' '.join(names)}`"
    return f"whether {' and '.join(names)} reach each other is not known: {what}"


def _name_remedy(closed: Iterable[ReachFinding], findings: Sequence[ReachFinding]) -> str:
    """What may open the closed ways: the host network unless it was tried in vain, and another trial."""
    way = next(iter(closed))
    names = way.source.cluster, way.target.cluster
    again = f"`span check --across {' '.join(names)}` tries it again"
    if way.source.host_network or way.target.host_network:
        return f"have the network opened; {again}"
    other = [
        each for each in findings if _is_by_host(each) and {each.source.cluster, each.target.cluster} == set(names)
    ]
    if not other:
        return f"{again}, with the host network of pods too"
    if all(each.works for each in other):
        hosts = sorted({side.cluster for each in other for side in (each.source, each.target) if side.host_network})
        return f"write {HOST_NETWORK} in the tasks on {' and '.join(hosts)}: both ways are open then; {again}"
    return f"have the network opened: the host network of pods was tried too; {again}"


def _is_by_host(finding: ReachFinding) -> bool:
    return finding.source.host_network or finding.target.host_network
