"""argparse for Overspan's own commands: a wrong word is an InvalidRequest, help shows examples as written."""

from __future__ import annotations

import argparse
from typing import NoReturn

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.model.errors import InvalidRequest


class Parser(argparse.ArgumentParser):
    """A parser that raises instead of leaving the program."""

    def error(self, message: str) -> NoReturn:
        """Raise InvalidRequest with where to read more."""
        raise InvalidRequest(message, remedy=f"`{self.prog} --help` lists the options")


def make_parser(call: Invocation, about: str, examples: str = "") -> Parser:
    """A parser for one command."""
    return Parser(
        prog=f"span {call.verb}",
        description=about,
        epilog=f"Examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def read_pairs(items: list[str], option: str) -> dict[str, str]:
    """Read `KEY=VALUE` words; raises InvalidRequest."""
    pairs = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise InvalidRequest(f"{option} {item}: write KEY=VALUE")
        pairs[key] = value
    return pairs
