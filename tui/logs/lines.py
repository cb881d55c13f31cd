"""What is shown of a line of a log: text without what a terminal would obey, and its colours as styles. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.log_matching import LONGEST, SEQUENCES, keep_last

CUT = " [... the line is longer]"
TAB = 8

Colour = int | tuple[int, int, int] | None
"""One of the 256 of xterm, or red, green and blue; None is the terminal's own."""


class Sgr(NamedTuple):
    """Colours and attributes, as SGR sequences set them (ECMA-48, 8.3.117)."""

    colour: Colour = None
    background: Colour = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    reverse: bool = False
    strike: bool = False


PLAIN = Sgr()
_ON = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse", 9: "strike"}
_OFF = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("reverse",), 29: ("strike",)}
_SIXTEEN = (("colour", 0, 30), ("background", 0, 40), ("colour", 8, 90), ("background", 8, 100))
"""Field, first colour, and the number that stands for that one."""


class StyledPart(NamedTuple):
    """Some of a line's text, and how it looks."""

    text: str
    style: Sgr = PLAIN


@lru_cache(maxsize=2000)
def show_parts(data: bytes) -> tuple[StyledPart, ...]:
    """The line as it is shown: of a progress bar what was written last."""
    last = keep_last(data)
    text, cut = last[:LONGEST].decode("utf-8", "replace"), len(last) > LONGEST
    parts: list[StyledPart] = []
    style, width, place = PLAIN, 0, 0
    for sequence in SEQUENCES.finditer(text):
        width = _add(parts, text[place : sequence.start()], style, width)
        style = _change(style, sequence[0])
        place = sequence.end()
    _add(parts, text[place:], style, width)
    if cut:
        parts.append(StyledPart(CUT, Sgr(dim=True)))
    return tuple(parts)


def show_line(data: bytes) -> str:
    """The text of the line as it is shown."""
    return "".join(part.text for part in show_parts(data))


def _add(parts: list[StyledPart], text: str, style: Sgr, width: int) -> int:
    """Add a text behind so many characters; gives how many there are then."""
    begin, *rest = text.split("\t")
    shown = begin
    for piece in rest:
        shown += " " * (TAB - (width + len(shown)) % TAB) + piece
    if shown:
        parts.append(StyledPart(clean_text(shown), style))
    return width + len(shown)


def _change(style: Sgr, sequence: str) -> Sgr:
    """The style after a sequence; all but SGR change nothing."""
    if not (sequence.startswith("\x1b[") and sequence.endswith("m")):
        return style
    words = sequence[2:-1].replace(":", ";").split(";")
    if not all(word.isdecimal() or not word for word in words):
        return style
    numbers = iter([int(word or 0) for word in words])
    for number in numbers:
        style = _set(style, number, numbers)
    return style


def _set(style: Sgr, number: int, rest: Iterator[int]) -> Sgr:
    if number == 0:
        return PLAIN
    return style._replace(**_read_change(number, rest))


def _read_change(number: int, rest: Iterator[int]) -> dict[str, Any]:
    """What a number changes; `rest` has the numbers that belong to a colour."""
    if number in _ON:
        return {_ON[number]: True}
    if number in _OFF:
        return dict.fromkeys(_OFF[number], False)
    if number in (38, 48):
        colour = _read_colour(rest)
        return {} if colour is None else {"colour" if number == 38 else "background": colour}
    if number in (39, 49):
        return {"colour" if number == 39 else "background": None}
    return next(({field: first + number - begin} for field, first, begin in _SIXTEEN if 0 <= number - begin < 8), {})


def _read_colour(rest: Iterator[int]) -> Colour:
    kind = next(rest, None)
    if kind == 5:
        number = next(rest, 256)
        return number if number < 256 else None
    if kind == 2:
        red, green, blue = (next(rest, 256) for _ in range(3))
        return (red, green, blue) if max(red, green, blue) < 256 else None
    return None


def cut_parts(parts: Sequence[StyledPart], begin: int, end: int) -> Iterator[StyledPart]:
    """The characters from `begin` to `end`."""
    place = 0
    for text, style in parts:
        piece = text[max(0, begin - place) : max(0, end - place)]
        if piece:
            yield StyledPart(piece, style)
        place += len(text)
