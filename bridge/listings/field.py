"""Field: what listings show of one fact of a job, with its name in each of them.

No future import here: NamedTuple would compile each annotation, which costs every command 2 ms.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Optional

from overspan.bridge.listings.rows import WHOLE, JobRow

RowText = Callable[[JobRow, float], str]
"""The text of a row; the second argument is the time now, in seconds since the epoch."""
RowValue = Callable[[JobRow, float], Any]
LineText = Callable[[Any, float], str]
"""The text of a line of sacct (`AccountLine`), which is a job or a step of it."""
LineValue = Callable[[Any, float], Any]


def _no_text(row: JobRow, now: float) -> str:
    return ""


class Field(NamedTuple):
    """A field: its texts and values, and what squeue, sacct and Slurm's JSON call it. It is in those that name it.

    `extent` is how much of each row the text and the sort key need; documents and sacct have whole rows.
    """

    name: str
    """Unique; what this project calls it."""
    header: str = ""
    text: RowText = _no_text
    value: Optional[RowValue] = None
    """Its value in JSON documents."""
    sort: Optional[RowValue] = None
    """The key that squeue -S sorts by, where it can."""
    extent: str = WHOLE
    letter: str = ""
    """In squeue -o and -S."""
    long_names: tuple[str, ...] = ()
    """In squeue -O."""
    width: int = 0
    """Letters that it takes in a table; 0 is as long as it is."""
    cut: bool = True
    """Whether a right-justified text that is too long is cut: times and node lists are not (squeue's print.c)."""
    cut_header: bool = True
    json: str = ""
    """In the documents of squeue and scontrol."""
    sacct: str = ""
    sacct_width: int = 10
    """A negative width is left-justified."""
    sacct_text: Optional[LineText] = None
    """Without one, a job has `text` and a step nothing."""
    sacct_json: str = ""
    sacct_value: Optional[LineValue] = None
    """Without one, the document has `value`."""


def constant(name: str, header: str, text: str, value: Any = None, **names: Any) -> Field:
    """A field that never differs here."""
    return Field(name, header, lambda row, now: text, lambda row, now: value, extent="core", **names)


def option(name: str, header: str, key: str, missing: str = "(null)", **names: Any) -> Field:
    """An option of sbatch that only Slurm carries out; sacct and the documents have nothing where it is missing."""

    def show(line: Any, now: float) -> str:
        return "" if line.step else str(line.row.options.get(key) or "")

    return Field(
        name,
        header,
        lambda row, now: str(row.options.get(key) or missing),
        lambda row, now: row.options.get(key) or "",
        sacct_text=show,
        **names,
    )


def of_step(text: Callable[[Any], str]) -> LineText:
    """The text of a field that only steps have."""
    return lambda line, now: text(line.step) if line.step else ""
