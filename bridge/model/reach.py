"""Whether tasks on one cluster reach ports of tasks on another: what trials found, and what follows for a group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from overspan.bridge.model.records import NamedTuple


class ReachSide(NamedTuple):
    """Tasks of a cluster, by whose addresses they have: their own, or with `host_network` those of their nodes."""

    cluster: str
    host_network: bool = False


class ReachFinding(NamedTuple):
    """What a trial found about one port: whether a task of `source` reaches it at a task of `target`.

    `detail` is the evidence in words, `at` when it was found, epoch seconds.
    """

    source: ReachSide
    target: ReachSide
    port: int
    works: bool
    detail: str = ""
    at: float = 0.0


class ReachNeed(NamedTuple):
    """Tasks of `source` are to reach tasks of `target` that listen on `ports`; without ports any may be one."""

    source: ReachSide
    target: ReachSide
    ports: tuple[str, ...] = ()


def judge_need(need: ReachNeed, findings: Iterable[ReachFinding]) -> Optional[ReachFinding]:
    """The finding that decides about a need: one that does not work before one that does; None if nothing is known.

    Other ports than the needed ones tell that a way is closed only where none of them works.
    """
    known = [each for each in findings if (each.source, each.target) == (need.source, need.target)]
    exact = [each for each in known if any(has_port(range_, each.port) for range_ in need.ports)]
    closed = [each for each in exact if not each.works]
    if closed or not known:
        return closed[0] if closed else None
    return next((each for each in exact or known if each.works), known[0])


def find_closed(needs: Sequence[ReachNeed], findings: Sequence[ReachFinding]) -> list[ReachFinding]:
    """What keeps a group from working: closed ways to tasks that name ports; without any of these, no way at all."""
    named = [need for need in needs if need.ports]
    decided = [judge_need(need, findings) for need in named or needs]
    closed = [each for each in decided if each is not None and not each.works]
    return closed if named or len(closed) == len(decided) else []


def has_port(text: str, port: int) -> bool:
    """Whether a port, or a range such as `8000-8010`, has this one."""
    first, _, last = text.partition("-")
    return int(first) <= port <= int(last or first)
