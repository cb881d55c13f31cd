"""The API talks to the controller's facade: its methods, and the methods of a few ports."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from overspan.bridge import api
from overspan.bridge.controller.controller import Controller
from overspan.bridge.controller.features.access import Access
from overspan.bridge.controller.features.allocations import Allocations
from overspan.bridge.controller.features.crontabs import Crontabs
from overspan.bridge.controller.features.data_caches import DataCaches
from overspan.bridge.controller.features.elastic.requests import ScaleRequests
from overspan.bridge.controller.features.evaluations.requests import EvaluationRequests
from overspan.bridge.controller.features.orphans import OrphanCheck
from overspan.bridge.controller.features.pools.pools import Pools
from overspan.bridge.controller.features.reach.trials import ReachTrials
from overspan.bridge.controller.features.schedules import Schedules
from overspan.bridge.controller.features.storage import Storage
from overspan.bridge.controller.features.unsent_data import UnsentJobs
from overspan.bridge.controller.features.volumes import Volumes
from overspan.bridge.controller.orders.orders import JobOrders
from overspan.bridge.controller.views.cluster_health import ClusterHealth
from overspan.bridge.controller.views.logs import Logs
from overspan.bridge.controller.views.queue_changes import ChangeFeed
from overspan.bridge.controller.views.sent_forms import SentForms

PORTS = {
    "access": Access,
    "allocations": Allocations,
    "crontabs": Crontabs,
    "data_caches": DataCaches,
    "evaluations": EvaluationRequests,
    "feed": ChangeFeed,
    "health": ClusterHealth,
    "logs": Logs,
    "orders": JobOrders,
    "orphans": OrphanCheck,
    "pools": Pools,
    "reach": ReachTrials,
    "scaling": ScaleRequests,
    "schedules": Schedules,
    "sent_forms": SentForms,
    "storage": Storage,
    "unsent_data": UnsentJobs,
    "volumes": Volumes,
}
CLOCK = "clock"
"""The time of the daemon, a function that the controller was given."""
FILES = sorted(Path(api.__file__).parent.glob("*.py"))


def _list_chains(path: Path) -> Iterator[tuple[str, ...]]:
    """The attributes that a module takes of a controller, each chain as far as it goes: `orders.cancel`."""
    tree = ast.parse(path.read_text())
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    aliases = dict(_list_aliases(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            names = ast.unparse(node).split(".")
            names[:1] = aliases.get(names[0], names[:1])
            places = [place for place, name in enumerate(names) if name in ("controller", "_controller")]
            if places and names[places[-1] + 1 :]:
                yield tuple(names[places[-1] + 1 :])


def _list_aliases(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """The names that a module gives to something of a controller."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("controller."):
            yield ast.unparse(node.targets[0]), ast.unparse(node.value).split(".")


def _is_allowed(chain: tuple[str, ...]) -> bool:
    first, *rest = chain
    if first in PORTS:
        return not rest or (len(rest) == 1 and _is_method(PORTS[first], rest[0]))
    return not rest and (first == CLOCK or _is_method(Controller, first))


def _is_method(kind: type, name: str) -> bool:
    return not name.startswith("_") and inspect.isroutine(getattr(kind, name, None))


def test_the_api_reaches_through_no_part_of_the_controller() -> None:
    found = {(path.name, ".".join(chain)) for path in FILES for chain in _list_chains(path) if not _is_allowed(chain)}
    assert found == set()


def test_what_the_api_uses_is_seen_by_this_test() -> None:
    used = {chain[0] for path in FILES for chain in _list_chains(path)}
    assert {*PORTS, "submit", "queue", "find_owner", "list_rows", "describe", "apply_clock_jump"} <= used
