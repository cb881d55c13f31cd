"""What a terminal is shown of texts that others wrote."""

from __future__ import annotations

import io
import json
import sys

import pytest

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import report, say, write_json
from overspan.bridge.client.terminal_texts import UNSAFE, clean_document, clean_text, may_need_cleaning
from overspan.bridge.model.errors import InvalidRequest

FORGED = "a\n 7 main forged\x1b[2J\x9b1m\r\u202eb\x7f\u2028c"


def test_nothing_that_a_terminal_obeys_is_left() -> None:
    document = {"rows": [{"name": FORGED, "ids": [1, FORGED], FORGED: {"comment": "ümlaut — ok"}}], "text": "a\nb\tc"}
    shown = clean_document(document)
    (row,) = shown["rows"]
    assert row["name"] == "a? 7 main forged?[2J?1m??b??c"
    assert row["ids"] == [1, row["name"]] and row[FORGED] == {"comment": "ümlaut — ok"}
    assert shown["text"] == "a b?c"


@pytest.mark.parametrize("letter", [chr(code) for code in range(0x3000) if UNSAFE.match(chr(code))])
@pytest.mark.parametrize("escaped", [True, False])
def test_no_document_with_such_a_character_is_passed_over(letter: str, escaped: bool) -> None:
    assert may_need_cleaning(json.dumps({"name": letter}, ensure_ascii=escaped).encode())
    assert clean_text(letter) == "?"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_notes_and_errors_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Invocation("submit", (), {})
    for stream, escape in ((Terminal(), "?"), (io.StringIO(), "\x1b")):
        monkeypatch.setattr(sys, "stderr", stream)
        say(call, "two\nlines\x1b[1m")
        report(call, InvalidRequest("bad \x1b[2J", remedy="mend \x1b"))
        said = f"span: two\nlines{escape}[1m\nspan: error: bad {escape}[2J\n  mend {escape}\n"
        assert stream.getvalue() == said


def test_json_escapes_what_it_need_not(capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"name": FORGED})
    text = capsys.readouterr().out
    assert "\x9b" not in text and "\x7f" not in text and json.loads(text) == {"name": FORGED}
