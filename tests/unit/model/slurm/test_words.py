"""Each of Slurm's words that several parts say stands in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

import overspan
from overspan.bridge.model.slurm import words as slurm_words

WORDS = sorted(value for name, value in vars(slurm_words).items() if name.isupper())


@pytest.mark.parametrize("word", WORDS)
def test_nobody_else_words_it(word: str) -> None:
    root = Path(overspan.__file__).parent
    # What reads a Slurm's own words has patterns of them.
    found = [
        path for part in ("bridge", "adapters") for path in (root / part).rglob("*.py") if word in path.read_text()
    ]
    assert {path.name for path in found} - {"errors.py"} == {"words.py"}
