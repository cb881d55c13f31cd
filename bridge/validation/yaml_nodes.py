"""YAML nodes: a document as a tree that knows the position of each part in the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from overspan.bridge.model.errors import Place
from overspan.bridge.validation.diagnostics import describe_value


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value: the text as written, and what YAML 1.2 makes of it."""

    place: Place
    text: str
    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    place: Place
    items: tuple[Node, ...]


class TableEntry(NamedTuple):
    """A key's position and its value."""

    place: Place
    node: Node


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping. Keys are the texts as written."""

    place: Place
    entries: Mapping[str, TableEntry]

    def get(self, key: str) -> Node | None:
        """The value of a key; None where it is absent or null."""
        entry = self.entries.get(key)
        return None if entry is None or is_null(entry.node) else entry.node


Node: TypeAlias = Scalar | Items | Table


def is_null(node: Node) -> bool:
    """Whether a value was left empty."""
    return isinstance(node, Scalar) and node.value is None


def describe(node: Node) -> str:
    """What a value is, for a message; numbers, true and false as they are written."""
    if not isinstance(node, Scalar):
        return describe_value({} if isinstance(node, Table) else ())
    return describe_value(node.value) if node.value is None or isinstance(node.value, str) else node.text


def _descend(node: Node, path: tuple[str | int, ...]) -> Iterator[TableEntry]:
    """The node, and those along a path as far as it exists, each with the place of its key."""
    entry = TableEntry(node.place, node)
    yield entry
    for part in path:
        found = _enter(entry.node, part)
        if found is None:
            return
        entry = found
        yield entry


def _enter(node: Node, part: str | int) -> TableEntry | None:
    if isinstance(node, Table):
        return node.entries.get(str(part))
    if isinstance(node, Items) and isinstance(part, int) and part < len(node.items):
        return TableEntry(node.items[part].place, node.items[part])
    return None


def find_node(node: Node, *path: str | int) -> Node | None:
    """The node at a path; None where there is none."""
    nodes = list(_descend(node, path))
    return nodes[-1].node if len(nodes) > len(path) else None


def has_path(node: Node, *path: str | int) -> bool:
    """Whether there is a value, or an empty one, at a path."""
    return find_node(node, *path) is not None


def place_in(node: Node, *path: str | int) -> Place:
    """The position of the value at a path, or of its nearest ancestor that exists."""
    *_, last = _descend(node, path)
    return last.node.place


def key_place(node: Node, *path: str | int) -> Place:
    """The position of the key (in a list: the item) at a path, or of its nearest ancestor that exists."""
    *_, last = _descend(node, path)
    return last.place


def plain(node: Node) -> Any:
    """The value as dicts, lists and scalars. The depth was bounded when the text was read."""
    if isinstance(node, Table):
        return {key: plain(entry.node) for key, entry in node.entries.items()}
    if isinstance(node, Items):
        return [plain(item) for item in node.items]
    return node.value


def map_texts(node: Node, change: Callable[[str], str]) -> Node:
    """The tree with every text in it changed, keys too; numbers stay."""
    if isinstance(node, Table):
        entries = {
            change(key): TableEntry(entry.place, map_texts(entry.node, change)) for key, entry in node.entries.items()
        }
        return replace(node, entries=entries)
    if isinstance(node, Items):
        return replace(node, items=tuple(map_texts(item, change) for item in node.items))
    if isinstance(node.value, str):
        text = change(node.text)
        return replace(node, text=text, value=text)
    return node


def with_entry(table: Table, path: tuple[str, ...], value: Node) -> Table:
    """The table with the value at a path of keys set; tables on the way are made where they are missing.

    Raises ValueError where something other than a table is on the way.
    """
    key, rest = path[0], path[1:]
    entry = table.entries.get(key)
    if rest:
        inner = Table(value.place, {}) if entry is None or is_null(entry.node) else entry.node
        if not isinstance(inner, Table):
            raise ValueError(f"{key!r} is {describe(inner)}, so it has no key {rest[0]!r}")
        value = with_entry(inner, rest, value)
    place = entry.place if entry is not None else value.place
    return replace(table, entries={**table.entries, key: TableEntry(place, value)})
