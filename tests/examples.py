"""How many made-up cases a test is played with: few in the gate, `OVERSPAN_EXAMPLES` times as many in `make soak`."""

from __future__ import annotations

import os

FACTOR = int(os.environ.get("OVERSPAN_EXAMPLES", "1"))


def count_examples(least: int) -> int:
    """So many cases for a test that has `least` in the gate."""
    return least * FACTOR
