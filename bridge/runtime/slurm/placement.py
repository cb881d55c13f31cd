"""Where each member runs: the placement plan of a launch, joined with the nodes that Slurm gave."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from overspan.bridge.model.events import Granted
from overspan.bridge.model.job import Job
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.slurm.hostlists import expand

FORMAT = 1


class PlacedStep(NamedTuple):
    """A task's members in one component: `members[i]` runs on the component's node number `nodes[i]`.

    `options` are words of srun, `image` those that run a program in the task's image, where it has one.
    """

    task: str
    component: int
    members: tuple[int, ...]
    nodes: tuple[int, ...]
    options: tuple[str, ...]
    image: tuple[str, ...] = ()


class PlacementFile(NamedTuple):
    """The plan: how many nodes each component has, and the steps."""

    token: str
    components: tuple[int, ...]
    steps: tuple[PlacedStep, ...]


class GrantedComponent(NamedTuple):
    """What Slurm gave for one component: the raw id of its job, and its nodes in Slurm's order."""

    native: str
    nodes: tuple[str, ...]


class NodeSlot(NamedTuple):
    """Where one member runs, how its srun is asked for, and the words before its program's own."""

    component: int
    node: str
    options: tuple[str, ...]
    image: tuple[str, ...] = ()


NodeSlots = Mapping[tuple[str, int], NodeSlot]


def read_placement(path: str) -> PlacementFile:
    """Read a placement file; OSError when it is not there, ValueError when it is none or of another format."""
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    if document.get("format") != FORMAT:
        raise ValueError(f"{path} has format {document.get('format')}; this version reads {FORMAT}")
    try:
        components = tuple(int(entry["nodes"]) for entry in document["components"])
        return PlacementFile(str(document.get("token", "")), components, tuple(map(_read_step, document["steps"])))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is no placement: {error}") from None


def _read_step(entry: Mapping[str, Any]) -> PlacedStep:
    members, nodes = tuple(entry["members"]), tuple(entry["nodes"])
    if len(members) != len(nodes):
        raise ValueError(f"the step of {entry['task']} has {len(members)} members and {len(nodes)} nodes")
    options, image = (tuple(map(str, words)) for words in (entry["options"], entry.get("image", ())))
    return PlacedStep(str(entry["task"]), int(entry["component"]), members, nodes, options, image)


def read_components(environment: Mapping[str, str]) -> tuple[GrantedComponent, ...]:
    """The components of this allocation, from the batch script's variables (srun(1), heterogeneous jobs)."""
    size = environment.get("SLURM_HET_SIZE", "")
    if not size:
        return (GrantedComponent(environment["SLURM_JOB_ID"], tuple(expand(environment["SLURM_JOB_NODELIST"]))),)
    return tuple(
        GrantedComponent(
            environment[f"SLURM_JOB_ID_HET_GROUP_{number}"],
            tuple(expand(environment[f"SLURM_JOB_NODELIST_HET_GROUP_{number}"])),
        )
        for number in range(int(size))
    )


def assign_slots(
    job: Job, placement: PlacementFile, components: Sequence[GrantedComponent], part: bool = False
) -> dict[tuple[str, int], NodeSlot]:
    """Where each member runs. ValueError where plan, job and allocation do not fit together.

    With `part` the allocation is for some of the job's tasks only.
    """
    given = tuple(len(component.nodes) for component in components)
    if given != placement.components:
        raise ValueError(f"the placement wants components of {placement.components} nodes; Slurm gave {given}")
    slots: dict[tuple[str, int], NodeSlot] = {}
    for step in placement.steps:
        nodes = components[step.component].nodes
        for member, node in zip(step.members, step.nodes):
            slots[step.task, member] = NodeSlot(step.component, nodes[node], step.options, step.image)
    tasks = {step.task for step in placement.steps} if part else {task.name for task in job.spec.tasks}
    wanted = {(task.name, index) for task in job.spec.tasks if task.name in tasks for index in range(task.num_nodes)}
    if slots.keys() != wanted:
        odd = ", ".join(f"{task}-{index}" for task, index in sorted(slots.keys() ^ wanted))
        raise ValueError(f"the placement does not fit the job: {odd}")
    return slots


def make_grant(job: Job, slots: NodeSlots, find_address: Callable[[str], str], now: float) -> Granted:
    """The journal's first event. Which GPUs a member has is known on its node only."""
    members = [
        (task.name, index, slots[task.name, index].node, find_address(slots[task.name, index].node), ())
        for task in job.spec.tasks
        for index in range(task.num_nodes)
        if (task.name, index) in slots
    ]
    return Granted(now, tuple(members))


def srun_words(slot: NodeSlot, components: int, program: Sequence[str]) -> tuple[str, ...]:
    """The srun of one node run.

    --relative does not pin a node, --nodelist does; without --het-group a hetjob's srun is for component 0 (both
    measured on 22.05).
    """
    group = (f"--het-group={slot.component}",) if components > 1 else ()
    return ("srun", *group, "--nodes=1", "--ntasks=1", f"--nodelist={slot.node}", *slot.options, *program)


def find_spare(job: Job, slots: NodeSlots, now: float, delay: float) -> set[int]:
    """Components, never the first, whose tasks have all been over for `delay` seconds, while others have not."""
    if job.over or (job.ending is not None and job.ending.hold_until is not None):
        return set()
    done = {task.name for task in job.tasks if task.over and (task.ended_at or 0.0) + delay <= now}
    used = {slot.component for (task, _), slot in slots.items() if task not in done}
    return {slot.component for slot in slots.values()} - used - {0}
