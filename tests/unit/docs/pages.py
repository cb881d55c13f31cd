"""What the tests of the documentation read: pages, their tables, code blocks and links."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md"))
    if path.name != "CHANGELOG.md"
)


class Block(NamedTuple):
    """A fenced block: its language, its text and its line in the page."""

    language: str
    text: str
    line: int


def read_blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, those inside list items too."""
    blocks = []
    for match in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", page.read_text(), re.MULTILINE | re.DOTALL):
        lines = [line.removeprefix(match[1]) for line in match[3].splitlines()]
        line = page.read_text().count("\n", 0, match.start()) + 1
        blocks.append(Block(match[2], "\n".join(lines) + "\n", line))
    return blocks


def read_text(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchor(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def read_section(page: Path, heading: str) -> str:
    """The text below a heading, up to the next heading of any level."""
    parts = re.split(r"^#+ +(.*)$", read_text(page), flags=re.MULTILINE)
    found = [text for name, text in zip(parts[1::2], parts[2::2], strict=True) if name.strip() == heading]
    assert len(found) == 1, f"{page.name} has {len(found)} sections {heading!r}"
    return found[0]


def read_rows(text: str) -> list[list[str]]:
    """The cells of every table row in a text, heads and rules left out."""
    rows = []
    lines = text.splitlines()
    for place, line in enumerate(lines):
        following = lines[place + 1] if place + 1 < len(lines) else ""
        if line.startswith("|") and not re.match(r"\|[-| ]+\|$", line) and not re.match(r"\|[-| ]+\|$", following):
            rows.append([cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


def read_words(cell: str) -> list[str]:
    """The words in backquotes of a cell."""
    return re.findall(r"`([^`]+)`", cell)


def first_words(text: str) -> list[str]:
    """The words in backquotes in the first cells of a text's tables."""
    return [word for row in read_rows(text) for word in read_words(row[0])]


@cache
@cache
def list_tests(path: Path) -> frozenset[str]:
    """The tests of a module: functions, and methods as Class::method."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
    return frozenset(name for name in found if name.rpartition("::")[2].startswith("test_"))
