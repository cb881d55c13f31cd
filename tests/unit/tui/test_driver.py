"""What is read from a terminal."""

from __future__ import annotations

from textual.events import MouseDown

from overspan.tui.terminal.driver import CellParser


def test_the_mouse_is_read_in_cells_whatever_size_in_pixels_a_terminal_reports() -> None:
    parser = CellParser(False)
    found = [*parser.feed("\x1b[48;24;80;480;800t"), *parser.feed("\x1b[<0;11;6M")]
    [pressed] = [event for event in found if isinstance(event, MouseDown)]
    assert (pressed.x, pressed.y) == (10, 5) and not parser.mouse_pixels
