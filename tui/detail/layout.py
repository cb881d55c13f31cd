"""Layout: blocks of styled text as lines of a width, in terminal cells. Pure; every text is cleaned here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from overspan.bridge.client.terminal_texts import clean_text

_LEAST = 12
"""Cells that a value, or a last column, gets at least."""


class DetailText(NamedTuple):
    """A text and the name of its style: a component class without `detail--`."""

    text: str
    style: str = ""


DetailLine = tuple[DetailText, ...]


class LabelledValues(NamedTuple):
    """Labels, and beside them values that are wrapped."""

    rows: tuple[tuple[str, DetailLine], ...]


class TextGrid(NamedTuple):
    """A table; its last column takes what room is left, and is wrapped."""

    header: tuple[str, ...]
    rows: tuple[DetailLine, ...]


class VerbatimText(NamedTuple):
    """Lines as they are, folded at the edge."""

    lines: tuple[str, ...]


class CutLines(NamedTuple):
    """Lines of which each stays one: what is behind the edge is cut."""

    rows: tuple[DetailLine, ...]


class StateSpan(NamedTuple):
    """A state from a time to another (epoch seconds)."""

    begin: float
    end: float
    state: str


class StateBar(NamedTuple):
    """Bars of states over one axis of time, a line for each label."""

    rows: tuple[tuple[str, tuple[StateSpan, ...]], ...]


DetailBlock = LabelledValues | TextGrid | VerbatimText | CutLines | StateBar
_BARS = {
    "PENDING": ("░", "waiting"),
    "CONFIGURING": ("▒", "busy"),
    "SUSPENDED": ("▒", "busy"),
    "COMPLETING": ("▓", "busy"),
    "RUNNING": ("█", "good"),
}


def lay_out(block: DetailBlock, width: int) -> list[DetailLine]:
    if isinstance(block, LabelledValues):
        return _lay_out_values(block, width)
    if isinstance(block, TextGrid):
        return _lay_out_grid(block, width)
    if isinstance(block, StateBar):
        return _lay_out_bars(block, width)
    if isinstance(block, CutLines):
        return [_cut_line(row, width) for row in block.rows]
    lines = (clean_text(line.expandtabs(8)) for line in block.lines)
    return [part for line in lines for part in wrap_pieces((DetailText(line),), width, whole_words=False)]


def wrap_pieces(pieces: DetailLine, width: int, whole_words: bool = True) -> list[DetailLine]:
    """Cut a line into lines of at most `width` cells, at blanks where there are any; empty gives one empty line."""
    pieces = tuple(DetailText(clean_text(text), style) for text, style in pieces)
    text = "".join(piece.text for piece in pieces)
    lines, begin = [], 0
    while begin < len(text):
        end, cells = begin, 0
        while end < len(text) and (cells := cells + cell_len(text[end])) <= max(1, width):
            end += 1
        end = max(end, begin + 1)
        if whole_words and end < len(text) and (blank := text.rfind(" ", begin, end + 1)) > begin:
            end = blank
        lines.append(_cut(pieces, begin, end))
        begin = end
        while whole_words and begin < len(text) and text[begin] == " ":
            begin += 1
    return lines or [()]


def _cut(pieces: DetailLine, begin: int, end: int) -> DetailLine:
    """The characters from `begin` to `end` of a line."""
    found, at = [], 0
    for text, style in pieces:
        part = text[max(0, begin - at) : max(0, end - at)]
        at += len(text)
        if part:
            found.append(DetailText(part, style))
    return tuple(found)


def _cut_line(line: DetailLine, width: int) -> DetailLine:
    """The line, or what there is room for and an ellipsis."""
    cleaned = tuple(DetailText(clean_text(text), style) for text, style in line)
    if sum(cell_len(piece.text) for piece in cleaned) <= width:
        return cleaned
    return (*wrap_pieces(cleaned, width - 1, whole_words=False)[0], DetailText("…", "dim"))


def _lay_out_values(block: LabelledValues, width: int) -> list[DetailLine]:
    size = max((cell_len(clean_text(label)) for label, _ in block.rows), default=0) + 2
    lines: list[DetailLine] = []
    for label, value in block.rows:
        for place, part in enumerate(wrap_pieces(value, max(_LEAST, width - size))):
            head = set_cell_size(clean_text(label) if place == 0 else "", size)
            lines.append((DetailText(head, "dim"), *part))
    return lines


def _lay_out_grid(block: TextGrid, width: int) -> list[DetailLine]:
    rows = [tuple(DetailText(clean_text(text), style) for text, style in row) for row in block.rows]
    head = tuple(DetailText(title, "title") for title in block.header)
    last = len(block.header) - 1
    sizes = [max(cell_len(row[place].text) for row in (head, *rows)) + 2 for place in range(last)]
    while sizes and sum(sizes) > max(0, width - _LEAST) and max(sizes) > 6:
        sizes[sizes.index(max(sizes))] -= 1
    lines: list[DetailLine] = []
    for row in (head, *rows):
        cells = [DetailText(_fit(row[place].text, size), row[place].style) for place, size in enumerate(sizes)]
        for place, part in enumerate(wrap_pieces((row[last],), max(_LEAST, width - sum(sizes)))):
            lines.append((*(cells if place == 0 else [DetailText(" " * sum(sizes))]), *part))
    return lines


def _fit(text: str, size: int) -> str:
    """The text in a column of that size, two cells of which are blank; what is cut ends in an ellipsis."""
    room = size - 2
    return set_cell_size(text if cell_len(text) <= room else set_cell_size(text, max(0, room - 1)) + "…", size)


def _lay_out_bars(block: StateBar, width: int) -> list[DetailLine]:
    spans = [span for _, row in block.rows for span in row]
    if not spans:
        return []
    begin, end = min(span.begin for span in spans), max(span.end for span in spans)
    size = min(20, max(cell_len(clean_text(label)) for label, _ in block.rows) + 2)
    room = max(_LEAST, width - size)
    return [
        (DetailText(_fit(clean_text(label), size), "dim"), *_draw_bar(row, begin, end, room))
        for label, row in block.rows
    ]


def _draw_bar(spans: Sequence[StateSpan], begin: float, end: float, width: int) -> DetailLine:
    """A cell for each part of the time; the shortest spans are drawn last, so that they stay visible."""
    cells: list[tuple[str, str]] = [(" ", "")] * width
    scale = width / max(end - begin, 1e-9)
    for span in sorted(spans, key=lambda each: each.begin - each.end):
        first = min(width - 1, int((span.begin - begin) * scale))
        for place in range(first, min(width, max(first + 1, round((span.end - begin) * scale)))):
            cells[place] = _BARS.get(span.state, ("█", "bad"))
    pieces: list[DetailText] = []
    for glyph, style in cells:
        if pieces and pieces[-1].style == style and pieces[-1].text[-1] == glyph:
            pieces[-1] = DetailText(pieces[-1].text + glyph, style)
        else:
            pieces.append(DetailText(glyph, style))
    return tuple(pieces)
