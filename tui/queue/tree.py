"""The queue as a tree: jobs, groups above their tasks, arrays above their elements; rebuilt a family at a time.

A family is a job with its tasks and the further members of these, or an array with its elements. A change of one job
rebuilds one family and no other, and where several jobs are one only the lines of that job and the head; the families
keep their order, and their lines, until they change themselves.
"""

from __future__ import annotations

import enum
import heapq
import itertools
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.state_words import ENDED_WORDS, LIVE_WORDS
from overspan.tui.queue.filters import FilterSubject, QueueFilter
from overspan.tui.queue.sorted_blocks import SortedBlocks

_LIVELIEST = (*LIVE_WORDS, *ENDED_WORDS)
"""Which state of its members a group or an array shows: the first of these that one of them has."""

_LIVE = frozenset(LIVE_WORDS)


class Kind(enum.Enum):
    """What a line of the tree stands for."""

    JOB = "job"
    GROUP = "group"
    TASK = "task"
    MEMBER = "member"
    ARRAY = "array"
    ELEMENT = "element"
    WAITING = "waiting elements"


class LineKey(NamedTuple):
    """Which line it is, for as long as the job is known: its family, and the task, member or element in it."""

    job: int
    kind: str
    part: int = 0


class TreeNode(NamedTuple):
    """A row with what is below it. `version` grows with each change of it."""

    key: LineKey
    kind: Kind
    row: JobRow
    version: int
    tally: Mapping[str, int] = {}
    """How many members are in each state; empty where there are none."""
    children: tuple[TreeNode, ...] = ()

    @property
    def states(self) -> Mapping[str, int]:
        """How many jobs, tasks or elements it stands for, by state."""
        return self.tally or {self.row.state: 1}

    @property
    def over(self) -> bool:
        """Whether it, and all that is below it, has ended."""
        return self.row.ended_at is not None and _LIVE.isdisjoint(self.states)

    @property
    def ref(self) -> str:
        """What an order about the line names: the whole job for a group, the whole array for an array."""
        return str(self.key.job) if self.kind in (Kind.GROUP, Kind.ARRAY) else self.row.ref


class Line(NamedTuple):
    """A node in the order of the view, with its depth; `folded` is None where nothing is below it."""

    node: TreeNode
    depth: int
    folded: bool | None = None
    last: bool = False
    """Whether it is the last one below its head."""

    @property
    def key(self) -> LineKey:
        """The identity that cursor, marks and folds are kept by."""
        return self.node.key


class View(NamedTuple):
    """What is chosen of the queue, and in which order.

    Views with equal choices, other than None, have the same filter and order; only what is unfolded, and
    `ended_since`, may differ. Without a choice these are compared themselves, and two functions are never equal.
    """

    filter: QueueFilter
    order: Callable[[JobRow], Any]
    reverse: bool = False
    unfolded: Container[LineKey] = frozenset()
    ended_since: float = 0.0
    """What ended before this is not shown (epoch seconds)."""
    choice: object = None

    def sorts_like(self, other: View) -> bool:
        """Whether what the other view has put in order is in order for this one, too."""
        mine = (self.filter, self.order) if self.choice is None else self.choice
        its = (other.filter, other.order) if other.choice is None else other.choice
        return (
            mine == its and bool(self.ended_since) == bool(other.ended_since) and self.ended_since >= other.ended_since
        )


class QueueTree:
    """All jobs that are known, as families; what a change costs does not depend on how many others there are.

    The order of the last view is kept: the next one like it only moves what has changed.
    """

    def __init__(self) -> None:
        self._rows: dict[int, tuple[JobRow, ...]] = {}
        self._joint: dict[int, dict[int, tuple[TreeNode, ...]]] = {}
        """The families of several jobs, with the lines of each: elements, and the array itself for those that wait;
        further members, and the group's own tasks.
        """
        self._nodes: dict[int, TreeNode] = {}
        self._tally: Counter[str] = Counter()
        self._versions = itertools.count(1)
        self._touched: set[int] = set()
        """Families that changed since the lines were asked for."""
        self._shown = _ShownFamilies(None)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[TreeNode]:
        return iter(self._nodes.values())

    def apply(self, rows: Sequence[JobRow], changed: Iterable[int] = (), *, whole: bool = False) -> None:
        """Take the rows that the changed jobs have now; those without rows are gone. `whole`: nothing else is known.

        Lines that stay the same keep their version.
        """
        grouped: dict[int, list[JobRow]] = {}
        for row in rows:
            grouped.setdefault(row.id, []).append(row)
        joint: set[int] = set()
        for job_id in {**self._rows, **grouped} if whole else dict.fromkeys(changed):
            new, old = tuple(grouped.get(job_id, ())), self._rows.get(job_id, ())
            if new != old:
                joint |= self._replace(job_id, old, new)
        for family in joint:
            self._build(family)

    def _replace(self, job_id: int, old: Sequence[JobRow], new: tuple[JobRow, ...]) -> set[int]:
        """Set a job's rows; gives the families of several jobs that have to be built again."""
        touched = set()
        if new:
            self._rows[job_id] = new
        else:
            del self._rows[job_id]
        former, family = (rows[0].family if rows else None for rows in (old, new))
        if former in self._joint:
            self._joint[former].pop(job_id)
            touched.add(former)
        elif former is not None and former != family:
            self._set(former, None)
        if family is None:
            return touched
        if family in self._joint or family != job_id or new[0].array_id is not None:
            self._join(family, job_id, new)
            touched.add(family)
        else:
            self._set(family, _build_job(new, next(self._versions)))
        return touched

    def _join(self, family: int, job_id: int, rows: Sequence[JobRow]) -> None:
        """Set the lines of a job in a family of several; the first that joins finds the family's own job there."""
        if family not in self._joint:
            own = self._rows.get(family, ())
            known = own and own[0].family == family
            self._joint[family] = {family: self._make_leaves(family, own)} if known else {}
        self._joint[family][job_id] = self._make_leaves(family, rows)

    def _make_leaves(self, family: int, rows: Sequence[JobRow]) -> tuple[TreeNode, ...]:
        version = next(self._versions)
        return tuple(_make_leaf(family, row, version) for row in rows)

    def _build(self, family: int) -> None:
        """Build the head of a family of several jobs; one that is a single job again, or none, is no such family."""
        jobs, own = self._joint[family], self._rows.get(family, ())
        version = next(self._versions)
        single = jobs.keys() == {family} and own[0].array_id is None
        if single or not jobs:
            del self._joint[family]
            self._set(family, _build_job(own, version) if single else None)
            return
        children = sorted(itertools.chain.from_iterable(jobs.values()), key=self._place_of_node)
        self._set(family, _build_head(family, children, version))

    def _set(self, family: int, node: TreeNode | None) -> None:
        old = self._nodes.pop(family, None) if node is None else self._nodes.get(family)
        for state, count in old.states.items() if old is not None else ():
            self._tally[state] -= count
        for state, count in node.states.items() if node is not None else ():
            self._tally[state] += count
        if node is not None:
            self._nodes[family] = node
        self._touched.add(family)

    def find(self, key: LineKey) -> TreeNode | None:
        """The node of a line, if it is still there."""
        node = self._nodes.get(key.job)
        if node is None or node.key == key:
            return node
        children = node.children
        place = bisect_left(children, self._place_of(key), key=self._place_of_node)
        return children[place] if place < len(children) and children[place].key == key else None

    def _place_of(self, key: LineKey) -> tuple[bool, int, int, str]:
        """Where a line stands below its head: tasks, each with its further members, or elements, by number; then
        elements that wait or never ran.
        """
        if key.kind != "member":
            return key.kind in ("waiting", "cancelled"), key.part, 0, key.kind
        tasks = self._rows.get(key.job, ())
        task = "".join(row.member_of.partition("+")[2] for row in self._rows.get(key.part, ()))
        return False, next((row.task_offset or 0 for row in tasks if row.name == task), len(tasks)), key.part, ""

    def _place_of_node(self, node: TreeNode) -> tuple[bool, int, int, str]:
        return self._place_of(node.key)

    def lines(self, view: View) -> list[Line]:
        """The lines of a view; a family stays when one of its members matches, and shows those that do.

        While none of them changes it is the same list, which callers must not change.
        """
        shown = self._shown
        if shown.view is None or not view.sorts_like(shown.view) or len(self._touched) * 4 > len(self._nodes):
            shown = self._shown = _ShownFamilies(view, self._nodes)
        else:
            shown.update(view, self._nodes, self._touched)
        self._touched = set()
        return shown.lines

    def count(self, view: View) -> int:
        """How many lines a view has when all is folded."""
        if self._shown.view is not None and not self._touched and view == self._shown.view:
            return len(self._shown)
        return sum(not _is_old(node, view) and bool(_list_matches(node, view.filter)) for node in self._nodes.values())

    def find_next_end(self) -> float:
        """When the next of the ended jobs among the lines will have ended before the view begins; infinity for none.

        To be compared with `ended_since`.
        """
        return self._shown.next_end

    def count_states(self) -> Counter[str]:
        """How many jobs, tasks and elements are in each state."""
        return +self._tally


class _ShownFamilies:
    """The families that a view shows, in its order, each with its lines."""

    def __init__(self, view: View | None, nodes: Mapping[int, TreeNode] = MappingProxyType({})) -> None:
        self.view = view
        self.lines: list[Line] = []
        self._folded: dict[LineKey, bool] = {}
        """Whether each head that is shown is folded."""
        self._ends: list[tuple[float, int]] = []
        """A heap: when each ended family ended."""
        self._blocks = SortedBlocks[Line]()
        if view is not None:
            found = ((family, node, self._list_lines(node, view)) for family, node in nodes.items())
            self._blocks = SortedBlocks((family, view.order(node.row), lines) for family, node, lines in found if lines)
            self.lines = self._blocks.list_lines(view.reverse)

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def next_end(self) -> float:
        """When the one ended that will leave the view first; infinity where none is over."""
        return self._ends[0][0] if self._ends and self.view is not None and self.view.ended_since else math.inf

    def update(self, view: View, nodes: Mapping[int, TreeNode], touched: set[int]) -> None:
        """Bring those up to date that were touched, have ended too long ago, or were folded or unfolded."""
        turned = {key.job for key, folded in self._folded.items() if folded is (key in view.unfolded)}
        old = self.view
        self.view = view
        families = touched | turned | self._take_old(view)
        for family in families:
            node = nodes.get(family)
            lines = () if node is None else self._list_lines(node, view)
            if node is not None and lines:
                self._blocks.put(family, view.order(node.row), lines)
            else:
                self._blocks.drop(family)
                self._folded.pop(head_key(family), None)
        if families or old is None or old.reverse != view.reverse:
            self.lines = self._blocks.list_lines(view.reverse)

    def _take_old(self, view: View) -> set[int]:
        """The families that ended before the view begins now."""
        found = set()
        while view.ended_since and self._ends and self._ends[0][0] < view.ended_since:
            found.add(heapq.heappop(self._ends)[1])
        return found

    def _list_lines(self, node: TreeNode, view: View) -> Sequence[Line]:
        """The lines of a family; none where the view leaves it out."""
        members = () if _is_old(node, view) else _list_matches(node, view.filter)
        if not members:
            return ()
        if view.ended_since and node.over:
            heapq.heappush(self._ends, (node.row.ended_at or 0.0, node.key.job))
        if not node.children:
            return (Line(node, 0),)
        folded = self._folded[node.key] = node.key not in view.unfolded
        head = Line(node, 0, folded)
        if folded:
            return (head,)
        return (head, *(Line(member, 1) for member in members[:-1]), Line(members[-1], 1, last=True))


def _list_matches(node: TreeNode, chosen: QueueFilter) -> Sequence[TreeNode]:
    """The members of a head that match; a node without members stands for itself."""
    members = node.children or (node,)
    if not chosen.tests:
        return members
    return [member for member in members if chosen.matches(FilterSubject(member.row, member.ref))]


def _is_old(node: TreeNode, view: View) -> bool:
    """Whether it ended before the view begins."""
    return bool(view.ended_since) and (node.row.ended_at or 0.0) < view.ended_since and node.over


def head_key(family: int) -> LineKey:
    """The key of a family's first line."""
    return LineKey(family, "job")


def _build_job(rows: Sequence[JobRow], version: int) -> TreeNode:
    """A job of one task, or a group with its tasks."""
    job = rows[0].id
    if len(rows) == 1 and rows[0].task_offset is None:
        return TreeNode(head_key(job), Kind.JOB, rows[0], version)
    return _build_head(job, [_make_leaf(job, row, version) for row in sorted(rows, key=_offset_of)], version)


def _offset_of(row: JobRow) -> int:
    return row.task_offset or 0


def _make_leaf(family: int, row: JobRow, version: int) -> TreeNode:
    """The line of a task, of a further member, of an element, or of an array's elements that wait or never ran."""
    if row.member_of:
        return TreeNode(LineKey(family, "member", row.id), Kind.MEMBER, row, version)
    if row.array_id is None:
        return TreeNode(LineKey(family, "task", _offset_of(row)), Kind.TASK, row, version)
    if row.array_index is not None:
        return TreeNode(LineKey(family, "element", row.array_index), Kind.ELEMENT, row, version)
    kind = "waiting" if row.state == "PENDING" else "cancelled"
    tally = {row.state: count_indices(row.array_waiting) or 1}
    return TreeNode(LineKey(family, kind), Kind.WAITING, row, version, tally)


def _build_head(family: int, children: Sequence[TreeNode], version: int) -> TreeNode:
    """A group above its tasks and their further members, or an array above its elements."""
    first = children[0].row
    if first.array_id is not None:
        return _head(head_key(family), Kind.ARRAY, first.name, children, version)
    return _head(head_key(family), Kind.GROUP, first.group or first.name, children, version)


def _head(key: LineKey, kind: Kind, name: str, children: Sequence[TreeNode], version: int) -> TreeNode:
    """What stands for all members: their liveliest state, and extremes or sums of the rest."""
    rows = [child.row for child in children]
    tally = Counter([row.state for row in rows])
    for child in children[-2:]:
        # Only the last ones may stand for several.
        if child.tally:
            tally.update(child.tally)
            tally[child.row.state] -= 1
    state = next((each for each in _LIVELIEST if tally[each]), rows[0].state)
    alike = [row for row in rows if row.state == state]
    row = alike[0]._replace(
        name=name,
        nodes=sum([row.nodes for row in alike]),
        ended_at=_find_end(rows),
        started_at=min(filter(None, [row.started_at for row in rows]), default=None),
        task_offset=None,
        array_index=None,
        array_waiting="",
        member_of="",
        members="",
        node_list=",".join(filter(None, dict.fromkeys([row.node_list for row in rows]))),
    )
    return TreeNode(key, kind, row, version, _sort_tally(tally), tuple(children))


def _sort_tally(tally: Counter[str]) -> dict[str, int]:
    """The states that there are, what lives first: where there is no room, the end is cut."""
    return {state: tally[state] for state in dict.fromkeys((*_LIVELIEST, *tally)) if tally[state] > 0}


def _find_end(rows: Sequence[JobRow]) -> float | None:
    """When the last one ended; None while one has not."""
    ends = [row.ended_at for row in rows]
    return None if None in ends else max(end for end in ends if end is not None)


def count_indices(text: str) -> int:
    """How many indices `0-9:2,20%4` names; a part that cannot be read counts as one."""
    total = 0
    for part in filter(None, text.partition("%")[0].split(",")):
        span, _, step = part.partition(":")
        first, dash, last = span.partition("-")
        try:
            total += (int(last) - int(first)) // int(step or 1) + 1 if dash else 1
        except (ValueError, ZeroDivisionError):
            total += 1
    return total
