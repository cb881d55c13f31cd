"""What the screen of logs is made of, each alone: the choice of logs, their order, folding, searching, words."""

from __future__ import annotations

import random
import re
import signal
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from overspan.bridge.client.log_reading import key_of
from overspan.bridge.client.messages import FoundLine, LogFinds, LogPart, LogSearch, Stream, StreamKey
from overspan.tui.logs.choice import (
    MOST,
    Choice,
    Member,
    choose_attempt,
    choose_kind,
    choose_member,
    describe_choice,
)
from overspan.tui.logs.deadline import TooSlow, deadline
from overspan.tui.logs.document import Asked, LogDocument, LogRow
from overspan.tui.logs.layout import LogLayout, ViewOptions, ViewPlace, find_row, fold
from overspan.tui.logs.programs import find_program
from overspan.tui.logs.search import LogSearching
from overspan.tui.logs.session import find_file, read_percent
from overspan.tui.logs.status import LogPlaceFacts, SearchFacts, describe_place, describe_search, format_bytes
from overspan.tui.logs.window import LogLine

STREAMS = [
    Stream("trainer", 0, 0, "output"),
    Stream("trainer", 0, 1, "output"),
    Stream("trainer", 0, 1, "error"),
    Stream("rollout", 0, 0, "output"),
    Stream("rollout", 1, 0, "output"),
]
KEY = StreamKey("t", 0, 0)


def names(choice: Choice) -> list[tuple[str, int, int, str]]:
    return [(one.task, one.node, one.attempt, one.stream) for one in choice.select(STREAMS)]


def test_the_newest_attempts_of_all_are_chosen_first() -> None:
    assert names(Choice()) == [
        ("trainer", 0, 1, "output"),
        ("trainer", 0, 1, "error"),
        ("rollout", 0, 0, "output"),
        ("rollout", 1, 0, "output"),
    ]
    assert names(Choice(attempt=0)) == [
        ("trainer", 0, 0, "output"),
        ("rollout", 0, 0, "output"),
        ("rollout", 1, 0, "output"),
    ]


def test_members_come_one_after_another_and_then_all() -> None:
    choice, seen = Choice(), []
    for _ in range(4):
        choice = choose_member(choice, STREAMS, 1)
        seen.append(choice.member and choice.member.name)
    assert seen == ["trainer-0", "rollout-0", "rollout-1", None]
    assert choose_member(Choice(), STREAMS, -1).member == Member("", "rollout", 1)
    assert choose_member(Choice(), STREAMS[:3], 1) == Choice()


def test_attempts_and_kinds_end_where_there_are_no_more() -> None:
    trainer = Choice(Member("", "trainer", 0))
    first = choose_attempt(trainer, STREAMS, -1)
    assert first.attempt == 0 and choose_attempt(first, STREAMS, -1) == first
    assert choose_attempt(first, STREAMS, 1) == trainer == choose_attempt(trainer, STREAMS, 1)
    assert choose_attempt(trainer, [], 1) == trainer
    assert [choose_kind(trainer, STREAMS).kind, choose_kind(choose_kind(trainer, STREAMS), STREAMS).kind] == [
        "output",
        "error",
    ]
    assert choose_kind(Choice(Member("", "rollout", 0)), STREAMS).kind == ""
    assert describe_choice(trainer, STREAMS) == "trainer-0, attempt 1 of 0-1, output and error"


def test_of_many_logs_those_with_the_newest_output_are_merged() -> None:
    streams = [Stream("t", node, 0, "output", marks=((float(node % 50), 1),)) for node in range(100)]
    chosen = Choice().select(streams)
    assert len(chosen) == MOST and min(one.node % 50 for one in chosen) == 18
    assert describe_choice(Choice(), streams).startswith("64 of 100")


# --- the order of several logs ----------------------------------------------------------------------------------------


def answer(document: LogDocument, logs: dict[StreamKey, bytes], asked: list[Asked]) -> None:
    """Read what is asked."""
    document.take(
        (key, LogPart(logs[key][wanted.offset : wanted.offset + wanted.limit], wanted.offset, len(logs[key])))
        for key, wanted in asked
    )


@given(
    st.integers(0, 1 << 30),
    st.integers(2, 4),
    st.lists(st.sampled_from(["before", "after", "middle", "end"]), max_size=12),
)
def test_merged_lines_are_a_stretch_of_all_lines_in_their_order(seed: int, count: int, steps: list[str]) -> None:
    chance = random.Random(seed)
    keys = [StreamKey(f"t{number}", 0, 0) for number in range(count)]
    logs: dict[StreamKey, bytes] = dict.fromkeys(keys, b"")
    marks: dict[StreamKey, list[tuple[float, int]]] = {key: [] for key in keys}
    everything: list[str] = []
    for at in range(300):
        key = chance.choice(keys)
        text = f"{at} {'x' * chance.randrange(400)}"
        logs[key] += text.encode() + b"\n"
        marks[key].append((float(at), len(logs[key])))
        everything.append(text)
    streams = [Stream(key.task, 0, 0, "output", size=len(logs[key]), marks=tuple(marks[key])) for key in keys]
    document = LogDocument(streams)
    for window in document.windows.values():
        window._part, window._kept = 2000, 12_000
    answer(document, logs, document.want_end())
    for step in steps:
        asked = document.want_percent(50) if step == "middle" else getattr(document, f"want_{step}")()
        answer(document, logs, asked)
        shown = [row.line.text for row in document.rows()]
        if shown:
            first = everything.index(shown[0])
            assert shown == everything[first : first + len(shown)]
        if step == "end":
            assert shown[-1] == everything[-1]


def test_what_was_there_before_anybody_looked_has_no_time() -> None:
    stream = Stream("t", 0, 0, "output", size=4)
    document = LogDocument([stream])
    document.note_size(stream._replace(size=8), 60.0)
    answer(document, {KEY: b"one\ntwo\n"}, document.want_end())
    assert [row.at for row in document.rows()] == [None, 60.0] and not document.timed


def test_one_log_is_no_merged_one_and_its_rows_are_made_when_looked_at() -> None:
    document = LogDocument([Stream("t", 0, 0, "output", size=8, marks=((5.0, 4), (9.0, 8)))])
    answer(document, {KEY: b"one\ntwo\n"}, document.want_end())
    rows = document.rows()
    assert [(row.line.text, row.at, row.number) for row in rows] == [("one", 5.0, 1), ("two", 9.0, 2)]
    assert document.rows() is rows and rows[-1] is not None
    with pytest.raises(IndexError):
        rows[2]
    document.mark("here")
    assert [row.number for row in document.rows()] == [1, 2, None]


def test_what_came_while_it_was_read_has_the_time_of_the_look() -> None:
    stream = Stream("t", 0, 0, "output", size=4, marks=((50.0, 4),))
    document = LogDocument([stream])
    document.note_size(stream._replace(size=8, marks=None), 60.0)
    assert document.find_time(KEY, 8) == 60.0
    document.note_size(stream._replace(size=12, marks=None), 40.0)
    assert document.find_time(KEY, 12) == 60.0, "a clock that goes back turns no order around"


# --- rows of the screen -----------------------------------------------------------------------------------------------


@given(st.text(max_size=80), st.integers(2, 20))
def test_a_folded_text_is_whole_and_fits(text: str, width: int) -> None:
    parts = [text[begin:end] for begin, end in fold(text, width)]
    assert "".join(parts) == text and all(cell_len(part) <= width for part in parts)


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=20), st.integers(1, 8), st.integers(-50, 50), st.integers(0, 19)
)
def test_moving_up_and_down_again_comes_back(lengths: list[int], height: int, by: int, row: int) -> None:
    rows = [LogRow(KEY, LogLine(at, at + 1, b"x" * length)) for at, length in enumerate(lengths)]
    layout = LogLayout(rows, ViewOptions(wrap=True), 10, height)
    start = layout.move(ViewPlace(min(row, len(rows) - 1)), 0)
    there = layout.move(start, by)
    everything = LogLayout(rows, ViewOptions(wrap=True), 10, 1000).fill(ViewPlace(0))
    assert everything.index(there) == max(0, min(everything.index(start) + by, len(everything) - 1))
    shown = layout.fill(layout.find_last())
    assert shown[-1] == everything[-1] and len(shown) == min(height, len(everything))


def test_a_line_is_found_again_or_its_neighbour() -> None:
    rows = [LogRow(KEY, LogLine(at * 10, at * 10 + 10)) for at in range(10)]
    assert find_row(rows[3:], rows[5], 5) == 2
    assert find_row(rows[6:], rows[5], 5) == 0
    assert find_row([], rows[5], 5) <= 0


# --- searching --------------------------------------------------------------------------------------------------------


def play_search(search: LogSearching, log: bytes, step: int = 20) -> int:
    """Answer all questions; how many there were."""
    count = 0
    while (question := search.next_question()) is not None:
        key, wanted = question
        count += 1
        end = min(len(log), wanted.end or len(log))
        begin = max(wanted.begin, end - step)
        if begin > wanted.begin:
            begin = log.find(b"\n", begin) + 1
        lines = [
            FoundLine(begin + match.start(), begin + match.end() + 1, match[0])
            for match in re.finditer(rb"[^\n]+", log[begin:end])
            if re.search(wanted.pattern.encode(), match[0])
        ]
        search.take(key, wanted, LogFinds(lines[::-1], begin, end, len(log)))
        assert count < 1000
    return count


def test_a_search_asks_until_all_is_searched_and_then_for_what_is_new() -> None:
    log = b"".join(b"line %03d\n" % number for number in range(30))
    document, search = LogDocument([Stream("t", 0, 0, "output", size=len(log))]), LogSearching("7", {KEY: len(log)})
    assert play_search(search, log) > 5 and search.share == 1.0
    assert [row.line.text for row in search.rows(document)] == ["line 007", "line 017", "line 027"]
    log += b"line 777\nline 78"
    assert search.grow(KEY, log.rfind(b"\n") + 1, len(log)) and not search.grow(KEY, 0, len(log))
    play_search(search, log)
    assert [row.line.text for row in search.rows(document)][-2:] == ["line 777", "line 78"]


def test_the_next_match_is_not_told_before_all_between_is_searched() -> None:
    log = b"".join(b"line %03d\n" % number for number in range(30))
    document, search = LogDocument([Stream("t", 0, 0, "output", size=len(log))]), LogSearching("7", {KEY: len(log)}, 90)
    here = LogRow(KEY, LogLine(90, 99))
    key, wanted = search.next_question() or (KEY, LogSearch(""))
    assert (wanted.begin, wanted.end) == (0, 90)
    search.take(key, wanted, LogFinds([FoundLine(63, 72, b"line 007")], 0, 90, len(log)))
    key, wanted = search.next_question() or (KEY, LogSearch(""))
    search.take(key, wanted, LogFinds([FoundLine(243, 252, b"line 027")], 240, len(log), len(log)))
    assert search.find_next(document, here, older=False) is None
    play_search(search, log)
    found = search.find_next(document, here, older=False)
    assert found is not None and found.line.text == "line 017"


def test_a_search_that_fails_asks_no_more() -> None:
    search = LogSearching("x", {KEY: 100})
    search.fail(KEY, "gone")
    assert search.next_question() is None and search.trouble == "gone"


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_a_regular_expression_is_stopped_and_other_timers_go_on() -> None:
    rung: list[int] = []
    former = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    left = signal.setitimer(signal.ITIMER_REAL, 3600)
    try:
        begun = time.monotonic()
        with pytest.raises(TooSlow), deadline(0.1):
            re.search("(a+)+$", "a" * 60 + "!")
        assert time.monotonic() - begun < 20
        assert 3000 < signal.getitimer(signal.ITIMER_REAL)[0] <= 3600
        signal.raise_signal(signal.SIGALRM)
        assert rung == [signal.SIGALRM]
    finally:
        signal.setitimer(signal.ITIMER_REAL, *left)
        signal.signal(signal.SIGALRM, former)


def test_another_thread_matches_nothing() -> None:
    raised: list[bool] = []

    def run() -> None:
        try:
            with deadline(1):
                pass
        except TooSlow:
            raised.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert raised == [True]


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (LogPlaceFacts(size=2048, following=True), "following  │  2.0 KiB"),
        (LogPlaceFacts(size=3, following=True, over=True), "the end: the job has printed all  │  3 B"),
        (
            LogPlaceFacts(size=1 << 30, share=0.5, new_lines=1, bytes_below=5 << 20),
            "50%  │  +1 new line, F follows  │  5.0 MiB below  │  1.0 GiB",
        ),
        (LogPlaceFacts(trouble="no daemon", following=True), "no daemon  │  following  │  0 B"),
    ],
)
def test_the_place_in_words(facts: LogPlaceFacts, text: str) -> None:
    assert describe_place(facts) == text


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (SearchFacts("x", share=0.25), "/x: nothing yet, searched 25%"),
        (SearchFacts("x", done=True), "/x: nothing found"),
        (SearchFacts("x", found=1, done=True, only=True), "&x: 1 line"),
        (SearchFacts("x", found=20_000, capped=True), "/x: 20,000 lines, the newest ones"),
        (
            SearchFacts("x", found=2, done=True, captured=True, first=1 << 20),
            "/x: 2 lines, in what the daemon has captured of the pod's log, the first 1.0 MiB are gone",
        ),
        (SearchFacts("x", done=True, trouble="too long", slow=True), "/x: nothing found, too long, too slow to mark"),
    ],
)
def test_a_search_in_words(facts: SearchFacts, text: str) -> None:
    assert describe_search(facts) == text


def test_small_things(tmp_path: object) -> None:
    assert [format_bytes(size) for size in (0, 1023, 1024, 5 << 40)] == ["0 B", "1023 B", "1.0 KiB", "5.0 TiB"]
    assert (read_percent("50%"), read_percent(" 7 "), read_percent("14:05")) == (50.0, 7.0, None)
    with pytest.raises(ValueError, match="from 0 to 100"):
        read_percent("101")
    assert find_program(("PAGER",), ("less",), {"PAGER": "most -w"}) == ["most", "-w"]
    assert find_program(("PAGER",), ("no-such-program", "cat -v"), {}) == ["cat", "-v"]
    assert find_program((), ("no-such-program",), {}) == []
    with pytest.raises(ValueError, match=r"\$PAGER cannot be read: a quotation mark"):
        find_program(("PAGER",), ("less",), {"PAGER": "less 'x"})
    here = Stream("t", 0, 0, "output", path=__file__)
    assert find_file([here], {"this_machine"}) == __file__
    assert find_file([here], {"own_queue"}) == find_file([here, here], {"this_machine"}) == ""
    assert key_of(here) == KEY
