"""Classes of workers in a pool file: each is the file's task with some keys of its own, and has its own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from overspan.bridge.model.errors import Place
from overspan.bridge.model.pools import WorkerClass
from overspan.bridge.readers.task_fields import CLASS_KEYS
from overspan.bridge.validation.diagnostics import Diagnostics
from overspan.bridge.validation.yaml_nodes import Items, Table, find_node, is_null, place_in

_NUMBERS = ("workers", "min_workers", "max_workers")
_SHAPE = "write `workers: 3`, or `min_workers: 0` and `max_workers: 10`"

_SPELLINGS = {"gpus": "accelerators", "cloud": "infra", "region": "infra", "zone": "infra"}


def read_classes(values: Mapping[str, Any], table: Table, found: Diagnostics) -> tuple[WorkerClass, ...]:
    """The classes of the mapping `pool`, as it was read from a document; faults go to `found`.

    A class without a highest number may have as many workers as the pool.
    """
    classes: list[WorkerClass] = []
    if values["classes"] == ():
        found.add("there is no class in `classes`", place_in(table, "pool", "classes"), "leave it out, or name one")
    for number, own in enumerate(values["classes"]):
        place = place_in(table, "pool", "classes", number)
        made = _read_class(own, values, place, found)
        if any(made.name == other.name for other in classes):
            found.add(f"there are two classes named {made.name}", place, "give each class a name of its own")
        if made.high < made.low:
            where = place_in(table, "pool", "classes", number, "max_workers")
            found.add(f"max_workers {made.high} is below min_workers {made.low}", where)
        _check_alternatives(table, number, found)
        classes.append(made)
    return tuple(classes)


def _read_class(own: Mapping[str, Any], pool: Mapping[str, Any], place: Place, found: Diagnostics) -> WorkerClass:
    fixed, low, high = (own.get(key) for key in _NUMBERS)
    if fixed is not None:
        if low is not None or high is not None:
            found.add("`workers` and `min_workers` or `max_workers` exclude each other", place)
        low = high = fixed
    high = pool.get("max_workers", pool.get("workers")) if high is None else high
    if high is None:
        found.add(f"the class {own['name']} has no highest number of workers", place, _SHAPE)
        high = low
    return WorkerClass(own["name"], low or 0, high or 0, own.get("weight", 1.0))


def _check_alternatives(document: Table, number: int, found: Diagnostics) -> None:
    """Note keys of a class's `resources` that would have no effect: the file's alternatives are laid over them."""
    own, below = find_node(document, "pool", "classes", number, "resources"), document.get("resources")
    if not isinstance(own, Table) or not isinstance(below, Table):
        return
    for listed in ("any_of", "ordered"):
        if listed in own.entries:
            continue
        entry = below.entries.get(listed)
        items = entry.node.items if entry is not None and isinstance(entry.node, Items) else ()
        named = {_SPELLINGS.get(key, key) for item in items if isinstance(item, Table) for key in item.entries}
        for key, each in own.entries.items():
            if _SPELLINGS.get(key, key) in named:
                remedy = f"write `{listed}` in the class too, or `{listed}: null` for no alternatives"
                found.add(f"`{listed}` of the file's resources says {key} too, and would win", each.place, remedy)


def lay_class(document: Table, number: int) -> Table:
    """The document of one class: the file's, with the keys of the class laid over it.

    Of mappings (`resources`, `envs`) single keys are laid over, all else is replaced.
    """
    own = find_node(document, "pool", "classes", number)
    pool = document.get("pool")
    assert isinstance(own, Table) and isinstance(pool, Table)
    entries = dict(document.entries)
    for key, entry in own.entries.items():
        if key not in CLASS_KEYS or is_null(entry.node):
            continue
        below = document.get(key)
        if isinstance(below, Table) and isinstance(entry.node, Table):
            entry = entry._replace(node=replace(entry.node, entries={**below.entries, **entry.node.entries}))
        entries[key] = entry
    plain = {key: entry for key, entry in pool.entries.items() if key != "classes"}
    entries["pool"] = entries["pool"]._replace(node=replace(pool, entries=plain))
    return replace(document, entries=entries)


def count_classes(document: Table) -> int:
    """How many classes the document of a pool has."""
    listed = find_node(document, "pool", "classes")
    return len(listed.items) if isinstance(listed, Items) else 0
