"""The filter language of `span top`: words that a row must match, each a regular expression or `field:value`.

All words must match. `!` in front inverts a word. `state:r,pd` matches any of its values; `account:`, `cluster:`,
`node:`, `partition:`, `qos:` and `user:` match whole names; text without a field is looked for in everything that a row
shows. Case does not count. What cannot be read is told in one sentence, and the words that can be read still count.
"""

from __future__ import annotations

import difflib
import functools
import re
import shlex
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.hostlists import expand
from overspan.bridge.model.state_words import CODES

FIELDS = ("account", "cluster", "group", "id", "name", "node", "partition", "qos", "reason", "state", "user")
_SHORT = {"part": "partition", "nodes": "node", "nodelist": "node", "job": "id", "c": "cluster", "u": "user"}
REMEMBERED = 50
"""Filters that the history keeps."""
_WHOLE = frozenset({"account", "cluster", "node", "partition", "qos", "user"})
_USUAL = frozenset({"account", "qos"})
"""Fields that the least extent of a row does not have."""
STATES = {code: state for state, code in CODES.items()}
"""Slurm's short forms of the states, as `squeue -t` takes them."""


class FilterSubject:
    """A line of the queue as a filter sees it: texts are made when a word asks for them.

    A member has the name and the number of its group or array too: what names the whole matches all of it.
    """

    __slots__ = ("_text", "ref", "row")

    def __init__(self, row: JobRow, ref: str) -> None:
        self.row = row
        self.ref = ref
        self._text: str | None = None

    @property
    def text(self) -> str:
        """All that the row shows."""
        if self._text is None:
            row = self.row
            parts = (self.ref, row.name, row.group, row.user, row.partition, row.cluster, row.state)
            self._text = " ".join((*parts, CODES.get(row.state, ""), row.node_list, row.reason))
        return self._text


@functools.lru_cache(maxsize=4096)
def _expand_nodes(node_list: str) -> tuple[str, ...]:
    try:
        return tuple(expand(node_list))
    except ValueError:
        return (node_list,)


FilterTest = Callable[[FilterSubject], bool]
_TEXTS: dict[str, Callable[[FilterSubject], Sequence[str]]] = {
    "account": lambda subject: (subject.row.account,),
    "cluster": lambda subject: (subject.row.cluster,),
    "group": lambda subject: (subject.row.group,),
    "id": lambda subject: (subject.ref, str(subject.row.array_id or subject.row.id)),
    "name": lambda subject: (subject.row.name, subject.row.group),
    "node": lambda subject: _expand_nodes(subject.row.node_list),
    "partition": lambda subject: (subject.row.partition,),
    "qos": lambda subject: (subject.row.qos,),
    "reason": lambda subject: (subject.row.reason,),
    "user": lambda subject: (subject.row.user,),
}


class Filter(NamedTuple):
    """A filter that was read; `trouble` says what of it could not be."""

    source: str
    tests: tuple[FilterTest, ...] = ()
    trouble: str = ""
    extent: str = "core"
    """How much of each row it looks at."""

    def matches(self, subject: FilterSubject) -> bool:
        """Whether every word matches."""
        return all(test(subject) for test in self.tests)

    def limit_users(self, users: Iterable[str]) -> Filter:
        """The same for the jobs of these users alone."""
        chosen = frozenset(users)
        return self._replace(tests=(lambda subject: subject.row.user in chosen, *self.tests))


def read_filter(source: str) -> Filter:
    """Read a filter as it is typed: an open quotation ends with the line, a word without a value counts for nothing."""
    tests: list[FilterTest] = []
    troubles: list[str] = []
    extent = "core"
    for word in _split(source):
        if word.removeprefix("!").partition(":")[0].lower() in _USUAL:
            extent = "usual"
        try:
            test = _read_word(word, troubles.append)
        except re.error as error:
            at = f" at character {error.pos + 1}" if error.pos is not None else ""
            troubles.append(f"{word!r} is not a regular expression: {error.msg}{at}")
        else:
            tests += [] if test is None else [test]
    return Filter(source, tuple(tests), "; ".join(troubles), extent)


def quote_node(name: str) -> str:
    """A node's name as a value of `node:`, which is a regular expression."""
    return re.escape(name).replace(r"\-", "-")


def suggest_word(source: str, known: Callable[[str], Iterable[str]]) -> str | None:
    """The source with its last word completed: the name of a field, or one of the values that are `known` of it."""
    head, word = source[: len(source) - len(source.split(" ")[-1])], source.split(" ")[-1]
    mark = "!" if word.startswith("!") else ""
    name, colon, values = word[len(mark) :].partition(":")
    if not colon:
        fields = [field for field in FIELDS if name and field.startswith(name.lower())]
        return f"{head}{mark}{name}{fields[0][len(name) :]}:" if fields else None
    before, comma, last = values.rpartition(",")
    field = _SHORT.get(name.lower(), name.lower())
    found = sorted(value for value in known(field) if last and value.lower().startswith(last.lower()))
    return f"{head}{mark}{name}:{before}{comma}{last}{found[0][len(last) :]}" if found else None


class FilterHistory:
    """The filters that were kept, for the arrows; what is being typed waits behind the newest."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._back = 0
        self._typed = ""

    def add(self, source: str) -> None:
        """Remember a filter, once."""
        self._back = 0
        if source:
            self._kept = [*(one for one in self._kept if one != source), source][-REMEMBERED:]

    def older(self, current: str) -> str:
        """The one before; the oldest stays."""
        if not self._back:
            self._typed = current
        if self._back < len(self._kept):
            self._back += 1
            # The newest one is on the screen already, where it was opened again.
            if self._kept[-self._back] == current and self._back < len(self._kept):
                self._back += 1
        return self._kept[-self._back] if self._back else current

    def newer(self, current: str) -> str:
        """The one after it; at last what was being typed."""
        if not self._back:
            return current
        self._back -= 1
        return self._kept[-self._back] if self._back else self._typed


def _split(source: str) -> Sequence[str]:
    """The words; quotation marks hold blanks, backslashes stay: they are the expressions' own."""
    lexer = shlex.shlex(source, posix=True, punctuation_chars="")
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""
    try:
        return list(lexer)
    except ValueError:
        return source.replace('"', " ").replace("'", " ").split()


def _read_word(word: str, note: Callable[[str], None]) -> FilterTest | None:
    """The test of a word; None for one that says nothing yet."""
    inverted = word.startswith("!")
    bare = word[1:] if inverted else word
    name, value = _read_field(bare, note)
    if not value:
        return None
    test = _read_text(value) if not name else _read_value(name, value, note)
    if test is None or not inverted:
        return test
    return lambda subject: not test(subject)


def _read_field(word: str, note: Callable[[str], None]) -> tuple[str, str]:
    """The field and the values of `field:values`; no field where the word is plain text."""
    head, colon, rest = word.partition(":")
    if not colon or not head.isalpha():
        return "", word
    name = _SHORT.get(head.lower(), head.lower())
    if name not in FIELDS:
        near = difflib.get_close_matches(name, (*FIELDS, *_SHORT), 1)
        meant = f"did you mean {near[0]!r}?" if near else f"fields: {', '.join(FIELDS)}"
        note(f"there is no field {head!r} ({meant}); {word!r} is looked for as text")
        return "", word
    return name, rest


def _read_text(word: str) -> FilterTest:
    search = _compile(word).search
    return lambda subject: search(subject.text) is not None


def _read_value(name: str, text: str, note: Callable[[str], None]) -> FilterTest | None:
    values = [value for value in text.split(",") if value]
    if name == "state":
        return _match_states(values, note)
    patterns = [_compile(value) for value in values]
    finds = [pattern.fullmatch if name in _WHOLE else pattern.search for pattern in patterns]
    texts = _TEXTS[name]
    return (lambda subject: any(find(text) for text in texts(subject) for find in finds)) if finds else None


def _compile(text: str) -> re.Pattern[str]:
    """The regular expression. Raises re.error."""
    with warnings.catch_warnings():
        # Python warns of `[[`, on the terminal that the screen is on.
        warnings.simplefilter("ignore")
        try:
            return re.compile(text, re.IGNORECASE)
        except (OverflowError, RecursionError) as error:
            raise re.error(str(error) or "it is too deep") from None


def _match_states(values: Iterable[str], note: Callable[[str], None]) -> FilterTest | None:
    """By code, by name, or by the beginning of one. A value that is none matches nothing."""
    wanted: set[str] = set()
    for value in values:
        name = STATES.get(value.upper(), value.upper())
        found = [name] if name in CODES else [state for state in CODES if state.startswith(name)]
        if not found:
            near = difflib.get_close_matches(name, CODES, 1)
            meant = f"did you mean {near[0]}?" if near else f"states: {', '.join(sorted(STATES))}"
            note(f"there is no state {value!r} ({meant})")
        wanted.update(found)
    return (lambda subject: subject.row.state in wanted) if wanted else None
