"""How tests are handed to workers: whole files, the longest first; tests on one rig go to one worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.tiers import group_by_file, read_tiers, weigh
from xdist.scheduler import LoadScopeScheduling

RIG_SECONDS = 660.0
"""So long may one worker be at a rig; more than that is shared by workers with a rig each, which costs its start."""


def plan_units(nodeids: Sequence[str]) -> dict[str, list[str]]:
    """Units of work by name, the longest first: a file, or the files on a rig."""
    tiers = read_tiers()
    units: dict[str, list[str]] = {}
    shared: dict[str, dict[str, list[str]]] = {}
    for path, tests in group_by_file(nodeids).items():
        rig = tiers.rig_of(path)
        if rig:
            shared.setdefault(rig, {})[path] = tests
        else:
            units[path] = tests
    for rig, files in shared.items():
        for number, bundle in enumerate(_pack(files.values())):
            units[f"{rig} {number}"] = bundle
    return dict(sorted(units.items(), key=lambda unit: -weigh(unit[1])))


def _pack(files: Iterable[list[str]]) -> list[list[str]]:
    """Spread files over as few bundles as RIG_SECONDS allows, each file to the shortest so far."""
    longest_first = sorted(files, key=lambda tests: -weigh(tests))
    count = int(weigh(nodeid for tests in longest_first for nodeid in tests) // RIG_SECONDS) + 1
    bundles: list[list[str]] = [[] for _ in range(count)]
    for tests in longest_first:
        min(bundles, key=weigh).extend(tests)
    return [bundle for bundle in bundles if bundle]


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]
    """xdist's scheduler by scopes, with the units of `plan_units` as scopes."""

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        # Units are handed out in the order of the collection, which the workers have put into that of the plan.
        config.option.loadscopereorder = False
        self._unit_of: dict[str, str] = {}

    def schedule(self) -> None:
        """Plan once all workers have told what they collected."""
        if self.collection is None:
            units = plan_units(next(iter(self.registered_collections.values())))
            self._unit_of = {nodeid: name for name, tests in units.items() for nodeid in tests}
        super().schedule()
        if not self.workqueue:
            # A worker keeps its last test until it knows that none comes after it.
            for node in self.nodes:
                if not node.shutting_down:
                    node.shutdown()

    def remove_node(self, node: Any) -> str | None:
        """Hand out again what a dead worker has not played; gives the test that it died in, which is over.

        xdist's own queues also the units that are done: whoever gets one is sent nothing, and so never asks again.
        """
        left: dict[str, dict[str, bool]] = {}
        died_in = None
        for name, unit in self.assigned_work.pop(node).items():
            for nodeid, is_done in unit.items():
                if is_done:
                    continue
                if died_in is None:
                    died_in = nodeid
                else:
                    left.setdefault(name, {})[nodeid] = False
        self.workqueue.update(left)
        for other in self.nodes:
            self._reschedule(other)
        return died_in

    def _split_scope(self, nodeid: str) -> str:
        return self._unit_of[nodeid]
