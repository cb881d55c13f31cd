"""The script among sbatch's words, and the few options that the client obeys.

The daemon reads the options themselves; here only which ones take a value matters (sbatch(1)).
"""

from __future__ import annotations

from collections.abc import Sequence

from overspan.bridge.model.getopt import SEPARATOR, Words, parse
from overspan.bridge.model.sbatch_options import WORDS


class SbatchWords(Words):
    """sbatch's command line: the options of all components, and what is behind them."""

    @property
    def script(self) -> str:
        """The script's name; empty where there is none."""
        return self.rest[0] if self.rest else ""

    @property
    def args(self) -> tuple[str, ...]:
        """The script's own arguments."""
        return self.rest[1:]


def scan(words: Sequence[str]) -> SbatchWords:
    """Find the script among sbatch's words; everything after it is the script's. A lone `:` begins another component.

    Raises InvalidRequest in getopt's words for an unknown option.
    """
    found: list[tuple[str, str]] = []
    rest = tuple(words)
    while True:
        options, rest = parse(rest, WORDS, permute=False)
        found += options
        if rest[:1] != (SEPARATOR,):
            return SbatchWords(tuple(found), rest)
        rest = rest[1:]
