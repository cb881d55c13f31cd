"""The table: what it paints, where its cursor stays, and what is painted again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.strip import Strip

from overspan.tui.widgets.line_table import Cell, LineTable, TableColumn, fit_text, share_width


class Item(NamedTuple):
    """A line of a table."""

    key: int
    text: str = ""


COLUMNS: tuple[TableColumn[Item], ...] = (
    TableColumn("id", "ID", 4, lambda line, now: Cell(str(line.key), "accent")),
    TableColumn("name", "NAME", 8, lambda line, now: Cell(line.text), wide=True),
    TableColumn("time", "TIME", 6, lambda line, now: Cell(f"{now:.0f}"), right=True, ticks=True, from_width=20),
)


class TableApp(App[None]):
    """A table alone."""

    CSS = "LineTable { height: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self.now = 5.0
        self.painted: list[int] = []
        """The screen's lines that were painted."""
        self.messages: list[str] = []

    def compose(self) -> ComposeResult:
        yield NotingTable(COLUMNS, lambda: self.now, id="table")

    @property
    def table(self) -> LineTable[Item]:
        return self.query_one("#table", LineTable)

    def on_line_table_moved(self, event: LineTable.Moved) -> None:
        self.messages.append(f"moved {getattr(event.table.current, 'key', None)}")

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        self.messages.append(f"opened {getattr(event.table.current, 'key', None)}")

    def on_line_table_sorted(self, event: LineTable.Sorted) -> None:
        self.messages.append(f"sorted {event.column}")


class NotingTable(LineTable[Item]):
    """Notes which lines of the screen it paints."""

    def render_line(self, y: int) -> Strip:
        assert isinstance(self.app, TableApp)
        self.app.painted.append(y)
        return super().render_line(y)


Story = Callable[[TableApp, Pilot[None]], Awaitable[None]]


def play(story: Story, size: tuple[int, int] = (30, 8)) -> None:
    async def run() -> None:
        app = TableApp()
        async with app.run_test(size=size) as pilot:
            await story(app, pilot)

    asyncio.run(run())


def frame(app: App[None]) -> list[str]:
    """The screen as text."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


def items(keys: Sequence[int]) -> list[Item]:
    return [Item(key, f"job {key}") for key in keys]


async def show(app: TableApp, pilot: Pilot[None], lines: Sequence[Item]) -> None:
    if app.focused is None:
        app.table.focus()
    app.table.set_lines(lines)
    await pilot.pause()


def current(app: TableApp) -> int | None:
    line = app.table.current
    return None if line is None else line.key


def height(app: TableApp) -> int:
    """The cursor's line on the screen."""
    return [line.key for line in app.table.lines].index(current(app) or 0) - int(app.table.scroll_offset.y)


# --- frames -----------------------------------------------------------------------------------------------------------


def test_a_frame() -> None:
    async def story(app: TableApp, pilot: Pilot[None]) -> None:
        lines = [
            Item(1, "short"),
            Item(2, "a name that is too long for it"),
            Item(3, "模型训练任务模型训练"),
            Item(4, "e\u0301" * 25),
            Item(5, "[b]bold[/b] n[0-3]"),
        ]
        await show(app, pilot, lines)
        assert frame(app) == [
            "ID   NAME                TIME",
            "1    short                  5",
            "2    a name that is t…      5",
            "3    模型训练任务模型…      5",
            "4    " + "e\u0301" * 16 + "…      5",
            "5    [b]bold[/b] n[0-…      5",
            "",
            "",
        ]

    play(story)


def test_an_empty_table_says_why() -> None:
    async def story(app: TableApp, pilot: Pilot[None]) -> None:
        app.table.empty = "no jobs match"
        await show(app, pilot, [])
        assert frame(app)[:4] == ["ID   NAME                TIME", "", "  no jobs match", ""]
        await show(app, pilot, items([1]))
        assert frame(app)[1:4] == ["1    job 1                  5", "", ""]
        await show(app, pilot, [])
        assert frame(app)[1:3] == ["", "  no jobs match"]
        assert current(app) is None

    play(story)


def test_a_narrow_terminal_leaves_columns_out_and_a_wide_one_gives_room() -> None:
    async def story(app: TableApp, pilot: Pilot[None]) -> None:
        await show(app, pilot, items([1]))
        assert frame(app)[0] == "ID   NAME"
        await pilot.resize_terminal(60, 8)
        await pilot.pause()
        assert frame(app)[0] == "ID   NAME" + " " * 46 + "TIME"
        await pilot.resize_terminal(6, 3)
        await pilot.pause()
        assert frame(app) == ["ID", "1", ""]

    play(story, size=(18, 6))


def test_the_column_that_sorts_has_an_arrow_and_titles_are_clicked() -> None:
    async def story(app: TableApp, pilot: Pilot[None]) -> None:
        await show(app, pilot, items([1]))
        app.table.sort_column = "id"
        await pilot.pause()
        assert frame(app)[0].startswith("ID▲")
        app.table.sort_reverse = True
        app.table.ascii_only = True
        await pilot.pause()
        assert frame(app)[0].startswith("IDv")
        await pilot.click("#table", offset=(6, 0))
        await pilot.pause()
        assert app.messages[-1] == "sorted name"

    play(story)


@pytest.mark.parametrize(
    "hostile", ["\x1b[31mred", "\x1b]0;title\x07x", "a\nb", "\x9b2J", "\u202eevil", "tab\tx", "\x00"]
)
def test_what_a_terminal_would_obey_is_not_painted(hostile: str) -> None:
    async def story(app: TableApp, pilot: Pilot[None]) -> None:
        await show(app, pilot, [Item(1, hostile), Item(2, "next")])
        text = "".join(segment.text for strip in app.screen._compositor.render_strips() for segment in strip)
        assert text.isprintable()
        assert frame(app)[2].startswith("2    next")

    play(story)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.integers(0, 12),
    st.booleans(),
)
def test_a_fitted_text_takes_its_cells_and_obeys_nobody(text: str, width: int, right: bool) -> None:
    fitted = fit_text(text, width, right)
    assert cell_len(fitted) == width
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in fitted)


@pytest.mark.parametrize(
    ("widths", "wide", "width", "expected"),
    [
        ([4, 8, 6], [False, True, False], 30, [4, 17, 6]),
        ([4, 8, 8], [False, True, True], 30, [4, 11, 12]),
        ([4, 20, 20], [False, True, True], 40, [4, 20, 13]),
        ([4, 20, 20], [False, True, True], 25, [4, 10, 8]),
        ([4, 20, 20], [False, True, True], 12, [4, 5, 0]),
        ([4, 5], [False, False], 40, [4, 5]),
        ([], [], 40, []),
    ],
)
def test_the_width_is_shared(widths: list[int], wide: list[bool], width: int, expected: list[int]) -> None:
    assert share_width(widths, wide, width) == expected


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=8), st.integers(0, 100))
def test_columns_never_need_more_room_than_there_is(columns: list[tuple[int, bool]], width: int) -> None:
    sizes = share_width([size for size, _ in columns], [wide for _, wide in columns], width)
    assert min(sizes, default=0) >= 0
    assert sum(sizes) + len(sizes) <= max(width, len(sizes))
    if any(wide for _, wide in columns) and sum(size + 1 for size, _ in columns) <= width:
        assert sum(sizes) + len(sizes) == width


# --- the cursor -------------------------------------------------------------------------------------------------------


def test_the_cursor_keeps_its_line_and_its_height_on_the_screen() -> None:
    async def story(app: TableApp, pilot: Pilot[None]) -> None:
        await show(app, pilot, items(range(1, 51)))
        for _ in range(10):
            await pilot.press("down")
        await pilot.press("up", "up")
        assert current(app) == 9 and app.table.scroll_offset.y == 4 and height(app) == 4
        await show(app, pilot, items([*range(100, 103), *range(1, 51)]))
        assert current(app) == 9 and height(app) == 4 and app.table.scroll_offset.y == 7
        await show(app, pilot, items([*range(5, 51)]))
        assert current(app) == 9 and height(app) == 4 and app.table.scroll_offset.y == 0

    play(story)


def test_a_view_from_the_first_line_goes_on_to_show_what_is_new() -> None:
    async def story(app: TableApp, pilot: Pilot[None]) -> None:
        await show(app, pilot, items(range(1, 51)))
        await pilot.press("down")
        await show(app, pilot, items([100, *range(1, 51)]))
        assert current(app) == 2 and app.table.scroll_offset.y == 0 and frame(app)[1].startswith("100")
        await show(app, pilot, items([*range(100, 110), *range(1, 51)]))
        assert current(app) == 2 and height(app) == 2

    play(story)


def test_where_the_cursor_is_out_of_sight_the_lines_in_sight_stay() -> None:
    async def story(app: TableApp, pilot: Pilot[None]) -> None:
        await show(app, pilot, items(range(1, 51)))
        app.table.scroll_to(y=20, animate=False, force=True)
        await pilot.pause()
        assert frame(app)[1].startswith("21 ")
        await show(app, pilot, items([1, 200, 201, *range(2, 51)]))
        assert frame(app)[1].startswith("21 ") and current(app) == 1

    play(story)


def test_a_vanished_line_gives_its_place_to_the_next() -> None:
    async def story(app: TableApp, pilot: Pilot[None]) -> None:
        await show(app, pilot, items(range(1, 6)))
        await pilot.press("down", "down")
        await show(app, pilot, items([1, 2, 4, 5]))
        assert current(app) == 4
        await show(app, pilot, items([1, 2]))
        assert current(app) == 2
        await show(app, pilot, [])
        assert current(app) is None
        await show(app, pilot, items([7]))
        assert current(app) == 7
        assert app.messages[-1] == "moved 7"

    play(story)


def test_a_smaller_terminal_keeps_the_cursor_in_sight() -> None:
    async def story(app: TableApp, pilot: Pilot[None]) -> None:
        await show(app, pilot, items(range(1, 51)))
        await pilot.press("end")
        assert height(app) == 18
        await pilot.resize_terminal(30, 5)
        await pilot.pause()
        assert current(app) == 50 and 0 <= height(app) < 4

    play(story, size=(30, 20))


@pytest.mark.parametrize("keys", [["j", "k", "up", "pageup", "home"], ["G", "down", "pagedown", "end", "ctrl+d"]])
def test_no_key_leaves_the_list(keys: list[str]) -> None:
    async def story(app: TableApp, pilot: Pilot[None]) -> None:
        for count in (0, 1, 30):
            await show(app, pilot, items(range(1, count + 1)))
            await pilot.press(*keys)
            assert current(app) == (None if not count else 1 if keys[0] == "j" else count)

    play(story)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.one_of(
            st.lists(st.integers(1, 30), unique=True, max_size=25),
            st.sampled_from(["down", "up", "pagedown", "end", "space", "shift+down", "V", "backslash"]),
        ),
        max_size=12,
    )
)
def test_cursor_and_marks_survive_any_changes(steps: list[list[int] | str]) -> None:
    async def story(app: TableApp, pilot: Pilot[None]) -> None:
        await show(app, pilot, items(range(1, 20)))
        for step in steps:
            before, marks = current(app), set(app.table.marks)
            if isinstance(step, str):
                await pilot.press(step)
            else:
                await show(app, pilot, items(step))
                assert app.table.marks == marks
                assert current(app) == before or before not in step
            assert (current(app) is None) == (not app.table.lines)
            expected = [str(line.key) for line in app.table.lines][int(app.table.scroll_offset.y) :][:7]
            assert [text.split()[0] for text in frame(app)[1:] if text] == expected

    play(story)


# --- marks and the mouse ----------------------------------------------------------------------------------------------


def test_lines_are_marked_one_by_one_and_in_ranges() -> None:
    async def story(app: TableApp, pilot: Pilot[None]) -> None:
        await show(app, pilot, items(range(1, 9)))
        await pilot.press("space", "down", "down", "V")
        assert app.table.marks == {1, 2, 3, 4}
        assert [line.key for line in app.table.marked] == [1, 2, 3, 4]
        await pilot.press("backslash", "shift+down", "shift+down", "shift+up")
        assert app.table.marks == {4, 5, 6}
        await pilot.press("ctrl+a")
        assert len(app.table.marks) == 8
        await pilot.press("space")
        assert len(app.table.marks) == 7
        await show(app, pilot, items([8, 99]))
        assert [line.key for line in app.table.marked] == [8] and len(app.table.marks) == 7

    play(story)


def test_the_mouse_moves_the_cursor_opens_and_marks() -> None:
    async def story(app: TableApp, pilot: Pilot[None]) -> None:
        await show(app, pilot, items(range(1, 4)))
        await pilot.click("#table", offset=(2, 2))
        assert current(app) == 2
        await pilot.click("#table", offset=(2, 3), control=True)
        assert app.table.marks == {3}
        await pilot.click("#table", offset=(2, 6))
        assert current(app) == 3
        await pilot.click("#table", offset=(2, 1), times=2)
        await pilot.pause()
        assert app.messages[-1] == "opened 1"

    play(story)


def test_text_is_selected_by_the_mouse_and_shown_so() -> None:
    async def story(app: TableApp, pilot: Pilot[None]) -> None:
        await show(app, pilot, [Item(1, "alpha"), Item(2, "模型 beta"), Item(3, "gamma")])
        plain = app.screen._compositor.render_strips()
        await pilot.mouse_down("#table", offset=(5, 1))
        await pilot.hover("#table", offset=(9, 2))
        await pilot.mouse_up("#table", offset=(9, 2))
        await pilot.pause()
        selected = app.screen.get_selected_text()
        assert selected is not None and selected.startswith("alpha") and "2    模型" in selected
        assert "gamma" not in selected and "beta" not in selected
        painted = app.screen._compositor.render_strips()
        assert [strip.text for strip in painted] == [strip.text for strip in plain]
        styles = [[segment.style for segment in strip] for strip in (plain[1], painted[1])]
        assert styles[0] != styles[1]
        assert current(app) == 1

    play(story)


# --- what is painted again --------------------------------------------------------------------------------------------


def test_only_lines_that_read_otherwise_are_painted_again() -> None:
    async def story(app: TableApp, pilot: Pilot[None]) -> None:
        lines = items(range(1, 51))
        await show(app, pilot, lines)
        app.painted.clear()
        await show(app, pilot, [*lines])
        assert app.painted == []
        lines[2] = Item(3, "other")
        lines[40] = Item(41, "out of sight")
        await show(app, pilot, [*lines])
        assert sorted(set(app.painted)) == [3]
        app.painted.clear()
        await pilot.press("down")
        await pilot.pause()
        assert sorted(set(app.painted)) == [1, 2]
        app.painted.clear()
        app.table.tick()
        await pilot.pause()
        assert app.painted == []
        app.now = 6.0
        app.table.tick()
        await pilot.pause()
        assert sorted(set(app.painted)) == [1, 2, 3, 4, 5, 6, 7]

    play(story)
