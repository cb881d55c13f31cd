"""What a visit of mailboxes tells is read within bounds, and nothing else is taken for it."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from overspan.adapters import mailboxes
from overspan.adapters.mailboxes import NOTHING, MailboxRequest, VisitReport, VisitTrouble, read_report
from overspan.bridge.model.errors import Unreachable

REQUEST = {"key": "7", "lane": "ask", "id": "a.1", "path": "/p", "body": "{}"}
TROUBLE = {"key": "8", "part": "leave", "text": "/m: No space left on device"}


def pack(**told: Any) -> str:
    """The line of a visit that tells this, and nothing of all else."""
    document = {"found": [], "wants": [], "left": [], "troubles": [], **told}
    return base64.b64encode(zlib.compress(json.dumps(document).encode())).decode()


def test_the_last_line_is_read() -> None:
    report = read_report(f"welcome\n{pack(found=[REQUEST], wants=['9'], left=['7'], troubles=[TROUBLE])}\n\n")
    assert report == VisitReport([MailboxRequest(**REQUEST)], ["9"], frozenset("7"), [VisitTrouble(**TROUBLE)])
    assert report.find_trouble("8", "leave").startswith("/m") and not report.find_trouble("8", "read")
    assert read_report(NOTHING) == VisitReport([], [], frozenset(), [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Connection closed",
        pack()[:-8],
        pack(found=[{**REQUEST, "lane": "../ask"}]),
        pack(found=[{**REQUEST, "id": ["a.1"]}]),
        pack(found=[{**REQUEST, "id": "a" * 501}]),
        pack(found=[{"key": "7"}]),
        pack(wants=[7]),
        pack(left="7" * 501),
        pack(troubles=[{**TROUBLE, "text": "x" * 501}]),
        pack(troubles={"8": "bare"}),
        base64.b64encode(zlib.compress(b"[" * 200_000)).decode(),
    ],
)
def test_anything_else_is_no_report(text: str) -> None:
    with pytest.raises(Unreachable, match="nothing that can be read"):
        read_report(text)


def test_a_report_that_grows_without_bounds_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailboxes, "MOST_REPORT", 1000)
    assert read_report(pack(found=[{**REQUEST, "body": "x" * 500}])).found
    with pytest.raises(Unreachable, match="longer than"):
        read_report(pack(found=[{**REQUEST, "body": "x" * 100_000}]))
