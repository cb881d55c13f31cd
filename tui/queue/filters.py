"""The filter language of `span top`: words that a row must match, each a regular expression or `field:value`.

All words must match. `!` in front inverts a word. `state:r,pd` matches any of its values; text without a field is
looked for in everything that a row shows. Case does not count. What cannot be read is told in one sentence, and the
words that can be read still count.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

FIELDS = ("cluster", "group", "id", "name", "node", "partition", "reason", "state", "user")
_SHORT = {"part": "partition", "nodes": "node", "nodelist": "node", "job": "id", "c": "cluster", "u": "user"}
STATES = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
    "DL": "DEADLINE",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "R": "RUNNING",
    "RQ": "REQUEUED",
    "S": "SUSPENDED",
    "TO": "TIMEOUT",
}
"""Slurm's short forms of the states, as `squeue -t` takes them."""


class Facts(NamedTuple):
    """What a filter is asked about a row: a text for each field, and all that the row shows."""

    fields: dict[str, str]
    text: str


class Filter(NamedTuple):
    """A filter that was read; `trouble` says what of it could not be."""

    source: str
    tests: tuple[Callable[[Facts], bool], ...] = ()
    trouble: str = ""

    def matches(self, facts: Facts) -> bool:
        """Whether every word matches."""
        return all(test(facts) for test in self.tests)


def read_filter(source: str) -> Filter:
    """Read a filter as it is typed: an open quotation ends with the line."""
    tests: list[Callable[[Facts], bool]] = []
    troubles: list[str] = []
    for word in _split(source):
        try:
            tests.append(_read_word(word, troubles.append))
        except re.error as error:
            troubles.append(f"{word!r} is not a regular expression: {error.msg} at character {(error.pos or 0) + 1}")
    return Filter(source, tuple(tests), "; ".join(troubles))


def _split(source: str) -> Sequence[str]:
    lexer = shlex.shlex(source, posix=True, punctuation_chars="")
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""
    words = []
    try:
        words += list(lexer)
    except ValueError:
        return source.replace('"', " ").replace("'", " ").split()
    return words


def _read_word(word: str, note: Callable[[str], None]) -> Callable[[Facts], bool]:
    inverted = word.startswith("!") and len(word) > 1
    bare = word[1:] if inverted else word
    test = _read_field(bare, note) or _read_text(bare)
    return (lambda facts: not test(facts)) if inverted else test


def _read_field(word: str, note: Callable[[str], None]) -> Callable[[Facts], bool] | None:
    """The test of `field:values`; None where the word is plain text."""
    head, colon, rest = word.partition(":")
    if not colon or not head.isalpha():
        return None
    name = _SHORT.get(head.lower(), head.lower())
    if name not in FIELDS:
        near = difflib.get_close_matches(name, (*FIELDS, *_SHORT), 1)
        note(f"no field {head!r}{f' (did you mean {near[0]}?)' if near else ''}: {word!r} is looked for as text")
        return None
    values = [value for value in rest.split(",") if value]
    if name == "state":
        return _match_states(values, note)
    patterns = [re.compile(value, re.IGNORECASE) for value in values]
    whole = name in ("cluster", "user", "partition")
    find = re.Pattern.fullmatch if whole else re.Pattern.search
    return lambda facts: not patterns or any(find(each, facts.fields.get(name, "")) for each in patterns)


def _match_states(values: Iterable[str], note: Callable[[str], None]) -> Callable[[Facts], bool]:
    wanted = []
    for value in values:
        name = STATES.get(value.upper(), value.upper())
        full = [state for state in STATES.values() if state.startswith(name)]
        if not full:
            note(f"no state {value!r} ({', '.join(sorted(STATES))})")
        wanted += full if name not in full else [name]
    return lambda facts: not wanted or facts.fields.get("state", "") in wanted


def _read_text(word: str) -> Callable[[Facts], bool]:
    pattern = re.compile(word, re.IGNORECASE)
    return lambda facts: pattern.search(facts.text) is not None
