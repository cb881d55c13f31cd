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
    """The tests of part 1 to PARTS: whole files in the order of their paths, each part of about the same length.

    Neighbours need the same rig, so a part starts few.
    """
    files = group_by_file(sorted(nodeids))
    share = weigh(nodeids) / PARTS
    chosen: set[str] = set()
    before = 0.0
    for tests in files.values():
        seconds = weigh(tests)
        if min(int((before + seconds / 2) / share), PARTS - 1) == part - 1:
            chosen.update(tests)
        before += seconds
    return chosen


def _longest(path: str, places: Iterable[str]) -> str:
    """The place that is nearest to a file: its own entry, else that of the innermost folder."""
    fitting = [place for place in places if path == place or path.startswith(f"{place}/")]
    return max(fitting, key=len, default="")
