"""Types of a job file's fields: each reads a node and gives its JSON Schema, so that the two cannot differ.

Reading raises Fault for a value that does not fit; lists and mappings collect the faults of their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, TypeVar

from overspan.bridge.validation.diagnostics import (
    Diagnostics,
    Fault,
    nearest,
    say_choice,
    say_length,
    say_range,
    say_wanted,
)
from overspan.bridge.validation.yaml_nodes import (
    Items,
    Node,
    Scalar,
    Table,
    TableEntry,
    describe,
    is_null,
    plain,
)

Read = Callable[[Node, Diagnostics], Any]
Kind = TypeVar("Kind", bound=Enum)

MAX_TEXT = 1024
"""The most characters in a text that is not a program."""


@dataclass(frozen=True)
class FieldType:
    """How a value is read, and its JSON Schema."""

    read: Read
    schema: Mapping[str, Any]


class Effect(Enum):
    """The treatment of a known key."""

    READ = "read"
    NOTED = "noted"
    REFUSED = "refused"


@dataclass(frozen=True)
class TableKey:
    """One key of a table: its type, a sentence for editors, and what happens to it.

    `advice` is the reason of a note, or the remedy of a refusal or of a missing required key.
    """

    value_type: FieldType
    doc: str
    effect: Effect = Effect.READ
    advice: str = ""
    required: bool = False


def _scalar(node: Node, wanted: str) -> Scalar:
    if isinstance(node, Scalar) and node.value is not None:
        return node
    raise Fault(say_wanted(wanted, describe(node)), node.place)


def text(limit: int = MAX_TEXT) -> FieldType:
    """One text. Numbers count as text; true and false have to be quoted."""

    def read(node: Node, found: Diagnostics) -> str:
        scalar = _scalar(node, "text")
        if isinstance(scalar.value, bool):
            raise Fault(say_wanted("text", scalar.text), node.place, f'write "{scalar.text}" with quotes')
        if "\0" in scalar.text:
            raise Fault("no program can be given a NUL character", node.place, "take \\0 out of it")
        if len(scalar.text) > limit:
            raise Fault(say_length(len(scalar.text), limit), node.place)
        return scalar.text

    return FieldType(read, {"type": "string", "maxLength": limit})


def program() -> FieldType:
    """Shell text of any length."""
    return FieldType(text(4 * 1024 * 1024).read, {"type": "string"})


def checked(parse: Callable[[Any], Any], schema: Mapping[str, Any]) -> FieldType:
    """A scalar that a function of the model reads; its ValueError becomes the fault."""

    def read(node: Node, found: Diagnostics) -> Any:
        scalar = _scalar(node, "a single value")
        return attempt(lambda: parse(scalar.value), node)

    return FieldType(read, schema)


def attempt(call: Callable[[], Any], node: Node) -> Any:
    """Call a function of the model; its ValueError becomes a Fault at the node."""
    try:
        return call()
    except ValueError as error:
        raise Fault(str(error), node.place) from None


def boolean() -> FieldType:
    """true or false."""

    def read(node: Node, found: Diagnostics) -> bool:
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return node.value
        raise Fault(say_wanted("true or false", describe(node)), node.place)

    return FieldType(read, {"type": "boolean"})


def integer(low: int, high: int) -> FieldType:
    """A whole number within bounds."""

    def read(node: Node, found: Diagnostics) -> int:
        if not isinstance(node, Scalar) or not isinstance(node.value, int) or isinstance(node.value, bool):
            raise Fault(say_wanted("a whole number", describe(node)), node.place)
        if not low <= node.value <= high:
            raise Fault(say_range(node.value, f"from {low} to {high}"), node.place)
        return node.value

    return FieldType(read, {"type": "integer", "minimum": low, "maximum": high})


def number(low: float, high: float) -> FieldType:
    """A number within bounds."""

    def read(node: Node, found: Diagnostics) -> float:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Fault(say_wanted("a number", describe(node)), node.place)
        if not low <= value <= high:
            raise Fault(say_range(value, f"from {low} to {high}"), node.place)
        return float(value)

    return FieldType(read, {"type": "number", "minimum": low, "maximum": high})


def choice(kind: type[Kind]) -> FieldType:
    """One of an enumeration's values."""
    known = [str(member.value) for member in kind]

    def read(node: Node, found: Diagnostics) -> Kind:
        written = _scalar(node, "one of " + ", ".join(known)).text
        if written not in known:
            raise Fault(say_choice(written, known), node.place)
        return kind(written)

    return FieldType(read, {"enum": known})


def list_of(item: FieldType, *, single: bool = False) -> FieldType:
    """A list, read as a tuple; with `single` one value alone counts as a list of it."""

    def read(node: Node, found: Diagnostics) -> tuple[Any, ...]:
        if not isinstance(node, Items):
            if single:
                return (item.read(node, found),)
            raise Fault(say_wanted("a list", describe(node)), node.place, "write [a, b], or lines with '- '")
        values = []
        for part in node.items:
            with found.collecting():
                values.append(item.read(part, found))
        return tuple(values)

    listed = {"type": "array", "items": dict(item.schema)}
    return FieldType(read, {"anyOf": [dict(item.schema), listed]} if single else listed)


def mapping_of(value: FieldType, *, nullable: bool = False) -> FieldType:
    """A mapping of free keys, read as a dict; a null value is left out, or kept as None where it is allowed."""

    def read(node: Node, found: Diagnostics) -> dict[str, Any]:
        if not isinstance(node, Table):
            raise Fault(say_wanted("a mapping", describe(node)), node.place, "write lines such as `key: value`")
        values: dict[str, Any] = {}
        for key, entry in node.entries.items():
            if is_null(entry.node):
                if nullable:
                    values[key] = None
                continue
            with found.collecting():
                values[key] = value.read(entry.node, found)
        return values

    inner = {"anyOf": [dict(value.schema), {"type": "null"}]}
    return FieldType(read, {"type": "object", "additionalProperties": inner})


def by_form(
    *, scalar: FieldType | None = None, items: FieldType | None = None, table: FieldType | None = None
) -> FieldType:
    """Different types for a single value, a list and a mapping."""
    types = {Scalar: scalar, Items: items, Table: table}
    names = {Scalar: "a single value", Items: "a list", Table: "a mapping"}

    def read(node: Node, found: Diagnostics) -> Any:
        chosen = types[type(node)]
        if chosen is None:
            wanted = " or ".join(names[form] for form, known in types.items() if known)
            raise Fault(say_wanted(wanted, describe(node)), node.place)
        return chosen.read(node, found)

    return FieldType(read, {"anyOf": [dict(chosen.schema) for chosen in types.values() if chosen]})


def anything() -> FieldType:
    """Any value, as plain data."""
    return FieldType(lambda node, found: plain(node), {})


@dataclass(frozen=True)
class Record:
    """A mapping of known keys."""

    title: str
    fields: Mapping[str, TableKey]
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Keys that belong elsewhere, with a hint where."""

    def read(self, node: Node, found: Diagnostics) -> dict[str, Any]:
        """Read the keys that are there; a null counts as absent. Unknown keys are faults."""
        if not isinstance(node, Table):
            raise Fault(f"{self.title} is a mapping, and this is {describe(node)}", node.place)
        values: dict[str, Any] = {}
        for key, entry in node.entries.items():
            known = self.fields.get(key)
            if known is None:
                self._add_unknown(key, entry, found)
            elif not is_null(entry.node):
                with found.collecting():
                    self._read_field(key, entry, values, found)
        for key, known in self.fields.items():
            if known.required and node.get(key) is None:
                found.add(f"{self.title} needs the key {key!r}", node.place, known.advice)
        return values

    def as_type(self) -> FieldType:
        """The record as the type of a field."""
        return FieldType(self.read, self.schema())

    def schema(self) -> dict[str, Any]:
        """The record's JSON Schema; refused keys are left out."""
        properties = {
            key: {**_nullable(known.value_type.schema), "description": _describe(known)}
            for key, known in self.fields.items()
            if known.effect is not Effect.REFUSED
        }
        schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        required = [key for key, known in self.fields.items() if known.required]
        return {**schema, "required": required} if required else schema

    def _read_field(self, key: str, entry: TableEntry, values: dict[str, Any], found: Diagnostics) -> None:
        known = self.fields[key]
        if known.effect is Effect.REFUSED:
            raise Fault(f"{key!r} is not supported", entry.place, known.advice)
        value = known.value_type.read(entry.node, found)
        if known.effect is Effect.NOTED:
            found.note(f"{entry.place}: {key} has no effect: {known.advice}")
        else:
            values[key] = value

    def _add_unknown(self, key: str, entry: TableEntry, found: Diagnostics) -> None:
        if key in self.elsewhere:
            found.add(f"the key {key!r} does not belong in {self.title}", entry.place, self.elsewhere[key])
        else:
            found.add(f"unknown key {_short(key)!r}{nearest(key, self.fields)}", entry.place)


def _short(key: str) -> str:
    return key if len(key) <= 64 else key[:64] + "..."


def _nullable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A null counts as absent everywhere. An empty schema takes it already."""
    if not schema:
        return {}
    return {"anyOf": [*schema["anyOf"], {"type": "null"}] if "anyOf" in schema else [dict(schema), {"type": "null"}]}


def _describe(known: TableKey) -> str:
    return f"{known.doc} (accepted without effect: {known.advice})" if known.effect is Effect.NOTED else known.doc


def take_plain(kind: type[Any], values: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """The values of keys that are called as a field of a dataclass, and are its value as they were read."""
    return {field.name: values[field.name] for field in fields(kind) if field.name in values.keys() - without}
