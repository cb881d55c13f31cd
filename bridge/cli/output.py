"""Output of commands: data on stdout, messages on stderr. Nothing else writes to them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.model.errors import OverspanError

if TYPE_CHECKING:
    from overspan.bridge.client import Listing

DATE = "%a %b %d %H:%M:%S %Y"
"""How Slurm's commands write the time above a table."""
_COLOURS = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36, "bold": 1, "faint": 2}


def write(text: str) -> None:
    """Write data, as it is."""
    sys.stdout.write(text)


def write_table(rows: Sequence[Sequence[str]]) -> None:
    """Write rows with their columns below each other."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        write("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() + "\n")


def write_json(document: Any) -> None:
    """Write one JSON document to stdout, without characters that a terminal acts on."""
    import json
    import re

    text = json.dumps(document, indent=1, ensure_ascii=False)
    # JSON leaves DEL and C1 unescaped, and terminals act on these.
    sys.stdout.write(re.sub("[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")


def say(call: Invocation, text: str) -> None:
    """Write a message to stderr."""
    print(f"{call.prefix}: {shown(text)}", file=sys.stderr)


def shown(text: str) -> str:
    """A text for stderr. On a terminal its control characters, except line ends, are removed."""
    if not sys.stderr.isatty():
        return text
    from overspan.bridge.client.terminal_texts import clean_text

    return clean_text(text, keep="\n")


def report(call: Invocation, error: OverspanError) -> None:
    """Write an error: one line first, then the remedy; a JSON document where the answer would have been one."""
    sys.stdout.flush()
    if call.json:
        import json

        print(json.dumps({"error": error.to_document()}), file=sys.stderr)
        return
    place = f"{error.place}: " if error.place else ""
    lines = shown(place + error.message).splitlines() or ["the operation failed"]
    for line in lines:
        print(f"{call.prefix}: error: {line}", file=sys.stderr)
    if error.message.endswith("\n"):
        # Some of Slurm's texts end in a line of their own.
        print(file=sys.stderr)
    for line in shown(error.remedy).splitlines():
        print(f"  {line}", file=sys.stderr)


def tell_stale(call: Invocation, listing: Listing) -> None:
    """Tell of clusters that do not answer, or not all of it."""
    import time

    for stale in listing.stale:
        since = time.strftime("%H:%M:%S", time.localtime(stale.since))
        why = f": {stale.message}" if stale.message else ""
        if stale.partial:
            say(call, f"cluster {stale.cluster}, since {since}{why}")
            continue
        say(call, f"cluster {stale.cluster} has not answered since {since}; its jobs are shown as they were{why}")


def tell_missing(call: Invocation, listing: Listing) -> None:
    """Tell of what a daemon of another version does not send: it is shown as if jobs had none."""
    if not listing.missing:
        return
    from overspan import __version__

    say(
        call,
        f"the daemon is of another version than this command ({__version__}) and does not tell"
        f" {', '.join(listing.missing)}\n"
        "  end it with `span shutdown` (jobs go on); the next command starts the installed one",
    )


def use_colour(stream: IO[str], environment: Mapping[str, str]) -> bool:
    """Whether to colour a stream: on a terminal, unless NO_COLOR (no-color.org) or TERM=dumb; FORCE_COLOR forces."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    return stream.isatty() and environment.get("TERM") != "dumb"


def paint(text: str, colour: str, on: bool) -> str:
    """Colour a text for a terminal."""
    return f"\033[{_COLOURS[colour]}m{text}\033[0m" if on else text


def find_width(environment: Mapping[str, str]) -> int:
    """How many letters a line of the terminal has; 0 where that is not known."""
    given = environment.get("COLUMNS", "")
    if given.isdigit():
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return 0


def rfc3339(epoch: float | None) -> str | None:
    """Write a time for JSON: UTC, milliseconds (RFC 3339)."""
    if epoch is None:
        return None
    import time

    whole, milli = divmod(round(epoch * 1000), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{milli:03d}Z"
