"""The filter language: what matches, what cannot be read, what is proposed; pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tui.fake_source import job

from overspan.bridge.listings.rows import JobRow
from overspan.tui.filter_language import Filter, spell_word, suggest_word
from overspan.tui.queue.filters import QUEUE_FIELDS, FilterSubject, filter_extent, limit_users, read_filter

TRAINER = job(
    42,
    "trainer",
    group="rl-math",
    task_offset=0,
    user="ana",
    cluster="leo",
    node_list="n[1-3],gpu7",
    account="lab",
    qos="high",
)
WAITING = job(43, "fit [a-c]", "PENDING", user="bob", cluster="k8s", partition="debug", reason="Resources: 2 of 8 GPUs")
ELEMENT = job(45, "sweep", "FAILED", array_id=44, array_index=7, node_list="n10")


def matches(source: str, row: JobRow) -> bool:
    return read_filter(source).matches(FilterSubject(row, row.ref))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("", "TWE"),
        ("train", "T"),
        ("^42", "T"),
        ("gpus", "W"),
        ("PD", "W"),
        ("rl-.ath trainer", "T"),
        ("!train", "WE"),
        ("state:r", "T"),
        ("state:running", "T"),
        ("state:RUN,pd", "TW"),
        ("!state:r", "WE"),
        ("state:f", "E"),
        ("user:an", ""),
        ("user:an.*", "TE"),
        ("user:ana,bob", "TWE"),
        ("u:bob c:k8s", "W"),
        ("cluster:leo", "TE"),
        ("part:debug", "W"),
        ("account:lab", "T"),
        ("!account:lab", "WE"),
        ("account:la", ""),
        ("qos:high,low", "T"),
        ("name:rl-math", "T"),
        ("group:math", "T"),
        ("node:n1", "T"),
        ("node:n2,n10", "TE"),
        ("node:gpu.*", "T"),
        ("id:44", "E"),
        ("id:^44_7$", "E"),
        ("id:42.0", "T"),
        ("reason:gpu", "W"),
        ('name:"fit \\[a"', "W"),
        ("'2 of 8'", "W"),
        ("trainer|sweep", "TE"),
        ("user:", "TWE"),
        ("!user:", "TWE"),
        ("!", "TWE"),
        (",", "T"),
        ("[[a]", "TWE"),
        ("state:,", "TWE"),
    ],
)
def test_words_match(source: str, found: str) -> None:
    rows = {"T": TRAINER, "W": WAITING, "E": ELEMENT}
    assert "".join(letter for letter, row in rows.items() if matches(source, row)) == found
    assert read_filter(source).trouble == ""


def test_what_a_filter_looks_at_is_asked_for() -> None:
    assert [filter_extent(read_filter(text)) for text in ("", "lab", "user:qos", "!qos:high", "ACCOUNT:x")] == [
        *["core"] * 3,
        *["usual"] * 2,
    ]


@pytest.mark.parametrize(
    ("source", "trouble", "counts"),
    [
        ("user:bob (", "'(' is not a regular expression: missing ), unterminated subpattern at character 1", "W"),
        ("user:bob name:*x", "'name:*x' is not a regular expression: nothing to repeat at character 1", "W"),
        (
            "user:bob a{9999999999999}",
            "'a{9999999999999}' is not a regular expression: the repetition number is too large",
            "W",
        ),
        ("usr:bob", "there is no field 'usr' (did you mean 'user'?); 'usr:bob' is looked for as text", ""),
        ("state:runing user:bob", "there is no state 'runing' (did you mean RUNNING?)", "W"),
        ("state:runing,r", "there is no state 'runing' (did you mean RUNNING?)", "T"),
    ],
)
def test_what_cannot_be_read_is_told_and_the_rest_counts(source: str, trouble: str, counts: str) -> None:
    rows = {"T": TRAINER, "W": WAITING}
    assert read_filter(source).trouble == trouble
    assert "".join(letter for letter, row in rows.items() if matches(source, row)) == counts


def test_a_time_or_an_address_is_text() -> None:
    assert read_filter("12:30").trouble == ""
    assert matches("12:30", job(1, "at 12:30"))


def test_users_limit_a_filter() -> None:
    limited = limit_users(read_filter("state:r"), ("bob",))
    assert not limited.matches(FilterSubject(TRAINER, "42+0"))
    assert limited.matches(FilterSubject(TRAINER._replace(user="bob"), "42+0"))
    assert limited.source == "state:r"


@given(st.text(alphabet="ab9:!\"'\\()[]*?{},. -^$|nodesta", max_size=30))
def test_anything_can_be_typed(source: str) -> None:
    found = read_filter(source)
    assert isinstance(found, Filter)
    for row in (TRAINER, WAITING, ELEMENT):
        found.matches(FilterSubject(row, row.ref))
    suggest_word(source, QUEUE_FIELDS, lambda field: ["a", "b"])


def test_damaged_host_lists_are_names() -> None:
    assert matches("node:n\\[1-", job(1, node_list="n[1-"))


def test_the_name_of_a_node_matches_itself_alone() -> None:
    assert matches(spell_word("node", "gpu-1.lab"), job(1, node_list="gpu-1.lab"))
    assert not matches(spell_word("node", "gpu-1.lab"), job(1, node_list="gpu-1xlab"))
    assert spell_word("node", "gpu-1") == "node:gpu-1"


@pytest.mark.parametrize(
    ("typed", "proposed"),
    [
        ("sta", "state:"),
        ("x !us", "x !user:"),
        ("state:r", "state:running"),
        ("state:pd,run", "state:pd,running"),
        ("user:a", "user:ana"),
        ("u:a", "u:ana"),
        ("user:", None),
        ("user:z", None),
        ("", None),
        ("zz", None),
    ],
)
def test_the_last_word_is_completed(typed: str, proposed: str | None) -> None:
    known = {"state": ["running", "pending"], "user": ["ana", "bob"]}
    assert suggest_word(typed, QUEUE_FIELDS, lambda field: known.get(field, [])) == proposed
