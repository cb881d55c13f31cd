"""The history, page by page: every job comes, and comes once, however ids and times lie."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tui.fake_source import NOW, job
from tests.unit.tui.labs import select

from overspan.bridge.client.records import JobFilter, Listing
from overspan.bridge.listings.rows import JobRow
from overspan.tui.history import pages as pages_module
from overspan.tui.history.pages import PAGE, HistoryPages


def ended(number: int, at: float, **more: Any) -> JobRow:
    return job(number, state="COMPLETED", ended_at=at + 1)._replace(submitted_at=at, **more)


def listing(rows: list[JobRow], asked: JobFilter) -> Listing:
    return Listing(NOW, select(rows, asked))


def read_all(past: list[JobRow], known: HistoryPages) -> int:
    """Read older pages to the end; how many questions that took."""
    asked = known.ask_newest()
    known.take_newest(listing(past, asked))
    count = 1
    while not known.complete:
        assert count < 200, "it does not end"
        known.take_older(listing(past, known.ask_older()))
        count += 1
    return count


def test_a_long_history_comes_page_by_page() -> None:
    past = [ended(number, NOW + number) for number in range(1, 3 * PAGE)]
    known = HistoryPages()
    known.take_newest(listing(past, known.ask_newest()))
    assert not known.complete and len(known) == PAGE
    assert not known.take_older(listing(past, known.ask_older()))
    assert PAGE < len(known) < 2 * PAGE
    read_all(past, known)
    assert {row.id for row in known.rows()} == set(range(1, 3 * PAGE))


def test_a_short_history_is_complete_at_once() -> None:
    known = HistoryPages()
    known.take_newest(listing([ended(1, NOW)], known.ask_newest()))
    assert known.complete and len(known) == 1


def test_a_page_that_is_not_full_asks_whether_there_is_more() -> None:
    past = [ended(number, NOW + number) for number in range(1, PAGE - 20)]
    known = HistoryPages()
    assert known.take_newest(listing(past, known.ask_newest())) and not known.complete
    assert not known.take_older(listing(past, known.ask_older())) and known.complete


def test_what_was_submitted_at_once_is_no_obstacle() -> None:
    past = [ended(number, NOW) for number in range(1, 3 * PAGE)]
    known = HistoryPages()
    assert read_all(past, known) < 12
    assert len(known.rows()) == len(past)


def test_new_jobs_join_those_that_were_read() -> None:
    known = HistoryPages()
    known.take_newest(listing([ended(1, NOW)], known.ask_newest()))
    running = job(2)._replace(submitted_at=NOW + 5)
    known.take_newest(listing([ended(1, NOW), running], known.ask_newest()))
    assert {row.id: row.state for row in known.rows()} == {1: "COMPLETED", 2: "RUNNING"}
    known.take_newest(listing([ended(1, NOW), ended(2, NOW + 5)], known.ask_newest()))
    assert {row.state for row in known.rows()} == {"COMPLETED"}


def test_more_new_jobs_than_a_page_leave_no_gap() -> None:
    known = HistoryPages()
    known.take_newest(listing([ended(1, NOW)], known.ask_newest()))
    past = [ended(number, NOW + number) for number in range(1, 3 * PAGE)]
    known.take_newest(listing(past, known.ask_newest()))
    assert not known.complete
    read_all(past, known)
    assert len(known) == len(past)


def test_a_group_whose_first_task_is_on_the_next_page_waits_for_it() -> None:
    tasks = [ended(1, NOW, task_offset=offset, group="g") for offset in range(3)]
    newer = [ended(number, NOW + number) for number in range(2, PAGE + 1)]
    known = HistoryPages()
    known.take_newest(Listing(NOW, [tasks[2], *newer]))
    assert 1 not in {row.id for row in known.rows()}
    known.take_older(listing([*tasks, *newer], known.ask_older()))
    assert [row.task_offset for row in known.rows() if row.id == 1] == [2, 0, 1]


def test_the_filter_is_in_every_question() -> None:
    wanted = JobFilter(users=("ana",), since=NOW - 5, until=NOW)
    known = HistoryPages(wanted)
    for asked in (known.ask_newest(), known.ask_older()):
        assert (asked.users, asked.since, asked.until, asked.tasks) == (("ana",), NOW - 5, NOW, True)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 160))
def test_nothing_is_left_out_whatever_the_history_is_made_of(seed: int, count: int) -> None:
    """Elements and imported jobs are older than their ids; tasks are rows of one job; some times are the same."""
    chance = random.Random(seed)
    past: list[JobRow] = []
    at, number = NOW, 0
    while number < count:
        number += 1
        at += chance.choice((0.0, 1.0, 30.0))
        what = chance.choice(("job", "job", "group", "element", "imported"))
        arrays = [row for row in past if row.array_id == row.id]
        if what == "group":
            past += [ended(number, at, task_offset=offset) for offset in range(chance.randint(2, 9))]
        elif what == "element" and arrays:
            array = chance.choice(arrays)
            past.append(ended(number, array.submitted_at or 0.0, array_id=array.id, array_index=number))
        elif what == "imported":
            past.append(ended(number, at - 1e6 * chance.random()))
        else:
            own = {"array_id": number, "array_waiting": "0-9"} if chance.random() < 0.3 else {}
            past.append(ended(number, at, **own))
    before = pages_module.PAGE
    try:
        pages_module.PAGE = 25
        known = HistoryPages()
        read_all(past, known)
    finally:
        pages_module.PAGE = before
    assert {(row.id, row.task_offset) for row in known.rows()} == {(row.id, row.task_offset) for row in past}
