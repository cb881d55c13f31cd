"""What is chosen, typed and found is seen in every theme, and the line of hints tells the keys that count."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from rich.segment import Segment
from tests.unit.tui.fake_source import NOW, FakeSource, job
from tests.unit.tui.frames import read_frame
from tests.unit.tui.labs import make_lab
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot
from textual.widgets import Button, Input, OptionList, TextArea

from overspan.tui.actions.order_log import OrderEntry
from overspan.tui.app import TopApp, TopOptions
from overspan.tui.clusters.check import CheckScreen
from overspan.tui.dialogs.edit_dialog import EditDialog
from overspan.tui.dialogs.order_dialog import OrderDialog
from overspan.tui.history.columns import make_columns
from overspan.tui.keyboard.hints import list_hints
from overspan.tui.logs.screen import LogScreen
from overspan.tui.places.clusters import ClustersPlace
from overspan.tui.places.history import HistoryPlace
from overspan.tui.terminal.terminal import Colours, TerminalTraits
from overspan.tui.terminal.themes import TERMINAL
from overspan.tui.widgets.filter_box import FilterInput
from overspan.tui.widgets.line_table import share_width

DETAILS = {"name": "fit", "partition": "gpu", "tasks": [{"time_limit": 3600}]}
PLAIN = [Colours.SIXTEEN, Colours.NONE]
"""Terminals on which no ground of its own tells the chosen line."""


def play_plain(
    colours: Colours, story: Callable[[TopApp, Pilot[int]], Awaitable[None]], source: FakeSource | None = None
) -> None:
    async def run() -> None:
        options = TopOptions(traits=TerminalTraits(colours=colours))
        app = TopApp(source or FakeSource([job(7), job(8)]), options)
        async with app.run_test(size=(80, 24)) as pilot:
            await settle(pilot, lambda: app.queue.table.current is not None)
            await story(app, pilot)

    asyncio.run(run())


def is_reversed(line: list[Segment], text: str) -> bool:
    [segment] = [each for each in line if text in each.text]
    return bool(segment.style and segment.style.reverse)


@pytest.mark.parametrize("colours", PLAIN)
@pytest.mark.parametrize(
    ("key", "chosen", "other"), [("x", "none, go back", "TERM"), ("colon", "queue", "evaluations")]
)
def test_the_chosen_line_of_a_list_is_seen(colours: Colours, key: str, chosen: str, other: str) -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await pilot.press(key)
        await settle(pilot, lambda: app.screen.query_one(OptionList).highlighted == 0)
        choices = app.screen.query_one(OptionList)
        assert is_reversed(list(choices.render_line(0)), chosen)
        assert not is_reversed(list(choices.render_line(1)), other)

    play_plain(colours, story)


@pytest.mark.parametrize("colours", PLAIN)
def test_nothing_dim_is_left_on_the_reversed_line(colours: Colours) -> None:
    ended = [job(number, state="COMPLETED", ended_at=NOW) for number in (7, 8)]

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        lines = [[each for each in app.queue.table.render_line(y) if each.text.strip()] for y in (1, 2)]
        chosen, other = ([each.style for each in line if each.style is not None] for line in lines)
        assert chosen and all(style.reverse and not style.dim for style in chosen)
        assert any(style.dim for style in other) and not any(style.reverse for style in other)

    play_plain(colours, story, FakeSource(ended))


@pytest.mark.parametrize("colours", PLAIN)
def test_what_was_found_in_a_log_is_seen(colours: Colours) -> None:
    source = FakeSource([job(7)])
    source.write("7", b"step 1\nloss\nstep 2\n")

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await pilot.press("o")
        await settle(pilot, lambda: isinstance(app.screen, LogScreen) and "step 2" in read_frame(app.screen))
        await pilot.press("slash", *"step", "enter")
        await settle(pilot, lambda: "2 lines" in read_frame(app.screen))
        assert isinstance(app.screen, LogScreen)
        view = app.screen.view
        lines = [list(view.render_line(y)) for y in range(3)]
        assert is_reversed(lines[2], "step") and not is_reversed(lines[0], "step")
        [match] = [each for each in lines[0] if each.text == "step"]
        assert match.style is not None and match.style.underline and match.style.bgcolor is not None
        assert match.style.bgcolor.is_default

    play_plain(colours, story, source)


def test_the_sixteen_colours_use_none_that_is_unreadable_on_black() -> None:
    values = [*TERMINAL.variables.items(), *((name, getattr(TERMINAL, name)) for name in ("primary", "accent"))]
    assert {name: value for name, value in values if value in ("ansi_blue", "ansi_black")} == {
        name: "ansi_black" for name, value in values if name.endswith("selection-foreground")
    }


def test_no_cursor_blinks() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: app.queue.table.current is not None)
        seen = 0
        for key in ("slash", "colon", "t", "E", "o", "b"):
            await pilot.press(key)
            await settle(pilot, lambda: len(app.screen_stack) > 1 or isinstance(app.focused, Input))
            await pilot.pause()
            for each in [*app.screen.query(Input), *app.screen.query(TextArea)]:
                assert not each.cursor_blink, (key, each)
                seen += 1
            await pilot.press("escape")
            await settle(pilot, lambda: len(app.screen_stack) == 1 and not isinstance(app.focused, Input))
        assert seen >= 6

    source = FakeSource([job(7)])
    source.details["7"] = DETAILS
    play(source, story)


class TestHints:
    def test_what_is_open_comes_first_then_the_job(self) -> None:
        names = ["app.help", "queue.filter", "job.cancel", "detail.zoom", "job.logs"]
        hints, last = list_hints([(name[0], name, name) for name in names])
        assert [hint.title for hint in hints] == ["detail.zoom", "job.logs", "job.cancel", "queue.filter"]
        assert [hint.title for hint in last] == ["app.help"]

    def test_while_somebody_types_only_the_keys_of_the_line_are_told(self) -> None:
        source = FakeSource([job(7)])
        source.write("7", b"step 1\n")

        def last_line(app: TopApp) -> str:
            return read_frame(app.screen).splitlines()[-1]

        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            await settle(pilot, lambda: app.queue.table.current is not None)
            await pilot.press("slash")
            await settle(pilot, lambda: last_line(app) == " Enter keep  Esc drop  Tab complete")
            await pilot.press("escape", "o")
            await settle(pilot, lambda: isinstance(app.screen, LogScreen) and "step 1" in read_frame(app.screen))
            await pilot.press("percent_sign")
            await settle(pilot, lambda: last_line(app) == " Enter take it  Esc close")

        play(source, story)

    def test_open_details_have_hints(self) -> None:
        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            await settle(pilot, lambda: app.queue.table.current is not None)
            await pilot.press("d")
            await settle(pilot, lambda: read_frame(app.screen).splitlines()[-1].startswith(" ] next section  z full"))

        play(FakeSource([job(7)]), story)


def test_the_button_that_enter_presses_is_filled_and_no_other() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: app.queue.table.current is not None)
        await pilot.press("c")
        await settle(pilot, lambda: isinstance(app.screen, OrderDialog) and app.screen._seen)
        no, yes = app.screen.query(Button)
        filled, bare = no.styles.background, yes.styles.background
        assert filled != bare
        await pilot.press("tab")
        await settle(pilot, lambda: yes.has_focus)
        assert no.styles.background == bare and yes.styles.background != bare

    play(FakeSource([job(7)]), story)


def test_dialogs_are_as_high_as_what_they_hold() -> None:
    source = make_lab()
    source.details["2"] = DETAILS

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: app.queue.table.current is not None)
        app.order_log.add(OrderEntry(0.0, "Cancel", "leo:1 fit", "cancelled"))
        await pilot.press("L")
        await settle(pilot, lambda: "leo:1 fit" in read_frame(app.screen))
        assert app.screen.children[0].size.height == 2
        await pilot.press("escape", "E")
        await settle(pilot, lambda: isinstance(app.screen, EditDialog) and app.screen._seen)
        area = app.screen.query_one(TextArea)
        # Also of a line that is folded.
        assert area.document.line_count < area.wrapped_document.height
        await settle(pilot, lambda: area.size.height == area.wrapped_document.height)
        await pilot.press("escape", "6")
        await settle(pilot, lambda: len(app.query_one(ClustersPlace).table.lines) == 3)
        await pilot.press("enter")
        await settle(pilot, lambda: isinstance(app.screen, CheckScreen) and "bwrap" in read_frame(app.screen))
        await settle(pilot, lambda: app.screen.children[0].size.height < 12)

    play(source, story, (60, 30))


def test_the_line_below_a_list_takes_no_more_room_than_its_longest_text() -> None:
    source = make_lab()
    long = "Unreachable: no route to host, " * 6
    source.cluster_list[1]["message"] = long

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await pilot.press("6")
        place = app.query_one(ClustersPlace)
        await settle(pilot, lambda: len(place.table.lines) == 3)
        about = place.query_one(".about")
        await settle(pilot, lambda: about.size.height == 1)
        await pilot.press("down")
        await settle(pilot, lambda: about.size.height == place.MOST_ABOUT)
        await pilot.press("up")
        await pilot.pause()
        assert about.size.height == place.MOST_ABOUT
        await pilot.resize_terminal(140, 30)
        await settle(pilot, lambda: about.size.height < place.MOST_ABOUT)

    play(source, story, (80, 24))


@pytest.mark.parametrize(
    ("width", "shown", "hidden"),
    [(69, {"cluster", "exit_code"}, {"user"}), (79, {"cluster"}, {"user"}), (140, {"user", "partition"}, set())],
)
def test_the_history_names_the_cluster_on_every_terminal(width: int, shown: set[str], hidden: set[str]) -> None:
    columns = [column for column in make_columns(width, lambda family: False) if column.from_width <= width]
    names = {column.name for column in columns}
    assert shown <= names and not hidden & names
    sizes = share_width([column.width for column in columns], [column.wide for column in columns], width)
    assert all(size >= column.width for size, column in zip(sizes, columns, strict=True))


def test_the_history_takes_other_columns_when_the_details_come() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await pilot.press("5")
        await settle(pilot, lambda: "2027-01-15T" in read_frame(app.place))
        await pilot.press("d")
        await settle(pilot, lambda: "EXIT" in read_frame(app.place) and "PARTITION" not in read_frame(app.place))
        await settle(pilot, lambda: " EXIT" in read_frame(app.place).splitlines()[1])

    play(source, story, (140, 40))


def test_a_list_is_told_of_its_width_where_somebody_asked_for_the_layout_before() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await pilot.press("5")
        await settle(pilot, lambda: "2027-01-15T" in read_frame(app.place))
        place = app.place
        assert isinstance(place, HistoryPlace)
        layout = app.screen._compositor
        # What is out of sight is painted anew, and the mouse moves before the details are there: Textual computes a
        # layout then, and compares the next one with that.
        layout.update_widgets({place.query_one(FilterInput)})
        place.action_describe()
        width = layout.full_map[place.table].region.width
        assert width < 140
        await settle(pilot, lambda: sum(size + 1 for _, size in place.table._layout) == width)

    play(make_lab(), story, (140, 40))
