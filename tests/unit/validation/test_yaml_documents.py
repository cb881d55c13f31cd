"""YAML by 1.2's scalar rules, with positions and bounds."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.readers.job_file import read_tables
from overspan.bridge.validation.yaml_documents import MAX_DEPTH, MAX_ENTRIES, MAX_LENGTH, read_documents, resolve
from overspan.bridge.validation.yaml_nodes import Items, Scalar, Table, find_node, has_path, key_place, place_in, plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12:00", "12:00"),
        ("1:30:00", "1:30:00"),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("true", True),
        ("False", False),
        ("1_000", "1_000"),
        ("2026-01-31", "2026-01-31"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("-4", -4),
        ("4+", "4+"),
        ("~", None),
        ("", None),
        ("Null", None),
        ("y", "y"),
        ("off", "off"),
        ("TRUE", True),
        ("190:20:30", "190:20:30"),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        (".5", 0.5),
        ("1.", 1.0),
        ("+7", 7),
        ("-0x1F", "-0x1F"),
        ("0b1", "0b1"),
        ("nan", "nan"),
        (".nan", ".nan"),
        (".inf", ".inf"),
        ("1e999", "1e999"),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, "9" * 19),
        ("9" * 40, "9" * 40),
        ("0x" + "f" * 16, "0x" + "f" * 16),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(text: str, value: object) -> None:
    found = resolve(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 'no'", {"a": "no"}),
        ('a: "12"', {"a": "12"}),
        ("a: !!str 12", {"a": "12"}),
        ("a: !!int 12", {"a": 12}),
        ("a: !!float 12", {"a": 12.0}),
        ("a: {H100:8, A100:8}", {"a": {"H100:8": None, "A100:8": None}}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("b: &x {c: 1}\na: *x", {"b": {"c": 1}, "a": {"c": 1}}),
        ("b: &x {c: 1, d: 2}\na:\n  <<: *x\n  d: 3", {"b": {"c": 1, "d": 2}, "a": {"d": 3, "c": 1}}),
        (
            "b: &x {c: 1}\nd: &y {c: 2, e: 3}\na: {<<: [*x, *y]}",
            {"b": {"c": 1}, "d": {"c": 2, "e": 3}, "a": {"c": 1, "e": 3}},
        ),
        ("8000: x", {"8000": "x"}),
        ("\ufeffa: 1", {"a": 1}),
        ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
    ],
)
def test_documents_become_data(text: str, value: Any) -> None:
    (document,) = read_documents(text, "f")
    assert plain(document) == value


def test_empty_documents_are_dropped() -> None:
    documents = read_documents("---\n---\na: 1\n---\nb: 2\n---\n", "f")
    assert [plain(document) for document in documents] == [{"a": 1}, {"b": 2}]


def test_positions_count_from_one() -> None:
    (document,) = read_documents("a: 1\nb:\n  - x\n  - {c: 2}\n", "f.yaml")
    assert isinstance(document, Table)
    assert str(document.entries["b"].place) == "f.yaml:2:1"
    assert str(place_in(document, "b", 1, "c")) == "f.yaml:4:9"
    assert place_in(document, "b", 7) == place_in(document, "b")
    assert [str(key_place(document, *path)) for path in (("b",), ("b", 1, "c"), ("b", 0), ("b", 1, "d"), ())] == [
        *("f.yaml:2:1", "f.yaml:4:6", "f.yaml:3:5", "f.yaml:4:5", "f.yaml:1:1")
    ]
    assert has_path(document, "b", 1, "c") and not has_path(document, "b", 2)
    assert find_node(document, "a") == Scalar(place_in(document, "a"), "1", 1)
    assert isinstance(document.entries["b"].node, Items)
    assert isinstance(document.entries["a"].node, Scalar)


BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{after}: &{after} [{','.join(['*' + before] * 10)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 0, "empty"),
        ("# only a comment\n", 0, "empty"),
        ("- a\n- b\n", 1, "this is a list"),
        ("a: 1\n--- just text\n", 2, "plain text"),
        ("a: 1\nb: 2\na: 3\n", 3, "'a' is given twice; the first is at f:1:1"),
        ("x:\n  a: 1\n  a: 1\n", 3, "given twice"),
        ("a: [1\n", 2, "not YAML"),
        ("a: 1\n\tb: 2\n", 2, "not YAML"),
        ("a: b: c\n", 1, "mapping values"),
        ("a: *missing\n", 1, "missing"),
        ("a: &a [*a]\n", 1, "inside the value"),
        ("a: !!python/object:os.system x\n", 1, "tag"),
        ("a: !secret x\n", 1, "tag"),
        ("a: !!int x\n", 1, "does not fit"),
        ("? [a]\n: 1\n", 1, "a key must be"),
        ("a: {<<: 3}\n", 1, "<< takes a mapping"),
        ("a: 1\nb: \x01\n", 2, "U+0001"),
        ("a: \ud800\n", 1, "U+D800"),
        (BOMB, 4, "more than"),
        ("[" * (MAX_DEPTH + 1), 1, "deep"),
        ("[" * 200_000, 1, "deep"),
        ("a: " + "x" * MAX_LENGTH, 0, "limit"),
        ("a:\n" + "".join(f" - {n}\n" for n in range(100_001)), 10_001, "a list has more than"),
        ("".join(f"k{n}:\n" + " - x\n" * 9_999 for n in range(11)), 90_002, "the file has more than"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_cannot_be_read_is_located(text: str, line: int, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_tables(text, "f")
    assert message in str(caught.value)
    assert caught.value.place is not None
    # Bounds are found at the value that passes them, whose line may differ by one.
    assert abs(caught.value.place.line - line) <= 1


def test_tabs_and_colons_have_a_remedy() -> None:
    with pytest.raises(InvalidRequest, match="spaces"):
        read_tables("a:\n\tb: 2\n", "f")
    with pytest.raises(InvalidRequest, match="between quotes"):
        read_tables("run: echo a: b\n", "f")


def test_merged_keys_point_at_where_they_are_written() -> None:
    (document,) = read_documents(textwrap.dedent("b: &x\n  c: 1\na: {<<: *x}\n"), "f")
    assert str(place_in(document, "a", "c")) == "f:2:6"


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from(list("ab:-[]{}&*!|>'\"#%@`\n\t ,?<0~\x85\ufeff")), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read_tables(text, "f")
    except InvalidRequest as error:
        assert error.place is not None


@pytest.mark.parametrize(("entry", "kind"), [("  K{}: 1\n", "mapping"), ("  - {}\n", "list")])
def test_of_a_mapping_or_list_without_end_the_rest_is_not_read(entry: str, kind: str) -> None:
    text = "envs:\n" + "".join(map(entry.format, range(MAX_ENTRIES)))
    (document,) = read_documents(text, "f")
    assert len(plain(document)["envs"]) == MAX_ENTRIES
    # What is no YAML at all comes behind it.
    with pytest.raises(InvalidRequest, match=f"a {kind} has more than {MAX_ENTRIES} entries") as caught:
        read_documents(text + entry.format("last") + "]\n", "f")
    assert caught.value.place is not None and caught.value.place.line == MAX_ENTRIES + 2
