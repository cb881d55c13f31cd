"""The large texts of a job: what its cluster was sent, its variables, and what was submitted. Mostly pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, overload

from overspan.bridge.client.messages import StreamKey, Variable
from overspan.bridge.client.terminal_texts import clean_text
from overspan.tui.daemon.source import Source
from overspan.tui.logs.document import LogRow
from overspan.tui.logs.window import LogLine

PARTS = ("Sent", "Environment", "Submitted")
"""What can be read, by the titles."""
_KEY = StreamKey("", 0, 0, "output")


class JobText(NamedTuple):
    """A text, and in words where it is from; `doubtful` where it is not what the cluster got."""

    text: str
    source: str = ""
    doubtful: bool = False


def ask_text(source: Source, part: str, ref: str) -> JobText:
    """Ask for a text. Raises what the source does: another user's is refused."""
    if part == "Sent":
        sent = source.sent(ref)
        return JobText(sent.text, sent.source, not sent.was_sent)
    if part == "Environment":
        variables = source.variables(ref)
        hidden = sum(variable.hidden for variable in variables)
        words = f", {hidden} of them hidden" if hidden else ""
        return JobText("\n".join(write_variables(variables)), f"{len(variables)} variables of the submission{words}")
    return JobText(source.script(ref), "as it was submitted")


def write_variables(variables: Iterable[Variable]) -> Iterator[str]:
    """A line for each variable as sh(1) reads it, below a comment for each origin. What is hidden is `***`."""
    before = None
    for each in variables:
        here = each.task, each.origin == "submission"
        if here != before:
            yield from ([""] if before is not None else [])
            yield "# the submitter's" if here[1] else f"# of the task {each.task}" if each.task else "# of the job"
        before = here
        yield f"{each.name}={each.value if each.hidden else shlex.quote(each.value)}"


class TextRows(Sequence[LogRow]):
    """The lines of a text as rows that a log's view paints; each is cleaned when it is looked at."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        if self._lines[-1:] == [""]:
            self._lines.pop()

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, place: int) -> LogRow: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[LogRow]: ...
    def __getitem__(self, place: int | slice) -> LogRow | Sequence[LogRow]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        place = place + len(self) if place < 0 else place
        # A log's view obeys colours and carriage returns; of a script nothing may be hidden.
        data = clean_text(self._lines[place], keep="\t").encode("utf-8", "replace")
        return LogRow(_KEY, LogLine(place, place + 1, data), number=place + 1)

    def find(self, pattern: re.Pattern[str], start: int, *, backwards: bool = False) -> int | None:
        """The first line from `start` on that matches, going round at the end; None where no line does."""
        step = -1 if backwards else 1
        places = (place % len(self) for place in range(start, start + step * len(self), step))
        return next((place for place in places if pattern.search(self[place].line.text)), None)
