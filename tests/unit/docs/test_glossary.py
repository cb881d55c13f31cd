"""The glossary: one meaning for each term."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "glossary.md"


def test_each_term_has_one_row() -> None:
    rows = re.findall(r"^\| ([^|]+?) \|", PAGE.read_text(), re.MULTILINE)
    terms = [term for term in rows if not set(term) <= {"-"}]
    counts = Counter(terms)
    heads = {term for term, count in counts.items() if count > 1}
    # The head of each table.
    assert len(terms) > 80 and heads <= {terms[0]}
