"""What a terminal shows of the bytes that it gets: as much of a VT220 with xterm's modes as `span top` asks for.

Whatever is not known here is kept in `unknown`, so that nothing passes unseen.
"""

from __future__ import annotations

import codecs
import re

from rich.cells import get_character_cell_size

AT_FIRST = frozenset({7, 25})
"""Modes that are on before any program has asked for something: wrapping, and the cursor."""
UNPAINTED = "\N{REPLACEMENT CHARACTER}"
"""What a cell shows that nothing was written to since the size changed."""
_SEQUENCE = re.compile(
    r"\x1b\[([<=>?]?)([0-9;:]*)([ -/]*)([@-~])"  # CSI
    r"|\x1b\](.*?)(?:\x07|\x1b\\)"  # OSC
    r"|\x1bP(.*?)\x1b\\"  # DCS
    r"|\x1b([ -/]*[0-~])",
    re.DOTALL,
)
_BEGUN = re.compile(r"\x1b(?:\[[<=>?]?[0-9;:]*[ -/]*|\][^\x07\x1b]*\x1b?|P[^\x1b]*\x1b?|[ -/]*)?$")


class Screen:
    """A terminal's screens, its modes and what it was asked."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self.modes = set(AT_FIRST)
        self.asked: set[int] = set()
        """All modes that were ever on."""
        self.keyboards: list[str] = []
        """The keyboard protocols that were pushed and not popped."""
        self.questions: list[str] = []
        self.strings: list[str] = []
        """What was sent as OSC or DCS: titles, the clipboard."""
        self.looks: set[str] = set()
        """Every parameter that colours or attributes were set with."""
        self.look = ""
        self.unknown: list[str] = []
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._rest = ""
        self._cells = self._make_cells(" ")
        self._main: list[list[str]] = []
        self.taken = 0
        """How often an application took the other screen, at its start and back from a program."""
        self._x = self._y = 0

    @property
    def rows(self) -> list[str]:
        """The lines, without blanks at their ends."""
        return ["".join(row).rstrip() for row in self._cells]

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.rows)

    @property
    def clean(self) -> bool:
        """Whether a shell finds everything as it was."""
        return self.modes == AT_FIRST and not self.keyboards and self.look in ("", "0") and not self._main

    def resize(self, columns: int, lines: int) -> None:
        """Change the size. Every cell has to be written again."""
        self.columns, self.lines = columns, lines
        self._cells = self._make_cells(UNPAINTED)
        self._x = self._y = 0

    def feed(self, data: bytes) -> None:
        """Take what was written; a sequence may come in pieces."""
        text, self._rest = self._rest + self._decode(data), ""
        begun = _BEGUN.search(text)
        if begun is not None:
            text, self._rest = text[: begun.start()], text[begun.start() :]
        at = 0
        for match in _SEQUENCE.finditer(text):
            self._write(text[at : match.start()])
            self._obey(match)
            at = match.end()
        self._write(text[at:])

    def _make_cells(self, filler: str) -> list[list[str]]:
        return [[filler] * self.columns for _ in range(self.lines)]

    def _write(self, text: str) -> None:
        for character in text:
            if character == "\r":
                self._x = 0
            elif character == "\n":
                self._y = min(self._y + 1, self.lines - 1)
            elif character == "\b":
                self._x = max(0, self._x - 1)
            elif not character.isprintable():
                self.unknown.append(repr(character))
            else:
                self._put(character)

    def _put(self, character: str) -> None:
        size = get_character_cell_size(character)
        row = self._cells[self._y]
        if not size:
            row[max(0, self._x - 1)] += character
            return
        self._x = min(self._x, self.columns - size)
        row[self._x : self._x + size] = [character, *[""] * (size - 1)]
        self._x += size

    def _obey(self, match: re.Match[str]) -> None:
        private, parameters, between, final, osc, dcs, escape = match.groups()
        if osc is not None or dcs is not None:
            self.strings.append(osc if osc is not None else dcs)
        elif escape is not None:
            self.unknown.append(match[0])
        elif private == "?" and final in "hl":
            for number in parameters.split(";"):
                self._switch(int(number), final == "h")
        elif final == "u" and private in (">", "<"):
            self.keyboards = [*self.keyboards, parameters] if private == ">" else self.keyboards[:-1]
        elif final == "p" and between == "$":
            self.questions.append(match[0])
        elif private or between or not self._move(parameters, final):
            self.unknown.append(match[0])

    def _switch(self, mode: int, on: bool) -> None:
        if mode == 1049 and on and not self._main:
            self._main, self._cells = self._cells, self._make_cells(" ")
            self.taken += 1
        elif mode == 1049 and not on and self._main:
            self._cells, self._main = self._main, []
        if on:
            self.asked.add(mode)
        (self.modes.add if on and mode != 1049 else self.modes.discard)(mode)

    def _move(self, parameters: str, final: str) -> bool:
        """Obey a sequence without marks; False for one that is not known."""
        numbers = [int(word or 0) for word in parameters.split(";")] if ":" not in parameters else []
        if final in "Hf":
            line, column = ([*numbers, 1, 1] if len(numbers) < 2 else numbers)[:2]
            self._y, self._x = min(max(line, 1), self.lines) - 1, min(max(column, 1), self.columns) - 1
        elif final == "m":
            self.look = parameters
            self.looks.add(parameters)
        elif final == "J" and numbers[0] in (2, 3):
            self._cells = self._make_cells(" ")
        elif final == "K" and numbers[0] == 0:
            self._cells[self._y][self._x :] = [" "] * (self.columns - self._x)
        else:
            return False
        return True
