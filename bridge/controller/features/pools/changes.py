"""What another file, or other numbers, make of a pool's facts. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from overspan.bridge.model.documents import encode
from overspan.bridge.model.pools import PoolSize
from overspan.bridge.model.spec import JobSpec, Origin
from overspan.bridge.readers.pool_file import PoolSpec
from overspan.bridge.store.pool_records import ClassFacts, PoolFacts


def resize(facts: PoolFacts, size: PoolSize) -> PoolFacts:
    """The facts with another size; a pool that had failed is tried again, one that was deleted lives on.

    Numbers of workers are brought within those of the size when the pool is planned.
    """
    classes = {
        each.name: replace(facts.classes.get(each.name, ClassFacts(facts.generation)), failures=0, message="")
        for each in size.every_class
    }
    return replace(facts, size=size, ending="", classes=classes)


def change_spec(facts: PoolFacts, before: PoolSpec, after: PoolSpec) -> PoolFacts:
    """The facts with another file: the workers of a class that is another now are old."""
    changed = [
        name
        for name, worker in after.workers.items()
        if name not in before.workers or _compare(before.workers[name]) != _compare(worker)
    ]
    gone = before.workers.keys() - after.workers.keys()
    facts = resize(replace(facts, generation=facts.generation + bool(changed or gone)), after.size)
    for name in changed:
        facts = facts.with_class(name, replace(facts.of(name), since=facts.generation))
    return facts


def _compare(spec: JobSpec) -> dict[str, Any]:
    """What of a worker's spec calls for new workers when it changes."""
    plain = replace(spec, origin=Origin(), environment={}, notes=(), later_places={}, mount_places={}, name="")
    document: dict[str, Any] = encode(plain)
    return document
