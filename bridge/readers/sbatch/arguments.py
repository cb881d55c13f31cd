"""Parses sbatch's command line, environment and #SBATCH lines as getopt_long(3) does.

Standard library only. Later sources give way: command line, then SBATCH_* variables, then #SBATCH lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from overspan.bridge.model.errors import Place
from overspan.bridge.model.options import getopt
from overspan.bridge.model.options.getopt import SEPARATOR
from overspan.bridge.model.options.sbatch import BY_NAME, OPTIONS, WORDS, Argument, SbatchOption, Treatment
from overspan.bridge.readers.sbatch.errors import PREFIX, SbatchUsage

TRY_HELP = 'Try "sbatch --help" for more information'


class Word(NamedTuple):
    """A word of a command line or directive, and where it stands."""

    text: str
    place: Place | None = None


class Given(NamedTuple):
    """An option as it was given; the value is None where there is none."""

    option: SbatchOption
    value: str | None
    place: Place | None = None


GivenOptions = Mapping[str, Given]
"""Options by their long names."""


@dataclass(frozen=True)
class SbatchCall:
    """A command line of sbatch: options of each component, the script's path (None: stdin) and its arguments.

    `flags` are the names of the options that concern the command alone: parsable, quiet, verbose, wait, test-only,
    help, usage, version. `environment` are the options that SBATCH_* variables give, for every component.
    """

    options: GivenOptions
    flags: frozenset[str]
    script: str | None
    arguments: tuple[str, ...]
    components: tuple[GivenOptions, ...]
    environment: GivenOptions = field(default_factory=dict)

    @property
    def wrap(self) -> str | None:
        """The command of --wrap, which any component may give."""
        for options in (self.options, *self.components):
            if "wrap" in options:
                return options["wrap"].value
        return None


def parse_sbatch(argv: Sequence[str], environment: Mapping[str, str]) -> SbatchCall:
    """Take the words after `sbatch` apart. Raises SbatchUsage as sbatch would.

    `options` are those of the first component with the environment's below them.
    """
    components: list[dict[str, Given]] = []
    words = [Word(text) for text in argv]
    at = 0
    while True:
        found, at = scan_options(words, at)
        components.append(found)
        if at < len(words) and words[at].text == SEPARATOR:
            at += 1
            continue
        break
    rest = argv[at:]
    from_environment = read_environment(environment)
    options = {**from_environment, **components[0]}
    every = {name for component in (options, *components[1:]) for name in component}
    return SbatchCall(
        options=options,
        flags=frozenset(name for name in every if BY_NAME[name].treatment is Treatment.CLIENT),
        script=rest[0] if rest else None,
        arguments=tuple(rest[1:]),
        components=tuple(components),
        environment=from_environment,
    )


def read_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    """The options that SBATCH_* variables give; the first variable of an option wins."""
    found: dict[str, Given] = {}
    for option in OPTIONS:
        for variable in option.environment:
            if option.name not in found and variable in environment:
                value = None if option.argument is Argument.NONE else environment[variable]
                if value == "" and option.argument is Argument.OPTIONAL:
                    value = None
                found[option.name] = Given(option, value, Place(variable))
    return found


def scan_options(words: Sequence[Word], at: int = 0, *, stop: bool = True) -> tuple[dict[str, Given], int]:
    """Take options from a position on; give them and where the rest begins.

    With `stop` the first word that is no option ends them, as on the command line, and so does the separator of
    hetjob components; else such a word is refused, as in a directive. `--` ends them.
    """
    texts = [word.text for word in words[at:]]
    try:
        read = getopt.scan(texts, WORDS, permute=not stop)
    except getopt.WrongWord as error:
        place = words[at + error.at].place
        raise SbatchUsage(f"sbatch: {error.message}\n{TRY_HELP}", place=place) from None
    found: dict[str, Given] = {}
    for name, value, index in read.found:
        # The last one wins, at the place of the last.
        found.pop(name, None)
        found[name] = Given(BY_NAME[name], value, words[at + index].place)
    end = at + read.end
    # getopt(3) reads on, so that a wrong option is named before a stray word.
    stray = [*(words[at + index] for index in read.others), *words[end:]] if not stop else []
    if stray:
        line = f"{PREFIX}Invalid directive found in batch script: {stray[0].text}"
        raise SbatchUsage(line, place=stray[0].place)
    return found, end


def split_directive(line: str, place: Place) -> Iterator[Word]:
    """Split the text after #SBATCH into words: quotes group, a backslash keeps a character, an unquoted # ends it.

    `place` is that of the text's first character. Raises ValueError for a quote that is not closed, and for a word
    that begins with a colon.
    """
    at = 0
    # Slurm shows what is left of the line, with the blanks before it, except the first.
    left = line.strip()
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        if line[at] == "#":
            return
        if line[at] == ":":
            raise ValueError(f"Unexpected `:` in [{left[:200]}]")
        start = at
        text, at = _read_word(line, at, left)
        left = line[at:]
        if text or line[start] != "\\":
            yield Word(text, place._replace(column=place.column + start))


def _read_word(line: str, at: int, left: str) -> tuple[str, int]:
    text: list[str] = []
    quote = ""
    while at < len(line):
        letter = line[at]
        kept = letter == "\\"
        if kept:
            at += 1
            if at == len(line):
                break
            letter = line[at]
        # An escaped blank ends a word all the same (measured on Slurm 22.05).
        if not quote and (letter.isspace() or (letter == "#" and not kept)):
            break
        if not kept and letter == quote:
            quote = ""
        elif not kept and not quote and letter in "\"'":
            quote = letter
        else:
            text.append(letter)
        at += 1
    if quote:
        raise ValueError(f"Unmatched `{quote}` in [{left[:200]}]")
    return "".join(text), at
