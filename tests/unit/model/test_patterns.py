"""File name patterns of sbatch(1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.model.patterns import ARRAY_DEFAULT, BATCH_DEFAULT, FilenameFields, expand_filename

PLAIN = FilenameFields(
    job=42, name="my job", user="ada", host="node1.example.org", node=3, task=5, step="batch", restarts=2
)
ELEMENT = PLAIN._replace(job=57, array_job=42, element=17)
STEP = PLAIN._replace(step="1")


@pytest.mark.parametrize(
    ("pattern", "plain", "element"),
    [
        ("%%", "%", "%"),
        ("%A", "42", "42"),
        ("%a", "4294967294", "17"),
        ("%b", "4", "7"),
        ("%j", "42", "57"),
        ("%J", "42", "57"),
        ("%N", "node1", "node1"),
        ("%n", "3", "3"),
        ("%r", "2", "2"),
        ("%s", "batch", "batch"),
        ("%t", "5", "5"),
        ("%u", "ada", "ada"),
        ("%x", "my job", "my job"),
        ("%5j", "00042", "00057"),
        ("%03a", "4294967294", "017"),
        ("%99j", "0000000042", "0000000057"),
        ("%0j", "42", "57"),
        ("%8x", "my job", "my job"),
        ("%%j", "%j", "%j"),
        ("%%%j", "%42", "%57"),
        ("%q-%S-%", "%q-%S-%", "%q-%S-%"),
        ("%5q", "%5q", "%5q"),
        ("%5", "%5", "%5"),
        ("%5%j", "%542", "%557"),
        ("log/%x/%j.out", "log/my job/42.out", "log/my job/57.out"),
        ("\\%j", "%j", "%j"),
        ("%j\\x", "%jx", "%jx"),
        ("", "", ""),
        (BATCH_DEFAULT, "slurm-42.out", "slurm-57.out"),
        (ARRAY_DEFAULT, "slurm-42_4294967294.out", "slurm-42_17.out"),
    ],
)
def test_expand(pattern: str, plain: str, element: str) -> None:
    assert expand_filename(pattern, PLAIN) == plain
    assert expand_filename(pattern, ELEMENT) == element


def test_steps() -> None:
    assert expand_filename("%J-%s-%4s-%j", STEP) == "42.1-1-0001-42"


def test_what_is_filled_in_is_not_read_again() -> None:
    assert expand_filename("%x", PLAIN._replace(name="%j")) == "%j"


@given(st.text(max_size=30))
def test_doubled_percent_signs_give_the_text_back(text: str) -> None:
    plain = text.replace("\\", "")
    assert expand_filename(plain.replace("%", "%%"), PLAIN) == plain


@given(st.text(alphabet="%\\0123456789AajJNnstuxbrqS", max_size=20))
def test_any_pattern_has_a_name(pattern: str) -> None:
    assert isinstance(expand_filename(pattern, ELEMENT), str)
