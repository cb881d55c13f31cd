"""Patterns of checkpoint names: `step_{step:int}`, with named fields, `*` and `?`, and `/` between folders."""

from __future__ import annotations

import re
from typing import Any, Optional, Union

from overspan.bridge.model.records import dataclass

FieldValue = Union[int, float, str]

MAX_PARTS = 4
"""The most folders deep below the watched path at which a checkpoint is found."""
MAX_NAME = 255
"""Bytes in one name of a file (NAME_MAX of Linux)."""
STEP = "step"
"""The field that orders checkpoints and is the x axis of plots, where a pattern has it."""

_FORMS = {
    "int": r"[0-9]+",
    "float": r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
    "str": r"[^/]+?",
}
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|\*|\?|[{}]|[^{}*?]+")


@dataclass(frozen=True)
class CheckpointPattern:
    """A pattern: an expression for each part of a name, and the fields with their types, in order."""

    text: str
    parts: tuple[str, ...] = ()
    """Regular expressions, one for each folder level; each has to match a whole name."""
    fields: tuple[tuple[str, str], ...] = ()

    def match(self, name: str) -> Optional[dict[str, FieldValue]]:
        """The fields' values in a checkpoint's name; None for a name that does not fit."""
        pieces = name.split("/")
        if len(pieces) != len(self.parts):
            return None
        found: dict[str, Any] = {}
        for part, piece in zip(self.parts, pieces):
            match = re.fullmatch(part, piece)
            if match is None:
                return None
            found.update(match.groupdict())
        return {field: _convert(kind, found[field]) for field, kind in self.fields}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(field for field, _ in self.fields)


def parse_pattern(text: str) -> CheckpointPattern:
    """Read a pattern. Raises ValueError for one that is malformed or can never match."""
    if not text:
        raise ValueError("the pattern is empty; write one such as step_{step:int}")
    if text.startswith("/") or text.endswith("/") or "//" in text:
        raise ValueError(f"the pattern {text!r} can never match: names are below `path`, without / at their ends")
    fields: dict[str, str] = {}
    pieces = _split(text)
    if len(pieces) > MAX_PARTS:
        raise ValueError(f"the pattern {text!r} is {len(pieces)} folders deep; the limit is {MAX_PARTS}")
    return CheckpointPattern(text, tuple(_compile(piece, fields) for piece in pieces), tuple(fields.items()))


def number_of(fields: dict[str, FieldValue]) -> Optional[float]:
    """The number that orders a checkpoint: its step, else its only number; None where it has none."""
    value = fields.get(STEP)
    if isinstance(value, (int, float)):
        return float(value)
    numbers = [value for value in fields.values() if isinstance(value, (int, float))]
    return float(numbers[0]) if len(numbers) == 1 else None


def _split(text: str) -> list[str]:
    """The parts between slashes; a field holds none."""
    pieces = text.split("/")
    for piece in pieces:
        if piece in (".", ".."):
            raise ValueError(f"the pattern {text!r} can never match: no checkpoint is called {piece!r}")
    return pieces


def _compile(piece: str, fields: dict[str, str]) -> str:
    """The regular expression of one part; adds its fields."""
    words: list[str] = []
    literal = 0
    for match in _TOKEN.finditer(piece):
        token = match[0]
        if token in ("{{", "}}"):
            words.append(re.escape(token[0]))
            literal += 1
        elif match[1] is not None:
            words.append(_compile_field(match[1], fields))
        elif token in ("{", "}"):
            raise ValueError(f"a brace in {piece!r} is not closed; write {{{{ for a brace itself")
        elif token == "*":
            # As in a shell, a name that begins with a dot is meant only where the dot is written.
            words.append("[^/]*" if words else r"(?![.])[^/]*")
        elif token == "?":
            words.append("[^/]" if words else "[^/.]")
        else:
            words.append(re.escape(token))
            literal += len(token.encode(errors="surrogateescape"))
    if "\0" in piece:
        raise ValueError("the pattern has a NUL character in it, so it can never match")
    if literal > MAX_NAME:
        raise ValueError(f"the pattern can never match: a name has at most {MAX_NAME} bytes, and this has {literal}")
    return "".join(words)


def _compile_field(text: str, fields: dict[str, str]) -> str:
    name, _, kind = text.partition(":")
    kind = kind or "str"
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"{{{text}}} is no field; write {{name}} or {{name:int}}, with letters, digits and '_'")
    if name == "checkpoint":
        raise ValueError("{checkpoint} is the checkpoint's path; give the field another name")
    if kind not in _FORMS:
        raise ValueError(f"{{{text}}} has the unknown type {kind!r}; the types are {', '.join(_FORMS)}")
    if name in fields:
        raise ValueError(f"the field {name!r} is in the pattern twice; give each a name of its own")
    fields[name] = kind
    return f"(?P<{name}>{_FORMS[kind]})"


def _convert(kind: str, text: str) -> FieldValue:
    if kind == "int":
        return int(text)
    return float(text) if kind == "float" else text
