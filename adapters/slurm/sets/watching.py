"""Which native jobs each set has now, and its story from what was seen of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from overspan.adapters.slurm.group_stories import Sight
from overspan.adapters.slurm.handles import GroupCursor, GroupHandle
from overspan.adapters.slurm.sets.handles import (
    MemberCursor,
    SetCursor,
    SetHandle,
    is_set_handle,
    name_member,
    parse_set,
    parse_set_cursor,
)
from overspan.adapters.slurm.sets.stories import Missed, SetSight, SetTold, tell_set
from overspan.adapters.slurm.stories import Ordered

Look = Callable[[GroupHandle, int], Sight]
"""What was seen of a native job: its journal from an offset on."""


@dataclass
class Known:
    """A set of which the daemon has told where its story is. `fresh` are native jobs that it has not noted yet."""

    handle: SetHandle
    cursor: SetCursor
    fresh: dict[str, MemberCursor] = field(default_factory=dict)
    missed: dict[str, Missed] = field(default_factory=dict)
    """By task: attempts that were to start in a native job that is gone."""

    @property
    def now(self) -> SetCursor:
        """The cursor with the newest native jobs."""
        cursor = self.cursor
        for member in self.fresh.values():
            if member.first > cursor.member(member.task).first:
                cursor = cursor.put(member)
        return cursor


class Sets:
    """The sets that are watched. Nothing here has to survive: the cursors and the queue have it all."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def follow(self, since: Mapping[str, str]) -> None:
        """Take in where each story was left."""
        for text in [text for text in self._known if text not in since]:
            del self._known[text]
        for text, place in since.items():
            if not is_set_handle(text):
                continue
            known = self._known.get(text)
            if known is None:
                handle = parse_set(text)
                known = self._known[text] = Known(handle, parse_set_cursor(handle, place))
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
                    result[str(_handle_of(known.handle, member))] = str(GroupCursor(member.offset, member.order))
        return result

    def find(self, text: str) -> Known | None:
        """A set that is watched."""
        return self._known.get(text)

    def members(self, text: str) -> Sequence[GroupHandle]:
        """The newest native jobs of a set."""
        known = self._known.get(text)
        return [] if known is None else [_handle_of(known.handle, member) for member in known.now.members]

    def add(self, text: str, task: str, first: int, native: int) -> None:
        """A native job was submitted for a task's next attempts."""
        known = self._known.get(text)
        if known is not None:
            known.fresh[task] = MemberCursor(task, first, native)

    def miss(self, text: str, task: str, missed: Missed) -> None:
        """An attempt cannot start, because the native job that it was for is gone."""
        known = self._known.get(text)
        if known is not None:
            known.missed[task] = missed

    def tell(self, text: str, look: Look, orders: Sequence[Ordered]) -> SetTold | None:
        """The story of a set from where it was left; None for one that is not watched."""
        known = self._known.get(text)
        if known is None:
            return None
        cursor = known.now
        sights = {
            member.task: look(_handle_of(known.handle, member), member.offset)
            for member in cursor.members
            if not member.over
        }
        return tell_set(known.handle, SetSight(sights, orders, known.missed), cursor)


def _handle_of(handle: SetHandle, member: MemberCursor) -> GroupHandle:
    return name_member(handle, member.task, member.first, member.native)
