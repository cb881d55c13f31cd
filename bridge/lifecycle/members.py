"""Elastic tasks: which members are to come and go, and which members a launch knows of its group. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Callable, Optional

from overspan.bridge.lifecycle.lookup import find_task
from overspan.bridge.lifecycle.outcomes import put_task
from overspan.bridge.model import events
from overspan.bridge.model.elastic import Elastic, Peer
from overspan.bridge.model.job import Job, NodeRun, Placement, Task
from overspan.bridge.model.records import NamedTuple, dataclass, replace
from overspan.bridge.model.states import State

_TOLD = (State.CONFIGURING, State.RUNNING, State.SUSPENDED, State.COMPLETING)
"""Members in other states have no node and address, so no member can reach them."""


@dataclass(frozen=True)
class JoinedMember:
    """A member that is a job of its own; `leaves` once its end is decided."""

    job: int
    index: int
    leaves: bool = False


class MemberChanges(NamedTuple):
    """The indices of members to add, and the jobs of those to end."""

    added: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()


def elastic_of(job: Job, name: str) -> Optional[Elastic]:
    """The bounds of a job's task; None for a task that is not elastic, or that there is not.

    The launch's own members stay, so there are never fewer, also where an operator has changed their number.
    """
    spec = next((spec for spec in job.spec.tasks if spec.name == name), None)
    if spec is None or spec.elastic is None or spec.num_nodes == spec.elastic.least:
        return None if spec is None else spec.elastic
    return replace(spec.elastic, least=spec.num_nodes, most=max(spec.elastic.most, spec.num_nodes))


def wanted_size(job: Job, name: str) -> int:
    """How many members `span scale`, else the file, asks for."""
    elastic, size = elastic_of(job, name), job.task(name).size
    if elastic is None:
        return job.spec_of(name).num_nodes
    return max(elastic.least, min(elastic.wanted if size is None else size, elastic.most))


def may_grow(job: Job, name: str) -> bool:
    """Whether the task takes more members than were asked for where there is room."""
    elastic = elastic_of(job, name)
    return elastic is not None and elastic.scale_up_after is not None and job.task(name).size is None


def takes_members(job: Job, name: str) -> bool:
    """Whether members may join the task now: its own launch runs, and nothing of it is to end."""
    task = job.task(name)
    return (
        job.granted_at is not None
        and job.ending is None
        and not job.over
        and job.suspended_at is None
        and task.state is State.RUNNING
        and task.wanted is None
    )


def plan_members(
    elastic: Elastic, target: int, joined: Sequence[JoinedMember], given_up: Collection[int] = ()
) -> MemberChanges:
    """What brings a task to `target` members. The lowest free index is given first, and the highest one taken first.

    `given_up` are indices whose member has ended by itself: they count as present, so that nothing that fails at once
    is started for ever.
    """
    staying = sorted((member for member in joined if not member.leaves), key=lambda member: member.index)
    lost = {index for index in given_up if all(member.index != index for member in staying)}
    surplus = elastic.least + len(staying) - target
    if surplus > 0:
        return MemberChanges((), tuple(member.job for member in reversed(staying[len(staying) - surplus :])))
    missing = max(0, -surplus - len(lost))
    taken = {member.index for member in joined} | lost
    free = (index for index in range(elastic.least, elastic.most) if index not in taken)
    return MemberChanges(tuple(index for _, index in zip(range(missing), free)))


def list_peers(job: Job) -> tuple[Peer, ...]:
    """The members that a launch has itself and that have a place, or are about to have one."""
    found = []
    for place in job.placements:
        task = find_task(job, place.task)
        state = None if task is None else _state_of(task, place.index)
        if state is not None and state in _TOLD:
            index = place.index + job.spec.first_index
            found.append(Peer(place.task, index, place.node, place.address, state.value))
    return tuple(found)


def list_further(job: Job) -> tuple[Placement, ...]:
    """Where the members of a group's elastic tasks are that are jobs of their own, by the last list."""
    sizes = {spec.name: spec.num_nodes for spec in job.spec.tasks}
    return tuple(
        Placement(peer.task, peer.index, peer.node, peer.address)
        for peer in job.peers
        if peer.address and peer.index >= sizes.get(peer.task, 0)
    )


def _state_of(task: Task, index: int) -> State:
    """The state of one member of a task."""
    attempt = task.current
    node: Optional[NodeRun] = None
    if attempt is not None and attempt.live and index < len(attempt.nodes):
        node = attempt.nodes[index]
    if node is None or attempt is None:
        return State.PENDING if not task.over else task.state
    if not node.live:
        return State.PENDING
    if attempt.stop is not None:
        return State.COMPLETING
    return State.CONFIGURING if node.started_at is None else State.RUNNING


def _scale(job: Job, event: events.Scale) -> Optional[Job]:
    task = find_task(job, event.task)
    if task is None or job.over or job.ending is not None or elastic_of(job, event.task) is None:
        return None
    return put_task(job, replace(task, size=event.size, sized_at=event.at))


def set_peers(job: Job, event: events.SetPeers) -> Optional[Job]:
    """The job with a newer list of its group's members."""
    if job.over or event.generation <= job.generation:
        return None
    return replace(job, peers=tuple(Peer(*peer) for peer in event.peers), generation=event.generation)


HANDLERS: dict[type, Callable[[Job, Any], Optional[Job]]] = {events.Scale: _scale, events.SetPeers: set_peers}
"""Each gives the job after the event; None where the event is late or makes no sense."""
