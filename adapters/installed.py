"""The kinds of clusters that an adapter is installed for: the built-in ones, and those of entry points."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points

from overspan.adapters.contract import Opener
from overspan.bridge.model.errors import InvalidRequest

LOCAL = "local"
"""The kind of this machine, and the name of the cluster of that kind that is always there."""
POOL = "pool"
"""The kind of pools, which are made by users and not by the configuration."""
GROUP = "overspan.adapters"
BUILT_IN: Mapping[str, str] = {
    LOCAL: "overspan.adapters.local:open_cluster",
    "slurm": "overspan.adapters.slurm.opening:open_configured",
    "kubernetes": "overspan.adapters.kubernetes:open_cluster",
}
"""Adapters that need no entry point, so that a source tree works as it is."""
_WITHOUT_VOLUMES = (LOCAL, "slurm")


def find_opener(kind: str) -> Opener:
    """The function that opens clusters of a kind. Raises InvalidRequest when no adapter is installed for it."""
    target = BUILT_IN.get(kind)
    if target is not None:
        module, _, name = target.partition(":")
        opener: Opener = getattr(importlib.import_module(module), name)
        return opener
    for entry in entry_points(group=GROUP, name=kind):
        loaded: Opener = entry.load()
        return loaded
    raise InvalidRequest(
        f"no adapter is installed for clusters of kind {kind!r}",
        remedy=f"kinds that work here: {', '.join(sorted(installed_kinds()))}",
    )


def find_pool_opener(kind: str = POOL) -> Opener:
    """The function that opens pools; no configuration can name their kind."""
    from overspan.adapters.pool import open_cluster

    return open_cluster


def check_kind(kind: str) -> None:
    """Raise InvalidRequest for a kind of cluster that no adapter is installed for; nothing is imported."""
    if kind in BUILT_IN or kind in installed_kinds():
        return
    found = difflib.get_close_matches(kind, sorted(installed_kinds()), 1)
    raise InvalidRequest(
        f"no adapter is installed for clusters of kind {kind!r}" + (f"; did you mean {found[0]!r}?" if found else ""),
        remedy=f"kinds that work here: {', '.join(sorted(installed_kinds()))}",
    )


def installed_kinds() -> set[str]:
    """The kinds that an adapter is installed for."""
    return {*BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))}


def has_volumes(kind: str) -> bool:
    """Whether shared folders of clusters of a kind may be volumes; an adapter of an entry point says so itself."""
    return kind not in _WITHOUT_VOLUMES


def is_this_machine(kind: str) -> bool:
    """Whether clusters of a kind are this machine, which is told without importing their adapter."""
    return kind == LOCAL
