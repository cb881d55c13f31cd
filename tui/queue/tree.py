"""The queue as a tree: jobs, groups above their tasks, arrays above their elements; rebuilt a family at a time.

A family is a job with its tasks, or an array with its elements. Its rows come together, so a change of one job
rebuilds one family and no other; the list of lines is made anew from the families that there are.
"""

from __future__ import annotations

import enum
import itertools
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.bridge.listings.rows import JobRow
from overspan.tui.queue.filters import Filter, FilterSubject

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

_LIVE = frozenset(("RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING", "PENDING"))


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
    def over(self) -> bool:
        """Whether it, and all that is below it, has ended."""
        if self.children:
            return all(child.over for child in self.children)
        return self.row.ended_at is not None and self.row.state not in _LIVE

    @property
    def ref(self) -> str:
        """What an order about the line names: the whole job for a group, the whole array for an array."""
        return str(self.key.job) if self.kind in (Kind.GROUP, Kind.ARRAY) else self.row.ref


class Line(NamedTuple):
    """A node in the order of the view, with its depth; `folded` is None where nothing is below it."""

    node: Node
    depth: int
    folded: bool | None = None
    last: bool = False
    """Whether it is the last one below its head."""

    @property
    def key(self) -> Key:
        """The identity that cursor, marks and folds are kept by."""
        return self.node.key


class View(NamedTuple):
    """What is chosen of the queue, and in which order."""

    filter: Filter
    order: Callable[[JobRow], Any]
    reverse: bool = False
    unfolded: Container[Key] = frozenset()
    ended_since: float = 0.0
    """What ended before this is not shown (epoch seconds)."""
    choice: object = None
    """Views with equal choices, other than None, have the same filter and order."""


class QueueTree:
    """All jobs that are known, as families; it holds the rows of each job apart, because they change apart."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[JobRow, ...]] = {}
        self._family: dict[int, int] = {}
        self._members: dict[int, dict[int, None]] = {}
        self._nodes: dict[int, Node] = {}
        self._versions = itertools.count(1)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def apply(self, rows: Sequence[JobRow], changed: Iterable[int] = (), *, whole: bool = False) -> None:
        """Take the rows that the changed jobs have now; those without rows are gone. `whole`: nothing else is known.

        Families that stay the same keep their version.
        """
        grouped: dict[int, list[JobRow]] = {}
        for row in rows:
            grouped.setdefault(row.id, []).append(row)
        families = set()
        for job_id in {**self._rows, **grouped} if whole else dict.fromkeys(changed):
            families |= self._replace(job_id, tuple(grouped.get(job_id, ())))
        for family in families:
            self._rebuild(family)

    def _replace(self, job_id: int, rows: tuple[JobRow, ...]) -> set[int]:
        """Set a job's rows; gives the families that have to be built again."""
        if rows == self._rows.get(job_id, ()):
            return set()
        touched = set()
        old = self._family.pop(job_id, None)
        if old is not None:
            self._members[old].pop(job_id)
            touched.add(old)
        if rows:
            family = family_of(rows[0])
            self._rows[job_id] = rows
            self._family[job_id] = family
            self._members.setdefault(family, {})[job_id] = None
            touched.add(family)
        else:
            self._rows.pop(job_id, None)
        return touched

    def _rebuild(self, family: int) -> None:
        rows = [row for job_id in self._members.get(family, ()) for row in self._rows[job_id]]
        if rows:
            self._nodes[family] = _build(family, rows, next(self._versions))
        else:
            self._members.pop(family, None)
            self._nodes.pop(family, None)

    def find(self, key: Key) -> Node | None:
        """The node of a line, if it is still there."""
        node = self._nodes.get(key.job)
        if node is None or node.key == key:
            return node
        return next((child for child in node.children if child.key == key), None)

    def lines(self, view: View) -> list[Line]:
        """The lines of a view. A family stays when one of its members matches, and shows those that do."""
        found = []
        for node in self._nodes.values():
            if not _is_old(node, view) and (members := _list_matches(node, view.filter)):
                found.append((node, members))
        found.sort(key=lambda pair: view.order(pair[0].row), reverse=view.reverse)
        lines: list[Line] = []
        for node, members in found:
            if not node.children:
                lines.append(Line(node, 0))
                continue
            folded = node.key not in view.unfolded
            lines.append(Line(node, 0, folded))
            if not folded:
                lines += [Line(member, 1, last=member is members[-1]) for member in members]
        return lines

    def count(self, view: View) -> int:
        """How many lines a view has when all is folded."""
        return sum(not _is_old(node, view) and bool(_list_matches(node, view.filter)) for node in self._nodes.values())

    def count_states(self) -> Counter[str]:
        """How many jobs, tasks and elements are in each state."""
        total: Counter[str] = Counter()
        for node in self._nodes.values():
            total.update(node.tally or {node.row.state: 1})
        return total


def family_of(row: JobRow) -> int:
    """The number of the array that an element belongs to, else the job's own."""
    return row.array_id or row.id


def _list_matches(node: Node, chosen: Filter) -> Sequence[Node]:
    """The members of a head that match; a node without members stands for itself."""
    members = node.children or (node,)
    if not chosen.tests:
        return members
    return [member for member in members if chosen.matches(FilterSubject(member.row, member.ref))]


def _is_old(node: Node, view: View) -> bool:
    """Whether it ended before the view begins."""
    return bool(view.ended_since) and (node.row.ended_at or 0.0) < view.ended_since and node.over


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
        ended_at=_find_end(children),
        started_at=min((child.row.started_at for child in children if child.row.started_at), default=None),
        task_offset=None,
        array_index=None,
        array_waiting="",
        node_list=",".join(dict.fromkeys(child.row.node_list for child in children if child.row.node_list)),
    )
    return Node(key, kind, row, version, dict(tally), tuple(children))


def _find_end(members: Sequence[Node]) -> float | None:
    """When the last one ended; None while one has not."""
    ends = [member.row.ended_at for member in members]
    return None if None in ends else max(end for end in ends if end is not None)


def count_indices(text: str) -> int:
    """How many indices `0-9:2,20%4` names."""
    total = 0
    for part in filter(None, text.partition("%")[0].split(",")):
        span, _, step = part.partition(":")
        first, dash, last = span.partition("-")
        total += (int(last) - int(first)) // int(step or 1) + 1 if dash else 1
    return total
