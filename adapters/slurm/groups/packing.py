"""Bin packing of members into nodes: several heuristics are tried, and the fewest nodes win. Pure, deterministic.

The unit (PackedUnit) is a member with those that share its node. Two units of one task never share a node, nor do units
with different options; a task that spreads shares its nodes with no other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from overspan.adapters.slurm.groups.plans import Bin, MemberId
from overspan.adapters.slurm.rendering.node_resources import NodeResources
from overspan.bridge.model.resources import parse_gres

_MOST_SIZES = 4
"""Node sizes that are planned for alone, the most frequent ones: each multiplies the work."""
_MOST_COUNTS = 8
"""Numbers of bins that `_pack_evenly` tries before the best one so far."""
LEVEL_SHARE = 8
"""Bins are raised to one shape, which saves components, if that adds at most 1/LEVEL_SHARE of all CPUs and memory."""

Key = tuple[tuple[str, str], ...]


@dataclass(frozen=True, order=True)
class NodeSize:
    """Nodes of one size in one partition (empty: any): CPUs, MiB, GPUs, and how many there are."""

    partition: str
    cpus: int
    memory: int
    gpus: int = 0
    gpu_kind: str = ""
    count: int = 1


@dataclass(frozen=True)
class PackedUnit:
    """Members that run on one node; `task` is the one whose node the others share, `key` its options."""

    task: str
    members: tuple[MemberId, ...]
    need: NodeResources
    key: Key = ()
    alone: bool = False
    apart: bool = False
    """Whether `_pack_apart` gives it a node of its own: units of tasks with several nodes or with GPUs."""


@dataclass
class _Open:
    """A bin that is being filled."""

    units: list[PackedUnit]
    need: NodeResources


class Packed(NamedTuple):
    """Bins with the options of each, in order."""

    bins: tuple[tuple[Key, Bin], ...]


def add_needs(first: NodeResources, second: NodeResources) -> NodeResources:
    """The sum of both needs on one node; a memory of 0 means the whole node's, and stays 0."""
    memory: int | None
    if first.memory == 0 or second.memory == 0:
        memory = 0
    elif first.memory is None and second.memory is None:
        memory = None
    else:
        memory = (first.memory or 0) + (second.memory or 0)
    gres = _add_gres((*first.gres, *second.gres))
    return NodeResources(
        first.cpus + second.cpus, memory, first.gpus + second.gpus, first.gpu_kind or second.gpu_kind, tuple(gres)
    )


def _add_gres(entries: Iterable[str]) -> list[str]:
    found: dict[tuple[str, str], int] = {}
    for entry in entries:
        for gres in parse_gres(entry):
            found[gres.name, gres.kind] = found.get((gres.name, gres.kind), 0) + gres.amount
    return [":".join([name, *([kind] if kind else []), str(amount)]) for (name, kind), amount in found.items()]


def fits(need: NodeResources, size: NodeSize) -> bool:
    """Whether a node of that size has these resources."""
    if need.cpus > size.cpus or need.gpus > size.gpus or (need.memory or 0) > size.memory:
        return False
    return not need.gpus or not need.gpu_kind or not size.gpu_kind or need.gpu_kind == size.gpu_kind


def pack(units: Sequence[PackedUnit], sizes: Sequence[NodeSize]) -> Packed | None:
    """The best plan of all heuristics: fewest nodes, then fewest components, then fewest CPUs; None if none fits.

    Without sizes the nodes are not known, and every unit gets a node of its own.
    """
    keys = list(dict.fromkeys(unit.key for unit in units))
    if not sizes:
        return Packed(tuple((unit.key, _close([unit])) for unit in units))
    tried: list[list[tuple[Key, Bin]]] = []
    for bound in _bounds(sizes):
        for way in (_pack_apart, _pack_first_fit, _pack_widest, _pack_by_size, _pack_evenly):
            opened: list[_Open] | None = []
            for key in keys:
                here = [size for size in bound if not size.partition or size.partition == partition_of(key)]
                found = way([unit for unit in units if unit.key == key], here or bound)
                opened = None if found is None or opened is None else [*opened, *found]
            if opened is not None and _all_placed(opened, sizes):
                bins = [(item.units[0].key, _close(item.units)) for item in opened]
                tried += [bins, _level(bins, sizes)]
    if not tried:
        return None
    return Packed(tuple(min(tried, key=_cost)))


def partition_of(key: Key) -> str:
    """The partition that options name; empty for the default."""
    return dict(key).get("partition", "")


def _cost(bins: Iterable[tuple[Key, Bin]]) -> tuple[int, int, int]:
    listed = list(bins)
    shapes = {(key, item.need) for key, item in listed}
    return len(listed), len(shapes), sum(item.need.cpus for _, item in listed)


def _bounds(sizes: Sequence[NodeSize]) -> list[list[NodeSize]]:
    """The sets of sizes to plan for: all, then each frequent size alone, so that a few large nodes do not dominate."""
    alone = sorted(sizes, key=lambda size: (-size.count, size))
    return [list(sizes), *([size] for size in alone[:_MOST_SIZES] if len(sizes) > 1)]


class _By(Enum):
    """Sort orders: largest first, then most members; most members first; largest first, members ignored."""

    SIZE = auto()
    WIDTH = auto()
    SIZE_ALONE = auto()


def _order(units: Iterable[PackedUnit], by: _By = _By.SIZE) -> list[PackedUnit]:
    """The units in the order in which they are placed; those of one task together, in the order of their members."""
    listed = list(units)
    largest: dict[str, tuple[int, ...]] = {}
    counts: dict[str, int] = {}
    for unit in listed:
        size = (-unit.need.gpus, -unit.need.cpus, -(unit.need.memory or 0))
        largest[unit.task] = min(largest.get(unit.task, size), size)
        counts[unit.task] = counts.get(unit.task, 0) - 1
    ranks: dict[_By, Callable[[str], tuple[int, ...]]] = {
        _By.SIZE: lambda task: (*largest[task], counts[task]),
        _By.WIDTH: lambda task: (counts[task], *largest[task]),
        _By.SIZE_ALONE: lambda task: largest[task],
    }
    rank = {task: ranks[by](task) for task in counts}
    return sorted(listed, key=lambda unit: (rank[unit.task], unit.task, unit.members))


def _can_hold(need: NodeResources, sizes: Sequence[NodeSize]) -> bool:
    return any(fits(need, size) for size in sizes)


def _joined(item: _Open, unit: PackedUnit, sizes: Sequence[NodeSize]) -> NodeResources | None:
    """The bin's need with the unit in it; None if it does not fit or may not be there."""
    if not item.units:
        return unit.need if _can_hold(unit.need, sizes) else None
    if unit.alone or item.units[0].alone:
        return None
    kinds = {need.gpu_kind for need in (item.need, unit.need) if need.gpus}
    memories = (item.need.memory, unit.need.memory)
    if len(kinds) > 1 or 0 in memories:
        return None
    need = add_needs(item.need, unit.need)
    return need if _can_hold(need, sizes) else None


def _put(item: _Open, unit: PackedUnit, need: NodeResources) -> None:
    item.units.append(unit)
    item.need = need


def _open(unit: PackedUnit) -> _Open:
    return _Open([unit], unit.need)


def _fill(ordered: Sequence[PackedUnit], bins: list[_Open], sizes: Sequence[NodeSize], evenly: bool) -> list[_Open]:
    """Put each unit into a bin with room, the first or the emptiest; the rest is returned as new bins.

    The next member of a task cannot go into a bin that has one of its members, nor into one that had no room, so each
    task passes over the bins once.
    """
    more: list[_Open] = []
    for _, group in itertools.groupby(ordered, key=lambda unit: unit.task):
        row = [*bins, *more]
        if evenly:
            row = sorted(row, key=_load)
        start = 0
        for unit in group:
            for place in range(start, len(row)):
                need = _joined(row[place], unit, sizes)
                if need is not None:
                    _put(row[place], unit, need)
                    start = place + 1
                    break
            else:
                start = len(row)
                more.append(_open(unit))
    return more


def _pack_first_fit(units: Sequence[PackedUnit], sizes: Sequence[NodeSize], by: _By = _By.SIZE) -> list[_Open] | None:
    """First fit: each unit goes into the first bin with room."""
    if not all(_can_hold(unit.need, sizes) for unit in units):
        return None
    return _fill(_order(units, by), [], sizes, False)


def _pack_widest(units: Sequence[PackedUnit], sizes: Sequence[NodeSize]) -> list[_Open] | None:
    """First fit, with the tasks of most nodes first."""
    return _pack_first_fit(units, sizes, _By.WIDTH)


def _pack_by_size(units: Sequence[PackedUnit], sizes: Sequence[NodeSize]) -> list[_Open] | None:
    """First fit, with the largest units first, however many nodes their tasks have."""
    return _pack_first_fit(units, sizes, _By.SIZE_ALONE)


def _pack_apart(units: Sequence[PackedUnit], sizes: Sequence[NodeSize]) -> list[_Open] | None:
    """Units of tasks with several nodes or with GPUs on nodes of their own, first fit for the others."""
    small = _pack_first_fit([unit for unit in units if not unit.apart], sizes)
    large = [unit for unit in _order(units) if unit.apart]
    if small is None or not all(_can_hold(unit.need, sizes) for unit in large):
        return None
    return [*(_open(unit) for unit in large), *small]


def _pack_evenly(units: Sequence[PackedUnit], sizes: Sequence[NodeSize]) -> list[_Open] | None:
    """Worst fit into the fewest bins: each unit goes into the emptiest, so that bins are alike and components few."""
    ways = (_pack_first_fit, _pack_widest, _pack_by_size)
    filled = [found for found in (way(units, sizes) for way in ways) if found is not None]
    if not filled:
        return None
    alone = [unit for unit in _order(units) if unit.alone]
    free = [unit for unit in _order(units, _By.WIDTH) if not unit.alone]
    most = min(map(len, filled)) - len(alone)
    least = min(most, _least(free, sizes))
    for count in (*itertools.islice(range(least, most), _MOST_COUNTS), most):
        bins = [_Open([], NodeResources(0)) for _ in range(count)]
        if not _fill(free, bins, sizes, True):
            return [*(_open(unit) for unit in alone), *(item for item in bins if item.units)]
    return None


def _least(units: Sequence[PackedUnit], sizes: Sequence[NodeSize]) -> int:
    """A lower bound for the number of bins."""
    tasks = [unit.task for unit in units]
    widest = max(map(tasks.count, dict.fromkeys(tasks)), default=0)
    cpus = -(-sum(unit.need.cpus for unit in units) // max(size.cpus for size in sizes))
    return max(widest, cpus)


def _load(item: _Open) -> tuple[int, int, int]:
    return item.need.gpus, item.need.cpus, item.need.memory or 0


def _close(units: Sequence[PackedUnit]) -> Bin:
    need = units[0].need
    for unit in units[1:]:
        need = add_needs(need, unit.need)
    return Bin(tuple(member for unit in units for member in unit.members), need)


def _all_placed(opened: Sequence[_Open], sizes: Sequence[NodeSize]) -> bool:
    """Whether there are enough nodes for all bins at once: those with the fewest fitting nodes choose first."""
    left = [size.count for size in sizes]
    choices = []
    for item in opened:
        wanted = partition_of(item.units[0].key)
        choices.append(
            [
                place
                for place, size in enumerate(sizes)
                if fits(item.need, size) and (not size.partition or size.partition == wanted)
            ]
        )
    for places in sorted(choices, key=lambda places: sum(sizes[place].count for place in places)):
        # The smallest node that fits leaves the larger ones for bins that need them.
        fitting = sorted((place for place in places if left[place]), key=lambda place: sizes[place])
        if not fitting:
            return False
        left[fitting[0]] -= 1
    return True


def _level(bins: Sequence[tuple[Key, Bin]], sizes: Sequence[NodeSize]) -> list[tuple[Key, Bin]]:
    """Raise bins with equal options, GPUs and gres to one shape if that adds little (LEVEL_SHARE)."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, (key, item) in enumerate(bins):
        groups.setdefault((key, item.need.gpus, item.need.gpu_kind, item.need.gres), []).append(place)
    levelled = list(bins)
    cpus = sum(item.need.cpus for _, item in bins)
    memory = sum(item.need.memory or 0 for _, item in bins)
    for places in groups.values():
        needs = [bins[place][1].need for place in places]
        if any(need.memory == 0 for need in needs):
            continue
        top = needs[0]._replace(
            cpus=max(need.cpus for need in needs),
            memory=None if needs[0].memory is None else max(need.memory or 0 for need in needs),
        )
        added = sum(top.cpus - need.cpus for need in needs)
        more = sum((top.memory or 0) - (need.memory or 0) for need in needs)
        raised = list(levelled)
        for place in places:
            raised[place] = (bins[place][0], Bin(bins[place][1].members, top))
        enough = _nodes_for(raised, sizes)
        if added * LEVEL_SHARE <= cpus and more * LEVEL_SHARE <= memory and enough:
            levelled = raised
    return levelled


def _nodes_for(bins: Sequence[tuple[Key, Bin]], sizes: Sequence[NodeSize]) -> bool:
    return _all_placed([_Open([PackedUnit("", (), item.need, key)], item.need) for key, item in bins], sizes)
