"""What a terminal gets: colours, characters, a theme; and the last fence before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from overspan.bridge.client.terminal_texts import UNSAFE
from overspan.tui.terminal.ascii_text import to_ascii
from overspan.tui.terminal.line_filter import LineGuard
from overspan.tui.terminal.terminal import Colours, TerminalTraits, prepare_environment, read_traits
from overspan.tui.terminal.themes import NAMES, SHORT, check_theme, find_theme

XTERM = {"TERM": "xterm-256color"}
BLACK = Color(0, 0, 0)


@pytest.mark.parametrize(
    ("environment", "colours"),
    [
        (XTERM, Colours.MANY),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, Colours.MANY),
        ({"TERM": "xterm-kitty"}, Colours.MANY),
        ({"TERM": "screen"}, Colours.SIXTEEN),
        ({"TERM": "linux"}, Colours.SIXTEEN),
        ({"TERM": "vt100"}, Colours.NONE),
        ({**XTERM, "NO_COLOR": "1"}, Colours.NONE),
        ({**XTERM, "NO_COLOR": ""}, Colours.MANY),
    ],
)
def test_colours(environment: dict[str, str], colours: Colours) -> None:
    assert read_traits(environment, "utf-8").colours is colours


@pytest.mark.parametrize(
    ("name", "encoding", "plain"),
    [
        ("xterm", "utf-8", False),
        ("xterm", "UTF8", False),
        ("xterm", "iso8859-1", True),
        ("xterm", "ascii", True),
        ("linux", "utf-8", True),
        ("vt100", "utf-8", True),
    ],
)
def test_characters(name: str, encoding: str, plain: bool) -> None:
    assert read_traits({"TERM": name}, encoding).ascii is plain


@pytest.mark.parametrize(
    ("locale", "plain"),
    [
        ({}, False),
        ({"LANG": "C"}, True),
        ({"LANG": "POSIX"}, True),
        ({"LANG": "C.UTF-8"}, False),
        ({"LC_ALL": "C", "LANG": "de_DE.UTF-8"}, True),
        ({"LC_ALL": "de_DE.UTF-8", "LANG": "C"}, False),
        ({"LC_CTYPE": "de_DE.UTF-8", "LANG": "C"}, False),
        ({"LC_CTYPE": "C", "LANG": "de_DE.UTF-8"}, True),
        # What Python makes of LANG=C.
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, True),
        ({"LC_ALL": "", "LC_CTYPE": "C.UTF-8"}, False),
    ],
)
def test_the_locale_c_is_ascii(locale: dict[str, str], plain: bool) -> None:
    assert read_traits({**XTERM, **locale}, "utf-8").ascii is plain


def test_a_slow_line_is_painted_less_often() -> None:
    environment = {"SSH_TTY": "/dev/pts/1", "TERM": "foot"}
    prepare_environment(environment)
    assert environment["TEXTUAL_FPS"] == "20" and environment["TEXTUAL_COLOR_SYSTEM"] == "truecolor"
    here: dict[str, str] = {}
    prepare_environment(here)
    assert here == {}


@pytest.mark.parametrize(
    ("wanted", "traits", "theme"),
    [
        ("", TerminalTraits(), "overspan-dark"),
        ("", TerminalTraits(light=True), "overspan-light"),
        ("light", TerminalTraits(), "overspan-light"),
        ("nord", TerminalTraits(), "nord"),
        ("nord", TerminalTraits(Colours.SIXTEEN), "terminal"),
        ("", TerminalTraits(Colours.NONE), "terminal"),
        ("ansi-light", TerminalTraits(Colours.SIXTEEN), "ansi-light"),
        ("ansi", TerminalTraits(), "terminal"),
    ],
)
def test_themes(wanted: str, traits: TerminalTraits, theme: str) -> None:
    assert find_theme(wanted, traits) == theme


def test_a_wrong_theme_gets_the_nearest_name() -> None:
    assert check_theme("overspan-drak") == "there is no theme 'overspan-drak'; did you mean 'overspan-dark'?"
    assert not any(check_theme(name) for name in (*NAMES, *SHORT))


@given(st.text())
def test_no_control_character_passes_the_fence(text: str) -> None:
    (segment,) = LineGuard().apply([Segment(text, Style())], BLACK)
    assert not UNSAFE.search(segment.text)
    assert len(segment.text) == len(text) - len(UNSAFE.findall(text))


@given(st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp"))))
def test_ascii_is_as_wide_as_what_it_stands_for(text: str) -> None:
    plain = to_ascii(text)
    assert plain.isascii() and len(plain) == sum(map(cell_len, text))


@pytest.mark.parametrize(
    ("text", "plain"),
    [("╭─┬╮│▸▾…", "+-++|>v~"), ("Jörg", "Jorg"), ("日本", "????"), ("█▉░", "##."), ("⣿⠀", "#?"), ("↑", "^")],
)
def test_lines_and_arrows_keep_their_likeness(text: str, plain: str) -> None:
    assert to_ascii(text) == plain


def test_without_colours_all_else_stays() -> None:
    style = Style(color="red", bgcolor="blue", bold=True, reverse=True, meta={"offset": (1, 2)})
    (segment,) = LineGuard(colours=False).apply([Segment("x", style)], BLACK)
    assert segment.style is not None
    assert (segment.style.color, segment.style.bgcolor) == (None, None)
    assert segment.style.bold and segment.style.reverse and segment.style.meta == {"offset": (1, 2)}
