"""The graph of dependencies, as lines."""

from __future__ import annotations

from tests.unit.tui.fake_source import job

from overspan.tui.detail.dependencies import KnownNeed, draw_graph, index_rows, read_needs


def test_needs_are_read_as_the_daemon_writes_them() -> None:
    assert read_needs("afterok:12_*(unfulfilled),after:3+5(failed)?singleton(unfulfilled)") == (
        KnownNeed("afterok", 12, False),
        KnownNeed("after", 3, True),
        KnownNeed("singleton", None, False),
    )


def test_what_comes_before_is_above_and_what_comes_after_below() -> None:
    rows = index_rows(
        [
            job(1, "get"),
            job(2, "prep", "PENDING", dependency="afterok:1(unfulfilled)"),
            job(3, "fit", "PENDING", dependency="afterok:2(unfulfilled),afterany:9(unfulfilled)"),
            job(4, "eval", "PENDING", dependency="afterok:3(unfulfilled)"),
            job(5, "\x1b[31mplot", "PENDING", dependency="afterany:4(unfulfilled)"),
        ]
    )
    assert draw_graph(3, rows[3].dependency, rows) == [
        "   ┌─ 1 get  RUNNING  must succeed",
        "┌─ 2 prep  PENDING  must succeed",
        "├─ 9 (not in the queue)  must have ended",
        "3 fit  PENDING   <- this job",
        "└─ 4 eval  PENDING  (afterok)",
        "   └─ 5 ?[31mplot  PENDING  (afterany)",
    ]
    assert draw_graph(7, "", rows) == []


def test_jobs_that_wait_for_each_other_end_the_drawing() -> None:
    rows = index_rows([job(1, dependency="after:2(unfulfilled)"), job(2, dependency="after:1(unfulfilled)")])
    assert len(draw_graph(1, rows[1].dependency, rows)) < 8
