"""The findings of a check as lines of a terminal, with their remedies and the way to log in. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size

from overspan.bridge.client.terminal_texts import clean_text

_LEAST = 20
"""Cells that a text has at least, on however narrow a terminal."""


class FindingLine(NamedTuple):
    """A line of the report: what is tried, or a line of its text."""

    key: int
    text: str
    style: str = "text"


def report_findings(findings: Iterable[Mapping[str, Any]], login: Mapping[str, Any], width: int) -> list[FindingLine]:
    """The report of a check in so many cells; what does not work comes first."""
    ordered = sorted(findings, key=lambda finding: bool(finding.get("works")))
    names = [clean_text(str(finding.get("what", ""))) for finding in ordered]
    indent = min(max(map(cell_len, names), default=0), max(8, width // 3)) + 7
    rows: list[tuple[str, str]] = []
    for finding, name in zip(ordered, names, strict=True):
        works = bool(finding.get("works"))
        head = f"{'ok' if works else 'no'}   {name}"
        seen = _wrap(str(finding.get("seen") or ""), width, indent)
        rows += _join(head, seen, indent, "text" if works else "bad")
        rows += [(text, "waiting") for text in _wrap(str(finding.get("remedy") or ""), width, indent)]
    rows += _describe_login(login, width)
    return [FindingLine(place, text, style) for place, (text, style) in enumerate(rows)]


def count_faults(findings: Sequence[Mapping[str, Any]]) -> str:
    """The outcome in a sentence."""
    faults = sum(not finding.get("works") for finding in findings)
    if not faults:
        return f"{_count(len(findings))} passed" if findings else "nothing was checked"
    return f"{faults} of {_count(len(findings))} failed"


def _count(checks: int) -> str:
    return f"{checks} check{'' if checks == 1 else 's'}"


def report_error(message: str, remedy: str, width: int) -> list[FindingLine]:
    """A check that could not be made."""
    rows = [(text, "bad") for text in _wrap(message, width, 0)] + [
        (text, "waiting") for text in _wrap(remedy, width, 0)
    ]
    return [FindingLine(place, text, style) for place, (text, style) in enumerate(rows)]


def _describe_login(login: Mapping[str, Any], width: int) -> list[tuple[str, str]]:
    words = [str(word) for word in login.get("words") or ()]
    if not words:
        return []
    rows = [("", "text"), ("To log in, on another terminal:", "text")]
    rows += [(text, "accent") for text in _wrap(f"span login {shlex.quote(str(login.get('cluster', '')))}", width, 2)]
    return rows + [(text, "dim") for text in _wrap(f"which runs {shlex.join(words)}", width, 2)]


def _join(head: str, texts: Sequence[str], indent: int, style: str) -> list[tuple[str, str]]:
    """The name in the margin of its text; above it, where it is longer than that."""
    if cell_len(head) >= indent:
        return [(head, style), *((text, style) for text in texts)]
    first = set_cell_size(head, indent) + texts[0][indent:] if texts else head
    return [(first.rstrip(), style), *((text, style) for text in texts[1:])]


def _wrap(text: str, width: int, indent: int) -> list[str]:
    """The words of a text in lines of so many cells; a word that is longer is cut."""
    room = max(_LEAST, width - indent)
    lines: list[str] = []
    for word in clean_text(" ".join(text.split())).split(" "):
        for piece in chop_cells(word, room):
            if lines and cell_len(lines[-1]) + 1 + cell_len(piece) <= room:
                lines[-1] += f" {piece}"
            else:
                lines.append(piece)
    return [" " * indent + line for line in lines]
