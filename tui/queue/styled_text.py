"""Texts with the name of their style: what the screen colours by its theme, and `--once` by the terminal's colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size


class StyledText(NamedTuple):
    """A text, free of control characters, and its style: `good`, `busy`, `waiting`, `bad`, `ended`, `dim`, `accent`.

    `action` is what a click on it does, as a binding names it.
    """

    text: str
    style: str = ""
    action: str = ""


def measure(parts: Sequence[StyledText]) -> int:
    """How many cells of a terminal the parts take side by side."""
    return sum(cell_len(part.text) for part in parts)


def cut_text(text: str, width: int, ellipsis: str = "…") -> str:
    """The text in at most so many cells; what is cut ends in an ellipsis."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - cell_len(ellipsis))).rstrip() + ellipsis if width > 0 else ""


def fill_text(text: str, width: int, right: bool, ellipsis: str = "…") -> str:
    """The text in exactly so many cells, cut or with blanks."""
    cut = cut_text(text, width, ellipsis)
    pad = " " * (width - cell_len(cut))
    return pad + cut if right else cut + pad


def cut_parts(parts: Sequence[StyledText], width: int, ellipsis: str = "…") -> list[StyledText]:
    """The parts that have room side by side, the last of them cut."""
    found: list[StyledText] = []
    for part in parts:
        room = width - measure(found)
        if room <= 0:
            break
        found.append(part._replace(text=cut_text(part.text, room, ellipsis)))
    return found
