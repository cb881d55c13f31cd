"""Rows on their way: names and values as they were, and what another version sends or leaves out."""

from __future__ import annotations

from overspan.bridge.listings.rows import (
    COLUMNS,
    CORE,
    EXTENTS,
    USUAL,
    JobRow,
    StepRow,
    find_missing,
    join_extents,
    rows_from_document,
    steps_from_document,
)

ROW = JobRow(id=7, raw_id=7, name="train", account="a", memory=5, options={"exclusive": True}, array_throttle=3)


def test_each_extent_is_the_beginning_of_the_next() -> None:
    assert COLUMNS[: len(CORE)] == CORE and COLUMNS[: len(USUAL)] == USUAL and len(CORE) < len(USUAL) < len(COLUMNS)
    assert join_extents(("core", "usual")) == "usual" and join_extents(("all", "core")) == "all"
    for columns in EXTENTS.values():
        (row,) = rows_from_document(columns, [ROW[: len(columns)]])
        assert row[: len(columns)] == ROW[: len(columns)] and row[len(columns) :] == JobRow()[len(columns) :]
    assert rows_from_document(COLUMNS, [list(ROW)]) == [ROW]


def test_columns_of_another_version() -> None:
    newer = ("id", "mood", *COLUMNS[1:])
    assert rows_from_document(newer, [[7, "glad", *ROW[1:]]]) == [ROW]
    assert find_missing(newer) == ()
    older = tuple(name for name in COLUMNS if name not in ("account", "options"))
    values = [value for name, value in zip(COLUMNS, ROW, strict=True) if name in older]
    assert rows_from_document(older, [values]) == [ROW._replace(account="", options={})]
    assert find_missing(older) == ("account", "options")
    assert find_missing(older, "usual") == ("account",) and find_missing(older, "core") == ()


def test_steps_of_a_newer_daemon() -> None:
    step = StepRow(job_id=7, number=1, name="hostname")
    assert steps_from_document((*StepRow._fields, "mood"), [[*step, "glad"]]) == [step]
