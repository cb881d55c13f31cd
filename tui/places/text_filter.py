"""Filters of lists that hold no jobs: the words of the queue's filter, over the texts of a line's fields. Pure."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

Texts = Mapping[str, str]
"""What a line shows, by the fields that a filter may name."""
_SPECIAL = re.compile(r"[.^$*+?{}\[\]\\|()]")
TextTest = Callable[[Texts], bool]


class TextFilter(NamedTuple):
    """A filter that was read; `trouble` says what of it could not be."""

    source: str = ""
    tests: tuple[TextTest, ...] = ()
    trouble: str = ""

    def matches(self, texts: Texts) -> bool:
        """Whether every word matches."""
        return all(test(texts) for test in self.tests)


def read_text_filter(source: str, fields: Iterable[str]) -> TextFilter:
    """Read words, each a regular expression or `field:value,value`; `!` inverts, case does not count.

    What cannot be read is told, and the other words count.
    """
    tests: list[TextTest] = []
    troubles: list[str] = []
    for word in split_words(source):
        inverted = word.startswith("!")
        try:
            test = _read_word(word[inverted:], tuple(fields), troubles.append)
        except re.error as error:
            troubles.append(f"{word!r} is no regular expression: {error.msg} at character {(error.pos or 0) + 1}")
            continue
        if test is not None:
            tests.append(_invert(test) if inverted else test)
    return TextFilter(source, tuple(tests), "; ".join(troubles))


def split_words(source: str) -> Sequence[str]:
    """The words of a filter; an open quotation ends with the line."""
    lexer = shlex.shlex(source, posix=True, punctuation_chars="")
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""
    try:
        return list(lexer)
    except ValueError:
        return source.replace('"', " ").replace("'", " ").split()


def spell_word(field: str, text: str) -> str:
    """The word of a filter that matches exactly this text in a field."""
    pattern = _SPECIAL.sub(r"\\\g<0>", text)
    whole = f"^{pattern}$" if field == "name" else pattern
    # These would end the word, or the value.
    return f"{field}:" + re.sub("[,\"']", ".", re.sub(r"\s", r"\\s", whole))


def _read_word(word: str, fields: Sequence[str], note: Callable[[str], None]) -> TextTest | None:
    """The test of a word; None for one that is still being typed."""
    head, colon, rest = word.partition(":")
    if not colon or not head.isalpha():
        return _search_all(word) if word else None
    name = next((field for field in fields if field.startswith(head.lower())), "")
    if not name:
        near = difflib.get_close_matches(head.lower(), fields, 1)
        note(f"there is no field {head!r} ({f'did you mean {near[0]!r}?' if near else 'fields: ' + ', '.join(fields)})")
        return _search_all(word)
    searches = [re.compile(value, re.IGNORECASE).search for value in rest.split(",") if value]
    return (lambda texts: any(search(texts.get(name, "")) for search in searches)) if searches else None


def _search_all(word: str) -> TextTest:
    search = re.compile(word, re.IGNORECASE).search
    return lambda texts: any(search(text) for text in texts.values())


def _invert(test: TextTest) -> TextTest:
    return lambda texts: not test(texts)
