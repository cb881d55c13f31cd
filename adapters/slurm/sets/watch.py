"""Tracks the native jobs of each set, and projects the set's events from their views."""

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

ViewMember = Callable[[GroupHandle, int], GroupView]
"""Gives the view of a native job, with its journal from an offset on."""


AGAIN_SECONDS = 30.0
"""Seconds after which a native job that did not end is cancelled again."""


class KillDeadline(NamedTuple):
    """The time by which a supervisor has to kill an attempt; after that its native job is cancelled."""

    attempt: int
    at: float


@dataclass
class KnownSet:
    """A watched set with its stored cursor. `fresh` are new native jobs that this cursor does not have yet."""

    handle: SetHandle
    cursor: SetCursor
    fresh: dict[str, PartCursor] = field(default_factory=dict)
    moved_at: dict[str, float] = field(default_factory=dict)
    """By task: when its fresh native job was submitted (this machine's time)."""
    lost_attempts: dict[str, LostAttempt] = field(default_factory=dict)
    """By task: attempts that were ordered into a native job that had ended."""
    projected: SetCursor | None = None
    """The cursor of the last projection, which is ahead of `cursor` until the daemon has stored it."""
    ordered_at: float = 0.0
    """When an order was carried out last (this machine's time)."""
    lost_relaunches: set[LostRelaunch] = field(default_factory=set)
    """Node runs that were ordered into a native job that had ended."""
    kill_deadlines: dict[str, KillDeadline] = field(default_factory=dict)
    """By task: the attempt that its supervisor has to kill, and until when. Not stored: the order to kill stays in the
    outbox until it takes effect, and comes again after a restart."""

    @property
    def now(self) -> SetCursor:
        """The cursor with the newest native jobs."""
        cursor = self.cursor
        for member in self.fresh.values():
            if member.first > cursor.member(member.task).first:
                cursor = cursor.put(member)
        return cursor

    def list_vacated(self) -> list[Granted]:
        """Grants without nodes for members whose native job was replaced; the new job's grant brings their nodes.

        They are reported until the stored cursor has the new native job.
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
        """Whether nothing can be launched any more in a task's newest native job, by the latest projection."""
        return member.over or self._latest(member).over

    def _latest(self, member: PartCursor) -> PartCursor:
        projected = member if self.projected is None else self.projected.member(member.task)
        return projected if projected.native == member.native else member

    def list_overdue(self, now: float) -> list[str]:
        """The native jobs whose supervisors have missed their kill deadline; each again after AGAIN_SECONDS."""
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
    """The sets that are watched. Nothing here is stored: cursors and Slurm's queue restore it after a restart."""

    def __init__(self) -> None:
        self._known: dict[str, KnownSet] = {}
        self._requeued: set[PartToken] = set()

    def __len__(self) -> int:
        return len(self._known)

    def note_cursors(self, since: Mapping[str, str]) -> None:
        """Take over the stored cursor of each set, and drop sets that are no longer watched."""
        for text in [text for text in self._known if text not in since]:
            del self._known[text]
        for text, cursor_text in since.items():
            if not is_set_handle(text):
                continue
            known = self._known.get(text)
            if known is None:
                handle = parse_set(text)
                known = self._known[text] = KnownSet(handle, parse_set_cursor(handle, cursor_text))
            known.cursor = parse_set_cursor(known.handle, cursor_text)
            noted = known.cursor
            known.fresh = {task: one for task, one in known.fresh.items() if one.first > noted.member(task).first}

    def expand(self, since: Mapping[str, str]) -> dict[str, str]:
        """The launches with each set replaced by its native jobs, each with the cursor of its journal."""
        self.note_cursors(since)
        result: dict[str, str] = {}
        for text, cursor_text in since.items():
            known = self._known.get(text)
            if known is None:
                result[text] = cursor_text
                continue
            for member in known.now.members:
                # A native job that is over has been reported completely.
                if not member.over and not known.cursor.over:
                    result[str(known.name(member))] = str(GroupCursor(member.offset, member.order))
        return result

    def find(self, text: str) -> KnownSet | None:
        """A watched set; None for one that is not watched."""
        return self._known.get(text)

    def members(self, text: str) -> Sequence[GroupHandle]:
        """The newest native jobs of a set."""
        known = self._known.get(text)
        return [] if known is None else [known.name(member) for member in known.now.members]

    def add(self, text: str, task: str, first: int, native: int) -> None:
        """Note a native job that was submitted for a task's next attempts."""
        known = self._known.get(text)
        if known is not None:
            known.fresh[task] = PartCursor(task, first, native)
            known.moved_at[task] = time.time()

    def note_lost_attempt(self, text: str, task: str, lost: LostAttempt) -> None:
        """Note an attempt that cannot start, because its native job has ended."""
        known = self._known.get(text)
        if known is not None:
            known.lost_attempts[task] = lost

    def note_lost_relaunch(self, text: str, relaunch: LostRelaunch) -> None:
        """Note a node run that cannot start, because its native job has ended."""
        known = self._known.get(text)
        if known is not None:
            known.lost_relaunches.add(relaunch)

    def note_order(self, text: str) -> None:
        """Note that an order was carried out: journals read before that do not show it."""
        known = self._known.get(text)
        if known is not None:
            known.ordered_at = time.time()

    def move_clock(self, seconds: float) -> None:
        """This machine's clock was set by so many seconds: what was noted keeps its age, deadlines move along."""
        for known in self._known.values():
            known.ordered_at += seconds
            known.moved_at = {task: at + seconds for task, at in known.moved_at.items()}
            for task, deadline in known.kill_deadlines.items():
                known.kill_deadlines[task] = deadline._replace(at=deadline.at + seconds)

    def list_overdue(self, now: float) -> list[str]:
        """The native jobs to cancel, because their supervisors have missed a kill deadline."""
        return [name for known in self._known.values() for name in known.list_overdue(now)]

    def take_requeued(self) -> set[PartToken]:
        """The native jobs that were reported as lost because Slurm requeued them; they have to be cancelled."""
        taken, self._requeued = self._requeued, set()
        return taken

    def project(self, text: str, view_member: ViewMember, orders: Sequence[Ordered]) -> SetProjection | None:
        """Project a set from its cursor on; None for a set that is not watched."""
        known = self._known.get(text)
        if known is None:
            return None
        cursor = known.now
        observed_members = {
            member.task: _drop_stale_end(view_member(known.name(member), member.offset), known.ordered_at)
            for member in cursor.members
            if not member.over
        }
        # Lost relaunches are reported once: if the report gets lost, the daemon sends their order again.
        lost_relaunches, known.lost_relaunches = known.lost_relaunches, set()
        projected = project_set(
            known.handle, SetView(observed_members, orders, known.lost_attempts, lost_relaunches), cursor
        )
        known.projected = projected.cursor
        projected = projected._replace(events=(*known.list_vacated(), *projected.events))
        for task, observed in observed_members.items():
            member = projected.cursor.member(task)
            if member.over and observed.view is not None and observed.view.outcome.phase is Phase.REQUEUED:
                self._requeued.add(PartToken(known.handle.token, task, member.first))
        return projected


def _drop_stale_end(observed: GroupView, ordered_at: float) -> GroupView:
    """The view without Slurm's end if its journal was read before the last order, whose effect it may lack."""
    if observed.page is not None and observed.page.asked > ordered_at:
        return observed
    return replace(observed, view=None, gone="")
