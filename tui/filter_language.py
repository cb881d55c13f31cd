"""The filter language of `span top`: words that a line must match, each a regular expression or `field:value`. Pure.

All words must match. `!` in front inverts a word; `state:r,pd` matches any of its values; the beginning of a field's
name is enough. Text without a field is looked for in everything that a line shows. Case does not count. What cannot be
read is told in one sentence, and the words that can be read still count. What a list has in its fields is its
`FilterFields`.
"""

from __future__ import annotations

import difflib
import re
import shlex
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

Subject = TypeVar("Subject")
Texts = Mapping[str, str]
"""What a line shows, by the fields that a filter may name."""
Note = Callable[[str], None]
"""Takes a sentence about what cannot be read."""
REMEMBERED = 50
"""Filters that the history keeps."""
_SPECIAL = re.compile(r"[.^$*+?{}\[\]\\|()]")


class FilterFields(NamedTuple, Generic[Subject]):
    """What the filter of a list may name, and where a line has it."""

    texts: Mapping[str, Callable[[Subject], Sequence[str]]]
    """The texts of a line, by field."""
    everything: Callable[[Subject], Iterable[str]]
    """The texts that a word without a field is looked for in."""
    aliases: Mapping[str, str] = {}
    """Further names of fields."""
    whole: Collection[str] = ()
    """The fields of which a value is the whole text."""
    readers: Mapping[str, Callable[[Sequence[str], Note], Callable[[Subject], bool] | None]] = {}
    """The fields whose values are no regular expressions; None for values that say nothing."""

    def find(self, name: str) -> str:
        """The field of that name, or of that beginning; empty where there is none."""
        name = self.aliases.get(name.lower(), name.lower())
        return name if name in self.texts else next((field for field in self.texts if field.startswith(name)), "")


def fields_of_texts(names: Iterable[str]) -> FilterFields[Texts]:
    """The fields of lines that are given as their texts."""

    def find(name: str) -> Callable[[Texts], Sequence[str]]:
        return lambda texts: (texts.get(name, ""),)

    return FilterFields({name: find(name) for name in names}, lambda texts: texts.values())


class Filter(NamedTuple, Generic[Subject]):
    """A filter that was read; `trouble` says what of it could not be."""

    source: str = ""
    tests: tuple[Callable[[Subject], bool], ...] = ()
    trouble: str = ""
    fields: frozenset[str] = frozenset()
    """The fields that it names."""

    def matches(self, subject: Subject) -> bool:
        """Whether every word matches."""
        return all(test(subject) for test in self.tests)


def read_words(source: str, fields: FilterFields[Subject]) -> Filter[Subject]:
    """Read a filter as it is typed: an open quotation ends with the line, a word without a value counts for nothing."""
    tests: list[Callable[[Subject], bool]] = []
    troubles: list[str] = []
    named: set[str] = set()
    for word in split_words(source):
        try:
            name, test = _read_word(word, fields, troubles.append)
        except re.error as error:
            at = f" at character {error.pos + 1}" if error.pos is not None else ""
            troubles.append(f"{word!r} is not a regular expression: {error.msg}{at}")
        else:
            tests += [] if test is None else [test]
            named.update([name] if name else [])
    return Filter(source, tuple(tests), "; ".join(troubles), frozenset(named))


def split_words(source: str) -> Sequence[str]:
    """The words; quotation marks hold blanks, backslashes stay: they are the expressions' own."""
    lexer = shlex.shlex(source, posix=True, punctuation_chars="")
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""
    try:
        return list(lexer)
    except ValueError:
        return source.replace('"', " ").replace("'", " ").split()


def spell_value(text: str) -> str:
    """The value that is exactly this text, for fields whose values are whole texts, else contains it."""
    # Blanks and quotation marks would end the word, a comma the value.
    return re.sub("[,\"']", ".", re.sub(r"\s", r"\\s", _SPECIAL.sub(r"\\\g<0>", text)))


def spell_word(field: str, text: str) -> str:
    """The word of a filter that matches exactly this text in a field."""
    return f"{field}:^{spell_value(text)}$" if field == "name" else f"{field}:{spell_value(text)}"


def suggest_word(
    source: str, fields: FilterFields[Subject], known: Callable[[str], Iterable[str]] = lambda field: ()
) -> str | None:
    """The source with its last word completed: the name of a field, or one of the values that are `known` of it."""
    head, word = source[: len(source) - len(source.split(" ")[-1])], source.split(" ")[-1]
    mark = "!" if word.startswith("!") else ""
    name, colon, values = word[len(mark) :].partition(":")
    if not colon:
        found = fields.find(name) if name else ""
        return f"{head}{mark}{name}{found[len(name) :]}:" if found.startswith(name.lower()) and found else None
    before, comma, last = values.rpartition(",")
    near = sorted(value for value in known(fields.find(name)) if last and value.lower().startswith(last.lower()))
    return f"{head}{mark}{name}:{before}{comma}{last}{near[0][len(last) :]}" if near else None


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


def _read_word(word: str, fields: FilterFields[Subject], note: Note) -> tuple[str, Callable[[Subject], bool] | None]:
    """The field of a word, if it names one, and its test; None for one that says nothing yet."""
    inverted = word.startswith("!")
    name, value = _read_field(word[inverted:], fields, note)
    if not value:
        return name, None
    test = _read_value(name, value, fields, note) if name else _read_text(value, fields)
    if test is None or not inverted:
        return name, test
    return name, lambda subject: not test(subject)


def _read_field(word: str, fields: FilterFields[Subject], note: Note) -> tuple[str, str]:
    """The field and the values of `field:values`; no field where the word is plain text."""
    head, colon, rest = word.partition(":")
    if not colon or not head.isalpha():
        return "", word
    name = fields.find(head)
    if not name:
        near = difflib.get_close_matches(head.lower(), (*fields.texts, *fields.aliases), 1)
        meant = f"did you mean {near[0]!r}?" if near else f"fields: {', '.join(fields.texts)}"
        note(f"there is no field {head!r} ({meant}); {word!r} is looked for as text")
        return "", word
    return name, rest


def _read_text(word: str, fields: FilterFields[Subject]) -> Callable[[Subject], bool]:
    search, everything = _compile(word).search, fields.everything
    return lambda subject: any(search(text) for text in everything(subject))


def _read_value(name: str, text: str, fields: FilterFields[Subject], note: Note) -> Callable[[Subject], bool] | None:
    values = [value for value in text.split(",") if value]
    read = fields.readers.get(name)
    if read is not None:
        return read(values, note)
    patterns = [_compile(value) for value in values]
    finds = [pattern.fullmatch if name in fields.whole else pattern.search for pattern in patterns]
    texts = fields.texts[name]
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
