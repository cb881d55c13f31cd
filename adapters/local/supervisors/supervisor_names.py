"""Which supervisor serves the next launch: single jobs share one, and a few groups share one."""

from __future__ import annotations

from collections.abc import Mapping

SHARED = "shared-"
"""The prefix of the names of single jobs' supervisors."""
_GROUPS = "groups-"
"""The prefix of the names of groups' supervisors."""
_LIVE_GROUPS = 8
"""Groups that share a supervisor at a time: it takes 5 MB, and its death interrupts all of them for a moment."""
_PER_SUPERVISOR = 1000
"""Launches that one supervisor serves in its life; then another one is started, so that inboxes stay short."""


class SupervisorNames:
    """Names of supervisors, PREFIX0, PREFIX1, ...; the first with room serves the next launch.

    `live` limits the launches that one serves at a time, so that its death interrupts the supervision of few.
    `total` limits those of its whole life, so that its inbox stays short.
    """

    def __init__(self, prefix: str, live: int, total: int) -> None:
        self.prefix = prefix
        self._live = live
        self._total = total
        self._given: dict[str, int] = {}
        """How many launches each name was given; without those that were given all."""
        self._next = 0

    def restore(self, name: str) -> None:
        """Take over a name that an earlier daemon gave; others are passed over."""
        number = name.removeprefix(self.prefix)
        if name != number and number.isdecimal():
            self._given.setdefault(name, 0)
            self._next = max(self._next, int(number) + 1)

    def pick(self, live: Mapping[str, int]) -> str:
        """The name for one more launch, where `live` counts the launches that each serves now."""
        name = next((name for name in self._given if live.get(name, 0) < self._live), "")
        if not name:
            name = f"{self.prefix}{self._next}"
            self._next += 1
        self._given[name] = self._given.get(name, 0) + 1
        if self._given[name] == self._total:
            del self._given[name]
        return name


class SupervisorChoice:
    """The supervisors of single jobs and those of groups, by name."""

    def __init__(self) -> None:
        self._single = SupervisorNames(SHARED, _PER_SUPERVISOR, _PER_SUPERVISOR)
        self._groups = SupervisorNames(_GROUPS, _LIVE_GROUPS, _PER_SUPERVISOR)

    def restore(self, name: str) -> None:
        """Take over a name that an earlier daemon gave."""
        self._single.restore(name)
        self._groups.restore(name)

    def pick(self, group: bool, live: Mapping[str, int]) -> str:
        """The supervisor of one more launch, where `live` counts the launches that each serves now."""
        return (self._groups if group else self._single).pick(live)
