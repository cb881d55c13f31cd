"""How Slurm's commands read their words: getopt's complaints as getopt writes them, and the usual answers."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Protocol

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import write
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.getopt import OPTIONAL, VALUE, Option, Words, parse

_TERSE = frozenset({"sacct", "sstat"})
"""Commands that do not name --help after a wrong option (measured on Slurm 22.05)."""


def read_words(
    call: Invocation, table: Iterable[Option], usage: str, notes: str = "", *, permute: bool = True
) -> Words:
    """Read a command's words; --help, --usage and --version are answered.

    Raises SystemExit then, and for a mistake.
    """
    options = tuple(table)
    try:
        words = parse(call.words, options, permute=permute)
    except InvalidRequest as error:
        print(f"{call.verb}: {error.message}", file=sys.stderr)
        if call.verb not in _TERSE:
            print(f'Try "{call.verb} --help" for more information', file=sys.stderr)
        raise SystemExit(1) from None
    if words.has("help"):
        write(help_text(usage, options, notes))
        raise SystemExit(0)
    if words.has("usage"):
        write(usage + "\n")
        raise SystemExit(0)
    if words.has("version"):
        from overspan.bridge.cli.service.version import slurm_version

        write(slurm_version())
        raise SystemExit(0)
    return words


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


class ClusterList(Protocol):
    """What tells the clusters: the client, or the demonstration's lab."""

    def clusters(self) -> list[dict[str, Any]]: ...


def check_clusters(client: ClusterList, names: Iterable[str]) -> None:
    """Raise InvalidRequest in Slurm's words for a cluster that there is not."""
    names = [name for name in names if name != "all"]
    if not names:
        return
    known = {cluster["name"] for cluster in client.clusters()}
    for name in names:
        if name not in known:
            raise InvalidRequest(
                f"No cluster '{name}' known by database.\n'{name}' can't be reached now, or it is an invalid entry for"
                " --cluster.  Use 'sacctmgr list clusters' to see available clusters."
            )


def complain(text: str, code: int = 1) -> int:
    """Say something on stderr in Slurm's words, without the command's name; gives the exit code."""
    sys.stdout.flush()
    print(text, file=sys.stderr)
    return code
