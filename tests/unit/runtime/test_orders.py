"""The orders file: whole lines, each read once."""

from __future__ import annotations

import json
from pathlib import Path

from overspan.bridge.model.events import Cancel, Restart, event_to_document
from overspan.bridge.runtime.core.orders import NumberedOrder, OrderFile


def _line(seq: int, event: Cancel | Restart) -> str:
    return json.dumps({"seq": seq, "event": event_to_document(event)}) + "\n"


def test_missing_file_has_no_orders(tmp_path: Path) -> None:
    assert OrderFile(str(tmp_path / "orders")).read() == []


def test_lines_are_read_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    orders = OrderFile(str(path))
    first, second = Cancel(1.0, "a"), Restart(2.0, "b", "alice")
    cut = len(_line(2, second)) // 2
    path.write_text(_line(1, first) + _line(2, second)[:cut])
    assert orders.read() == [NumberedOrder(1, first)]
    assert orders.read() == []
    path.write_text(_line(1, first) + _line(2, second)[:-1])
    assert orders.read() == []
    path.write_text(_line(1, first) + _line(2, second))
    assert orders.read() == [NumberedOrder(2, second)]
    assert OrderFile(str(path)).read() == [NumberedOrder(1, first), NumberedOrder(2, second)]


def test_what_is_no_order_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    wrong = [
        "nonsense",
        "[]",
        "{}",
        '{"seq": 1}',
        '{"seq": "x", "event": {"event": "Cancel", "at": 1}}',
        '{"seq": 1, "event": {"event": "Cancel"}}',
        '{"seq": 1, "event": {"event": "FromTheFuture", "at": 1}}',
        '{"seq": 1, "event": {"event": "NodeEnded", "at": 1, "task": "a", "attempt": 0, "node": 0}}',
        '{"seq": 1, "event": 5}',
    ]
    path.write_text("\n".join(wrong) + "\n" + _line(2, Cancel(1.0)))
    assert OrderFile(str(path)).read() == [NumberedOrder(2, Cancel(1.0))]


def test_field_of_a_later_version_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    path.write_text('{"seq": 1, "event": {"event": "Cancel", "at": 1.0, "how": "softly"}}\n')
    assert OrderFile(str(path)).read() == [NumberedOrder(1, Cancel(1.0))]
