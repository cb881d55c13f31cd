"""Where the tasks of a set run: the last whole line counts."""

from __future__ import annotations

from pathlib import Path

from overspan.bridge.model.job import Placement
from overspan.bridge.runtime.slurm.member_locations import add_seats, read_seats, render_seats, seats_path

HERE = [Placement("a", 0, "n1", "10.0.0.1"), Placement("a", 1, "n2", "10.0.0.2")]
THERE = [Placement("a", 0, "n5", "10.0.0.5"), Placement("a", 1, "n6", "10.0.0.6")]


def test_the_newest_seats_count(tmp_path: Path) -> None:
    path = seats_path(str(tmp_path), "a", 0)
    assert read_seats(path) == ()
    add_seats(path, render_seats(HERE, "101"))
    assert read_seats(path) == tuple(HERE)
    add_seats(path, render_seats(THERE, "102"))
    add_seats(path, render_seats(THERE, "102"))
    assert read_seats(path) == tuple(THERE)
    assert len(Path(path).read_text().splitlines()) == 2


def test_a_line_that_was_cut_or_spoilt_is_passed_over(tmp_path: Path) -> None:
    path = Path(seats_path(str(tmp_path), "a", 0))
    add_seats(str(path), render_seats(HERE, "101"))
    with path.open("ab") as file:
        file.write(b'null\n{"members": [["a"]]}\n{"mem')
    assert read_seats(str(path)) == tuple(HERE)
    add_seats(str(path), render_seats(THERE, "102"))
    assert read_seats(str(path)) == tuple(THERE)
