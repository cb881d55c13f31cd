"""Elastic tasks: auxiliary tasks whose number of members changes while their group runs.

The group's own launch has the members that it needs (`least`). Each further one is a job of its own that has joined the
group, so it is queued, started, ended and retried alone, on every kind of cluster.
"""

from __future__ import annotations

from typing import Optional

from overspan.bridge.model.records import dataclass

DEFAULT_ROOM = 60.0
"""Seconds for which the cluster has had room before a member is added without an order."""
SCALED = "ScaledDown"
"""The reason of a member that ended because its task has fewer members now."""
SCALED_NOTICE = "scaled_down"
"""The kind of notice that it gets before."""


@dataclass(frozen=True)
class Elastic:
    """How many members a task may have: those that it needs, those wanted from the start, and the most.

    More than wanted come when the cluster has had room for `scale_up_after` seconds; None: only `span scale` adds any.
    """

    least: int
    most: int
    wanted: int
    scale_up_after: Optional[float] = DEFAULT_ROOM


@dataclass(frozen=True)
class Peer:
    """A member of a group as the others know it; `state` is in Slurm's words."""

    task: str
    index: int
    node: str
    address: str
    state: str


@dataclass(frozen=True)
class MemberOf:
    """In a job that is a member of an elastic task: which one of which group."""

    group: int
    domain: str
    """The group's name, which its members' names end in."""
    launch: int
    """The launch of the group that it belongs to."""
    task: str
    index: int
    peers: tuple[Peer, ...] = ()
    """The group's members when it was submitted."""
