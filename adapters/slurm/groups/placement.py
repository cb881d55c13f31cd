"""Plans a group as one allocation: members are packed into nodes, alike nodes into components, tasks into steps.

Hetjob components never share a node, so members that share one have to be in one component. A group of one component is
an ordinary job, which starts without the backfill scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from overspan.adapters.contract import Node
from overspan.adapters.gpu_defaults import bound_gpu_defaults, list_scaled
from overspan.adapters.slurm.commands.options import inherited, native_options
from overspan.adapters.slurm.groups.lifetimes import MARGIN, latest_ends, longest_primary
from overspan.adapters.slurm.groups.packing import Key, NodeSize, PackedUnit, add_needs, fits, pack, partition_of
from overspan.adapters.slurm.groups.plans import Bin, MemberId, PlacementPlan, PlannedComponent, PlannedStep
from overspan.adapters.slurm.rendering.node_resources import NodeResources, choose_gpus, count_gpus, round_resources
from overspan.bridge.model.errors import Rejected
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import TaskSpec

UNAVAILABLE = "Requested node configuration is not available"
MAX_COMPONENTS = 128
"""Components of a hetjob (MAX_HET_JOB_COMPONENTS)."""
MEMORY_PER_CPU = 1024
"""MiB for each CPU of a member without a memory request, in a group in which another has one."""
_AWAY = ("down", "drain", "fail", "maint", "power", "unknown", "no_respond", "reboot", "perfctrs")
"""States of nodes that are not available now; jobs that need them wait."""
_FUTURE = "future"
"""The state of nodes that do not exist yet: Slurm refuses jobs that need them (slurm.conf(5), State)."""


def plan_on_nodes(job: Job, nodes: Sequence[Node], default: str = "") -> PlacementPlan:
    """Plan a group for the nodes that are available now, else for all nodes, for which it then waits.

    `default` is the partition of jobs that name none, empty for the cluster's own. Raises Rejected for a group that can
    never fit.
    """
    kinds = list_kinds(nodes)
    here = [node for node in nodes if not any(word in node.state for word in _AWAY)]
    if here and len(here) < len(nodes):
        try:
            return plan_group(job, measure_sizes(here, default), kinds)
        except Rejected:
            pass
    return plan_group(job, measure_sizes(nodes, default), kinds)


def measure_sizes(nodes: Iterable[Node], default: str = "") -> tuple[NodeSize, ...]:
    """The nodes by size. Those of the default partition count twice: under its name, and under the empty name."""
    counts: dict[NodeSize, int] = {}
    for node in nodes:
        if _FUTURE in node.state:
            continue
        standard = node.partition == default if default else node.default
        for partition in (node.partition, "") if standard else (node.partition,):
            size = NodeSize(partition, int(node.cpus), node.memory, node.gpus, node.gpu_kind, 0)
            counts[size] = counts.get(size, 0) + 1
    return tuple(replace(size, count=count) for size, count in sorted(counts.items()))


def list_kinds(nodes: Iterable[Node]) -> tuple[str, ...]:
    """The cluster's types of GPU."""
    return tuple(sorted({node.gpu_kind for node in nodes if node.gpu_kind}))


def plan_group(job: Job, sizes: Sequence[NodeSize] = (), kinds: Sequence[str] = ()) -> PlacementPlan:
    """Plan a group as one allocation. Raises Rejected if the nodes, or their number, are too small."""
    refusal = None
    for one in list_scaled(bound_gpu_defaults(job, sizes)):
        try:
            return _plan(one, sizes, kinds)
        except Rejected as error:
            refusal = refusal or error
    raise refusal or Rejected(UNAVAILABLE)


def _plan(job: Job, sizes: Sequence[NodeSize], kinds: Sequence[str]) -> PlacementPlan:
    needs, notes = _round_needs(job, kinds, count_gpus(sizes))
    units, more = _make_units(job, needs, sizes)
    usable = [size for size in sizes if any(size.partition == partition_of(unit.key) for unit in units)]
    packed = pack(units, usable)
    if packed is None or (sizes and not usable):
        raise Rejected(UNAVAILABLE, remedy=_explain(units, usable))
    components, late = _make_components(job, packed.bins)
    if len(components) > MAX_COMPONENTS:
        raise Rejected(
            f"the group needs {len(components)} hetjob components; Slurm takes {MAX_COMPONENTS}",
            remedy="give its tasks the same resources, or start it as a set with `restart: task`",
        )
    return PlacementPlan(components, _make_steps(job, components, needs), tuple(dict.fromkeys([*notes, *more, *late])))


def _round_needs(job: Job, kinds: Sequence[str], most: Mapping[str, int]) -> tuple[dict[str, NodeResources], list[str]]:
    needs: dict[str, NodeResources] = {}
    notes: list[str] = []
    for task in job.spec.tasks:
        rounded = round_resources(task, choose_gpus(task, kinds, most), kinds)
        needs[task.name] = rounded.need
        notes += rounded.notes
    if any(need.memory is not None for need in needs.values()):
        # Without a request, Slurm's default for a component may be a whole node's memory, so each member gets one.
        for name, need in needs.items():
            if need.memory is None:
                needs[name] = need._replace(memory=MEMORY_PER_CPU * need.cpus)
    return needs, notes


def _make_units(
    job: Job, needs: dict[str, NodeResources], sizes: Sequence[NodeSize]
) -> tuple[list[PackedUnit], list[str]]:
    """The units to pack, with members that share nodes joined under the task whose nodes these are; and notes."""
    members: dict[MemberId, list[MemberId]] = {}
    roots = {task.name: _root_of(job, task) for task in job.spec.tasks}
    notes: list[str] = []
    for task in job.spec.tasks:
        root = roots[task.name]
        for index in range(task.num_nodes):
            host = MemberId(root.name, index % root.num_nodes)
            members.setdefault(host, []).append(MemberId(task.name, index))
    keys: dict[str, Key] = {}
    for task in job.spec.tasks:
        overlay = native_options(job.spec, task)
        keys[task.name] = tuple(sorted((name, value) for name, value in overlay.options.items() if name != "time"))
        notes += overlay.conflicts
    for name, root in roots.items():
        if keys[name] != keys[root.name] and name != root.name:
            notes.append(f"the task {name!r} shares the nodes of {root.name!r}, so its own sbatch options do not count")
    return [_make_unit(root, inside, needs, keys, job) for root, inside in sorted(members.items())], notes


def _make_unit(
    root: MemberId, inside: Sequence[MemberId], needs: dict[str, NodeResources], keys: dict[str, Key], job: Job
) -> PackedUnit:
    ordered = sorted(inside, key=lambda member: (member != root, member))
    need = needs[root.task]
    for member in ordered[1:]:
        need = add_needs(need, needs[member.task])
    spec = job.spec_of(root.task)
    alone = any(job.spec_of(member.task).spread for member in ordered)
    return PackedUnit(root.task, tuple(ordered), need, keys[root.task], alone, spec.num_nodes > 1 or need.gpus > 0)


def _root_of(job: Job, task: TaskSpec) -> TaskSpec:
    visited = {task.name}
    while task.share and task.share not in visited:
        task = job.spec_of(task.share)
        visited.add(task.name)
    return task


def _explain(units: Sequence[PackedUnit], sizes: Sequence[NodeSize]) -> str:
    for unit in units:
        need = unit.need
        if sizes and not any(fits(need, size) for size in sizes):
            names = ", ".join(dict.fromkeys(member.task for member in unit.members))
            largest = max(sizes, key=lambda size: (size.gpus, size.cpus, size.memory))
            asked = _describe_size(need.cpus, need.memory or 0, need.gpus, need.gpu_kind)
            has = _describe_size(largest.cpus, largest.memory, largest.gpus, largest.gpu_kind)
            return f"no node has {asked} for {names}: the largest has {has}"
    partitions = sorted({partition_of(unit.key) or "the default partition" for unit in units})
    there, enough = sum(size.count for size in sizes), pack(units, [replace(size, count=len(units)) for size in sizes])
    needs = f"it needs {len(enough.bins)}" if enough is not None and len(enough.bins) > there else "it needs more"
    return f"there are {there} nodes in {', '.join(partitions)}; {needs}"


def _describe_size(cpus: int, memory: int, gpus: int, kind: str) -> str:
    parts = [f"{cpus} CPUs", *([f"{memory} MiB"] if memory else [])]
    parts += [" ".join(filter(None, (str(gpus), kind, "GPUs")))] if gpus else []
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _make_components(job: Job, bins: Sequence[tuple[Key, Bin]]) -> tuple[tuple[PlannedComponent, ...], list[str]]:
    ends = latest_ends(job)
    groups: dict[tuple[Key, NodeResources], list[Bin]] = {}
    for key, item in bins:
        groups.setdefault((key, item.need), []).append(item)
    made = [
        PlannedComponent(tuple(sorted(group, key=lambda item: item.members)), shape, dict(key), _cover(group, ends))
        for (key, shape), group in groups.items()
    ]
    leader = longest_primary(job).name
    first = next(part for part in made if any(MemberId(leader, 0) in item.members for item in part.bins))
    # Components without a limit come first, because later components inherit --time (sbatch(1)).
    others = sorted(
        (part for part in made if part is not first), key=lambda part: (part.time is not None, part.bins[0].members)
    )
    limits = [part.time for part in made]
    whole = None if None in limits else max(limit or 0 for limit in limits)
    components = (replace(first, time=whole), *others)
    return components, _find_inherited(components)


def _cover(bins: Sequence[Bin], ends: dict[str, int | None]) -> int | None:
    limits = [ends[member.task] for item in bins for member in item.members]
    return None if None in limits else max(limit or 0 for limit in limits) + MARGIN


def _find_inherited(components: Sequence[PlannedComponent]) -> list[str]:
    """Notes about options that later components inherit from earlier ones (sbatch(1))."""
    notes = []
    passed: dict[str, str] = {}
    for number, component in enumerate(components):
        for name in sorted(inherited(passed)):
            if name not in component.options:
                notes.append(
                    f"component {number} has --{name}={passed[name]} too: Slurm passes it on from an earlier one"
                )
        passed.update(component.options)
    return notes


def _make_steps(
    job: Job, components: Sequence[PlannedComponent], needs: dict[str, NodeResources]
) -> tuple[PlannedStep, ...]:
    places: dict[str, dict[int, list[tuple[int, int]]]] = {}
    for number, component in enumerate(components):
        for node, item in enumerate(component.bins):
            for member in item.members:
                places.setdefault(member.task, {}).setdefault(number, []).append((node, member.index))
    steps = []
    for task in job.spec.tasks:
        for number, listed in sorted(places[task.name].items()):
            for row in _without_repeats(sorted(listed)):
                nodes, members = tuple(node for node, _ in row), tuple(index for _, index in row)
                steps.append(PlannedStep(task.name, number, members, nodes, needs[task.name]))
    return tuple(steps)


def _without_repeats(listed: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Split a task's members into steps with at most one member a node: a sharing task may have several on one."""
    rows: list[list[tuple[int, int]]] = []
    for node, index in listed:
        row = next((row for row in rows if row[-1][0] != node), None)
        if row is None:
            rows.append([(node, index)])
        else:
            row.append((node, index))
    return rows
