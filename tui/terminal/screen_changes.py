"""Screen changes: writes to the terminal only the cells that differ from what it shows.

Textual writes whole pieces of lines again, each with all of its colours: a second that passes in a column costs 300
bytes a line, though one digit is another one. Here what was written is remembered, and an update is compared with it.
A cell that differs costs its place and its text; colours are named when they change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rich.cells import get_character_cell_size
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.strip import Strip

GAP = 6
"""Cells that stay between two that change are written with them: another place would cost more."""

Look = tuple[str, str]
"""What is written before a cell's text, and what ends it: colours, attributes, a link."""


class CellLine(NamedTuple):
    """The cells of a piece of a line. A wide character has an empty cell behind it; None is a cell not known."""

    texts: list[str | None]
    looks: list[Look]
    even: bool = True
    """Whether every character takes one cell, so that all terminals agree where each of them is."""


def read_cells(segments: Iterable[Segment], colors: ColorSystem) -> CellLine:
    texts: list[str | None] = []
    looks: list[Look] = []
    even = True
    for text, style, _ in segments:
        before, _, after = ("", "", "") if style is None else Strip.render_style(style, "\0", colors).partition("\0")
        begun = len(texts)
        if text.isascii():
            texts += text
        else:
            even = _add_wide(text, texts) and even
        looks += [(before, after)] * (len(texts) - begun)
    return CellLine(texts, looks, even)


def _add_wide(text: str, texts: list[str | None]) -> bool:
    """Add the cells of a text; False where some character takes two, or none."""
    even = True
    for char in text:
        size = get_character_cell_size(char)
        even = even and size == 1
        if size:
            texts += [char, *[""] * (size - 1)]
        elif texts:
            # The mark belongs to the last character: it stands in the first of its cells.
            place = len(texts) - (2 if texts[-1] == "" else 1)
            texts[place] = (texts[place] or "") + char
    return even


def find_runs(old: CellLine, new: CellLine) -> list[tuple[int, int]]:
    """Where two equally long pieces differ, as (begin, end); pieces with wide characters differ up to their end."""
    if old.texts == new.texts and old.looks == new.looks:
        return []
    pairs = zip(old.texts, new.texts, old.looks, new.looks, strict=True)
    places = [place for place, (one, other, look, wanted) in enumerate(pairs) if one != other or look != wanted]
    if not (old.even and new.even):
        return [(places[0], len(new.texts))]
    runs = [(places[0], places[0] + 1)]
    for place in places[1:]:
        begin, end = runs[-1]
        if place - end <= GAP:
            runs[-1] = begin, place + 1
        else:
            runs.append((place, place + 1))
    return runs


def widen(cells: CellLine, begin: int, end: int) -> tuple[int, int]:
    """The range with both halves of the wide characters at its ends."""
    if begin and cells.texts[begin] == "":
        begin -= 1
    if end < len(cells.texts) and cells.texts[end] == "":
        end += 1
    return begin, end


class _Pen:
    """What is written, with the colours that the terminal has at the moment."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._look: Look = ("", "")

    def write(self, x: int, y: int, cells: CellLine, begin: int, end: int) -> None:
        """Write cells of a piece that begins at x."""
        self._parts.append(f"\x1b[{y + 1};{x + begin + 1}H")
        for text, look in zip(cells.texts[begin:end], cells.looks[begin:end], strict=True):
            if look != self._look:
                self._parts += [self._look[1], look[0]]
                self._look = look
            self._parts.append(text or "")

    def finish(self) -> str:
        """All of it; the terminal has no colours set afterwards."""
        return "".join([*self._parts, self._look[1]])


class WrittenScreen:
    """What the terminal shows, as far as it was written by this."""

    def __init__(self) -> None:
        self._lines: dict[int, CellLine] = {}

    def forget(self) -> None:
        """Another program has used the terminal: what it shows is unknown."""
        self._lines.clear()

    def shorten(self, update: object) -> object:
        """An update that writes what is new; anything else as it is."""
        if isinstance(update, LayoutUpdate):
            return _WholeScreen(self, update)
        return _ScreenChange(self, update) if isinstance(update, ChopsUpdate) else update

    def remember(self, update: LayoutUpdate, colors: ColorSystem) -> None:
        """The terminal shows this whole screen."""
        self._lines.clear()
        for y, strips in enumerate(update.strips, update.region.y):
            cells = read_cells((segment for strip in strips for segment in strip), colors)
            if len(cells.texts) == update.region.width and not update.region.x:
                self._lines[y] = cells

    def write(self, update: ChopsUpdate, colors: ColorSystem) -> str:
        """What makes the terminal show this update."""
        pen = _Pen()
        for y, x, strip, x1, x2 in _list_pieces(update):
            cells = read_cells(strip, colors)
            if len(cells.texts) != strip.cell_length:
                # Sequences of characters whose width is not the sum of theirs.
                self._lines.pop(y, None)
                pen.write(x, y, cells, 0, len(cells.texts))
            else:
                begin, end = widen(cells, max(0, x1 - x), min(len(cells.texts), x2 - x))
                new = CellLine(cells.texts[begin:end], cells.looks[begin:end], cells.even)
                self._write_piece(pen, x + begin, y, new)
        return pen.finish()

    def _write_piece(self, pen: _Pen, x: int, y: int, new: CellLine) -> None:
        end = x + len(new.texts)
        line = self._lines.get(y, CellLine([], []))
        missing = end - len(line.texts)
        texts, looks = line.texts + [None] * missing, line.looks + [("", "")] * missing
        for run in find_runs(CellLine(texts[x:end], looks[x:end], line.even), new):
            pen.write(x, y, new, *run)
        texts[x:end], looks[x:end] = new.texts, new.looks
        self._lines[y] = CellLine(texts, looks, new.even and (line.even or len(new.texts) == len(texts)))


def _list_pieces(update: ChopsUpdate) -> Iterator[tuple[int, int, Strip, int, int]]:
    """The pieces of an update: line, column, content, and which columns of it are wanted."""
    for y, x1, x2 in update.spans:
        for x, strip in update.chops[y].items():
            if strip is not None and x < x2 and x + strip.cell_length > x1:
                yield y, x, strip, x1, x2


class _WholeScreen(CompositorUpdate):
    """A whole screen, which is remembered when it is written."""

    def __init__(self, screen: WrittenScreen, update: LayoutUpdate) -> None:
        self._screen = screen
        self._update = update

    def render_segments(self, console: Console) -> str:
        """All of it."""
        self._screen.remember(self._update, colors_of(console))
        return self._update.render_segments(console)


class _ScreenChange(CompositorUpdate):
    """Pieces of a screen, of which only those that differ are written."""

    def __init__(self, screen: WrittenScreen, update: ChopsUpdate) -> None:
        self._screen = screen
        self._update = update

    def render_segments(self, console: Console) -> str:
        """What differs."""
        return self._screen.write(self._update, colors_of(console))


def colors_of(console: Console) -> ColorSystem:
    """The colours that the terminal has, as Textual's strips are written with."""
    return console._color_system or ColorSystem.TRUECOLOR
