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

_SPECIAL = frozenset(".^$*+?{}[]\\|()")
"""Characters that mean something in a regular expression."""


class Matcher(NamedTuple):
    """Which lines, as they are shown, are wanted. `literal` is in all of them, where that is known: small letters."""

    wants: Callable[[str], bool]
    literal: str = ""


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
    """What matches, or with `invert` what does not. Raises ValueError."""
    search = compile_pattern(pattern).search
    if invert:
        return Matcher(lambda line: search(line) is None)
    literal = pattern.lower() if pattern.isascii() and not _SPECIAL & set(pattern) else ""
    return Matcher(lambda line: search(line) is not None, literal)


def keep_last(line: bytes) -> bytes:
    """Of a line with carriage returns, what was written last."""
    line = line.rstrip(b"\r")
    return line[line.rfind(b"\r") + 1 :]


def find_lines(data: bytes, offset: int, matcher: Matcher) -> Iterator[LineMatch]:
    """The lines that match, first to last. `data` stands at `offset`, and begins where a line does."""
    overwritten = b"\r" in data
    text = (b"\n".join(map(keep_last, data.split(b"\n"))) if overwritten else data).decode("utf-8", "replace")
    # Neither of these adds or takes line breaks.
    if "\x1b" in text:
        text = SEQUENCES.sub("", text)
    if "\t" in text:
        text = text.expandtabs()
    if matcher.literal and text.isascii() and matcher.literal not in text.lower():
        # Most parts of a large log: ten times as quick as line by line.
        return
    raw = data.split(b"\n")
    if not raw[-1]:
        raw.pop()
    end, wants = offset, matcher.wants
    for part, line in zip(raw, text.split("\n")):
        begin, end = end, end + len(part) + 1
        if wants(line):
            yield LineMatch(begin, min(end, offset + len(data)), keep_last(part)[: LONGEST + 1])
