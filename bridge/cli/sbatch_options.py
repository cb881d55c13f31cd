"""What sbatch's options look like: enough to find the script among the words, and the few that the client obeys.

The daemon reads the options themselves; here only which ones take a value matters (sbatch(1)).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from overspan.bridge.cli.getopt import FLAG, OPTIONAL, VALUE, Option
from overspan.bridge.model import sbatch_options
from overspan.bridge.model.sbatch_options import Argument

_KINDS = {Argument.REQUIRED: VALUE, Argument.OPTIONAL: OPTIONAL, Argument.NONE: FLAG}

OPTIONS: tuple[Option, ...] = tuple(
    Option(option.name, option.letter, _KINDS[option.argument], own=option.name in sbatch_options.OWN)
    for option in sbatch_options.OPTIONS
)


class Scan(NamedTuple):
    """The words taken apart: what the client obeys itself, the script's name and the script's own arguments."""

    options: tuple[tuple[str, str], ...]
    script: str = ""
    args: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return any(key == name for key, _ in self.options)

    def last(self, name: str) -> str:
        """The value given last."""
        return next((value for key, value in reversed(self.options) if key == name), "")


def scan(words: Sequence[str]) -> Scan:
    """Find the script among sbatch's words; everything after it is the script's. A lone `:` begins another component.

    Raises InvalidRequest in getopt's words for an unknown option.
    """
    from overspan.bridge.cli.getopt import parse

    found: list[tuple[str, str]] = []
    rest = tuple(words)
    while True:
        read = parse(rest, OPTIONS, permute=False)
        found += read.options
        if read.rest and read.rest[0] == ":":
            rest = read.rest[1:]
            continue
        script, args = (read.rest[0], read.rest[1:]) if read.rest else ("", ())
        return Scan(tuple(found), script, args)
