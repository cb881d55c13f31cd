"""Which tests belong to which run: the gate, everything, or one of eight parts of what the gate leaves out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).parents[1]
PARTS = 8
GATE = Path(__file__).with_name("gate.yaml")
DURATIONS = Path(__file__).with_name("durations.json")
UNKNOWN_SECONDS = 0.05
"""What a test counts that was never measured, or was too short to be kept."""


class Tiers(NamedTuple):
    """The page `gate.yaml`: folders and files of which the gate plays some tests only, and the tests on each rig."""

    stories: Mapping[str, frozenset[str]]
    rigs: Mapping[str, tuple[str, ...]]

    def is_in_gate(self, nodeid: str) -> bool:
        """Whether `make test` plays a test: it does unless its file is listed without it."""
        path, _, name = nodeid.partition("::")
        listed = self.stories.get(_longest(path, self.stories))
        return listed is None or not listed.isdisjoint({name, name.partition("[")[0], name.partition("::")[0]})

    def rig_of(self, path: str) -> str:
        """The rig that the tests of a file share with others; empty where they need none, or one of their own."""
        own = {where: rig for rig, places in self.rigs.items() for where in places}
        return own.get(_longest(path, own), "")


@cache
def read_tiers() -> Tiers:
    """Read the page."""
    page = yaml.safe_load(GATE.read_text())
    stories = {path: frozenset(names or ()) for path, names in page["only"].items()}
    return Tiers(stories, {rig: tuple(places) for rig, places in page["rigs"].items()})


@cache
def read_durations() -> Mapping[str, float]:
    """Seconds of each test as measured last; `pytest --record-durations` writes them."""
    measured: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    return measured


def weigh(nodeids: Iterable[str]) -> float:
    """How many seconds these tests take, one after the other."""
    measured = read_durations()
    return sum(measured.get(nodeid, UNKNOWN_SECONDS) for nodeid in nodeids)


def group_by_file(nodeids: Iterable[str]) -> dict[str, list[str]]:
    """The tests of each file, in their order."""
    files: dict[str, list[str]] = {}
    for nodeid in nodeids:
        files.setdefault(nodeid.partition("::")[0], []).append(nodeid)
    return files


def choose_part(nodeids: Sequence[str], part: int) -> set[str]:
    """The tests of part 1 to PARTS: whole files. Each part has its share of each rig's tests.

    The tests of a rig run one after the other, those of different rigs side by side.
    """
    tiers = read_tiers()
    parts: list[list[str]] = [[] for _ in range(PARTS)]
    by_rig: dict[str, list[list[str]]] = {}
    for path, tests in group_by_file(sorted(nodeids)).items():
        by_rig.setdefault(tiers.rig_of(path), []).append(tests)
    for files in by_rig.values():
        shares: list[list[str]] = [[] for _ in range(PARTS)]
        for tests in sorted(files, key=weigh, reverse=True):
            min(shares, key=weigh).extend(tests)
        # The longest share goes to the part that is shortest so far.
        parts.sort(key=weigh)
        for chosen, share in zip(parts, sorted(shares, key=weigh, reverse=True), strict=True):
            chosen.extend(share)
    return set(parts[part - 1])


def _longest(path: str, places: Iterable[str]) -> str:
    """The place that is nearest to a file: its own entry, else that of the innermost folder."""
    fitting = [place for place in places if path == place or path.startswith(f"{place}/")]
    return max(fitting, key=len, default="")
