"""The tables of keys in docs/top.md, made from the table of keys: `make keys`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from overspan.tui.keyboard.keymap import show_key
from overspan.tui.keyboard.keys import KEYS, SCOPES, KeyAction

BEGIN, END = "<!-- keys: made by `make keys` -->", "<!-- end of keys -->"
_BETWEEN = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)


def write_keys(table: Sequence[KeyAction] = KEYS) -> str:
    """The tables, one for each scope in the order of the scopes."""
    parts = []
    for scope, title in SCOPES.items():
        rows = [_write_row(action) for action in table if action.scope == scope]
        parts.append("\n".join([f"### {title}", "", "| keys | what | id |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _write_row(action: KeyAction) -> str:
    keys = " ".join(f"`{show_key(key)}`" for key in action.keys.split(","))
    what = f"{action.title}: {action.help}" if action.help else action.title
    return f"| {keys} | {what} | `{action.id}` |"


def replace_keys(page: str) -> str:
    """The page with the tables as they are now."""
    return _BETWEEN.sub(lambda found: f"{BEGIN}\n\n{write_keys()}\n\n{END}", page)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(replace_keys(file.read_text()))
