"""How a worker reaches the daemon: it connects to it, or leaves what it has to say in a mailbox that is visited."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from overspan.adapters.installed import is_this_machine
from overspan.adapters.mailboxes import WORKER_START
from overspan.bridge.config.command_wrappers import find_span
from overspan.bridge.controller.core.clusters import Cluster, Clusters
from overspan.bridge.model.errors import InvalidRequest


def needs_mailbox(clusters: Clusters, places: Sequence[Cluster]) -> bool:
    """Whether workers that may be on any of these clusters have mailboxes: jobs of one of them cannot connect.

    A worker's job is the same wherever it goes. Raises InvalidRequest where that leaves one of them without a way, and
    OverspanError for a cluster that cannot be used now.
    """
    closed = [each for each in places if not (is_this_machine(each.config.kind) or clusters.is_open_to_jobs(each.name))]
    if not closed:
        return False
    for each in places:
        if is_this_machine(each.config.kind):
            raise InvalidRequest(
                f"a worker that may be on {each.name} or on {closed[0].name} would have two ways to this daemon",
                remedy="give the pool a class of its own for each of them: `pool: {classes: [...]}`",
            )
        if each.open().traits.mailboxes is None:
            raise _refuse_place(each, closed)
    return True


def _refuse_place(place: Cluster, closed: Sequence[Cluster]) -> InvalidRequest:
    """Why workers on a place without mailboxes would have no way, where the closed ones have no address."""
    address = "to a name or address of this machine that the cluster's nodes reach"
    if place in closed:
        return InvalidRequest(
            f"the workers of a pool on {place.name} could not reach this daemon: the cluster has no "
            "`daemon_address`, and its nodes share no folder in which workers could leave messages",
            remedy=f"set clusters.{place.name}.daemon_address {address}",
        )
    other = closed[0].name
    return InvalidRequest(
        f"a worker that may be on {place.name} or on {other} would have two ways to this daemon: {other} has no "
        f"`daemon_address`, and the nodes of {place.name} share no folder in which workers could leave messages",
        remedy=f"set clusters.{other}.daemon_address {address}, or give the pool a class of its own for each of them: "
        "`pool: {classes: [...]}`",
    )


def render_worker(places: Sequence[Cluster], *, mailbox: bool) -> str:
    """What the job of a worker runs, behind the pool's own set-up."""
    if mailbox:
        return WORKER_START
    here = all(is_this_machine(cluster.config.kind) for cluster in places)
    return f"exec {shlex.join(find_span() if here else ('span',))} pool work"


def name_way(clusters: Clusters, cluster: str, *, mailbox: bool) -> str:
    """The word for the way of a worker on a cluster: socket, port, tunnel, mailbox or exec; empty for none."""
    found = clusters.find(cluster)
    if found is None:
        return ""
    if is_this_machine(found.config.kind):
        return "socket"
    if not mailbox:
        return "tunnel" if clusters.has_tunnel(cluster) else "port"
    mailboxes = clusters.find_traits(cluster).mailboxes
    return "" if mailboxes is None else mailboxes.way
