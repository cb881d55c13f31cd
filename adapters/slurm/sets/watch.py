"""Tracks the native jobs of each set, and projects the set's events from what was seen of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from overspan.adapters.slurm.groups.projection import GroupView
from overspan.adapters.slurm.handles import GroupCursor, GroupHandle
from overspan.adapters.slurm.observation.outcomes import Phase
from overspan.adapters.slurm.observation.projection import Ordered
from overspan.adapters.slurm.sets.handles import (
    PartCursor,
    SetCursor,
    SetHandle,
    is_set_handle,
    name_member,
    parse_set,
    parse_set_cursor,
)
from overspan.adapters.slurm.sets.members import PartToken
from overspan.adapters.slurm.sets.projection import LostAttempt, LostRelaunch, SetProjection, SetView, project_set
from overspan.bridge.model.events import Granted

Look = Callable[[GroupHandle, int], GroupView]
"""What was seen of a native job: its journal from an offset on."""


AGAIN_SECONDS = 30.0
"""Seconds after which a native job that did not end is cancelled again."""


class KillDeadline(NamedTuple):
    """Kill deadline of an attempt: if its supervisor has not killed it by then, its native job is cancelled."""

    attempt: int
    at: float


@dataclass
class KnownSet:
    """A set whose cursor the daemon has given. `fresh` are native jobs that this cursor does not have yet."""

    handle: SetHandle
    cursor: SetCursor
    fresh: dict[str, PartCursor] = field(default_factory=dict)
    moved_at: dict[str, float] = field(default_factory=dict)
    """By task: when its fresh native job was submitted (this machine's time)."""
    missed: dict[str, LostAttempt] = field(default_factory=dict)
    """By task: attempts that were to start in a native job that is gone."""
    projected_cursor: SetCursor | None = None
    """The cursor of the last projection; the daemon may decide what follows before it gives this cursor back."""
    ordered_at: float = 0.0
    """When an order was carried out last (this machine's time)."""
    lost_relaunches: set[LostRelaunch] = field(default_factory=set)
    """Node runs that were to start in a native job that is gone."""
    kill_deadlines: dict[str, KillDeadline] = field(default_factory=dict)
    """By task: what its supervisor was told to kill. That order stays owed until its effect is seen."""

    @property
    def now(self) -> SetCursor:
        """The cursor with the newest native jobs."""
        cursor = self.cursor
        for member in self.fresh.values():
            if member.first > cursor.member(member.task).first:
                cursor = cursor.put(member)
        return cursor

    def list_left(self) -> list[Granted]:
        """That members have no node any more whose native job was replaced; the next one's grant tells where they are.

        It is told until the daemon has noted the new native job.
        """
        return [
            Granted(
                self.moved_at[task], tuple((task, index, "", "", ()) for index in range(self.handle.part(task).nodes))
            )
            for task in self.fresh
        ]

    def name(self, member: PartCursor) -> GroupHandle:
        """A native job of the set as an allocation with a supervisor in it."""
        return name_member(self.handle, member.task, member.first, member.native)

    def is_over(self, member: PartCursor) -> bool:
        """Whether nothing can be launched any more in a task's newest native job, by all that was told."""
        return member.over or self._latest(member).over

    def _latest(self, member: PartCursor) -> PartCursor:
        projection = member if self.projected_cursor is None else self.projected_cursor.member(member.task)
        return projection if projection.native == member.native else member

    def list_overdue(self, now: float) -> list[str]:
        """The native jobs whose supervisors have not killed what they were told to."""
        found = []
        for task, deadline in [*self.kill_deadlines.items()]:
            member = self._latest(self.now.member(task))
            if (
                member.over
                or member.attempt > deadline.attempt
                or (member.attempt == deadline.attempt and not member.open)
            ):
                del self.kill_deadlines[task]
            elif deadline.at <= now:
                self.kill_deadlines[task] = deadline._replace(at=now + AGAIN_SECONDS)
                found.append(self.name(member).name)
        return found


class Sets:
    """The sets that are watched. Nothing here has to survive: the cursors and the queue have it all."""

    def __init__(self) -> None:
        self._known: dict[str, KnownSet] = {}
        self._requeued: set[PartToken] = set()

    def __len__(self) -> int:
        return len(self._known)

    def follow(self, since: Mapping[str, str]) -> None:
        """Take in the cursor of each set."""
        for text in [text for text in self._known if text not in since]:
            del self._known[text]
        for text, place in since.items():
            if not is_set_handle(text):
                continue
            known = self._known.get(text)
            if known is None:
                handle = parse_set(text)
                known = self._known[text] = KnownSet(handle, parse_set_cursor(handle, place))
            known.cursor = parse_set_cursor(known.handle, place)
            noted = known.cursor
            known.fresh = {task: one for task, one in known.fresh.items() if one.first > noted.member(task).first}

    def spread(self, since: Mapping[str, str]) -> dict[str, str]:
        """The launches with the native jobs of sets in the place of those, each with its place in its journal."""
        self.follow(since)
        result: dict[str, str] = {}
        for text, place in since.items():
            known = self._known.get(text)
            if known is None:
                result[text] = place
                continue
            for member in known.now.members:
                # The ends of what is over have been told.
                if not member.over and not known.cursor.over:
                    result[str(known.name(member))] = str(GroupCursor(member.offset, member.order))
        return result

    def find(self, text: str) -> KnownSet | None:
        """A set that is watched."""
        return self._known.get(text)

    def members(self, text: str) -> Sequence[GroupHandle]:
        """The newest native jobs of a set."""
        known = self._known.get(text)
        return [] if known is None else [known.name(member) for member in known.now.members]

    def add(self, text: str, task: str, first: int, native: int) -> None:
        """A native job was submitted for a task's next attempts."""
        known = self._known.get(text)
        if known is not None:
            known.fresh[task] = PartCursor(task, first, native)
            known.moved_at[task] = time.time()

    def miss(self, text: str, task: str, missed: LostAttempt) -> None:
        """An attempt cannot start, because the native job that it was for is gone."""
        known = self._known.get(text)
        if known is not None:
            known.missed[task] = missed

    def strand(self, text: str, relaunch: LostRelaunch) -> None:
        """A node run cannot start, because the native job that it was for is gone."""
        known = self._known.get(text)
        if known is not None:
            known.lost_relaunches.add(relaunch)

    def note_order(self, text: str) -> None:
        """An order was carried out, so that what was read of the set before does not have it."""
        known = self._known.get(text)
        if known is not None:
            known.ordered_at = time.time()

    def list_overdue(self, now: float) -> list[str]:
        """The native jobs that are to be ended, since their supervisors do not."""
        return [name for known in self._known.values() for name in known.list_overdue(now)]

    def take_requeued(self) -> set[PartToken]:
        """The native jobs that were told as lost because Slurm has requeued them: they would run again."""
        taken, self._requeued = self._requeued, set()
        return taken

    def project(self, text: str, look: Look, orders: Sequence[Ordered]) -> SetProjection | None:
        """Project a set from its cursor on; None for a set that is not watched."""
        known = self._known.get(text)
        if known is None:
            return None
        cursor = known.now
        observed_members = {
            member.task: _settle(look(known.name(member), member.offset), known.ordered_at)
            for member in cursor.members
            if not member.over
        }
        # What is told of these is not kept: until it counts, the order is owed.
        lost_relaunches, known.lost_relaunches = known.lost_relaunches, set()
        projection = project_set(known.handle, SetView(observed_members, orders, known.missed, lost_relaunches), cursor)
        known.projected_cursor = projection.cursor
        projection = projection._replace(events=(*known.list_left(), *projection.events))
        for task, observed in observed_members.items():
            member = projection.cursor.member(task)
            if member.over and observed.view is not None and observed.view.outcome.phase is Phase.REQUEUED:
                self._requeued.add(PartToken(known.handle.token, task, member.first))
        return projection


def _settle(observed: GroupView, ordered_at: float) -> GroupView:
    """What was seen, without an end that is judged by orders as they were before the last one."""
    if observed.page is not None and observed.page.asked > ordered_at:
        return observed
    return replace(observed, view=None, gone="")
