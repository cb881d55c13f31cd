"""docs/acceptance.md: every test that it names exists, every row is there once, and the counts are right."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from tests.unit.docs import pages
from tests.unit.docs.pages import ROOT, list_tests

PAGE = ROOT / "docs" / "acceptance.md"
KINDS = ("real", "golden", "simulated", "-")
ROWS = [row for row in pages.read_rows(PAGE.read_text()) if re.fullmatch(r"[A-Z][A-Z8]\d+", row[0])]
PROOFS = [(row[0], word) for row in ROWS for word in pages.read_words(row[3])]


def test_every_row_is_there_once() -> None:
    counted = Counter(row[0] for row in ROWS)
    assert len(ROWS) > 150
    assert [name for name, count in counted.items() if count > 1] == []


def test_no_number_is_left_out() -> None:
    families: dict[str, set[int]] = {}
    for row in ROWS:
        families.setdefault(row[0][:2], set()).add(int(row[0][2:]))
    for name, numbers in families.items():
        first = min(numbers)
        assert numbers == set(range(first, max(numbers) + 1)), name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_is_whole(row: list[str]) -> None:
    name, feature, kind, proof = row
    assert feature and kind in KINDS, name
    assert (kind == "-") == (proof == "-"), name
    assert proof == "-" or re.fullmatch(r"`tests/[^`]+`(, `tests/[^`]+`)*", proof), name


@pytest.mark.parametrize(("row", "proof"), PROOFS)
def test_a_named_test_exists(row: str, proof: str) -> None:
    path, separator, name = proof.partition("::")
    file = ROOT / path
    assert separator and file.is_file(), f"{row}: there is no file {path}"
    assert name in list_tests(file), f"{row}: {path} has no {name}"


def test_the_counts_are_right() -> None:
    written = {row[0]: int(row[-1]) for row in pages.read_rows(PAGE.read_text()) if row[-1].isdigit()}
    counted = Counter(row[2] for row in ROWS)
    assert written == {**{kind: counted[kind] for kind in KINDS}, "all": len(ROWS)}
