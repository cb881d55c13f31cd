"""The order of the queue; pure."""

from __future__ import annotations

import pytest
from tests.unit.tui.fake_source import NOW, job

from overspan.bridge.listings.rows import JobRow
from overspan.tui.queue.order import (
    SortKey,
    SortOrder,
    choose_order,
    make_order,
    move_order,
    order_extent,
    read_order,
    turn_order,
    write_order,
)

ROWS = [
    job(1, "b", "PENDING", priority=5, user="ana"),
    job(2, "a", "RUNNING", user="bob", started_at=NOW - 10),
    job(3, "c", "RUNNING", user="ana", started_at=NOW - 500),
    job(4, "b", "FAILED", user="bob", ended_at=NOW),
    job(5, "b", "PENDING", priority=9, user="ana"),
    job(6, "b", "COMPLETING", user="ana"),
]


def sort(order: SortOrder, rows: list[JobRow] = ROWS) -> list[int]:
    return [row.id for row in sorted(rows, key=make_order(order, lambda: NOW))]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", [6, 3, 2, 5, 1, 4]),
        ("name", [2, 6, 5, 4, 1, 3]),
        ("-name", [3, 6, 5, 4, 1, 2]),
        ("name,-id", [2, 6, 5, 4, 1, 3]),
        ("name,id", [2, 1, 4, 5, 6, 3]),
        ("user,-name", [3, 6, 5, 1, 4, 2]),
        ("-time_used", [3, 6, 4, 2, 5, 1]),
        ("task_group", [6, 5, 4, 3, 2, 1]),
    ],
)
def test_rows_are_sorted_by_fields(text: str, ids: list[int]) -> None:
    assert sort(read_order(text)) == ids


def test_an_order_is_read_and_written() -> None:
    assert read_order("partition, -priority,+name,nothing") == (
        SortKey("partition"),
        SortKey("priority", True),
        SortKey("name"),
    )
    assert write_order(read_order("partition,-priority")) == "partition,-priority"


def test_an_order_is_turned_moved_and_chosen() -> None:
    assert turn_order(read_order("name,-id")) == read_order("-name,id")
    assert choose_order((), "name") == read_order("name")
    assert choose_order(read_order("name"), "name") == read_order("-name")
    assert choose_order(read_order("-name"), "id") == read_order("id")
    columns = ("id", "name", "user")
    assert move_order((), columns, 1) == read_order("id")
    assert move_order(read_order("id"), columns, -1) == ()
    assert move_order((), columns, -1) == read_order("user")
    assert move_order(read_order("user"), columns, 1) == ()
    assert move_order(read_order("qos"), columns, 1) == read_order("id")


def test_an_order_needs_as_much_of_a_row_as_its_fields() -> None:
    assert order_extent(()) == "core"
    assert order_extent(read_order("name,account")) == "usual"
    assert order_extent(read_order("nice")) == "all"
