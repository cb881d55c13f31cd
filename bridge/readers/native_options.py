"""Native options of a task: sbatch options under `slurm`, a pod overlay under `kubernetes`."""

from __future__ import annotations

import re
import shlex
from typing import Any

from overspan.bridge.model.options.sbatch import BY_LETTER, BY_NAME, Argument
from overspan.bridge.readers.field_types import FieldType, anything
from overspan.bridge.validation.diagnostics import Diagnostics, Fault, nearest, say_wanted
from overspan.bridge.validation.yaml_nodes import Items, Node, Scalar, Table, describe, is_null

RESERVED = ("job-name", "output", "error", "chdir", "wrap", "uid", "gid")
"""sbatch options that Overspan sets itself or never passes."""

_NAME = re.compile(r"[a-z][a-z0-9-]*")


def slurm_options() -> FieldType:
    """sbatch options: a mapping of long names, or a list or text of options as typed.

    Read as {long name: text}, an empty text for an option without a value.
    """
    written = {"type": ["string", "number", "boolean", "null"]}
    table = {"type": "object", "additionalProperties": written}
    listed = {"type": "array", "items": {"type": "string"}}
    return FieldType(_read_slurm, {"anyOf": [table, listed, {"type": "string"}]})


def _read_slurm(node: Node, found: Diagnostics) -> dict[str, str]:
    options: dict[str, str] = {}
    if isinstance(node, Table):
        for key, entry in node.entries.items():
            with found.collecting():
                name = _check_name(key.lstrip("-").replace("_", "-"), entry.node, found)
                if isinstance(entry.node, Scalar) and entry.node.value is False:
                    continue
                options[name] = _option_value(name, entry.node)
        return options
    for item in node.items if isinstance(node, Items) else (node,):
        with found.collecting():
            options.update(_read_words(item, found))
    return options


def _read_words(node: Node, found: Diagnostics) -> dict[str, str]:
    if not isinstance(node, Scalar):
        raise Fault(say_wanted("an option such as --exclusive", describe(node)), node.place)
    try:
        words = shlex.split(node.text)
    except ValueError as error:
        raise Fault(f"the quotes do not match: {error}", node.place) from None
    options: dict[str, str] = {}
    while words:
        name, value = _take_option(words, node)
        options[_check_name(name, node, found)] = value
    return options


def _take_option(words: list[str], node: Node) -> tuple[str, str]:
    """Take one option and its value from the words."""
    word = words.pop(0)
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        known = BY_NAME.get(name)
    else:
        known = BY_LETTER.get(word[1:2]) if word.startswith("-") else None
        if known is None:
            raise Fault(f"{word!r} is not an option of sbatch", node.place, "write --name=value")
        name, value, equals = known.name, word[2:], word[2:3]
    if not equals and known is not None and known.argument is Argument.REQUIRED:
        if not words:
            raise Fault(f"--{name} needs a value", node.place)
        value = words.pop(0)
    return name, value


def _check_name(name: str, node: Node, found: Diagnostics) -> str:
    if not _NAME.fullmatch(name):
        raise Fault(f"{name!r} is not the name of an sbatch option", node.place)
    if name in RESERVED:
        raise Fault(f"the sbatch option --{name} is reserved", node.place, "Overspan sets it or never passes it on")
    known = BY_NAME.get(name)
    if known is None:
        # A site's plug-ins add options of their own.
        found.note(f"{node.place}: --{name} is none of sbatch's own options{nearest(name, BY_NAME)}")
        return name
    return known.name


def _option_value(name: str, node: Node) -> str:
    if is_null(node) or (isinstance(node, Scalar) and node.value is True):
        known = BY_NAME.get(name)
        if known is not None and known.argument is Argument.REQUIRED:
            raise Fault(f"the sbatch option --{name} needs a value", node.place)
        return ""
    if isinstance(node, Items):
        return ",".join(_option_value(name, item) for item in node.items)
    if not isinstance(node, Scalar):
        raise Fault(f"one value is wanted for --{name}, not {describe(node)}", node.place)
    return node.text


def pod_overlay() -> FieldType:
    """A part of a pod manifest, laid over the one that Overspan writes."""

    def read(node: Node, found: Diagnostics) -> dict[str, Any]:
        if not isinstance(node, Table):
            raise Fault(say_wanted("a part of a pod manifest", describe(node)), node.place)
        overlay: dict[str, Any] = anything().read(node, found)
        return overlay

    return FieldType(read, {"type": "object"})
