"""Where the tasks of a set run: the last whole line counts."""

from __future__ import annotations

from pathlib import Path

from overspan.bridge.model.job import Placement
from overspan.bridge.runtime.slurm.member_locations import (
    append_locations,
    locations_path,
    read_locations,
    render_locations,
)

HERE = [Placement("a", 0, "n1", "10.0.0.1"), Placement("a", 1, "n2", "10.0.0.2")]
THERE = [Placement("a", 0, "n5", "10.0.0.5"), Placement("a", 1, "n6", "10.0.0.6")]


def test_the_newest_seats_count(tmp_path: Path) -> None:
    path = locations_path(str(tmp_path), "a", 0)
    assert read_locations(path) == ()
    append_locations(path, render_locations(HERE, "101"))
    assert read_locations(path) == tuple(HERE)
    append_locations(path, render_locations(THERE, "102"))
    append_locations(path, render_locations(THERE, "102"))
    assert read_locations(path) == tuple(THERE)
    assert len(Path(path).read_text().splitlines()) == 2


def test_a_line_that_was_cut_or_spoilt_is_passed_over(tmp_path: Path) -> None:
    path = Path(locations_path(str(tmp_path), "a", 0))
    append_locations(str(path), render_locations(HERE, "101"))
    with path.open("ab") as file:
        file.write(b'null\n{"members": [["a"]]}\n{"mem')
    assert read_locations(str(path)) == tuple(HERE)
    append_locations(str(path), render_locations(THERE, "102"))
    assert read_locations(str(path)) == tuple(THERE)
