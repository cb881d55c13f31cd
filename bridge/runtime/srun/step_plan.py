"""The plan of a step: its nodes and ranks, and the environment of each rank. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from overspan.bridge.model.names import env_name
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.slurm.hostlists import compress
from overspan.bridge.model.slurm.words import BAD_GRES
from overspan.bridge.runtime.core.allocation import AllocatedComponent, AllocatedNode, Allocation
from overspan.bridge.runtime.srun.rank_layout import LayoutError, RankPosition, count_tasks, distribute, fold_counts
from overspan.bridge.runtime.srun.step_options import ComponentOptions


class PlanError(Exception):
    """The step is impossible; the text is Slurm's."""


class PlacedRank(NamedTuple):
    """One rank: its number in the step, its node by place in the step, its number on the node and in its component."""

    rank: int
    node: int
    local: int
    component: int
    own_rank: int


class StepComponent(NamedTuple):
    """One component of a step: its options, its nodes, and how many tasks each has."""

    options: ComponentOptions
    nodes: tuple[AllocatedNode, ...]
    counts: tuple[int, ...]


class StepPlan(NamedTuple):
    """A whole step; nodes and ranks count through all components."""

    components: tuple[StepComponent, ...]
    nodes: tuple[AllocatedNode, ...]
    places: tuple[PlacedRank, ...]
    warnings: tuple[str, ...]

    def on_node(self, node: int) -> list[PlacedRank]:
        return [place for place in self.places if place.node == node]


class Facts(NamedTuple):
    """What the environment of every rank says of its step."""

    step: str
    host: str
    address: str
    port: int
    pid: int
    umask: int


def plan_step(
    allocation: Allocation, requested: Sequence[tuple[int, ComponentOptions]], reachable: Sequence[AllocatedNode]
) -> StepPlan:
    """Lay out a step: `requested` are its components' options, each with the number of its hetjob component.

    Raises PlanError.
    """
    components: list[StepComponent] = []
    nodes: list[AllocatedNode] = []
    places: list[PlacedRank] = []
    warnings: list[str] = []
    for number, options in requested:
        if number >= len(allocation.components):
            raise PlanError(f"Attempt to run a step in invalid het group {number}.")
        step_component, told = _plan_component(allocation.components[number], options, reachable)
        warnings += told
        try:
            ranks = distribute(step_component.counts, options.distribution)
        except LayoutError as error:
            raise PlanError(str(error)) from None
        first_rank, first_node = len(places), len(nodes)
        places += [_place(rank, first_rank, first_node, len(components)) for rank in ranks]
        nodes += step_component.nodes
        components.append(step_component)
    return StepPlan(tuple(components), tuple(nodes), tuple(places), tuple(warnings))


def _place(rank: RankPosition, first_rank: int, first_node: int, component: int) -> PlacedRank:
    return PlacedRank(first_rank + rank.number, first_node + rank.node, rank.local, component, rank.number)


def _plan_component(
    component: AllocatedComponent, options: ComponentOptions, reachable: Sequence[AllocatedNode]
) -> tuple[StepComponent, list[str]]:
    chosen, wanted = _choose_nodes(component, options, reachable)
    ntasks = _count_ntasks(component, options, wanted)
    warnings = []
    if ntasks < wanted:
        if options.nodes is not None or len(component.nodes) == wanted:
            warnings.append(f"can't run {ntasks} processes on {wanted} nodes, setting nnodes to {ntasks}")
        wanted = ntasks
    nodes = tuple(chosen[:wanted])
    most = options.ntasks_per_node or 0
    if component.cpus and not options.overcommit:
        room = component.cpus // (options.cpus_per_task or 1)
        if ntasks > room * len(nodes):
            raise PlanError("More processors requested than permitted")
    try:
        counts = count_tasks(len(nodes), ntasks, most if options.ntasks_named else 0)
    except LayoutError as error:
        raise PlanError(str(error)) from None
    return StepComponent(options, nodes, tuple(counts)), warnings


def _choose_nodes(
    component: AllocatedComponent, options: ComponentOptions, reachable: Sequence[AllocatedNode]
) -> tuple[list[AllocatedNode], int]:
    """The nodes to fill, in order, and how many of them are wanted."""
    names = {node.name for node in component.nodes}
    unknown = [name for name in options.nodelist if name not in names]
    if unknown:
        raise PlanError("Requested node configuration is not available")
    listed = [node for name in options.nodelist for node in component.nodes if node.name == name]
    others = [node for node in component.nodes[options.relative :] if node not in listed]
    # From a node in the midst of the allocation, the first one may be out of reach.
    others.sort(key=lambda node: node not in reachable)
    chosen = [node for node in [*listed, *others] if node.name not in options.exclude]
    wanted = options.nodes if options.nodes is not None else len(listed) or len(chosen)
    if options.nodes is not None and not options.nodes_named:
        # A variable tells of the allocation, not of what is left of it.
        wanted = min(wanted, len(chosen))
        if listed:
            wanted = len(listed)
    elif listed and options.nodes is None:
        wanted = len(listed)
    if wanted > len(chosen):
        raise PlanError(f"Only allocated {len(chosen)} nodes asked for {wanted}")
    if not chosen:
        raise PlanError("Requested node configuration is not available")
    return chosen, wanted


def _count_ntasks(component: AllocatedComponent, options: ComponentOptions, nodes: int) -> int:
    if options.ntasks_named and options.ntasks is not None:
        return options.ntasks
    asked = bool(component.ntasks or component.ntasks_per_node)
    if options.ntasks_per_node is not None and (options.nodes_named or options.ntasks is None):
        return options.ntasks_per_node * nodes
    if options.ntasks is not None and (asked or not (options.nodes_named or options.nodelist)):
        return options.ntasks
    if options.nodes_named or options.nodelist:
        return nodes
    if component.ntasks:
        return component.ntasks
    return (component.ntasks_per_node or 1) * nodes


# --- what a rank finds -----------------------------------------------------------------------------------------------

_ALWAYS = ("SLURM_", "OVERSPAN_", "SKYPILOT_", "SPAN_")


def export_environment(environment: Mapping[str, str], export: str) -> dict[str, str]:
    """What --export lets through: ALL, NONE, names and NAME=VALUE; Slurm's and Overspan's own always go."""
    items = [item for item in export.split(",") if item]
    words = {item.upper() for item in items}
    if "ALL" in words:
        result = dict(environment)
    else:
        names = {item for item in items if "=" not in item}
        result = {name: value for name, value in environment.items() if name.startswith(_ALWAYS) or name in names}
    for item in items:
        name, equals, value = item.partition("=")
        if equals:
            result[name] = value
    return result


def step_environment(allocation: Allocation, base: Mapping[str, str], plan: StepPlan, facts: Facts) -> dict[str, str]:
    """What all ranks of a step have in common: what srun has, what the allocation says, what the step is."""
    result = dict(base)
    for name, value in allocation.environment.items():
        result.setdefault(name, value)
    names = compress(node.name for node in plan.nodes)
    counts = fold_counts([count for step_component in plan.components for count in step_component.counts])
    options = plan.components[0].options
    result.update(
        SLURM_JOB_ID=str(allocation.job),
        SLURM_JOBID=str(allocation.job),
        SLURM_STEP_ID=facts.step,
        SLURM_STEPID=facts.step,
        SLURM_STEP_NODELIST=names,
        SLURM_STEP_NUM_NODES=str(len(plan.nodes)),
        SLURM_NNODES=str(len(plan.nodes)),
        SLURM_STEP_NUM_TASKS=str(len(plan.places)),
        SLURM_STEP_TASKS_PER_NODE=counts,
        SLURM_TASKS_PER_NODE=counts,
        SLURM_NTASKS=str(len(plan.places)),
        SLURM_NPROCS=str(len(plan.places)),
        SLURM_DISTRIBUTION=options.distribution,
        SLURM_STEP_LAUNCHER_PORT=str(facts.port),
        SLURM_SRUN_COMM_HOST=facts.address,
        SLURM_SRUN_COMM_PORT=str(facts.port),
        SLURM_LAUNCH_NODE_IPADDR=facts.address,
        SLURM_UMASK=f"{facts.umask:04o}",
        SLURM_TASK_PID="0",
        SLURM_PRIO_PROCESS="0",
    )
    if len(plan.components) > 1:
        result["SLURM_JOB_NODELIST"] = result["SLURM_NODELIST"] = names
    if options.name:
        result["SLURM_JOB_NAME"] = options.name
    if options.ntasks_per_node:
        result["SLURM_NTASKS_PER_NODE"] = str(options.ntasks_per_node)
    if options.cpus_per_task:
        result["SLURM_CPUS_PER_TASK"] = str(options.cpus_per_task)
    result.pop("ENVIRONMENT", None)
    return result


def rank_environment(plan: StepPlan, place: PlacedRank, base: Mapping[str, str]) -> dict[str, str]:
    """What one rank has of its own: its place, its node's names, its share of the node's GPUs."""
    node = plan.nodes[place.node]
    here = plan.on_node(place.node)
    result = {
        "SLURM_PROCID": str(place.rank),
        "SLURM_LOCALID": str(place.local),
        "SLURM_NODEID": str(place.node),
        "SLURM_GTIDS": ",".join(str(other.rank) for other in here),
        "SLURMD_NODENAME": node.name,
        "SLURM_TOPOLOGY_ADDR": node.name,
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
        "OVERSPAN_TASK": node.task,
        "OVERSPAN_NODE_INDEX": str(node.number),
        "OVERSPAN_ADDR": node.address,
        "SKYPILOT_NODE_RANK": str(node.number),
    }
    hosts = base.get(f"OVERSPAN_{env_name(node.task)}_HOSTS", "").split(",")
    if node.number < len(hosts) and hosts[node.number]:
        result["OVERSPAN_HOST"] = hosts[node.number]
    if node.gpus:
        result.update(_gpu_variables(plan.components[place.component], plan, place, node))
    return result


def _gpu_variables(
    step_component: StepComponent, plan: StepPlan, place: PlacedRank, node: AllocatedNode
) -> dict[str, str]:
    options = step_component.options
    devices: Sequence[int] = node.gpus
    limit = _gpu_limit(step_component, place.node - _first_node(plan, place.component))
    if limit is not None:
        devices = devices[:limit]
    own = devices
    if options.gpus_per_task:
        own = devices[place.local * options.gpus_per_task : (place.local + 1) * options.gpus_per_task]
        devices = devices[
            : options.gpus_per_task * step_component.counts[place.node - _first_node(plan, place.component)]
        ]
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, own)),
        "SLURM_STEP_GPUS": ",".join(map(str, devices)),
        "SLURM_JOB_GPUS": ",".join(map(str, node.gpus)),
        "SLURM_GPUS_ON_NODE": str(len(devices)),
    }


def _gpu_limit(step_component: StepComponent, place: int) -> Optional[int]:
    """How many of a node's GPUs the step may use; None: all."""
    if step_component.options.gpus_per_node is not None:
        return step_component.options.gpus_per_node
    if step_component.options.gpus is None:
        return None
    left = step_component.options.gpus
    for node in step_component.nodes[:place]:
        left -= min(left, len(node.gpus))
    return left


def _first_node(plan: StepPlan, component: int) -> int:
    return sum(len(step_component.nodes) for step_component in plan.components[:component])


def check_gpus(plan: StepPlan) -> None:
    """Refuse a step that asks for more GPUs than its nodes have. Raises PlanError."""
    for step_component in plan.components:
        for node, count in zip(step_component.nodes, step_component.counts):
            asked = (step_component.options.gpus_per_task or 0) * count or step_component.options.gpus_per_node or 0
            if asked > len(node.gpus):
                raise PlanError(BAD_GRES)
        if step_component.options.gpus and step_component.options.gpus > sum(
            len(node.gpus) for node in step_component.nodes
        ):
            raise PlanError(BAD_GRES)
