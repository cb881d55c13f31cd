"""Task distribution: which rank of a step runs on which node. Pure.

As in Slurm, a cyclic deal tells how many tasks each node gets, in blocks as in turns; only the order of ranks differs
(srun(1), --distribution).
"""

from __future__ import annotations

from collections.abc import Sequence

from overspan.bridge.model.records import NamedTuple


class LayoutError(Exception):
    """The tasks do not fit the nodes; the text is Slurm's."""


class RankPosition(NamedTuple):
    """One task of a step: `number` in the whole step, `node` by its place in the step, `local` on its node."""

    number: int
    node: int
    local: int


def count_tasks(nodes: int, ntasks: int, most: int = 0) -> list[int]:
    """How many tasks each node gets; `most` is the limit a node, 0 for none. Raises LayoutError."""
    if most and ntasks > nodes * most:
        raise LayoutError("Requested node configuration is not available")
    return [len(range(node, ntasks, nodes)) for node in range(nodes)]


def distribute(counts: Sequence[int], how: str = "block") -> list[RankPosition]:
    """Number the tasks: node by node (`block`), one node after the other (`cyclic`), or so many at a time (`plane=N`).

    Anything behind a colon concerns sockets and cores, and is passed over. Raises LayoutError for another word.
    """
    method = how.partition(":")[0].partition(",")[0].lower() or "block"
    if method == "*":
        method = "block"
    if method in ("block", "arbitrary", "pack", "nopack"):
        order = [node for node, count in enumerate(counts) for _ in range(count)]
    elif method == "cyclic":
        order = _deal(counts, 1)
    elif method.startswith("plane") and (method.partition("=")[2] or "1").isdigit():
        order = _deal(counts, max(1, int(method.partition("=")[2] or 1)))
    else:
        raise LayoutError(f"Invalid --distribution specification: {how}")
    seen = [0] * len(counts)
    ranks = []
    for number, node in enumerate(order):
        ranks.append(RankPosition(number, node, seen[node]))
        seen[node] += 1
    return ranks


def _deal(counts: Sequence[int], size: int) -> list[int]:
    left = list(counts)
    order: list[int] = []
    while any(left):
        for node, count in enumerate(left):
            taken = min(size, count)
            order += [node] * taken
            left[node] -= taken
    return order


def fold_counts(counts: Sequence[int]) -> str:
    """Slurm's way to write numbers a node: `2(x3),1`."""
    parts: list[tuple[int, int]] = []
    for count in counts:
        if parts and parts[-1][0] == count:
            parts[-1] = (count, parts[-1][1] + 1)
        else:
            parts.append((count, 1))
    return ",".join(str(count) if times == 1 else f"{count}(x{times})" for count, times in parts)
