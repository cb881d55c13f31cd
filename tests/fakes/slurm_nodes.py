"""Nodes of the fake Slurm: what they have, who has it, and which of them a job gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.fakes.slurm_jobs import Request

LOST = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"


class Partition(NamedTuple):
    """A partition; `limit` is its MaxTime in seconds."""

    name: str
    nodes: tuple[str, ...]
    limit: int = 86400
    default: bool = False


@dataclass
class FakeNode:
    """A node: `down` and `drain` as an operator or slurmctld has set them, `power` is empty, `off` or `rising`.

    `given` is what jobs have of it, until their epilog has ended: CPUs, MiB, GPUs.
    """

    name: str
    cpus: int = 4
    memory: int = 4000
    gpus: int = 2
    down: bool = False
    drain: bool = False
    power: str = ""
    reason: str = ""
    given: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    completing: set[int] = field(default_factory=set)

    @property
    def usable(self) -> bool:
        """Whether a job may start here; one that is powered off is powered up for it."""
        return not (self.down or self.drain)

    @property
    def used(self) -> tuple[int, int, int]:
        """What jobs have of it."""
        parts = list(self.given.values())
        return (sum(part[0] for part in parts), sum(part[1] for part in parts), sum(part[2] for part in parts))

    @property
    def state(self) -> str:
        """Its state as `sinfo -O StateLong` has it."""
        suffix = {"off": "~", "rising": "#"}.get(self.power, "")
        if self.down:
            return "down"
        if self.drain:
            return "draining" if self.given else "drained"
        if self.completing and self.completing >= set(self.given):
            return "completing"
        if not self.given:
            return "idle" + suffix
        return ("allocated" if self.used[0] >= self.cpus else "mixed") + suffix

    def could(self, request: Request) -> bool:
        """Whether an empty node of this size would do."""
        return request.cpus <= self.cpus and request.memory <= self.memory and request.gpus <= self.gpus

    def has_room(self, request: Request, taken: bool = False) -> bool:
        """Whether there is room now; `taken` by a component of the same hetjob is none."""
        cpus, memory, gpus = self.used
        free = (self.cpus - cpus, self.memory - memory, self.gpus - gpus)
        wanted = (request.cpus, request.memory, request.gpus)
        return not taken and self.usable and all(want <= have for want, have in zip(wanted, free, strict=True))


def list_candidates(nodes: Mapping[str, FakeNode], partition: Partition, request: Request) -> list[FakeNode]:
    """The nodes that the request may ever have, whatever their state."""
    named = request.nodelist or partition.nodes
    return [nodes[name] for name in named if name in partition.nodes and nodes[name].could(request)]


def choose(candidates: Iterable[FakeNode], request: Request, taken: Sequence[str] = ()) -> tuple[str, ...]:
    """The nodes that a job gets now; none where there are too few."""
    free = [node.name for node in candidates if node.has_room(request, node.name in taken)]
    wanted = max(request.nodes, len(request.nodelist))
    return tuple(free[:wanted]) if len(free) >= wanted else ()


def explain(candidates: Sequence[FakeNode], request: Request, first: bool) -> str:
    """Why a job waits: nodes that cannot be had, those that others have, or jobs before it."""
    wanted = max(request.nodes, len(request.nodelist))
    lost = [node.name for node in candidates if not node.usable]
    if len(candidates) - len(lost) < wanted:
        return f"ReqNodeNotAvail, UnavailableNodes:{','.join(lost)}" if request.nodelist else LOST
    return "Resources" if first else "Priority"
