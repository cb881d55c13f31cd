"""Reads Slurm's --dependency."""

from __future__ import annotations

import re

from overspan.bridge.model.ids import parse_array
from overspan.bridge.model.spec import Dependency, DependencyKind, JobNeed

_NAMED = tuple(kind for kind in DependencyKind if kind is not DependencyKind.SINGLETON)
_TARGET = re.compile(r"([1-9][0-9]{0,17})(?:_([0-9]{1,9})|_\*|\+([0-9]{1,9}))?")
# In `after:7+5` the number after + is minutes; elsewhere it is the place of a task in its group.
_AFTER = re.compile(r"([1-9][0-9]{0,17})(?:_([0-9]{1,9})|_\*)?(?:\+([0-9]{1,9}))?")

_ELEMENTS = re.compile(r"([1-9][0-9]{0,17})_\[([0-9,:-]+)\]")
_NONE = Dependency()
MAX_ELEMENTS = 1000
"""Elements that one dependency may name; a whole array is one need."""


def parse_dependency(text: str) -> Dependency:
    """Read TYPE:ID[:ID...][,TYPE:ID...], or with `?` instead of `,` for any of them. Raises ValueError.

    A bare id after a comma means afterany, so `afterok:1,2` is afterok:1 and afterany:2 (measured on Slurm 22.05).
    """
    if not text.strip():
        return _NONE
    if "," in _ELEMENTS.sub("", text) and "?" in text:
        raise ValueError(f"{text!r} mixes ',' and '?'; use one of them")
    needs: list[JobNeed] = []
    for part in re.split(r"[,?](?![^\[]*\])", text):
        needs.extend(_read_part(part, text))
    return Dependency(tuple(dict.fromkeys(needs)), "?" in text)


def join_dependencies(parts: list[Dependency]) -> Dependency:
    """All of several dependencies. Raises ValueError where one of several is met by any of its needs."""
    parts = [part for part in parts if part.needs]
    if len(parts) < 2:
        return parts[0] if parts else _NONE
    if any(part.any for part in parts):
        raise ValueError("needs with '?' cannot be joined with others; write one text with ',' or with '?'")
    return Dependency(tuple(dict.fromkeys(need for part in parts for need in part.needs)))


def _read_part(part: str, text: str) -> list[JobNeed]:
    if part.lower() == DependencyKind.SINGLETON.value:
        return [JobNeed(DependencyKind.SINGLETON)]
    word, colon, rest = part.partition(":")
    if not colon:
        word, rest = DependencyKind.AFTERANY.value, part
    kind = next((kind for kind in _NAMED if kind.value == word.lower()), None)
    if kind is None:
        known = ", ".join(kind.value for kind in DependencyKind)
        raise ValueError(f"{word!r} in {text!r} is not a kind of dependency; write one of {known}")
    return [need for target in rest.split(":") for need in _read_targets(kind, target, text)]


def _read_targets(kind: DependencyKind, target: str, text: str) -> list[JobNeed]:
    """One target, or the elements of ID_[INDICES]."""
    match = _ELEMENTS.fullmatch(target)
    if not match:
        return [_read_target(kind, target, text)]
    indices = [index for part in parse_array(match[2]).ranges for index in part.values()]
    if len(indices) > MAX_ELEMENTS:
        raise ValueError(f"{target!r} names {len(indices)} elements; the limit is {MAX_ELEMENTS}")
    return [JobNeed(kind, int(match[1]), index) for index in indices]


def _read_target(kind: DependencyKind, target: str, text: str) -> JobNeed:
    after = kind is DependencyKind.AFTER
    match = (_AFTER if after else _TARGET).fullmatch(target)
    if not match:
        raise ValueError(f"{target!r} in {text!r} is not a job id")
    element = None if match[2] is None else int(match[2])
    last = None if match[3] is None else int(match[3])
    return JobNeed(kind, int(match[1]), element, None if after else last, 60 * (last or 0) if after else 0)
