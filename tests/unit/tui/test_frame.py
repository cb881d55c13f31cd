"""The frame around the places: keys in force, help, the line after `:`, what closes what, what is told of faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.tui.fake_source import FakeSource, job
from tests.unit.tui.stories import settle
from textual.pilot import Pilot
from textual.widgets import Input

from overspan.tui.app import TopApp
from overspan.tui.keyboard.help import HelpScreen
from overspan.tui.keyboard.hints import KeyHints
from overspan.tui.keyboard.keys import KEYS
from overspan.tui.keyboard.palette import Palette, PaletteCommand, find_commands, join_filter
from overspan.tui.options import TopOptions
from overspan.tui.terminal.terminal import Colours, TerminalTraits

Told = Callable[[TopApp, Pilot[int]], Awaitable[None]]


def play(story: Told, options: TopOptions | None = None, size: tuple[int, int] = (100, 30)) -> TopApp:
    """Run a story on a queue of three jobs."""
    source = FakeSource([job(1), job(2, user="bo"), job(3, state="PENDING", cluster="virgo")])
    app = TopApp(source, options or TopOptions())

    async def run() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            await settle(pilot, lambda: len(app.queue.table.lines) == 3)
            await story(app, pilot)

    asyncio.run(run())
    return app


def read_screen(app: TopApp) -> str:
    """What the terminal shows, as text."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def press_all(*keys: str) -> Told:
    """A story that only presses keys."""

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        for key in keys:
            await pilot.press(key)
        await pilot.pause()

    return story


class TestHelp:
    def test_it_shows_the_keys_in_force(self) -> None:
        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            await pilot.press("question_mark")
            screen = app.screen
            assert isinstance(screen, HelpScreen)
            shown = {entry.id: entry.keys for section in screen.sections for entry in section.entries}
            scopes = ("app", "list", "queue", "job")
            assert set(shown) == {action.id for action in KEYS if action.scope in scopes}
            assert shown["job.cancel"] == "^k F8"
            assert shown["queue.fold"] == "← -"
            await settle(pilot, lambda: "^k F8" in read_screen(app))
            await pilot.press("escape")
            await settle(pilot, lambda: app.screen is app.screen_stack[0])

        play(story, TopOptions(keymap={"job.cancel": "ctrl+k,f8"}))

    def test_the_place_comes_first_and_details_have_keys_while_they_are_open(self) -> None:
        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            await pilot.press("question_mark")
            assert isinstance(app.screen, HelpScreen)
            titles = [section.title for section in app.screen.sections]
            await pilot.press("escape", "d", "question_mark")
            assert isinstance(app.screen, HelpScreen)
            assert titles == ["Queue", "Jobs", "In lists", "Everywhere"]
            assert [section.title for section in app.screen.sections] == [*titles[:2], "Details", *titles[2:]]

        play(story, TopOptions())

    @pytest.mark.parametrize("key", ["escape", "q", "question_mark", "ctrl+c"])
    def test_what_closes_it(self, key: str) -> None:
        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            await pilot.press("question_mark", key)
            await settle(pilot, lambda: len(app.screen_stack) == 1)

        assert play(story).return_code != 1

    def test_it_keeps_what_was_wrong_in_the_configuration(self) -> None:
        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            await pilot.press("question_mark")
            await settle(pilot, lambda: "config.yaml:3: [bold]no[/]" in read_screen(app))

        play(story, TopOptions(troubles=("config.yaml:3: [bold]no[/]",)))


def test_a_changed_key_counts_and_the_old_one_does_not() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        table = app.queue.table
        await pilot.press("down")
        assert table.current is table.lines[0]
        await pilot.press("x")
        assert table.current is table.lines[1]

    play(story, TopOptions(keymap={"list.down": "x"}))


def test_nothing_fires_while_somebody_types(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    run_action = TopApp.run_action

    async def note(self: TopApp, action: Any, default_namespace: Any = None, namespaces: Any = None) -> bool:
        ran = await run_action(self, action, default_namespace, namespaces)
        if ran and not isinstance(default_namespace, Input):
            done.append(str(action))
        return ran

    monkeypatch.setattr(TopApp, "run_action", note)
    source = FakeSource([job(1)])
    # What closes and ends counts anywhere.
    allowed = {"app.back", "app.interrupt", "app.suspend"}

    async def run() -> None:
        app = TopApp(source, TopOptions())
        async with app.run_test(size=(100, 30)) as pilot:
            await settle(pilot, lambda: len(app.queue.table.lines) == 1)
            await pilot.press("slash")
            done.clear()
            for action in KEYS:
                if action.scope in ("app", "list", "queue", "job") and action.id not in allowed:
                    for key in action.keys.split(","):
                        if key != "enter":
                            await pilot.press(key)
            ours = {action.action for action in KEYS}
            assert [action for action in done if action in ours] == []
            assert isinstance(app.focused, Input) and len(app.focused.value) > 10

    asyncio.run(run())


class TestClosing:
    def test_q_closes_what_is_open_then_ends(self) -> None:
        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            await pilot.press("d", "slash", "x", "enter", "4")
            assert app.place.name_of_place == "nodes"
            await pilot.press("q")
            assert app.place is app.queue and app.queue.pane.display
            await pilot.press("q")
            assert not app.queue.pane.display and app.queue.filter_source == "x"
            await pilot.press("q")
            assert app.queue.filter_source == "" and app.is_running
            await pilot.press("q")

        assert play(story).return_code == 0

    def test_escape_never_ends(self) -> None:
        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            await pilot.press("4", "escape", "escape", "escape", "escape")
            assert app.place is app.queue and app.is_running and not app._exit

        play(story)

    def test_ctrl_q_does_not_end(self) -> None:
        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            await pilot.press("ctrl+q")
            assert not app._exit

        play(story)

    def test_ctrl_c_copies_what_is_selected_else_ends(self) -> None:
        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            await pilot.press("slash", "a", "b", "shift+home", "ctrl+c")
            assert app.clipboard == "ab" and not app._exit
            await pilot.press("end", "ctrl+c")
            assert app._exit

        play(story)


class TestPalette:
    @pytest.mark.parametrize(
        ("typed", "filter"),
        [("user bo", "user:bo"), ("cluster vir", "cluster:virgo"), ("state pd", "state:PD"), ("user zoe", "user:zoe")],
    )
    def test_a_filter_by_name(self, typed: str, filter: str) -> None:
        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            await pilot.press("4", "colon")
            assert isinstance(app.screen, Palette)
            app.screen.query_one(Input).value = typed
            await pilot.pause()
            await pilot.press("enter")
            await settle(pilot, lambda: app.queue.filter_source == filter)
            assert app.place is app.queue and len(app.screen_stack) == 1

        play(story)

    def test_an_action_by_its_title_and_a_theme(self) -> None:
        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            await pilot.press("colon", *"details", "enter")
            await settle(pilot, lambda: bool(app.queue.pane.display))
            await pilot.press("colon", *"nord", "enter")
            await settle(pilot, lambda: app.theme == "nord")
            await pilot.press("colon", *"sinfo", "enter")
            await settle(pilot, lambda: app.place.name_of_place == "nodes")

        play(story)

    def test_keys_of_the_line(self) -> None:
        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            await pilot.press("colon", "down", "tab")
            assert app.screen.query_one(Input).value == "evaluations"
            await pilot.press("escape")
            assert len(app.screen_stack) == 1 and app.place is app.queue

        play(story)

    def test_nothing_of_textuals_own_is_offered(self) -> None:
        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            await pilot.press("colon")
            assert isinstance(app.screen, Palette)
            texts = " ".join(command.text for command in app.screen.commands)
            assert "screenshot" not in texts and "maximize" not in texts
            await pilot.press("escape", "ctrl+p")
            assert len(app.screen_stack) == 1

        play(story)


COMMANDS = [PaletteCommand(text, "", "do") for text in ("queue", "quit", "user ana", "requeue", "user anatol")]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("qu", ["quit", "queue", "requeue"]),
        ("user ana", ["user ana", "user anatol"]),
        ("user  an", ["user ana", "user anatol", "user an"]),
        ("user bo", ["user bo"]),
        ("filter !state:pd", ["filter !state:pd"]),
        ("xyzzy", []),
        ("", [command.text for command in COMMANDS]),
    ],
)
def test_the_likeliest_command_comes_first(typed: str, found: list[str]) -> None:
    assert [command.text for command in find_commands(COMMANDS, typed)] == found


@pytest.mark.parametrize(
    ("source", "field", "value", "joined"),
    [
        ("", "user", "ana", "user:ana"),
        ("user:bo x", "user", "ana", "x user:ana"),
        ("user:bo", "cluster", "leo", "user:bo cluster:leo"),
        ("user:bo", "", "", ""),
        ("x", "reason", "no node", 'x "reason:no node"'),
    ],
)
def test_a_filter_of_a_field_takes_the_place_of_the_one_before(
    source: str, field: str, value: str, joined: str
) -> None:
    assert join_filter(source, field, value) == joined


class TestLooks:
    def test_without_colours_no_line_has_one(self) -> None:
        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            for keys in ((), ("question_mark",), ("escape", "colon"), ("escape", "d", "space")):
                await pilot.press(*keys)
                await pilot.pause()
                styles = [each.style for strip in app.screen._compositor.render_strips() for each in strip]
                coloured = [style for style in styles if style and (style.color or style.bgcolor)]
                assert coloured == []
                assert any(style.reverse for style in styles if style)

        play(story, TopOptions(traits=TerminalTraits(Colours.NONE)))

    def test_ascii_is_ascii_in_every_view(self) -> None:
        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            for keys in ((), ("question_mark",), ("escape", "colon"), ("escape", "d", "s", "space"), ("4",)):
                await pilot.press(*keys)
                await pilot.pause()
                assert read_screen(app).isascii()
            app.notify("─ … ● there")
            await settle(pilot, lambda: "there" in read_screen(app))
            assert read_screen(app).isascii()

        play(story, TopOptions(ascii=True))

    @pytest.mark.parametrize("size", [(80, 24), (40, 10), (10, 4), (1, 1)])
    def test_every_size_has_a_frame(self, size: tuple[int, int]) -> None:
        play(press_all("question_mark", "escape", "colon", "u", "escape", "d", "4"), size=size)

    def test_the_line_of_hints_ends_with_help(self) -> None:
        async def story(app: TopApp, pilot: Pilot[int]) -> None:
            await settle(pilot, lambda: read_screen(app).splitlines()[-1].rstrip().endswith(": go to  ? help"))
            assert app.query_one(KeyHints).size.height == 1

        for width in (60, 80, 140):
            play(story, size=(width, 24))


def test_a_fault_ends_without_a_traceback_and_is_kept_for_the_command() -> None:
    source = FakeSource([job(1)])
    app = TopApp(source, TopOptions())

    async def run() -> None:
        async with app.run_test() as pilot:
            app.call_later(lambda: 1 // 0)
            await settle(pilot, lambda: app.failure is not None)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())
    assert isinstance(app.failure, ZeroDivisionError) and app._exit_renderables == []


def test_a_fault_after_the_end_changes_nothing_of_it() -> None:
    app = TopApp(FakeSource([job(1)]), TopOptions())

    async def run() -> None:
        async with app.run_test():
            app.exit(return_code=129)
            app.call_later(lambda: 1 // 0)

    asyncio.run(run())
    assert (app.return_code, app.failure) == (129, None)


def test_what_is_wrong_in_the_configuration_is_told_once_and_the_application_goes_on() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        assert [note.message for note in app._notifications] == ["config.yaml:3:5: top.theme: no [such] theme"]
        assert app.is_running

    play(story, TopOptions(troubles=("config.yaml:3:5: top.theme: no [such] theme",)))
