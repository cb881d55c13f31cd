"""Which lines of a log match a pattern. The search where the log is, and the marks on a screen, use the same rules.

A line counts as a terminal would show it in the end: without escape sequences, of a progress bar what was written
last, with tabs expanded. Pure.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Callable

from overspan.bridge.model.records import NamedTuple

SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""Escape sequences: CSI (colours among them), OSC, and those of two characters (ECMA-48)."""
LONGEST = 16 * 1024
"""Bytes of a line that are passed on."""
LONGEST_PATTERN = 1000

Matcher = Callable[[str], bool]
"""Whether a line, as it is shown, is wanted."""


class LineMatch(NamedTuple):
    """A line that matches: its bytes from `begin` to `end` of the log, and the first of them."""

    begin: int
    end: int
    data: bytes


def compile_pattern(text: str) -> re.Pattern[str]:
    """A regular expression; capital letters in it make case count. Raises ValueError, which says what is wrong."""
    if len(text) > LONGEST_PATTERN:
        raise ValueError(f"the pattern is longer than {LONGEST_PATTERN} characters")
    # What a backslash stands before is no letter of the text: \S, \W.
    capital = any(letter.isupper() for letter in re.sub(r"\\.", "", text))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(text, 0 if capital else re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None


def make_matcher(pattern: str, invert: bool = False) -> Matcher:
    """Whether a line matches, or with `invert` does not. Raises ValueError."""
    search = compile_pattern(pattern).search
    return (lambda line: search(line) is None) if invert else (lambda line: search(line) is not None)


def keep_last(line: bytes) -> bytes:
    """Of a line with carriage returns, what was written last."""
    line = line.rstrip(b"\r")
    return line[line.rfind(b"\r") + 1 :]


def find_lines(data: bytes, offset: int, matches: Matcher) -> Iterator[LineMatch]:
    """The lines that match, first to last. `data` stands at `offset`, and begins where a line does."""
    raw = data.split(b"\n")
    if not raw[-1]:
        raw.pop()
    last = [keep_last(line) for line in raw] if b"\r" in data else raw
    text = b"\n".join(last).decode("utf-8", "replace")
    # Neither of these adds or takes line breaks.
    if "\x1b" in text:
        text = SEQUENCES.sub("", text)
    if "\t" in text:
        text = text.expandtabs()
    end = offset
    for part, shown, line in zip(raw, last, text.split("\n")):
        begin, end = end, end + len(part) + 1
        if matches(line):
            yield LineMatch(begin, min(end, offset + len(data)), shown[: LONGEST + 1])
