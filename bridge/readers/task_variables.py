"""Environment and secrets of a task, their substitution into other keys before these are read, and the login's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from overspan.bridge.model.errors import Place
from overspan.bridge.readers.read_context import ReadContext
from overspan.bridge.readers.task_fields import SKYPILOT
from overspan.bridge.validation.diagnostics import Diagnostics, Fault
from overspan.bridge.validation.yaml_nodes import Items, Node, Table, TableEntry, map_texts

FILLED = ("workdir", "file_mounts", "volumes")
"""Keys of a task in which variables are filled in, besides resources.image_id."""

MAX_FILLED = 4096
"""Characters of a text after filling; no path or image is longer."""

# Only an interactive shell reads ~/.bashrc past its guards; what it prints is kept apart from what it exports. A child
# shell is asked for its variables, because the task itself must not run in an interactive shell: these ignore TERM.
_PRELUDE = """\
if [ -n "$BASH_VERSION" ]; then
overspan_own=$(declare -p {names} 2>/dev/null)
eval "$({{ bash -ic '{{ export -p; declare -f; }} >&3' </dev/null >/dev/null 2>&1; }} 3>&1)"
eval "$overspan_own"
unset overspan_own
fi
"""
_KEPT = ("PWD", "OLDPWD", "SHLVL")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


class Variables(NamedTuple):
    """A task's environment, and its secret part."""

    env: dict[str, str]
    secrets: dict[str, str]


def read_variables(task: Table, context: ReadContext, found: Diagnostics) -> Variables:
    """Read `envs` and `secrets` with the values given outside the file laid over them.

    A name without a value in either is a fault; what the file does not name is added.
    """
    env = _read(task, "envs", "--env", context.env, found)
    secrets = _read(task, "secrets", "--secret", context.secrets, found)
    for name in set(_names(task, "envs")) & set(_names(task, "secrets")):
        found.add(f"{name} is in envs and in secrets", _key_place(task, "secrets"), "keep it in one of them")
    return Variables(env, secrets)


def fill_variables(task: Table, variables: Variables, found: Diagnostics) -> Table:
    """The task with ${NAME} and $NAME of its variables filled in; unknown names stay as they are."""
    values = {**variables.env, **variables.secrets}
    if not values:
        return task
    entries = dict(task.entries)
    for key in FILLED:
        if key in entries:
            with found.collecting():
                entries[key] = TableEntry(entries[key].place, _filled(entries[key].node, values))
    if "resources" in entries:
        resources = entries["resources"]
        with found.collecting():
            entries["resources"] = TableEntry(resources.place, _fill_images(resources.node, values))
    return replace(task, entries=entries)


def add_login(text: str, names: Iterable[str]) -> str:
    """Prefix the text with a prelude that imports the login's variables and functions; `names` keep their values.

    An empty text stays empty.
    """
    return _PRELUDE.format(names=" ".join((*_KEPT, *names))) + text if text.strip() else text


def _fill_images(node: Node, values: Mapping[str, str]) -> Node:
    """Fill image_id in resources and in its alternatives."""
    if isinstance(node, Items):
        return replace(node, items=tuple(_fill_images(item, values) for item in node.items))
    if not isinstance(node, Table):
        return node
    entries = dict(node.entries)
    for key, entry in entries.items():
        if key == "image_id":
            entries[key] = TableEntry(entry.place, _filled(entry.node, values))
        elif key in ("any_of", "ordered"):
            entries[key] = TableEntry(entry.place, _fill_images(entry.node, values))
    return replace(node, entries=entries)


def _filled(node: Node, values: Mapping[str, str]) -> Node:
    """The node with variables filled in. Raises Fault where a text becomes too long to be a path."""

    def value_of(match: re.Match[str]) -> str:
        # Cut before it is repeated: a long value used often would fill the memory.
        return values.get(match[1] or match[2], match[0])[: MAX_FILLED + 1]

    def fill(text: str) -> str:
        if len(text) > MAX_FILLED or "$" not in text:
            return text
        filled = _USE.sub(value_of, text)
        if len(filled) > MAX_FILLED:
            raise Fault(f"a text has more than {MAX_FILLED} characters with its variables filled in", node.place)
        return filled

    return map_texts(node, fill)


def _names(task: Table, key: str) -> list[str]:
    node = task.get(key)
    if isinstance(node, Table):
        return list(node.entries)
    return [getattr(item, "text", "") for item in node.items] if isinstance(node, Items) else []


def _read(task: Table, key: str, option: str, given: Mapping[str, str], found: Diagnostics) -> dict[str, str]:
    node = task.get(key)
    values: Mapping[str, str | None] = {}
    if node is not None:
        with found.collecting():
            read = SKYPILOT[key].value_type.read(node, found)
            values = read if isinstance(read, dict) else dict.fromkeys(read)
    for name in values:
        if not _NAME.fullmatch(name):
            found.add(f"{name!r} is not the name of a variable", _key_place(task, key, name))
    for name in given:
        if not _NAME.fullmatch(name):
            found.add(
                f"{name!r} is not the name of a variable", Place(f"{option} {name}"), "use letters, digits and '_'"
            )
    merged: dict[str, str] = {}
    for name, value in {**values, **given}.items():
        if value is not None:
            merged[name] = value
        else:
            found.add(f"{name} has no value", _key_place(task, key, name), f"give it with {option} {name}=VALUE")
    return merged


def _key_place(task: Table, key: str, name: str = "") -> Place:
    entry = task.entries[key]
    node = entry.node
    if isinstance(node, Table) and name in node.entries:
        return node.entries[name].place
    if isinstance(node, Items):
        return next((item.place for item in node.items if getattr(item, "text", None) == name), entry.place)
    return entry.place
