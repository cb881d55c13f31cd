"""Command lines as GNU getopt_long reads them: the rules of Slurm's own commands. Standard library only.

Unique prefixes of long names, values that begin with a dash, bundled letters, optional values after `=` only.
argparse has other rules (`squeue -S -p` is an error to it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Optional

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.records import NamedTuple

FLAG, VALUE, OPTIONAL = "flag", "value", "optional"
SEPARATOR = ":"
"""A word of its own between the components of a heterogeneous job, allocation or step."""


class Option(NamedTuple):
    """One option: its long name, letter, kind, and what --help says; `shown` names its value there.

    `own` options are not Slurm's: the beginning of a long name means one of them only where it means nothing else.
    `stands_for` is the option whose second name this is.
    """

    name: str
    letter: str = ""
    kind: str = FLAG
    help: str = ""
    shown: str = ""
    own: bool = False
    stands_for: str = ""


class Words(NamedTuple):
    """A command line that has been read: (option's long name, value) in order, and the other words."""

    options: tuple[tuple[str, str], ...]
    rest: tuple[str, ...] = ()

    def last(self, name: str, default: str = "") -> str:
        """The value given last."""
        return next((value for key, value in reversed(self.options) if key == name), default)

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return any(key == name for key, _ in self.options)

    def listed(self, name: str) -> tuple[str, ...]:
        """The items of a comma list; an option given twice adds to it."""
        return tuple(item for key, value in self.options if key == name for item in value.split(",") if item)


class Found(NamedTuple):
    """One option of a command line: its long name, its value (None where none was written), its word's index."""

    name: str
    value: Optional[str]
    at: int


class Scan(NamedTuple):
    """A command line taken apart; `others` are the indices of the words before `end` that are no options."""

    found: tuple[Found, ...]
    others: tuple[int, ...]
    end: int
    """Where the options end: behind `--`, or at the first other word where that ends them."""


class WrongWord(InvalidRequest):
    """A mistake in getopt's words; `at` is the index of the word."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


def parse(words: Sequence[str], table: Iterable[Option], *, permute: bool = True) -> Words:
    """Read words by a table; without `permute` the first other word ends the options. Raises WrongWord."""
    read = scan(words, table, permute=permute)
    rest = (*(words[at] for at in read.others), *words[read.end :])
    return Words(tuple((found.name, found.value or "") for found in read.found), rest)


def scan(words: Sequence[str], table: Iterable[Option], *, permute: bool = True) -> Scan:
    """Take words apart as `parse` does, keeping where each stands. Raises WrongWord."""
    names = {option.name: option for option in table}
    letters = {option.letter: option for option in names.values() if option.letter}
    found: list[Found] = []
    others: list[int] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
            break
        if word == "-" or not word.startswith("-"):
            if not permute:
                break
            others.append(at)
            at += 1
            continue
        taken, used = _read_long(words, at, names) if word.startswith("--") else _read_letters(words, at, letters)
        found += taken
        at += used
    return Scan(tuple(found), tuple(others), at)


def _read_long(words: Sequence[str], at: int, names: Mapping[str, Option]) -> tuple[list[Found], int]:
    """Read a long option: what it gives, and how many words it used."""
    text, equals, value = words[at][2:].partition("=")
    option = names.get(text) or _complete(text, words, at, names)
    name = option.stands_for or option.name
    if option.kind == FLAG and equals:
        raise WrongWord(f"option '--{option.name}' doesn't allow an argument", at)
    if equals or option.kind != VALUE:
        return [Found(name, value if equals else None, at)], 1
    if at + 1 == len(words):
        raise WrongWord(f"option '--{option.name}' requires an argument", at)
    return [Found(name, words[at + 1], at)], 2


def _complete(text: str, words: Sequence[str], at: int, names: Mapping[str, Option]) -> Option:
    """The option whose name begins so."""
    found = [option for name, option in names.items() if name.startswith(text)]
    found = [option for option in found if not option.own] or found
    # glibc shows the word as it was written, with its value.
    if not found:
        raise WrongWord(f"unrecognized option '{words[at]}'", at)
    if len({option.stands_for or option.name for option in found}) > 1:
        listed = " ".join(f"'--{option.name}'" for option in found)
        raise WrongWord(f"option '{words[at]}' is ambiguous; possibilities: {listed}", at)
    return found[0]


def _read_letters(words: Sequence[str], at: int, letters: Mapping[str, Option]) -> tuple[list[Found], int]:
    """Read a word of letters, the last perhaps with a value: what it gives, and how many words it used."""
    taken: list[Found] = []
    for place, letter in enumerate(words[at][1:], 2):
        option = letters.get(letter)
        if option is None:
            raise WrongWord(f"invalid option -- '{letter}'", at)
        # Bundled text is the value; an optional one never takes the next word.
        attached = words[at][place:] if option.kind != FLAG else ""
        if option.kind == VALUE and not attached:
            if at + 1 == len(words):
                raise WrongWord(f"option requires an argument -- '{letter}'", at)
            return [*taken, Found(option.name, words[at + 1], at)], 2
        taken.append(Found(option.name, attached or None, at))
        if option.kind != FLAG:
            break
    return taken, 1
