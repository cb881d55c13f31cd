"""The daemon's cursors, of which an adapter asks for the changes alone."""

from __future__ import annotations

from overspan.adapters.cursors import Cursors


def test_a_reader_is_told_all_first_and_then_what_has_changed() -> None:
    cursors, woken, reader = Cursors(), list[int](), object()
    cursors.put("1.0", "a")
    cursors.put("2.0", "a")

    def wake() -> None:
        woken.append(1)

    assert cursors.take_moved(reader, wake) == {"1.0", "2.0"} and not woken
    assert cursors.take_moved(reader, wake) == set()
    cursors.put("2.0", "b")
    cursors.put("1.0", "a")
    cursors.put("3.0", "")
    assert cursors.take_moved(reader, wake) == {"2.0", "3.0"} and len(woken) == 2
    cursors.leave("3.0")
    cursors.leave("4.0")
    assert cursors.take_moved(reader, wake) == {"3.0"} and cursors == {"1.0": "a", "2.0": "b"}
    # Another adapter of the same cluster begins anew.
    assert cursors.take_moved(object(), wake) == {"1.0", "2.0"}
