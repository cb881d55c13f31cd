"""The queue as a tree: jobs, groups above their tasks, arrays above their elements; rebuilt a family at a time.

A family is a job with its tasks, or an array with its elements. Its rows come together, so a change of one job
rebuilds one family and no other; the list of lines is made anew from the families that there are.
"""

from __future__ import annotations

import enum
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.bridge.client.records import JobRow
from overspan.tui.queue.filters import Facts, Filter

_LIVELIEST = (
    "RUNNING",
    "COMPLETING",
    "SUSPENDED",
    "CONFIGURING",
    "PENDING",
    "FAILED",
    "OUT_OF_MEMORY",
    "TIMEOUT",
    "NODE_FAIL",
    "BOOT_FAIL",
    "DEADLINE",
    "PREEMPTED",
    "CANCELLED",
    "COMPLETED",
)
"""Which state of its members a group or an array shows: the first of these that one of them has."""


class Kind(enum.Enum):
    """What a line of the tree stands for."""

    JOB = "job"
    GROUP = "group"
    TASK = "task"
    ARRAY = "array"
    ELEMENT = "element"
    WAITING = "waiting elements"


class Key(NamedTuple):
    """Which line it is, for as long as the job is known: its job, and the task or element in it."""

    job: int
    kind: str
    part: int = 0


class Node(NamedTuple):
    """A row with what is below it. `version` grows with each change of the family."""

    key: Key
    kind: Kind
    row: JobRow
    version: int
    tally: Mapping[str, int] = {}
    """How many members are in each state; empty where there are none."""
    children: tuple[Node, ...] = ()

    @property
    def ref(self) -> str:
        """What an order about the line names: the whole job for a group, the whole array for an array."""
        return str(self.key.job) if self.kind in (Kind.GROUP, Kind.ARRAY) else self.row.ref


class Line(NamedTuple):
    """A node in the order of the view, with its depth; `folded` is None where nothing is below it."""

    node: Node
    depth: int
    folded: bool | None = None

    @property
    def key(self) -> Key:
        """The identity that cursor, marks and folds are kept by."""
        return self.node.key


class View(NamedTuple):
    """What is chosen of the queue, and in which order."""

    filter: Filter
    order: Callable[[JobRow], Any]
    reverse: bool = False
    unfolded: Collection[Key] = frozenset()


class QueueTree:
    """The families of all jobs that are known."""

    def __init__(self) -> None:
        self._families: dict[int, Node] = {}
        self._versions = itertools.count(1)

    def __len__(self) -> int:
        return len(self._families)

    def load(self, rows: Iterable[JobRow]) -> None:
        """Take a snapshot in place of all that was known; families that are the same keep their version."""
        families: dict[int, list[JobRow]] = {}
        for row in rows:
            families.setdefault(family_of(row), []).append(row)
        self._families = {family: self._keep(family, members) for family, members in families.items()}

    def update(self, family: int, rows: Sequence[JobRow]) -> None:
        """Take the rows that a family has now; without rows it is gone."""
        if rows:
            self._families[family] = self._keep(family, rows)
        else:
            self._families.pop(family, None)

    def find(self, key: Key) -> Node | None:
        """The node of a line, if it is still there."""
        for family in self._families.values():
            if family.key == key:
                return family
            if family.key.job == key.job or family.kind is Kind.ARRAY:
                found = next((child for child in family.children if child.key == key), None)
                if found is not None:
                    return found
        return None

    def lines(self, view: View) -> list[Line]:
        """The lines of a view; a family stays when it or one of its members matches."""
        found = [node for node in self._families.values() if _stays(node, view.filter)]
        found.sort(key=lambda node: view.order(node.row), reverse=view.reverse)
        lines: list[Line] = []
        for node in found:
            if not node.children:
                lines.append(Line(node, 0))
                continue
            folded = node.key not in view.unfolded
            lines.append(Line(node, 0, folded))
            if not folded:
                whole = view.filter.matches(facts_of(node))
                lines += [Line(child, 1) for child in node.children if whole or view.filter.matches(facts_of(child))]
        return lines

    def count_states(self) -> Counter[str]:
        """How many jobs, tasks and elements are in each state."""
        total: Counter[str] = Counter()
        for node in self._families.values():
            total.update(node.tally or {node.row.state: 1})
        return total

    def _keep(self, family: int, rows: Sequence[JobRow]) -> Node:
        old = self._families.get(family)
        new = _build(family, rows, 0)
        if old is not None and old == _build(family, rows, old.version):
            return old
        version = next(self._versions)
        return _build(family, rows, version) if new.children else new._replace(version=version)


def family_of(row: JobRow) -> int:
    """The number of the array that an element belongs to, else the job's own."""
    return row.array_id or row.id


def facts_of(node: Node) -> Facts:
    """What a filter is asked about a node."""
    row = node.row
    fields = {
        "cluster": row.cluster,
        "group": row.group,
        "id": node.ref,
        "name": row.name,
        "node": row.node_list,
        "partition": row.partition,
        "reason": row.reason,
        "state": row.state,
        "user": row.user,
    }
    return Facts(fields, " ".join(fields.values()))


def _stays(node: Node, chosen: Filter) -> bool:
    if not chosen.tests:
        return True
    return chosen.matches(facts_of(node)) or any(chosen.matches(facts_of(child)) for child in node.children)


def _build(family: int, rows: Sequence[JobRow], version: int) -> Node:
    if rows[0].array_id is not None:
        return _build_array(family, rows, version)
    if len(rows) > 1 or rows[0].task_offset is not None:
        ordered = sorted(rows, key=lambda row: row.task_offset or 0)
        children = [_leaf(row, Kind.TASK, Key(family, "task", row.task_offset or 0), version) for row in ordered]
        name = ordered[0].group or ordered[0].name
        return _head(Key(family, "job"), Kind.GROUP, name, children, version)
    return _leaf(rows[0], Kind.JOB, Key(family, "job"), version)


def _build_array(family: int, rows: Sequence[JobRow], version: int) -> Node:
    elements = sorted((row for row in rows if row.array_index is not None), key=lambda row: row.array_index or 0)
    children = [_leaf(row, Kind.ELEMENT, Key(family, "element", row.array_index or 0), version) for row in elements]
    waiting = next((row for row in rows if row.array_index is None), None)
    if waiting is not None:
        tally = {waiting.state: count_indices(waiting.array_waiting) or 1}
        children.append(Node(Key(family, "waiting"), Kind.WAITING, waiting, version, tally))
    return _head(Key(family, "job"), Kind.ARRAY, children[0].row.name, children, version)


def _leaf(row: JobRow, kind: Kind, key: Key, version: int) -> Node:
    return Node(key, kind, row, version)


def _head(key: Key, kind: Kind, name: str, children: Sequence[Node], version: int) -> Node:
    """What stands for all members: their liveliest state, and extremes or sums of the rest."""
    tally: Counter[str] = Counter()
    for child in children:
        tally.update(child.tally or {child.row.state: 1})
    state = next((each for each in _LIVELIEST if tally[each]), children[0].row.state)
    shown = next(child.row for child in children if child.row.state == state)
    row = shown._replace(
        name=name,
        nodes=sum(child.row.nodes for child in children if child.row.state == state),
        started_at=min((child.row.started_at for child in children if child.row.started_at), default=None),
        task_offset=None,
        array_index=None,
        array_waiting="",
        node_list=",".join(dict.fromkeys(child.row.node_list for child in children if child.row.node_list)),
    )
    return Node(key, kind, row, version, dict(tally), tuple(children))


def count_indices(text: str) -> int:
    """How many indices `0-9:2,20%4` names."""
    total = 0
    for part in filter(None, text.partition("%")[0].split(",")):
        span, _, step = part.partition(":")
        first, dash, last = span.partition("-")
        total += (int(last) - int(first)) // int(step or 1) + 1 if dash else 1
    return total
