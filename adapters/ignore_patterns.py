"""Ignore patterns: which files of a folder are not staged, as git reads them (gitignore(5)). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_CLASS = re.compile(r"\[([!^]?)(\]?[^\]]*)\]")


class Rule(NamedTuple):
    """One pattern of a file in the folder `base` (relative, with `/` at its end, or empty for the top)."""

    base: str
    pattern: re.Pattern[str]
    keeps: bool
    folders_only: bool


def read_rules(text: str, base: str = "") -> tuple[Rule, ...]:
    """The rules of one file, in order; lines that are no pattern are left out."""
    return tuple(rule for line in text.splitlines() if (rule := _read_line(line, base)) is not None)


def _read_line(line: str, base: str) -> Rule | None:
    line = re.sub(r"(?<!\\)[ \t]+$", "", line)
    if not line or line.startswith("#"):
        return None
    keeps = line.startswith("!")
    line = line[1:] if keeps else line
    folders_only = line.endswith("/")
    line = line.rstrip("/")
    if not line:
        return None
    # With a slash inside, a pattern is about the whole path, else about the name at any depth.
    anchored = "/" in line
    try:
        pattern = re.compile(("" if anchored else "(?:.*/)?") + _translate(line.removeprefix("/")), re.DOTALL)
    except re.error:
        return None
    return Rule(base, pattern, keeps, folders_only)


def _translate(glob: str) -> str:
    """A pattern as a regular expression: `*` and `?` stay inside a name, `**` crosses folders."""
    words, place = [], 0
    while place < len(glob):
        rest = glob[place:]
        found = _CLASS.match(rest)
        if rest.startswith("**/") and (place == 0 or glob[place - 1] == "/"):
            words.append("(?:.*/)?")
            place += 3
        elif rest == "**" and (place == 0 or glob[place - 1] == "/"):
            words.append(".+")
            place += 2
        elif found:
            inside = found[2].replace("\\", "\\\\").replace("[", "\\[")
            words.append(f"(?!/)[{'^' if found[1] else ''}{inside}]")
            place += len(found[0])
        elif rest[0] == "\\" and len(rest) > 1:
            words.append(re.escape(rest[1]))
            place += 2
        else:
            words.append({"*": "[^/]*", "?": "[^/]"}.get(rest[0], re.escape(rest[0])))
            place += 1
    return "".join(words)


def is_ignored(rules: Sequence[Rule] | Iterable[Rule], path: str, folder: bool) -> bool:
    """Whether a relative path stays behind: the last rule that fits decides.

    What is in an ignored folder is not asked about: as with git, nothing below it can be kept.
    """
    ignored = False
    for rule in rules:
        if rule.folders_only and not folder:
            continue
        if path.startswith(rule.base) and rule.pattern.fullmatch(path[len(rule.base) :]):
            ignored = not rule.keeps
    return ignored
