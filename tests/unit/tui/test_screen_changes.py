"""What is written to the terminal: a terminal that obeys it shows what it should, and little is written."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from overspan.tui.terminal.screen_changes import WrittenScreen

TRUE = ColorSystem.TRUECOLOR
_TOKEN = re.compile(r"\x1b\[(\d+);(\d+)H|\x1b\[([\d;]*)m|([^\x1b])")
Cells = list[list[tuple[str, str]]]


class Terminal:
    """Obeys places, colours and texts; a wide character that loses a half becomes a blank."""

    def __init__(self, width: int, height: int) -> None:
        self.cells: Cells = [[(" ", "")] * width for _ in range(height)]

    def obey(self, text: str) -> None:
        x = y = 0
        look = ""
        end = 0
        for token in _TOKEN.finditer(text):
            assert token.start() == end, f"not understood: {text[end : token.start()]!r}"
            end = token.end()
            row, column, colors, char = token.groups()
            if row:
                y, x = int(row) - 1, int(column) - 1
            elif colors is not None:
                look = "" if colors in ("", "0") else colors
            elif char and char != "\n":
                x += self._put(x, y, char, look)
        assert end == len(text) and not look

    def _put(self, x: int, y: int, char: str, look: str) -> int:
        line, size = self.cells[y], cell_len(char)
        if not size and not x:
            return 0
        if not size:
            before = x - 2 if line[x - 1][0] == "" else x - 1
            line[before] = line[before][0] + char, line[before][1]
            return 0
        for place in (x, x + size - 1):
            if line[place][0] == "":
                line[place - 1] = " ", line[place - 1][1]
            elif cell_len(line[place][0]) == 2 and place + 1 < len(line):
                line[place + 1] = " ", line[place + 1][1]
        line[x : x + size] = [(char, look), ("", look)][:size]
        return size


def strip_of(parts: Sequence[tuple[str, str]], width: int) -> Strip:
    strip = Strip([Segment(text, Style.parse(style)) for text, style in parts])
    return strip.crop_extend(0, width, Style.parse("white on black"))


def whole(strips: Sequence[Strip], width: int) -> LayoutUpdate:
    return LayoutUpdate([[strip] for strip in strips], Region(0, 0, width, len(strips)))


def change(strips: Sequence[Strip], width: int, spans: list[tuple[int, int, int]]) -> ChopsUpdate:
    return ChopsUpdate([{0: strip} for strip in strips], spans, [[width] for _ in strips])


class Pair:
    """A screen and the terminal that it writes to."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.written = width, WrittenScreen()
        self.terminal = Terminal(width, height)

    def draw(self, strips: Sequence[Strip]) -> None:
        """Write a whole screen, as it is first, or after another size."""
        update = whole(strips, self.width)
        self.written.remember(update, TRUE)
        for y, strip in enumerate(strips):
            self.terminal.obey(f"\x1b[{y + 1};1H" + "".join(map(_plain, strip)))

    def change(self, strips: Sequence[Strip], spans: list[tuple[int, int, int]] | None = None) -> str:
        found = spans or [(y, 0, self.width) for y in range(len(strips))]
        text = self.written.write(change(strips, self.width, found), TRUE)
        self.terminal.obey(text)
        return text


def _plain(segment: Segment) -> str:
    return Strip.render_style(segment.style or Style(), segment.text, TRUE)


def shown(strips: Sequence[Strip], width: int) -> Cells:
    """What a terminal shows of strips that are written whole."""
    pair = Pair(width, len(strips))
    pair.draw(strips)
    return pair.terminal.cells


TEXTS = st.text(st.sampled_from("abc 0模漢e\u0301é-"), max_size=8)
STYLES = st.sampled_from(("red", "bold green on black", "white on black", "#102030"))
SCREENS = st.lists(
    st.lists(st.lists(st.tuples(TEXTS, STYLES), max_size=4), min_size=2, max_size=2), min_size=1, max_size=6
)


@given(SCREENS)
def test_a_terminal_shows_the_last_screen_whatever_was_before(screens: list[list[list[tuple[str, str]]]]) -> None:
    width = 12
    pair = Pair(width, 2)
    for number, lines in enumerate(screens):
        strips = [strip_of(parts, width) for parts in lines]
        if number:
            pair.change(strips)
        else:
            pair.draw(strips)
        assert pair.terminal.cells == shown(strips, width)
        assert pair.change(strips) == ""


def test_a_digit_costs_its_place_and_its_text_and_colours_once() -> None:
    pair = Pair(40, 3)
    before = [strip_of([("name ", "red on black"), ("0:01:01", "green on black")], 40) for _ in range(3)]
    after = [strip_of([("name ", "red on black"), ("0:01:02", "green on black")], 40) for _ in range(3)]
    pair.draw(before)
    assert pair.change(after) == "\x1b[1;12H\x1b[32;40m2\x1b[2;12H2\x1b[3;12H2\x1b[0m"


def test_cells_outside_of_the_update_are_left_alone() -> None:
    pair = Pair(10, 1)
    pair.draw([strip_of([("aaaaaaaaaa", "red")], 10)])
    text = pair.change([strip_of([("bbbbbbbbbb", "red")], 10)], [(0, 4, 6)])
    assert "".join(char for char, _ in pair.terminal.cells[0]) == "aaaabbaaaa"
    assert text.startswith("\x1b[1;5H") and text.count("b") == 2


def test_cells_far_from_each_other_are_written_apart_and_near_ones_together() -> None:
    pair = Pair(30, 1)
    pair.draw([strip_of([("a" + "-" * 20 + "b-c", "red")], 30)])
    text = pair.change([strip_of([("x" + "-" * 20 + "y-z", "red")], 30)])
    assert text == "\x1b[1;1H\x1b[31mx\x1b[1;22Hy-z\x1b[0m"


def test_an_update_that_ends_in_a_wide_character_writes_all_of_it() -> None:
    pair = Pair(8, 1)
    pair.draw([strip_of([("abcdefgh", "red")], 8)])
    pair.change([strip_of([("a模漢fgh", "red")], 8)], [(0, 2, 4)])
    assert [char for char, _ in pair.terminal.cells[0]] == ["a", "模", "", "漢", "", "f", "g", "h"]
    assert pair.change([strip_of([("a模漢fgh", "red")], 8)]) == ""


def test_another_colour_is_a_change() -> None:
    pair = Pair(4, 1)
    pair.draw([strip_of([("abcd", "red")], 4)])
    assert "bc" in pair.change([strip_of([("a", "red"), ("bc", "green"), ("d", "red")], 4)])


def test_what_was_never_written_is_written() -> None:
    written, strip = WrittenScreen(), strip_of([("abcd", "red")], 4)
    first = written.write(change([strip], 4, [(0, 0, 4)]), TRUE)
    assert "abcd" in first and written.write(change([strip], 4, [(0, 0, 4)]), TRUE) == ""


def test_behind_a_wide_character_the_line_is_written_to_its_end() -> None:
    """Terminals differ in which characters are wide: what stands behind one is not placed by itself."""
    pair = Pair(12, 1)
    pair.draw([strip_of([("模x 1 yyy", "red")], 12)])
    assert "2 yyy" in pair.change([strip_of([("模x 2 yyy", "red")], 12)])
    text = pair.change([strip_of([("漢x 2 yyy", "red")], 12)])
    assert text.startswith("\x1b[1;1H")


def test_anything_else_than_a_change_of_the_screen_is_left_as_it_is() -> None:
    written, other = WrittenScreen(), object()
    assert written.shorten(other) is other and written.shorten(None) is None
    assert written.shorten(whole([strip_of([("a", "red")], 4)], 4)) is not None
