"""The placement plan of a group in one allocation: bins, components, steps. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from overspan.adapters.slurm.rendering.node_resources import NodeResources


@dataclass(frozen=True, order=True)
class MemberId:
    """One node of a task."""

    task: str
    index: int


@dataclass(frozen=True)
class Bin:
    """The resources requested of one node, and the members that run on it."""

    members: tuple[MemberId, ...]
    need: NodeResources


@dataclass(frozen=True)
class PlannedComponent:
    """Bins of one shape, partition and options: an ordinary job, or one component of a hetjob.

    `shape` covers every bin. `time` is its limit in seconds, with delays and grace periods; None: no limit.
    """

    bins: tuple[Bin, ...]
    shape: NodeResources
    options: Mapping[str, str] = field(default_factory=dict)
    time: int | None = None


@dataclass(frozen=True)
class PlannedStep:
    """One srun: a task's members in one component. `members[r]` runs on the component's node `nodes[r]`, ascending.

    `image` are words in front of the program that run it in the task's image.
    """

    task: str
    component: int
    members: tuple[int, ...]
    nodes: tuple[int, ...]
    need: NodeResources
    image: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlacementPlan:
    """A group as one allocation. Component 0 has the longest primary task, and runs the batch script."""

    components: tuple[PlannedComponent, ...]
    steps: tuple[PlannedStep, ...]
    notes: tuple[str, ...] = ()

    @property
    def hetjob(self) -> bool:
        """Whether it needs a heterogeneous job."""
        return len(self.components) > 1

    @property
    def nodes(self) -> int:
        """How many nodes it takes."""
        return sum(len(component.bins) for component in self.components)

    def steps_of(self, task: str) -> tuple[PlannedStep, ...]:
        return tuple(step for step in self.steps if step.task == task)
