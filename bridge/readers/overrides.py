"""Overrides: values of --set applied to a job file: `trainer.resources.cpus=0.1`, `*.num_nodes=1`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from overspan.bridge.model.errors import InvalidRequest, Place
from overspan.bridge.validation.diagnostics import nearest
from overspan.bridge.validation.yaml_documents import read_value
from overspan.bridge.validation.yaml_nodes import Items, Node, Scalar, Table, with_entry

EVERY_TASK = "*"
MAX_PARTS = 12
"""Parts of a path; deeper than any key of a job file."""


def apply_overrides(
    header: Table | None, tasks: Sequence[Table], overrides: Sequence[str]
) -> tuple[Table | None, list[Table]]:
    """Lay overrides over the documents, in order.

    PATH=VALUE, with VALUE as YAML and an empty one taking the key away. The first part of a path is a task's name
    or `*` for every task; else the path is the header's, or the only document's. `resources.*.KEY` sets a key of
    `resources` and takes it out of its alternatives. Raises InvalidRequest.
    """
    changed = list(tasks)
    for text in overrides:
        place = Place(f"--set {text}")
        path, equals, written = text.partition("=")
        parts = tuple(path.strip().split("."))
        if not equals or not all(parts) or len(parts) > MAX_PARTS:
            raise InvalidRequest("an override is PATH=VALUE", place=place, remedy="write TASK.KEY=VALUE or KEY=VALUE")
        value = read_value(written, place.file)
        names = [_name_of(task) for task in changed]
        if parts[0] == EVERY_TASK or parts[0] in names:
            if len(parts) == 1:
                raise InvalidRequest("an override of a task needs a key", place=place, remedy="write TASK.KEY=VALUE")
            for index, name in enumerate(names):
                if parts[0] in (EVERY_TASK, name):
                    changed[index] = _changed(changed[index], parts[1:], value, place)
        elif header is not None:
            _check_owner(header, parts, names, place)
            header = _changed(header, parts, value, place)
        elif len(changed) == 1:
            changed[0] = _changed(changed[0], parts, value, place)
        else:
            raise InvalidRequest(f"no task is named {parts[0]!r}{nearest(parts[0], names)}", place=place)
    return header, changed


def _name_of(task: Table) -> str:
    node = task.get("name")
    return node.text if isinstance(node, Scalar) else ""


def _check_owner(header: Table, parts: tuple[str, ...], names: list[str], place: Place) -> None:
    """A longer path that begins with nothing the header has is more likely a misspelt task."""
    if len(parts) > 1 and parts[0] not in header.entries and parts[0] not in ("slurm", "kubernetes", "on_checkpoint"):
        listed = ", ".join(name for name in names if name)
        raise InvalidRequest(
            f"no task is named {parts[0]!r}{nearest(parts[0], names)}", place=place, remedy=f"the tasks are {listed}"
        )


def _changed(table: Table, path: tuple[str, ...], value: Node, place: Place) -> Table:
    try:
        if path[:2] == ("resources", EVERY_TASK) and len(path) > 2:
            path = ("resources", *path[2:])
            table = _without_alternatives(table, path[1:])
        return with_entry(table, path, value)
    except ValueError as error:
        raise InvalidRequest(str(error), place=place) from None


def _without_alternatives(table: Table, path: tuple[str, ...]) -> Table:
    """The task whose alternatives of `resources` say nothing of a key."""
    resources = table.get("resources")
    if not isinstance(resources, Table):
        return table
    for key in ("any_of", "ordered"):
        listed = resources.get(key)
        if isinstance(listed, Items):
            items = tuple(_without(item, path[0]) for item in listed.items)
            resources = with_entry(resources, (key,), replace(listed, items=items))
    return with_entry(table, ("resources",), resources)


def _without(node: Node, key: str) -> Node:
    if not isinstance(node, Table):
        return node
    return replace(node, entries={name: entry for name, entry in node.entries.items() if name != key})
