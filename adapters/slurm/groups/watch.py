"""Tracks the native jobs of each group, and projects the group's events from their views."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from overspan.adapters.contract import Decider
from overspan.adapters.slurm.groups.handles import (
    GroupCursor,
    GroupHandle,
    NativeJob,
    PartCursor,
    is_group_handle,
    parse_group,
    parse_group_cursor,
)
from overspan.adapters.slurm.groups.parts import PartToken
from overspan.adapters.slurm.groups.projection import (
    GroupProjection,
    GroupView,
    LostAttempt,
    LostRelaunch,
    PartView,
    project_group,
)
from overspan.adapters.slurm.observation.outcomes import Phase
from overspan.adapters.slurm.observation.projection import Ordered
from overspan.bridge.model.events import Granted

ViewPart = Callable[[NativeJob, int], PartView]
"""Gives the view of a native job, with its journal from an offset on."""


AGAIN_SECONDS = 30.0
"""Seconds after which a native job that did not end is cancelled again."""


class KillDeadline(NamedTuple):
    """The time by which a supervisor has to kill an attempt; after that its native job is cancelled."""

    attempt: int
    at: float


@dataclass
class KnownGroup:
    """A watched group with its stored cursor. `fresh` are new native jobs that this cursor does not have yet."""

    handle: GroupHandle
    cursor: GroupCursor
    cursor_text: str = ""
    fresh: dict[str, PartCursor] = field(default_factory=dict)
    moved_at: dict[str, float] = field(default_factory=dict)
    """By task: when its fresh native job was submitted (this machine's time)."""
    lost_attempts: dict[str, LostAttempt] = field(default_factory=dict)
    """By task: attempts that were ordered into a native job that had ended."""
    projected: GroupCursor | None = None
    """The cursor of the last projection, which is ahead of `cursor` until the daemon has stored it."""
    ordered_at: float = 0.0
    """When an order was carried out last (this machine's time)."""
    lost_relaunches: set[LostRelaunch] = field(default_factory=set)
    """Node runs that were ordered into a native job that had ended."""
    kill_deadlines: dict[str, KillDeadline] = field(default_factory=dict)
    """By task: the attempt that its supervisor has to kill, and until when. Not stored: the order to kill stays in the
    outbox until it takes effect, and comes again after a restart."""

    @property
    def now(self) -> GroupCursor:
        """The cursor with the newest native jobs."""
        cursor = self.cursor
        for member in self.fresh.values():
            if member.first > cursor.part(member.task).first:
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

    def list_jobs(self) -> list[NativeJob]:
        """The newest native job of each part that has had one."""
        return [self.handle.native_job(part) for part in self.now.parts if part.submitted]

    def list_open(self) -> list[tuple[NativeJob, int]]:
        """The native jobs that have not been reported completely, each with the offset in its journal."""
        if self.cursor.over:
            return []
        return [
            (self.handle.native_job(part), part.offset) for part in self.now.parts if part.submitted and not part.over
        ]

    def is_over(self, member: PartCursor) -> bool:
        """Whether nothing can be launched any more in a task's newest native job, by the latest projection."""
        return member.over or self._latest(member).over

    def _latest(self, member: PartCursor) -> PartCursor:
        projected = member if self.projected is None else self.projected.part(member.task)
        return projected if projected.native == member.native else member

    def list_overdue(self, now: float) -> list[str]:
        """The native jobs whose supervisors have missed their kill deadline; each again after AGAIN_SECONDS."""
        found = []
        for task, deadline in [*self.kill_deadlines.items()]:
            member = self._latest(self.now.part(task))
            if (
                member.over
                or member.attempt > deadline.attempt
                or (member.attempt == deadline.attempt and not member.open)
            ):
                del self.kill_deadlines[task]
            elif deadline.at <= now:
                self.kill_deadlines[task] = deadline._replace(at=now + AGAIN_SECONDS)
                found.append(self.handle.native_job(member).name)
        return found


class Groups:
    """The groups that are watched. Nothing here is stored: cursors and Slurm's queue restore it after a restart."""

    def __init__(self) -> None:
        self._known: dict[str, KnownGroup] = {}
        self._requeued: set[PartToken] = set()

    def __iter__(self) -> Iterator[KnownGroup]:
        return iter(self._known.values())

    def note_cursors(self, since: Mapping[str, str]) -> None:
        """Take over the stored cursor of each group, and drop groups that are no longer watched."""
        for text in [text for text in self._known if text not in since]:
            del self._known[text]
        for text, cursor_text in since.items():
            if not is_group_handle(text):
                continue
            known = self._known.get(text)
            if known is None:
                handle = parse_group(text)
                known = self._known[text] = KnownGroup(handle, handle.begin())
            if cursor_text != known.cursor_text:
                known.cursor, known.cursor_text = parse_group_cursor(known.handle, cursor_text), cursor_text
            noted = known.cursor
            known.fresh = {task: one for task, one in known.fresh.items() if one.first > noted.part(task).first}

    def find(self, text: str) -> KnownGroup | None:
        """A watched group; None for one that is not watched."""
        return self._known.get(text)

    def add(self, text: str, task: str, first: int, native: int) -> None:
        """Note a native job that was submitted for a task's next attempts."""
        known = self._known.get(text)
        if known is not None:
            known.moved_at[task] = time.time()
            known.fresh[task] = PartCursor(native, task, first, since=known.moved_at[task])

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
            known.cursor = known.cursor.move(seconds)
            known.fresh = {task: one.move(seconds) for task, one in known.fresh.items()}
            known.moved_at = {task: at + seconds for task, at in known.moved_at.items()}
            for task, deadline in known.kill_deadlines.items():
                known.kill_deadlines[task] = deadline._replace(at=deadline.at + seconds)

    def list_overdue(self, now: float) -> list[str]:
        """The native jobs to cancel, because their supervisors have missed a kill deadline."""
        return [name for known in self._known.values() for name in known.list_overdue(now)]

    def list_requeued(self) -> set[PartToken]:
        """The native jobs that were reported as lost because Slurm requeued them; they have to be cancelled."""
        return set(self._requeued)

    def forget_requeued(self, cancelled: set[PartToken]) -> None:
        """These are cancelled."""
        self._requeued -= cancelled

    def project(self, known: KnownGroup, view_part: ViewPart, orders: Sequence[Ordered]) -> GroupProjection:
        """Project a group from its cursor on."""
        cursor, parts = known.now, dict[str, PartView]()
        for part in cursor.parts:
            if part.submitted and not part.over:
                parts[part.task] = view_part(known.handle.native_job(part), part.offset)
        if known.handle.decider is Decider.SUPERVISOR:
            return project_group(known.handle, GroupView(parts, orders), cursor)
        parts = {task: _drop_stale_end(observed, known.ordered_at) for task, observed in parts.items()}
        # Lost relaunches are reported once: if the report gets lost, the daemon sends their order again.
        lost_relaunches, known.lost_relaunches = known.lost_relaunches, set()
        observed = GroupView(parts, orders, known.lost_attempts, lost_relaunches)
        projected = project_group(known.handle, observed, cursor)
        known.projected = projected.cursor
        for task, part_view in parts.items():
            part = projected.cursor.part(task)
            if part.over and part_view.view is not None and part_view.view.outcome.phase is Phase.REQUEUED:
                self._requeued.add(PartToken(known.handle.token, task, part.first))
        return projected._replace(events=(*known.list_vacated(), *projected.events))


def _drop_stale_end(observed: PartView, ordered_at: float) -> PartView:
    """The view without Slurm's end if its journal was read before the last order, whose effect it may lack."""
    if observed.page is not None and observed.page.asked > ordered_at:
        return observed
    return replace(observed, view=None, gone="")
