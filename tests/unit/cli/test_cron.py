"""Words and texts of `span cron`."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.jobs.cron import edit_text, mark_line, read_id, render, run
from overspan.bridge.model.errors import Denied, InvalidRequest

ROW = {
    "id": 3, "name": "nightly", "schedule": "0 3 * * *", "timezone": "UTC", "paused": False, "next_due": 1.8e9,
    "last_run_at": None, "last_job": None, "last_state": "", "runs": 0, "missed_runs": 4, "owed_runs": 2,
    "skipped_runs": 1, "refused_runs": 0, "missed": "all", "overlap": "skip", "message": "", "message_at": None,
}  # fmt: skip


def test_the_table_is_as_wide_as_its_texts() -> None:
    head, first, note, second = render(
        [{**ROW, "message": "why", "message_at": 1.8e9}, {**ROW, "paused": True}]
    ).splitlines()
    assert (
        first.split()[:2] == ["c3", "nightly"] and "4 (2 owed)" in first and first.endswith("missed=all,overlap=skip")
    )
    assert note.startswith("    20") and note.endswith("  why")
    assert head.index("NEXT") == second.index("paused") and " N/A " in second


def test_numbers_of_schedules() -> None:
    assert (read_id("c12"), read_id("7")) == (12, 7)
    for word in ("", "c", "c0", "12x", "cc1", "c-1", "c\N{SUPERSCRIPT TWO}", "9" * 20):
        with pytest.raises(InvalidRequest, match="is no schedule"):
            read_id(word)


def test_a_wrong_line_is_commented_out() -> None:
    assert mark_line("a\nb\nc", 2) == "a\n#BAD: b\nc"
    assert mark_line("a\n", 0) == mark_line("a\n", 5) == "a\n"


def test_the_editor_gets_a_private_file(tmp_path: Path) -> None:
    editor = tmp_path / "ed"
    editor.write_text(f'#!/bin/sh\nstat -c %a "$2" > {tmp_path}/mode\necho "$1" >> "$2"\necho "$2" > {tmp_path}/path\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    assert edit_text("old\n", {"VISUAL": "", "EDITOR": f"{editor} -w"}) == "old\n-w\n"
    assert (tmp_path / "mode").read_text() == "600\n"
    assert not os.path.exists((tmp_path / "path").read_text().strip())
    with pytest.raises(InvalidRequest, match="ended with code 1"):
        edit_text("old\n", {"VISUAL": "false"})


@pytest.mark.parametrize(
    ("words", "error"),
    [(("-l", "file"), InvalidRequest), (("-l", "-r"), InvalidRequest), (("-l", "-u", "no one"), Denied)],
)
def test_words_that_do_not_go_together(words: tuple[str, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        run(Invocation("cron", words, {}))
