"""The tree of the queue: whatever changes in whatever order, it is the tree that is built from what there is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tui.fake_source import NOW, job

from overspan.bridge.listings.rows import JobRow
from overspan.tui.queue.filters import read_filter
from overspan.tui.queue.sorted_blocks import SortedBlocks
from overspan.tui.queue.tree import Kind, Line, LineKey, QueueTree, TreeNode, View, count_indices

STATES = ("PENDING", "RUNNING", "COMPLETED", "FAILED")
ALL = read_filter("")


def by_state(row: JobRow) -> Any:
    return STATES.index(row.state) if row.state in STATES else 9, row.name, -row.id


def element(number: int, array: int, index: int, state: str = "RUNNING", **more: Any) -> JobRow:
    return job(number, "sweep", state, array_id=array, array_index=index, **more)


def waiting(array: int, indices: str, state: str = "PENDING") -> JobRow:
    return job(array, "sweep", state, array_id=array, array_waiting=indices, started_at=None, node_list="")


def task(number: int, offset: int, name: str, state: str = "RUNNING") -> JobRow:
    return job(number, name, state, task_offset=offset, group="rlhf")


def member(number: int, group: int, task: str, state: str = "RUNNING") -> JobRow:
    return job(number, f"{task}-{number}", state, member_of=f"{group}+{task}", group="rlhf")


def show(lines: Sequence[Line]) -> list[str]:
    """A line each: the depth, the id, the state, the tally."""
    shown = []
    for line in lines:
        mark = "" if line.folded is None else "+" if line.folded else "-"
        tally = " ".join(f"{count}{state[:2]}" for state, count in sorted(line.node.tally.items()))
        parts = ("  " * line.depth + mark + line.node.ref, line.node.row.state, tally, "last" if line.last else "")
        shown.append(" ".join(part for part in parts if part))
    return shown


# --- what it looks like -----------------------------------------------------------------------------------------------


def test_groups_and_arrays_are_heads_with_tallies() -> None:
    tree = QueueTree()
    rows = [
        job(1),
        task(2, 0, "trainer"),
        task(2, 1, "server", "PENDING"),
        waiting(10, "3-9%2"),
        element(12, 10, 1, "COMPLETED", ended_at=NOW),
        element(11, 10, 0),
    ]
    tree.apply(rows, whole=True)
    view = View(ALL, lambda row: row.id, unfolded={LineKey(2, "job"), LineKey(10, "job")})
    assert show(tree.lines(view)) == [
        "1 RUNNING",
        "-2 RUNNING 1PE 1RU",
        "  2+0 RUNNING",
        "  2+1 PENDING last",
        "-10 RUNNING 1CO 7PE 1RU",
        "  10_0 RUNNING",
        "  10_1 COMPLETED",
        "  10_[3-9%2] PENDING 7PE last",
    ]
    assert tree.count_states() == {"RUNNING": 3, "PENDING": 8, "COMPLETED": 1}
    assert show(tree.lines(view._replace(unfolded=()))) == [
        "1 RUNNING",
        "+2 RUNNING 1PE 1RU",
        "+10 RUNNING 1CO 7PE 1RU",
    ]


def test_a_tally_begins_with_what_lives_and_then_what_failed() -> None:
    tree = QueueTree()
    states = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "RUNNING", "STRANGE", "COMPLETED")
    tree.apply(
        [*(element(11 + each, 10, each, state) for each, state in enumerate(states)), waiting(10, "20-29")], whole=True
    )
    head = tree.find(LineKey(10, "job"))
    assert head is not None and list(head.tally.items()) == [
        ("RUNNING", 1),
        ("PENDING", 10),
        ("FAILED", 1),
        ("TIMEOUT", 1),
        ("CANCELLED", 1),
        ("COMPLETED", 2),
        ("STRANGE", 1),
    ]


def test_a_head_sums_up_its_members() -> None:
    tree = QueueTree()
    ended = element(12, 10, 1, "COMPLETED", ended_at=NOW, node_list="n2")
    tree.apply([element(11, 10, 0, started_at=NOW - 9, nodes=2), ended, element(13, 10, 2, nodes=3)], whole=True)
    head = tree.find(LineKey(10, "job"))
    assert head is not None and not head.over
    assert (head.row.nodes, head.row.node_list, head.row.ended_at) == (5, "n1,n2", None)
    assert (head.row.started_at, head.row.state, head.ref) == (NOW - 60, "RUNNING", "10")
    tree.apply([ended._replace(id=11, array_index=0, ended_at=NOW - 5)], [11, 13])
    head = tree.find(LineKey(10, "job"))
    assert head is not None and head.over and head.row.ended_at == NOW


def test_further_members_stand_below_their_group_behind_their_task() -> None:
    tree = QueueTree()
    rows = [member(8, 2, "rollout", "PENDING"), task(2, 0, "trainer"), task(2, 1, "rollout"), task(2, 2, "reward")]
    tree.apply([*rows, job(1), member(7, 2, "rollout")], whole=True)
    view = View(ALL, lambda row: row.id, unfolded={LineKey(2, "job")}, choice=1)
    assert show(tree.lines(view)) == [
        "1 RUNNING",
        "-2 RUNNING 1PE 4RU",
        "  2+0 RUNNING",
        "  2+1 RUNNING",
        "  7 RUNNING",
        "  8 PENDING",
        "  2+2 RUNNING last",
    ]
    assert tree.count_states() == {"RUNNING": 5, "PENDING": 1}
    assert [line.node.row.name for line in tree.lines(view)[1:5]] == ["rlhf", "trainer", "rollout", "rollout-7"]
    assert show(tree.lines(view._replace(filter=read_filter("rollout-"), choice=2)))[1:] == [
        "  7 RUNNING",
        "  8 PENDING last",
    ]
    # The group without them is what it was before, and they without it have its name and its number.
    head, first = tree.find(LineKey(2, "job")), tree.find(LineKey(2, "task", 0))
    tree.apply([], [7])
    assert tree.find(LineKey(2, "member", 7)) is None and tree.find(LineKey(2, "task", 0)) is first
    tree.apply([], [8])
    assert tree.find(LineKey(2, "job")) != head and show(tree.lines(view))[1] == "-2 RUNNING 3RU"
    tree.apply([member(7, 2, "rollout")], [7, 2])
    assert show(tree.lines(view))[1:] == ["-2 RUNNING 1RU", "  7 RUNNING last"]
    assert tree.lines(view)[1].node.row.name == "rlhf"


def test_a_cancelled_array_shows_what_never_ran() -> None:
    tree = QueueTree()
    tree.apply([waiting(10, "0-9", "CANCELLED")._replace(ended_at=NOW)], whole=True)
    assert show(tree.lines(View(ALL, by_state, unfolded={LineKey(10, "job")}))) == [
        "-10 CANCELLED 10CA",
        "  10_[0-9] CANCELLED 10CA last",
    ]


def test_a_filter_shows_the_members_that_match() -> None:
    tree = QueueTree()
    tree.apply([element(11, 10, 0), element(12, 10, 1, "PENDING"), job(1, "other")], whole=True)
    view = View(read_filter("state:pd"), by_state, unfolded={LineKey(10, "job")})
    assert show(tree.lines(view)) == ["-10 RUNNING 1PE 1RU", "  10_1 PENDING last"]
    assert tree.count(view) == 1 and tree.count(View(ALL, by_state)) == 2


def test_what_ended_leaves_in_time_without_any_change() -> None:
    tree = QueueTree()
    tree.apply([job(1, state="COMPLETED", ended_at=NOW), job(2)], whole=True)
    view = View(ALL, by_state, ended_since=NOW - 60, choice=1)
    assert len(tree.lines(view)) == 2 and tree.find_next_end() == NOW
    assert len(tree.lines(view._replace(ended_since=NOW))) == 2
    assert show(tree.lines(view._replace(ended_since=NOW + 1))) == ["2 RUNNING"]
    assert tree.find_next_end() == float("inf")
    assert len(tree.lines(view._replace(ended_since=NOW - 60))) == 2
    assert len(tree.lines(view._replace(ended_since=0))) == 2


def test_lines_are_the_same_ones_while_nothing_changes() -> None:
    tree = QueueTree()
    tree.apply([job(1), job(2)], whole=True)
    view = View(ALL, by_state, choice="all")
    lines = tree.lines(view)
    assert tree.lines(view._replace(order=lambda row: row.id)) is lines
    tree.apply([job(1)], [1])
    assert tree.lines(view) is lines
    tree.apply([job(1, "other")], [1])
    assert tree.lines(view) is not lines
    assert [line.node.row.name for line in tree.lines(view)] == ["fit", "other"]


def test_what_does_not_change_keeps_its_version() -> None:
    tree = QueueTree()
    tree.apply([element(11, 10, 0), element(12, 10, 1)], whole=True)
    first, second = LineKey(10, "element", 0), LineKey(10, "element", 1)
    before = tree.find(first), tree.find(second), tree.find(LineKey(10, "job"))
    tree.apply([element(12, 10, 1, "COMPLETED")], [12])
    after = tree.find(first), tree.find(second), tree.find(LineKey(10, "job"))
    assert [one is other for one, other in zip(before, after, strict=True)] == [True, False, False]


def test_a_job_that_changes_into_a_group_and_back_has_one_head() -> None:
    tree = QueueTree()
    tree.apply([job(2)], whole=True)
    tree.apply([task(2, 0, "a"), task(2, 1, "b")], [2])
    assert [node.kind for node in tree] == [Kind.GROUP]
    tree.apply([job(2)], [2])
    assert [node.kind for node in tree] == [Kind.JOB] and tree.count_states() == {"RUNNING": 1}
    tree.apply([element(2, 10, 0)], [2])
    assert [node.kind for node in tree] == [Kind.ARRAY] and tree.count_states() == {"RUNNING": 1}


@pytest.mark.parametrize(
    ("text", "count"),
    [("3", 1), ("0-9", 10), ("0-9:2,20%4", 6), ("", 0), ("x-y", 1), ("1-9:0", 1), ("1-9:x,4", 2), ("-", 1)],
)
def test_indices_are_counted(text: str, count: int) -> None:
    assert count_indices(text) == count


# --- laws -------------------------------------------------------------------------------------------------------------


def draw_rows(kind: int, number: int, pick: random.Random) -> tuple[JobRow, ...]:
    """Rows that a job may have: numbers below 10 are single jobs or groups, 10 and 20 arrays, 11-19 elements of 10,
    31-39 further members of groups 1-9.
    """
    state, name = pick.choice(STATES), pick.choice(("fit", "eval"))
    ended = NOW - pick.randrange(120) if state in ("COMPLETED", "FAILED") else None
    if kind == 0:
        return ()
    if number % 10 == 0:
        return (waiting(number, pick.choice(("20", "20-29", "30-39%2"))),)
    if number > 30:
        return (member(number, number - 30, f"{name}0", state)._replace(ended_at=ended),)
    if number > 10:
        return (element(number, number // 10 * 10, number % 10, state, ended_at=ended),)
    if kind == 1:
        return (job(number, name, state, ended_at=ended),)
    return tuple(task(number, offset, f"{name}{offset}", pick.choice(STATES)) for offset in range(pick.randint(1, 3)))


def plain(lines: Sequence[Line]) -> list[Any]:
    """Lines without the versions, which tell how they came about."""
    return [(*_plain_node(line.node), line.depth, line.folded, line.last) for line in lines]


def _plain_node(node: TreeNode) -> tuple[Any, ...]:
    return node.key, node.kind, node.row, dict(node.tally), tuple(map(_plain_node, node.children))


NUMBERS = (*range(1, 7), 10, 11, 12, 13, 20, 21, 22, 31, 32, 33)
CHANGES = st.lists(st.tuples(st.sampled_from(NUMBERS), st.integers(0, 2)), max_size=5)
VIEWS = st.fixed_dictionaries(
    {
        "words": st.sampled_from(("", "fit", "state:r", "!state:r,pd", "sweep")),
        "since": st.sampled_from((0.0, NOW - 90, NOW - 30)),
        "reverse": st.booleans(),
        "unfold": st.frozensets(st.sampled_from(NUMBERS), max_size=3),
    }
)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(CHANGES, VIEWS, st.booleans()), max_size=8), st.randoms(use_true_random=False))
def test_a_tree_that_was_changed_is_the_tree_that_is_built_anew(
    steps: list[tuple[list[tuple[int, int]], dict[str, Any], bool]], pick: random.Random
) -> None:
    tree, known = QueueTree(), dict[int, tuple[JobRow, ...]]()
    for changes, wish, whole in steps:
        changed = {number: draw_rows(kind, number, pick) for number, kind in changes}
        known.update(changed)
        told = known if whole else changed
        tree.apply([row for rows in told.values() for row in rows], () if whole else changed, whole=whole)
        fresh = QueueTree()
        fresh.apply([row for rows in known.values() for row in rows], whole=True)
        heads = {LineKey(number, "job") for number in wish["unfold"]}
        words, since = wish["words"], wish["since"]
        view = View(read_filter(words), by_state, wish["reverse"], heads, since, choice=words)
        lines = tree.lines(view)
        assert plain(lines) == plain(fresh.lines(view))
        assert tree.count_states() == fresh.count_states()
        assert tree.count(view) == fresh.count(view) == sum(not line.depth for line in lines)
        assert all(tree.find(line.key) is line.node for line in lines)
        assert all(tree.find(LineKey(number, "element", 99)) is None for number in NUMBERS)
        assert all(tree.find(child.key) is child for node in tree for child in node.children)
        assert {node.key for node in tree} == {node.key for node in fresh}


@given(
    st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.integers(0, 3))), max_size=40),
    st.booleans(),
)
def test_blocks_stay_in_the_order_of_their_keys(steps: list[tuple[int, int | None]], reverse: bool) -> None:
    blocks, known = SortedBlocks[tuple[int, int]](), dict[int, int]()
    for number, key in steps:
        if key is None:
            blocks.drop(number)
            known.pop(number, None)
        else:
            blocks.put(number, key, ((number, key), (number, key)))
            known[number] = key
    expected = sorted(known.items(), key=lambda item: (item[1], item[0]), reverse=reverse)
    assert blocks.list_lines(reverse)[::2] == expected
    assert len(blocks) == len(known) and all(number in blocks for number in known)


def test_a_change_costs_no_sorting_of_the_others() -> None:
    """Counted, not timed: how often rows are asked for their place in the order."""
    asked: list[int] = []

    def order(row: JobRow) -> int:
        asked.append(row.id)
        return -row.id

    tree = QueueTree()
    tree.apply([job(number) for number in range(1, 1001)], whole=True)
    view = View(ALL, order, choice="all")
    tree.lines(view)
    asked.clear()
    tree.apply([job(5, "other"), job(1001)], [5, 7, 1001])
    lines = tree.lines(view)
    assert sorted(asked) == [5, 1001]
    assert [line.node.row.id for line in lines] == [number for number in range(1001, 0, -1) if number != 7]
