"""Command lines as GNU getopt_long reads them: the rules of Slurm's own commands.

Unique prefixes of long names, values that begin with a dash, bundled letters, optional values after `=` only.
argparse has other rules (`squeue -S -p` is an error to it).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from overspan.bridge.model.errors import InvalidRequest

FLAG, VALUE, OPTIONAL = "flag", "value", "optional"


class Option(NamedTuple):
    """One option: its long name, letter, kind, and what --help says; `shown` names its value there.

    `own` options are not Slurm's: the beginning of a long name means one of them only where it means nothing else.
    """

    name: str
    letter: str = ""
    kind: str = FLAG
    help: str = ""
    shown: str = ""
    own: bool = False


class Words(NamedTuple):
    """A command line that has been read: (option's long name, value) in order, and the other words."""

    options: tuple[tuple[str, str], ...]
    rest: tuple[str, ...]

    def last(self, name: str, default: str = "") -> str:
        """The value given last."""
        for key, value in reversed(self.options):
            if key == name:
                return value
        return default

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return any(key == name for key, _ in self.options)

    def listed(self, name: str) -> tuple[str, ...]:
        """The items of a comma list; an option given twice adds to it."""
        return tuple(item for key, value in self.options if key == name for item in value.split(",") if item)


def parse(words: Sequence[str], table: Iterable[Option], *, permute: bool = True) -> Words:
    """Read words by a table; without `permute` the first other word ends the options.

    Raises InvalidRequest in getopt's words.
    """
    by_name = {option.name: option for option in table}
    by_letter = {option.letter: option for option in by_name.values() if option.letter}
    options: list[tuple[str, str]] = []
    rest: list[str] = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if word == "--":
            rest += queue
            break
        if word.startswith("--"):
            options.append(_long(word, queue, by_name))
        elif word.startswith("-") and word != "-":
            options += _letters(word, queue, by_letter)
        else:
            rest.append(word)
            if not permute:
                rest += queue
                break
    return Words(tuple(options), tuple(rest))


def _long(word: str, queue: list[str], by_name: dict[str, Option]) -> tuple[str, str]:
    text, equals, value = word[2:].partition("=")
    option = by_name.get(text)
    if option is None:
        found = [name for name in by_name if name.startswith(text)]
        found = [name for name in found if not by_name[name].own] or found
        # glibc shows the word as it was written, with its value.
        if not found:
            raise InvalidRequest(f"unrecognized option '{word}'")
        if len(found) > 1:
            listed = " ".join(f"'--{name}'" for name in found)
            raise InvalidRequest(f"option '{word}' is ambiguous; possibilities: {listed}")
        option = by_name[found[0]]
    if option.kind == FLAG and equals:
        raise InvalidRequest(f"option '--{option.name}' doesn't allow an argument")
    if option.kind == VALUE and not equals:
        if not queue:
            raise InvalidRequest(f"option '--{option.name}' requires an argument")
        value = queue.pop(0)
    return option.name, value


def _letters(word: str, queue: list[str], by_letter: dict[str, Option]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    text = word[1:]
    while text:
        letter, text = text[0], text[1:]
        option = by_letter.get(letter)
        if option is None:
            raise InvalidRequest(f"invalid option -- '{letter}'")
        value = ""
        if option.kind != FLAG:
            # Bundled text is the value; an optional one never takes the next word.
            value, text = text, ""
            if not value and option.kind == VALUE:
                if not queue:
                    raise InvalidRequest(f"option requires an argument -- '{letter}'")
                value = queue.pop(0)
        found.append((option.name, value))
    return found


def help_text(usage: str, table: Iterable[Option], notes: str = "") -> str:
    """Write --help: the usage line, one line an option that has a help text, and notes."""
    lines = [usage, ""]
    for option in table:
        if not option.help:
            continue
        letter = f"-{option.letter}, " if option.letter else "    "
        value = f"={option.shown or option.name.upper()}" if option.kind == VALUE else ""
        value = f"[={option.shown}]" if option.kind == OPTIONAL else value
        lines.append(f"  {letter + '--' + option.name + value:<28} {option.help}")
    return "\n".join(lines) + "\n" + (f"\n{notes}\n" if notes else "")
