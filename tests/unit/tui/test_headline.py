"""What stands above the table; pure."""

from __future__ import annotations

import pytest
from tests.unit.tui.fake_source import NOW
from tests.unit.tui.queue_lab import STALE

from overspan.bridge.client.records import Stale
from overspan.tui.daemon.feed import Lost
from overspan.tui.head import HeadFacts, PlaceTab, write_places
from overspan.tui.queue.headline import (
    QueueSummary,
    describe_counts,
    describe_troubles,
    explain_emptiness,
    explain_silence,
    format_age,
    write_frame,
    write_status,
)
from overspan.tui.queue.order import read_order
from overspan.tui.queue.styled_text import StyledText, cut_parts, cut_text, fill_text, measure

COUNTS = {"RUNNING": 12, "PENDING": 40, "COMPLETED": 900, "FAILED": 2, "SUSPENDED": 0}
ORDER = read_order("-name,id")
TABS = [
    PlaceTab("1", "Queue", "app.place('queue')", chosen=True),
    PlaceTab("4", "Nodes", "app.place('nodes')"),
    PlaceTab("5", "History", "app.place('history')"),
]


def read(parts: list[StyledText]) -> str:
    return "".join(part.text for part in parts)


@pytest.mark.parametrize(
    ("seconds", "age"),
    [(-5, "<1m"), (59, "<1m"), (60, "1m"), (7199, "119m"), (7200, "2h"), (47 * 3600, "47h"), (49 * 3600, "2d")],
)
def test_an_age_has_one_unit(seconds: float, age: str) -> None:
    assert format_age(seconds) == age


def test_counts_are_those_of_what_lives_and_of_what_failed() -> None:
    assert read(describe_counts(COUNTS, ended=False)) == "12 R  40 PD  2 F"
    assert read(describe_counts(COUNTS, ended=True)) == "12 R  40 PD  2 F  900 CD"
    assert read(describe_counts({}, ended=False)) == "no jobs"
    assert describe_counts(None, ended=False) == []


def test_troubles_have_their_age_and_no_control_characters() -> None:
    assert describe_troubles(STALE, None, NOW, 0) == [
        "slurm-a 2m old: ssh timed out",
        "k8s: 2 of 5 nodes do not tell what runs there",
    ]
    hostile = [Stale("a\x1b[2J", NOW - 7300, "one\ntwo\x07"), Stale("b", NOW)]
    assert describe_troubles(hostile, Lost(100, "gone"), NOW, 260) == [
        "no daemon for 2m: gone; `r` tries again",
        "a?[2J 2h old: one two?",
        "b <1m old: it does not answer",
    ]
    refused = Lost(100, "ana may not look", "ask root", present=True)
    assert describe_troubles([], refused, NOW, 260) == ["no answer for 2m: ana may not look; `r` tries again"]


def test_a_second_changes_no_age() -> None:
    assert describe_troubles(STALE, None, NOW, 0) == describe_troubles(STALE, None, NOW + 1, 0)


def test_troubles_share_the_room() -> None:
    counts = describe_counts(COUNTS, ended=False)
    troubles = describe_troubles(STALE, None, NOW, 0)
    line = read(write_status(counts, troubles, 78))
    assert line == "12 R  40 PD  2 F  │  slurm-a 2m old: ssh timed…  │  k8s: 2 of 5 nodes do not…"
    assert read(write_status(counts, troubles, 0)).endswith("what runs there")
    for width in range(1, 120):
        assert measure(write_status(counts, troubles, width)) <= width
    assert read(write_status([], troubles, 0)).startswith("slurm-a")
    assert read(write_status(counts, troubles, 50, ascii_only=True)).isascii()


@pytest.mark.parametrize(
    ("summary", "line"),
    [
        (QueueSummary(40, 40), "── 40 jobs ────────────────────────── by state and priority ──"),
        (QueueSummary(1, 1, "", "", ORDER), "── 1 job ───────────────────────────────── by NAME▼, JOBID▲ ──"),
        (QueueSummary(2, 40, "state:r"), "── 2/40 match /state:r ────────────── by state and priority ──"),
        (
            QueueSummary(2, 40, "", "-p gpu, my jobs", marked=3, marked_hidden=1),
            "── 2 jobs · -p gpu, my jobs · 3 marked, 1 of them not shown ──",
        ),
        (QueueSummary(9, 9, hidden_columns=1), "── 9 jobs ───────── 1 column hidden · by state and priority ──"),
        (QueueSummary(0, 0, known=False), "── no answer yet ──────────────────── by state and priority ──"),
    ],
)  # fmt: skip
def test_the_frame_tells_what_is_shown(summary: QueueSummary, line: str) -> None:
    assert read(write_frame(summary, 62)) == line


def test_the_frame_fits() -> None:
    summary = QueueSummary(2, 40, "x" * 50, "日本" * 20, read_order("name"), 3, 1, 2)
    for width in range(1, 160):
        assert measure(write_frame(summary, width)) == width
        assert read(write_frame(summary._replace(scope=""), width, ascii_only=True)).isascii()


def test_an_empty_queue_says_what_to_press() -> None:
    assert "Esc drops the filter" in explain_emptiness(QueueSummary(0, 40, "gpu"))
    assert explain_emptiness(QueueSummary(0, 40, "gpu"), keys=False) == "no jobs match 'gpu', of 40"
    assert "`f` shows" in explain_emptiness(QueueSummary(0, 0, "", "my jobs"))
    assert "`e`" not in explain_emptiness(QueueSummary(0, 0), keys=False)
    assert explain_silence(None) == "asking the daemon..."
    assert explain_silence(Lost(0, "it\x1bis gone")) == "the daemon does not answer: it?is gone; `r` tries again"


def test_the_places_have_their_keys_and_the_marks_stand_on_the_right() -> None:
    facts = HeadFacts(TABS, marks=("read-only", "paused"))
    assert read(write_places(facts, 60)) == "1 Queue  4 Nodes  5 History" + " " * 16 + "read-only  paused"
    assert read(write_places(facts, 32)) == "1 Queue  4  5  read-only  paused"
    assert [part.action for part in write_places(facts, 60) if part.action] == [tab.action for tab in TABS]
    for width in range(20, 80):
        assert measure(write_places(facts, width)) == width


def test_texts_are_cut_by_cells() -> None:
    assert cut_text("日本語", 5) == "日本…"
    assert cut_text("日本語", 4) == "日…"
    assert cut_text("日本語", 6) == "日本語"
    assert cut_text("abc", 0) == ""
    assert fill_text("日本", 6, right=True) == "  日本"
    assert fill_text("日本語", 4, right=False) == "日… "
    assert cut_parts([StyledText("ab"), StyledText("cd", "bad")], 3) == [StyledText("ab"), StyledText("…", "bad")]
