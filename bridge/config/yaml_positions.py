"""YAML with positions: every value of a configuration file and where it stands.

Scalars are read by YAML 1.2's core rules, so that `on` stays text and `1:30` is no number. Called by `settings` only.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import yaml

from overspan.bridge.model.errors import InvalidRequest, Place

Path = tuple[str | int, ...]

MAX_DEPTH = 40
"""Levels of nesting; deeper files are refused rather than walked."""

_TRUTH = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")


class Positioned(NamedTuple):
    """A document, and the place of each of its values and keys by path."""

    value: dict[str, Any]
    places: dict[Path, Place]

    def place(self, path: Path) -> Place | None:
        """The place of the value, or of the nearest thing around it that the file has."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path)


def read_positioned(text: str, file: str) -> Positioned:
    """Read one YAML mapping. Raises InvalidRequest with the place: bad YAML, duplicate keys, aliases, not a mapping."""
    try:
        node = yaml.compose(text, Loader=yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        raise InvalidRequest(f"this is no valid YAML: {error.problem}", place=place) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidRequest(f"this is no valid YAML: {error}", place=Place(file)) from None
    if node is None:
        return Positioned({}, {(): Place(file, 1, 1)})
    builder = _PositionBuilder(file)
    value = builder.build(node, ())
    if not isinstance(value, dict):
        raise InvalidRequest("a configuration file holds keys and values", place=builder.places[()])
    return Positioned(value, builder.places)


class _PositionBuilder:
    """Makes values of YAML nodes and notes the place of each."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.places: dict[Path, Place] = {}
        self._seen: set[int] = set()

    def build(self, node: yaml.Node, path: Path) -> Any:
        """The value of a node."""
        place = self._place(node)
        if len(path) > MAX_DEPTH:
            raise InvalidRequest(f"the file is nested more than {MAX_DEPTH} levels deep", place=place)
        if id(node) in self._seen:
            # Repeated aliases make a small file enormous.
            raise InvalidRequest("a configuration file has no aliases", remedy="write the value out", place=place)
        self._seen.add(id(node))
        # A value under a key keeps the place of its key, which is what a reader looks for.
        self.places.setdefault(path, place)
        if isinstance(node, yaml.MappingNode):
            return self._build_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        return _scalar(node)

    def _build_mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = self._place(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                raise InvalidRequest("a key has to be a word", place=place)
            key = str(key_node.value)
            if key in result:
                first = self.places[(*path, key)]
                remedy = f"the first is in line {first.line}; keep one"
                raise InvalidRequest(f"the key {key!r} is there twice", remedy=remedy, place=place)
            self.places[(*path, key)] = place
            result[key] = self.build(value_node, (*path, key))
        return result

    def _place(self, node: yaml.Node) -> Place:
        return Place(self.file, node.start_mark.line + 1, node.start_mark.column + 1)


def _scalar(node: yaml.Node) -> Any:
    text = str(node.value)
    if getattr(node, "style", None):
        return text
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
