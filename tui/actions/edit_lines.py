"""A small file to edit, a line for each value; what differs from the present values is sent. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.durations import format_limit, parse_time_limit
from overspan.bridge.model.options.resubmit import split_change
from overspan.bridge.model.sizes import format_memory_option, parse_memory


class EditLine(NamedTuple):
    """A value by its key, as it is now, and what is proposed in its place, with why."""

    key: str
    value: str = ""
    proposal: str = ""
    why: str = ""


class EditFile(NamedTuple):
    """The lines, what may be typed besides, and what is said about them."""

    lines: tuple[EditLine, ...]
    others: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def write(self) -> str:
        """The file as it is opened: proposals stand where they count, with a comment above."""
        texts = [f"# {remark}" for remark in self.remarks]
        for line in self.lines:
            if line.proposal:
                texts.append(f"# proposed: {line.why}; it was {line.value}")
            texts.append(f"{line.key}: {_one_line(line.proposal or line.value)}".rstrip())
        if self.others:
            names = dict.fromkeys(
                f"TASK.{option}" if task else option for task, option in map(split_change, self.others)
            )
            texts.append(f"# also: {', '.join(names)}")
        return "\n".join(texts) + "\n"

    def read(self, text: str) -> dict[str, str]:
        """What differs from the present values; an empty value means as it was. Raises ValueError with the line."""
        present = {line.key: _one_line(line.value) for line in self.lines}
        known = (*present, *self.others)
        found: dict[str, str] = {}
        for number, written in enumerate(text.splitlines(), 1):
            if not written.strip() or written.lstrip().startswith("#"):
                continue
            key, colon, value = (part.strip() for part in written.partition(":"))
            if not colon:
                raise ValueError(f"line {number}: write KEY: VALUE")
            if key not in known:
                raise ValueError(f"line {number}: there is nothing called {key!r}{_suggest(key, known)}")
            if key in found:
                raise ValueError(f"line {number}: {key} stands there twice")
            found[key] = value
        return {key: value for key, value in found.items() if value and value != present.get(key, "")}


def _one_line(text: str) -> str:
    """Fit for a line of the file, and for a terminal."""
    return clean_text(" ".join(text.split()))


def _suggest(key: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(key, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


# --- proposals --------------------------------------------------------------------------------------------------------


def propose_more(lines: Iterable[EditLine], states: Mapping[str, Collection[str]]) -> tuple[EditLine, ...]:
    """Propose twice the time after TIMEOUT, and twice the memory after OUT_OF_MEMORY.

    `states` are those of each task by its name, and of a job of one task under the empty name.
    """
    return tuple(_propose(line, states.get(line.key.rpartition(".")[0], ())) for line in lines)


def _propose(line: EditLine, states: Collection[str]) -> EditLine:
    option = line.key.rpartition(".")[2]
    if option == "time" and "TIMEOUT" in states and (seconds := _read_limit(line.value)):
        return line._replace(proposal=format_limit(2 * seconds), why="twice the time, since it ended by TIMEOUT")
    if option in ("mem", "mem-per-cpu") and "OUT_OF_MEMORY" in states and (mib := _read_memory(line.value)):
        why = "twice the memory, since it ended by OUT_OF_MEMORY"
        return line._replace(proposal=format_memory_option(2 * mib), why=why)
    return line


def explain_no_proposal(lines: Sequence[EditLine], states: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """What there is to say where memory ran out and none was asked for: there is nothing to double."""
    proposed = {line.key.rpartition(".")[0] for line in lines if line.proposal and "mem" in line.key}
    short = [task for task, found in states.items() if "OUT_OF_MEMORY" in found and task not in proposed]
    names = f" of {', '.join(filter(None, short))}" if any(short) else ""
    return (f"the memory{names} was too small (OUT_OF_MEMORY), and none was asked for: give mem",) if short else ()


def _read_limit(text: str) -> int | None:
    try:
        return parse_time_limit(text)
    except ValueError:
        return None


def _read_memory(text: str) -> int | None:
    try:
        return parse_memory(text)
    except ValueError:
        return None
