"""What the two sides of a trial printed, and the findings that follow. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from overspan.bridge.model.job import Job, Placement
from overspan.bridge.model.reach import ReachFinding, ReachSide
from overspan.bridge.runtime.reach.trial import CONNECTS, LISTENS


class TrialOutcome(NamedTuple):
    """The findings of a trial, and sentences about ports of which it says nothing."""

    findings: tuple[ReachFinding, ...]
    gaps: tuple[str, ...]


class SideResults(NamedTuple):
    """What one side found: by port, why it cannot listen there (empty: it can), and what came of connecting."""

    taken: Mapping[int, str]
    visits: Mapping[int, Mapping[str, Any]]


def read_results(data: bytes) -> SideResults:
    """The lines of a trial in a task's log; other lines are passed over."""
    taken: dict[int, str] = {}
    visits: dict[int, Mapping[str, Any]] = {}
    for line in data.decode(errors="replace").splitlines():
        try:
            found = json.loads(line)
            port = int(found["port"])
            if found["reach"] == LISTENS:
                taken[port] = "" if found["works"] else str(found["detail"])
            elif found["reach"] == CONNECTS:
                visits[port] = found
        except (ValueError, TypeError, LookupError):
            continue
    return SideResults(taken, visits)


def draw_findings(
    job: Job, sides: Mapping[str, ReachSide], results: Mapping[str, SideResults], at: float
) -> TrialOutcome:
    """The findings of both ways, by the tasks' sides and results. A port that was taken says nothing of the way."""
    findings, gaps = list[ReachFinding](), list[str]()
    places = {place.task: place for place in job.placements}
    names = tuple(sides)
    for name, peer in zip(names, reversed(names), strict=True):
        own, other = results[name], results[peer]
        for port in sorted({*own.visits, *other.taken}):
            visit = own.visits.get(port)
            if visit is None:
                gaps.append(f"{sides[name].cluster} did not try port {port}: its task ended before")
            elif not visit["works"] and other.taken.get(port):
                where = _name_node(places.get(peer), sides[peer])
                gaps.append(f"{sides[peer].cluster} cannot listen on port {port} of {where}: {other.taken[port]}")
            else:
                detail = _word_visit(visit, _name_node(places.get(name), sides[name]))
                findings.append(ReachFinding(sides[name], sides[peer], port, bool(visit["works"]), detail, at))
    return TrialOutcome(tuple(findings), tuple(gaps))


def _name_node(place: Placement | None, side: ReachSide) -> str:
    return place.node if place is not None and place.node else f"a node of {side.cluster}"


def _word_visit(visit: Mapping[str, Any], node: str) -> str:
    """`node1 to 10.214.0.7: no answer`."""
    way = f"{node} to {visit['address']}" if visit.get("address") else f"from {node}"
    return f"{way}: {visit['detail']}" if visit.get("detail") else way
