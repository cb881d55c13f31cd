"""YAML documents with positions: job files, configuration files and the values of options are all read here.

The scalar rules are those of YAML 1.2's core schema, so `12:00`, `no`, `1_000` and dates stay text and `010` is ten.
Two things stay text that the schema has as numbers: more than 18 digits (an id or a hash, which would lose digits
where numbers have 64 bits), and what is not finite (`.inf`, `.nan`, `1e999`, for which JSON has no form).
The tree is built from the C parser's events without recursion. Its depth, its size with aliases expanded and the
text's length are bounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from overspan.bridge.model.errors import InvalidRequest, Place
from overspan.bridge.validation.diagnostics import refuse
from overspan.bridge.validation.yaml_nodes import Items, Node, Scalar, Table, TableEntry, describe

MAX_LENGTH = 4 * 1024 * 1024
"""Characters in a file; Slurm's max_script_size is as large."""
MAX_DEPTH = 50
TOO_DEEP = f"values are nested more than {MAX_DEPTH} deep"
MAX_NODES = 100_000
"""Values in one file with every alias expanded."""
MAX_ENTRIES = 10_000
"""Entries of one mapping or list: more are a mistake, and are refused before the rest of the file is read."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NULL = ("", "~", "null", "Null", "NULL")
_BOOLEAN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DECIMAL = re.compile(r"[-+]?[0-9]{1,18}")
_BASED = re.compile(r"0o[0-7]{1,18}|0x[0-9a-fA-F]{1,15}")
_FLOAT = re.compile(r"[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)")
_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = ("str", "int", "float", "bool", "null")


def read_documents(text: str, file: str) -> list[Node]:
    """Read every document that is not empty, in order.

    A leading `---`, a byte order mark, anchors and merge keys are fine. Raises InvalidRequest with the position:
    syntax errors, duplicate keys (both positions), foreign tags, recursive aliases, what exceeds a bound.
    """
    text = text.removeprefix("\ufeff")
    _check_text(text, file)
    builder = _TreeBuilder(file)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        _refuse_syntax(error, text, file)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        refuse(f"this is not YAML: {error}", Place(file))
    return builder.documents


def read_table(text: str, file: str) -> Table:
    """Read one document that has to be a mapping; an empty text is an empty one. Raises InvalidRequest."""
    documents = read_documents(text, file)
    if len(documents) > 1:
        refuse("only one document is wanted here", documents[1].place, "take the line of --- out")
    node = documents[0] if documents else Table(Place(file, 1, 1), {})
    if not isinstance(node, Table):
        refuse(f"keys and values are wanted here, not {describe(node)}", node.place, "write lines such as `key: value`")
    return node


def resolve(text: str) -> str | int | float | bool | None:
    """What a plain scalar means."""
    if text in _NULL:
        return None
    if text in _BOOLEAN:
        return _BOOLEAN[text]
    if _DECIMAL.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text[2:], 8 if text[1] == "o" else 16)
    if _FLOAT.fullmatch(text) and math.isfinite(value := float(text)):
        return value
    return text


def _check_text(text: str, file: str) -> None:
    if len(text) > MAX_LENGTH:
        refuse(f"the file has {len(text)} characters; the limit is {MAX_LENGTH}", Place(file))
    match = _UNPRINTABLE.search(text)
    if match:
        line = text.count("\n", 0, match.start()) + 1
        column = match.start() - text.rfind("\n", 0, match.start())
        refuse(
            f"the character U+{ord(match[0]):04X} is not allowed in YAML",
            Place(file, line, column),
            "save the file as plain UTF-8 text",
        )


def _refuse_syntax(error: yaml.MarkedYAMLError, text: str, file: str) -> NoReturn:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    if "nesting depth" in str(error.problem):
        # The parser may have a bound of its own.
        refuse(TOO_DEEP, Place(file, line, column))
    lines = text.splitlines()
    written = lines[line - 1] if 0 < line <= len(lines) else ""
    remedy = ""
    if re.match(r" *\t", written):
        remedy = "indent with spaces; YAML does not allow tabs there"
    elif "mapping values" in str(error.problem):
        remedy = "put text that has ': ' in it between quotes, or on its own lines after '|'"
    context = f" {error.context}" if error.context else ""
    refuse(f"this is not YAML: {error.problem or 'syntax error'}{context}", Place(file, line, column), remedy)


@dataclass(slots=True)
class _OpenNode:
    """A list or mapping that has begun and not ended."""

    place: Place
    anchor: str | None
    is_table: bool
    items: list[Node] = field(default_factory=list)
    entries: dict[str, TableEntry] = field(default_factory=dict)
    merged: list[Table] = field(default_factory=list)
    key: Scalar | None = None
    merging: bool = False
    weight: int = 1


class _TreeBuilder:
    """Builds documents from parser events with a stack of its own."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.documents: list[Node] = []
        self.stack: list[_OpenNode] = []
        self.anchors: dict[str, tuple[Node, int]] = {}
        self.total = 0

    def take(self, event: Any) -> None:
        """Take the next event."""
        if isinstance(event, yaml.DocumentStartEvent):
            self.anchors = {}
        elif isinstance(event, yaml.ScalarEvent):
            self._take_scalar(event)
        elif isinstance(event, yaml.AliasEvent):
            self._take_alias(event)
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            self._open(event)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            self._close()

    def _place(self, event: Any) -> Place:
        return Place(self.file, event.start_mark.line + 1, event.start_mark.column + 1)

    def _take_scalar(self, event: Any) -> None:
        place, text, tag = self._place(event), str(event.value), event.tag
        value: str | int | float | bool | None
        if tag in (None, "!"):
            value = resolve(text) if event.implicit[0] and tag is None else text
        else:
            value = _tagged(text, str(tag), place)
        merging = text == "<<" and bool(event.implicit[0])
        self._add(Scalar(place, text, value), event.anchor, 1, merging)

    def _take_alias(self, event: Any) -> None:
        place = self._place(event)
        if any(part.anchor == event.anchor for part in self.stack):
            refuse(f"the alias *{event.anchor} stands inside the value that it names", place)
        if event.anchor not in self.anchors:
            refuse(f"no anchor &{event.anchor} comes before this alias", place, f"write &{event.anchor} at its value")
        node, weight = self.anchors[event.anchor]
        self._add(node, None, weight, False)

    def _open(self, event: Any) -> None:
        place = self._place(event)
        is_table = isinstance(event, yaml.MappingStartEvent)
        allowed = (f"{_TAG}map", f"{_TAG}set") if is_table else (f"{_TAG}seq",)
        if event.tag not in (None, "!", *allowed):
            _refuse_tag(event.tag, place)
        if len(self.stack) >= MAX_DEPTH:
            refuse(TOO_DEEP, place)
        self.stack.append(_OpenNode(place, event.anchor, is_table))

    def _close(self) -> None:
        done = self.stack.pop()
        node: Node
        if done.is_table:
            for table in done.merged:
                for key, entry in table.entries.items():
                    done.entries.setdefault(key, entry)
            node = Table(done.place, done.entries)
        else:
            node = Items(done.place, tuple(done.items))
        self._add(node, done.anchor, done.weight, False)

    def _add(self, node: Node, anchor: str | None, weight: int, merging: bool) -> None:
        """Put a finished value where it belongs. `merging` tells an unquoted `<<`."""
        if anchor:
            self.anchors[anchor] = (node, weight)
        parent = self.stack[-1] if self.stack else None
        # Counted where it is added, so that nothing is ever built that would be too large.
        held = parent.weight if parent else self.total
        if held + weight > MAX_NODES:
            refuse(f"the file has more than {MAX_NODES} values, aliases expanded", node.place)
        if parent is None:
            self.total += weight
            # A document of nothing is the gap between two `---`.
            if not (isinstance(node, Scalar) and node.value is None):
                self.documents.append(node)
            return
        parent.weight += weight
        if max(len(parent.items), len(parent.entries)) >= MAX_ENTRIES:
            kind = "mapping" if parent.is_table else "list"
            refuse(
                f"a {kind} has more than {MAX_ENTRIES} entries", node.place, "put them into a file that the job reads"
            )
        if not parent.is_table:
            parent.items.append(node)
        elif parent.key is None:
            self._add_key(parent, node, merging)
        else:
            self._add_value(parent, parent.key, node)

    def _add_key(self, parent: _OpenNode, node: Node, merging: bool) -> None:
        if not isinstance(node, Scalar):
            refuse("a key must be a single word or text, not a list or mapping", node.place)
        first = parent.entries.get(node.text)
        if first is not None and not merging:
            refuse(
                f"the key {node.text!r} is given twice; the first is at {first.place}",
                node.place,
                "remove one of the two",
            )
        parent.key, parent.merging = node, merging

    def _add_value(self, parent: _OpenNode, key: Scalar, node: Node) -> None:
        parent.key = None
        if not parent.merging:
            parent.entries[key.text] = TableEntry(key.place, node)
            return
        for table in node.items if isinstance(node, Items) else (node,):
            if not isinstance(table, Table):
                refuse("<< takes a mapping or a list of mappings", table.place)
            parent.merged.append(table)


def _tagged(text: str, tag: str, place: Place) -> str | int | float | bool | None:
    """Read a scalar with an explicit tag of YAML's core schema."""
    name = tag.removeprefix(_TAG)
    if not tag.startswith(_TAG) or name not in _SCALAR_TAGS:
        _refuse_tag(tag, place)
    if name == "str":
        return text
    value = resolve(text)
    wanted = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}[name]
    if not isinstance(value, wanted) or (isinstance(value, bool) and name != "bool"):
        refuse(f"{text!r} does not fit its tag !!{name}", place)
    return float(value) if name == "float" and value is not None else value


def _refuse_tag(tag: str, place: Place) -> NoReturn:
    refuse(f"the tag {tag!r} is not known here", place, "remove the tag, or put the text between quotes")


def read_value(text: str, file: str) -> Node:
    """Read one value, as an option such as --set has it. Raises InvalidRequest."""
    documents: Iterator[Node] = iter(read_documents(text, file))
    node = next(documents, Scalar(Place(file), "", None))
    if next(documents, None) is not None:
        raise InvalidRequest("one value is wanted here, not several documents", place=Place(file))
    return node
