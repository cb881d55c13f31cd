"""The bars of the measurements: ratios to what the machine takes, but for sizes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from benchmarks.rows import Bar, Reference, Row
from benchmarks.run import CASES

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
QUICK, SLOW = Reference(10, 1, 2), Reference(20, 2, 4)
SIZES = ("MB", "KB", "KB/s", "entries", "/tick", "/s", "times")


def list_rows() -> list[ast.Call]:
    trees = [ast.parse(path.read_text()) for path in FOLDER.glob("*.py")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Row"]


def test_every_bar_but_of_a_size_is_a_ratio() -> None:
    rows = list_rows()
    assert len(rows) > 30
    for row in rows:
        bar, unit = ast.unparse(row.args[2]), ast.literal_eval(row.args[3])
        assert bar == "None" or bar.startswith("Bar("), ast.unparse(row)
        assert "size" not in bar or unit in SIZES, ast.unparse(row)


@pytest.mark.parametrize(
    ("bar", "unit", "quick", "slow"),
    [
        (Bar(starts=3), "ms", 30, 60),
        (Bar(starts=2, commits=5, forks=1), "ms", 27, 54),
        (Bar(beside=1, starts=100), "s", 2, 3),
        (Bar(starts=2), "% of a core", 2, 4),
        (Bar(per_start=5), "/s", 500, 250),
        (Bar(size=100), "MB", 100, 100),
    ],
)
def test_a_slower_machine_has_more_time(bar: Bar, unit: str, quick: float, slow: float) -> None:
    assert bar.limit(QUICK, unit) == pytest.approx(quick)
    assert bar.limit(SLOW, unit) == pytest.approx(slow)
    floor = unit == "/s"
    assert Row("x", quick, bar, unit, floor).is_met(QUICK) and Row("x", slow, bar, unit, floor).is_met(SLOW)
    assert Row("x", quick * (0.99 if floor else 1.01), bar, unit, floor).is_met(QUICK) is False


def test_the_page_names_each_case() -> None:
    page = (FOLDER.parent / "docs" / "performance.md").read_text()
    (line,) = (line for line in page.splitlines() if "words after it choose cases" in line)
    named = re.findall(r"`([a-z_]+)`", line.partition("choose cases")[2])
    assert sorted(named) == sorted(CASES)
