"""The queue's columns: their texts, their names, and the widths that they have; pure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tui.fake_source import NOW, job
from tests.unit.tui.queue_lab import HOUR, make_array, make_lab

from overspan.bridge.listings.fields import FIELDS
from overspan.bridge.listings.rows import JobRow
from overspan.tui.queue.column_choice import begin_choice
from overspan.tui.queue.columns import DEFAULT, columns_extent, list_fields, make_columns, read_columns, read_format
from overspan.tui.queue.filters import QueueFilter
from overspan.tui.queue.order import make_order, read_order
from overspan.tui.queue.tree import Line, LineKey, QueueTree, View
from overspan.tui.queue.widths import fit_columns, measure_columns


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day in UTC; NOW is a Friday, 08:00."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def make_lines(rows: list[JobRow], unfolded: tuple[LineKey, ...] = ()) -> list[Line]:
    tree = QueueTree()
    tree.apply(rows, whole=True)
    return tree.lines(View(QueueFilter(), make_order((), lambda: NOW), unfolded=unfolded))


def show(field: str, row: JobRow, **options: Any) -> str:
    columns = make_columns(("id", field), **options)
    return columns[1].show(make_lines([row])[0], NOW).text


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (job(1, node_list="n[1-2]"), "n[1-2]"),
        (job(1, state="PENDING", reason="Priority"), "(Priority)"),
        (job(1, state="PENDING", reason="Resources: no GPU\nis free"), "(Resources: no GPU is free)"),
        (job(1, state="PENDING", reason="Priority", expected_start=NOW + 2 * HOUR), "by 10:00 (Priority)"),
        (job(1, state="PENDING", reason="Priority", expected_start=NOW + 20 * HOUR), "by Sat 04:00 (Priority)"),
        (job(1, state="PENDING", reason="Priority", expected_start=NOW + 200 * HOUR), "by 23 Jan (Priority)"),
        (job(1, state="PENDING", reason="Priority", expected_start=NOW - 1), "(Priority)"),
        (job(1, state="PENDING", reason="JobHeldUser", expected_start=NOW + HOUR), "(JobHeldUser)"),
        (job(1, state="PENDING", reason="BeginTime", begin=NOW + HOUR), "from 09:00 (BeginTime)"),
        (
            job(1, state="PENDING", reason="BeginTime", begin=NOW + HOUR, expected_start=NOW + HOUR),
            "from 09:00 (BeginTime)",
        ),
        (
            job(1, state="PENDING", reason="Priority", begin=NOW - HOUR, expected_start=NOW + HOUR),
            "by 09:00 (Priority)",
        ),
        (job(1, state="TIMEOUT", reason="TimeLimit", ended_at=NOW), "(TimeLimit)"),
        (job(1, state="COMPLETED", ended_at=NOW, node_list="n1"), "n1"),
        (job(1, state="PENDING", reason="\x1b]0;title\x07"), "(?]0;title?)"),
    ],
)
def test_a_line_tells_where_a_job_runs_or_why_it_does_not(row: JobRow, text: str) -> None:
    assert show("nodes_or_reason", row) == text


def test_a_head_tells_how_its_members_are() -> None:
    head, *members = make_lines(list(make_array(44)), unfolded=(LineKey(44, "job"),))
    columns = make_columns(DEFAULT)
    shown = [columns[-1].show(line, NOW).text for line in (head, *members)]
    assert shown == ["3 R, 996 PD, 1 F", "node-0", "node-1", "node-2", "(NonZeroExitCode)", "(JobArrayTaskLimit)"]
    waiting = make_lines([make_array(44)[-1]])[0]
    assert columns[-1].show(waiting, NOW).text == "996 PD (JobArrayTaskLimit)"
    ids = [columns[0].show(line, NOW).text for line in (head, *members)]
    assert ids == ["▾ 44", " ├ 44_0", " ├ 44_1", " ├ 44_2", " ├ 44_3", " └ 44_[4-999%4]"]
    plain = make_columns(DEFAULT, ascii_only=True)
    assert all(column.show(line, NOW).text.isascii() for line in (head, *members) for column in plain)


def test_lines_of_a_cluster_that_does_not_answer_are_marked() -> None:
    assert show("cluster", job(1)) == "leo"
    assert show("cluster", job(1), stale={"leo"}) == "leo?"
    assert show("cluster", job(1), stale={"slurm-a"}) == "leo"


@pytest.mark.parametrize("name", FIELDS)
def test_no_column_lets_control_characters_through(name: str) -> None:
    texts: dict[str, Any] = {
        field: "\x1b[2J\x9b1m\u202e[red]\n" for field, kind in JobRow.__annotations__.items() if kind is str
    }
    row = JobRow(**{**texts, "id": 1, "state": "PENDING", "options": {"features": "\x1b[2J"}})
    if not FIELDS[name].header:
        return
    text = show(name, row)
    assert not set(text) & set("\x1b\x9b\u202e\n")


def test_every_field_of_the_list_has_a_title_and_a_text() -> None:
    fields = list_fields()
    assert [field.name for field in fields[: len(DEFAULT)]] != []
    assert {field.name for field in fields} >= set(DEFAULT)
    line = make_lines([job(1)])[0]
    for column in make_columns([field.name for field in fields]):
        assert column.title.strip()
        assert isinstance(column.show(line, NOW).text, str)


def test_columns_are_read_by_name() -> None:
    assert read_columns(["id", "Name", "TimeUsed", "QOS"]).fields == ("id", "name", "time_used", "qos")
    wrong = read_columns(["name", "priorty"])
    assert wrong.fields == ("name",)
    assert wrong.trouble == "there is no column 'priorty' (did you mean 'priority'?)"


def test_columns_are_read_from_a_format_of_squeue() -> None:
    assert read_format("%.18i %.9P|%R", letters=True).fields == ("id", "partition", "nodes_or_reason")
    assert read_format("JobID:10,Name:.30,QOS", letters=False).fields == ("raw_id", "name", "qos")
    wrong = read_format("%i %!", letters=True)
    assert wrong.fields == ("id",)
    assert wrong.trouble == "there is no column '!' in the format '%i %!'"


def test_columns_need_as_much_of_a_row_as_their_fields() -> None:
    assert columns_extent(DEFAULT) == "core"
    assert columns_extent(("id", "account")) == "usual"
    assert columns_extent(("id", "account", "nice")) == "all"


def fit(rows: list[JobRow], room: int, fields: tuple[str, ...] = DEFAULT, sort: str = "") -> dict[str, int]:
    columns, lines = make_columns(fields), make_lines(rows)
    measured = measure_columns(columns, lines, NOW, read_order(sort), {})
    return {column.field: width for column, width in fit_columns(columns, measured, room).widths}


def test_columns_are_as_wide_as_what_they_hold() -> None:
    rows = [job(123456, "fit", user="ana"), job(7, "日本語", user="christina")]
    assert fit(rows, 0) == {
        "id": 8, "name": 6, "user": 9, "partition": 9, "cluster": 7, "state_code": 2, "time_used": 7, "nodes": 5,
        "nodes_or_reason": 15,
    }  # fmt: skip
    # An arrow stands behind the title that it is sorted by.
    assert fit(rows, 0, sort="-partition")["partition"] == 10


def test_what_tells_little_goes_first() -> None:
    rows = make_lab()
    assert set(DEFAULT) - set(fit(rows, 110)) == set()
    assert set(DEFAULT) - set(fit(rows, 80)) == {"nodes", "partition"}
    alike = [row._replace(cluster="leo") for row in rows]
    assert set(DEFAULT) - set(fit(alike, 85)) == {"cluster"}


def test_chosen_columns_stay_longer_than_those_of_the_queue() -> None:
    fields = (*DEFAULT, "priority")
    assert "priority" in fit(make_lab(), 80, fields)
    assert list(fit(make_lab(), 80, fields))[-1] == "priority"


@given(st.integers(1, 300), st.lists(st.sampled_from([field.name for field in list_fields()]), min_size=1, unique=True))
def test_columns_never_need_more_room_than_there_is(room: int, fields: list[str]) -> None:
    widths = fit(make_lab(), room, tuple(fields))
    assert next(iter(widths)) == fields[0]
    assert [field for field in fields if field in widths] == list(widths)
    assert len(widths) == 1 or sum(widths.values()) + len(widths) <= max(room, 30)


def test_a_width_does_not_fall_while_lines_come_and_go() -> None:
    columns = make_columns(DEFAULT)
    wide = measure_columns(columns, make_lines([job(1, "a-long-name")]), NOW, (), {})
    later = measure_columns(columns, make_lines([job(2, "b")]), NOW, (), wide)
    assert later["name"].width == wide["name"].width == len("a-long-name")
    assert measure_columns(columns, [], NOW, (), later)["name"].width == len("a-long-name")


def test_a_time_that_grows_has_its_place() -> None:
    rows = [job(1, started_at=NOW - 9.9 * HOUR)]
    assert fit(rows, 0)["time_used"] == len("10:54:00")


def test_many_lines_are_measured_in_part() -> None:
    lines = make_lines([job(number, "x" * (40 if number == 5 else 5)) for number in range(1, 20_001)])
    begun = time.process_time()
    measure_columns(make_columns(DEFAULT), lines, NOW, (), {})
    assert time.process_time() - begun < 0.5


def test_columns_are_chosen_and_moved() -> None:
    choice = begin_choice(("id", "name", "user"))
    assert choice.columns == ("id", "name", "user")
    assert choice.toggle("name").toggle("qos").columns == ("id", "user", "qos")
    assert choice.move("user", -1).columns == ("id", "user", "name")
    assert choice.move("id", -1) == choice
    assert choice.move("id", 99).columns == ("name", "user", "id")
    alone = begin_choice(("id",))
    assert alone.toggle("id") == alone
    assert choice.describe("id").startswith(" ✓ JOBID")
    assert choice.describe("qos", ascii_only=True).startswith("   QOS")
