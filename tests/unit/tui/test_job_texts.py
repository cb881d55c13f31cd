"""The large texts of a job: what it was sent as, its variables, what was submitted; read, searched, copied."""

from __future__ import annotations

import re
import time

import pytest
from rich.cells import cell_len
from tests.unit.tui.fake_source import FakeSource, job
from tests.unit.tui.labs import HOSTILE
from tests.unit.tui.order_stories import read_notes
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot

from overspan.bridge.client.messages import SentForm, Variable
from overspan.bridge.model.errors import Denied
from overspan.tui.app import TopApp
from overspan.tui.detail.text_screen import TextScreen
from overspan.tui.detail.texts import TextRows, write_variables

SCRIPT = "#!/bin/sh\n" + "".join(f"echo line {number}\n" for number in range(2, 400)) + "echo the end\n"


def make_source() -> FakeSource:
    source = FakeSource([job(1)])
    source.sent_forms["1"] = SentForm(SCRIPT, True, "as Slurm keeps it")
    source.variables_of["1"] = [
        Variable("", "EPOCHS", "3 of 4", "task"),
        Variable("", "HF_TOKEN", "***", "secret", True),
        Variable("", "HOME", "/home/ana", "submission"),
    ]
    source.scripts["1"] = "name: fit\n"
    return source


async def open_texts(app: TopApp, pilot: Pilot[int]) -> TextScreen:
    """Open the texts of the first job."""
    await settle(pilot, lambda: bool(app.queue.table.lines))
    await pilot.press("b")
    await settle(pilot, lambda: isinstance(app.screen, TextScreen))
    screen = app.screen
    assert isinstance(screen, TextScreen)
    return screen


def status(screen: TextScreen) -> str:
    return str(screen.query_one("#lines-status").render())


def shown(screen: TextScreen) -> list[str]:
    """The lines in sight."""
    return [row.line.text for row, _ in screen.view._shown]


def test_each_text_is_asked_for_when_it_is_looked_at_and_says_where_it_is_from() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        screen = await open_texts(app, pilot)
        await settle(pilot, lambda: "as Slurm keeps it" in status(screen))
        assert "400 lines" in status(screen) and shown(screen)[0] == "#!/bin/sh"
        await pilot.press("right_square_bracket")
        await settle(pilot, lambda: "3 variables of the submission, 1 of them hidden" in status(screen))
        assert shown(screen) == [
            "# of the job",
            "EPOCHS='3 of 4'",
            "HF_TOKEN=***",
            "",
            "# the submitter's",
            "HOME=/home/ana",
        ]
        await pilot.press("right_square_bracket")
        await settle(pilot, lambda: "as it was submitted" in status(screen))
        await pilot.press("right_square_bracket")
        assert screen.part == "Sent" and shown(screen)[0] == "#!/bin/sh"
        await pilot.press("q")
        assert not isinstance(app.screen, TextScreen) and app.is_running

    play(make_source(), story)


def test_what_was_not_sent_is_told_apart_and_a_refusal_is_said() -> None:
    source = make_source()
    source.sent_forms["1"] = SentForm("x\n", False, "not sent yet: this would be sent now")

    def refuse(ref: str) -> list[Variable]:
        raise Denied("Access/permission denied", remedy="job 1 is ben's")

    source.variables = refuse  # type: ignore[method-assign]

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        screen = await open_texts(app, pilot)
        await settle(pilot, lambda: "not sent yet" in status(screen))
        assert screen.query_one("#lines-status").has_class("-doubtful")
        await pilot.press("right_square_bracket")
        await settle(pilot, lambda: "Access/permission denied; job 1 is ben's" in status(screen))
        assert screen.query_one("#lines-status").has_class("-trouble") and shown(screen) == []

    play(source, story)


def test_search_goes_on_round_the_end_and_escape_closes_one_thing_after_the_other() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        screen = await open_texts(app, pilot)
        await settle(pilot, lambda: bool(screen.view.rows))
        await pilot.press("slash", *"the end", "enter")
        assert "line 400" in status(screen) and "echo the end" in shown(screen)
        await pilot.press("slash", *"line 39[05]", "enter", "n")
        first = status(screen)
        await pilot.press("n", "n")
        assert status(screen) == first
        await pilot.press("N")
        assert status(screen) != first
        await pilot.press("slash", *"[", "enter")
        assert screen.prompt.has_focus
        await pilot.press("escape")
        assert screen.view.has_focus and screen._pattern is not None
        await pilot.press("escape", "escape")
        assert not isinstance(app.screen, TextScreen)

    play(make_source(), story)


def test_a_large_text_opens_at_once_and_goes_to_its_end() -> None:
    source = make_source()
    source.sent_forms["1"] = SentForm(
        "x" * 200 + "\n" + "echo hello world\n" * 250_000 + "last\n", True, "as Slurm keeps it"
    )

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        screen = await open_texts(app, pilot)
        await settle(pilot, lambda: "250002 lines" in status(screen))
        began = time.process_time()
        await pilot.press("G")
        await settle(pilot, lambda: shown(screen)[-1:] == ["last"])
        await pilot.press("g", "w")
        await settle(pilot, lambda: shown(screen)[0].startswith("xx"))
        assert time.process_time() - began < 0.5
        await pilot.press("y")
        assert app.clipboard == "" and "select a part" in read_notes(app)

    play(source, story)


def test_all_of_it_is_copied_clean() -> None:
    source = make_source()
    source.sent_forms["1"] = SentForm(f"a\tb\n{HOSTILE}", True, "as Slurm keeps it")

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        screen = await open_texts(app, pilot)
        await settle(pilot, lambda: bool(screen.view.rows))
        await pilot.press("y")
        assert app.clipboard.startswith("a\tb\n?]0;owned?")

    play(source, story)


def test_nothing_of_a_line_is_hidden_or_obeyed() -> None:
    rows = TextRows(f"safe\rrm -rf\n\x1b[31mred\n{HOSTILE}\ttab\n")
    texts = [row.line.text for row in rows]
    assert texts[0] == "safe?rm -rf" and texts[1] == "?[31mred"
    assert all(text.isprintable() and cell_len(text) for text in texts)
    assert rows.find(re.compile("RED", re.IGNORECASE), 2) == 1 and rows.find(re.compile("no such"), 0) is None


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_text_has_no_match(text: str) -> None:
    assert TextRows(text).find(re.compile("x"), 0) is None


def test_variables_of_several_tasks_have_a_head_each() -> None:
    found = [Variable("a", "X", "1", "task"), Variable("b", "X", "2", "task"), Variable("", "Y", "a b", "submission")]
    assert list(write_variables(found)) == [
        *("# of the task a", "X=1", "", "# of the task b", "X=2", "", "# the submitter's", "Y='a b'")
    ]
