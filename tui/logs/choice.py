"""Which logs of a job are read: all merged, or those of one member; of the newest attempt, or of another. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from overspan.bridge.client.log_reading import choose_streams
from overspan.bridge.client.messages import LogSelection, Stream, StreamKey, is_element, name_member

MOST = 64
"""Logs that are merged: those with the newest output."""
KINDS = ("", "output", "error")


class Member(NamedTuple):
    """One node of a task, a further member of an elastic one, or an element of an array."""

    job: str
    task: str
    node: int

    @property
    def name(self) -> str:
        """As `span logs` puts it before each line."""
        return name_member(self.job, self.task, self.node)


class Choice(NamedTuple):
    """No member means all, no attempt the newest, an empty kind output and error."""

    member: Member | None = None
    attempt: int | None = None
    kind: str = ""

    def select(self, streams: Sequence[Stream]) -> list[Stream]:
        """The logs to read, the most of them that can be merged."""
        own = [stream for stream in streams if self.member in (None, member_of(stream))]
        chosen = choose_streams(own, LogSelection(stream=self.kind, attempt=self.attempt))
        if len(chosen) > MOST:
            newest = sorted(chosen, key=lambda one: one.marks[-1][0] if one.marks else 0.0)[-MOST:]
            chosen = [stream for stream in chosen if stream in newest]
        return chosen


def member_of(stream: Stream | StreamKey) -> Member:
    """Whose log it is."""
    return Member(stream.job, stream.task, stream.node or 0)


def name_source(stream: Stream | StreamKey) -> str:
    """The task, or the element of an array, whose lines have one colour."""
    return stream.job if is_element(stream.job) else stream.task


def list_members(streams: Sequence[Stream]) -> list[Member]:
    """The members that have logs, in their order."""
    return list(dict.fromkeys(member_of(stream) for stream in streams))


def choose_member(choice: Choice, streams: Sequence[Stream], by: int) -> Choice:
    """The next member, or the one before; behind the last one come all together again."""
    members = list_members(streams)
    if len(members) < 2:
        return choice
    places = [None, *members]
    place = places.index(choice.member) if choice.member in places else 0
    return choice._replace(member=places[(place + by) % len(places)], attempt=None)


def choose_attempt(choice: Choice, streams: Sequence[Stream], by: int) -> Choice:
    """The next attempt, or the one before, as far as there is one."""
    own = [stream for stream in streams if choice.member in (None, member_of(stream))]
    numbers = sorted({stream.attempt for stream in own})
    if not numbers:
        return choice
    present = numbers[-1] if choice.attempt is None else choice.attempt
    place = numbers.index(present) if present in numbers else len(numbers) - 1
    wanted = numbers[max(0, min(place + by, len(numbers) - 1))]
    return choice._replace(attempt=None if wanted == numbers[-1] else wanted)


def choose_kind(choice: Choice, streams: Sequence[Stream]) -> Choice:
    """Output, error, or both; what there is none of is passed over."""
    own = [stream for stream in streams if choice.member in (None, member_of(stream))]
    present = {stream.stream for stream in own}
    kinds = [kind for kind in KINDS if not kind or kind in present]
    if len(present) < 2:
        return choice
    return choice._replace(kind=kinds[(kinds.index(choice.kind) + 1) % len(kinds)])


def describe_choice(choice: Choice, streams: Sequence[Stream]) -> str:
    """The choice in words."""
    members = list_members(streams)
    member = choice.member or (members[0] if len(members) == 1 else None)
    own = [stream for stream in streams if choice.member in (None, member_of(stream))]
    chosen = choice.select(streams)
    words = [member.name if member is not None else f"all {len(members)}" if members else ""]
    if member is None and len({member_of(stream) for stream in chosen}) < len(members):
        words[0] = f"{len({member_of(stream) for stream in chosen})} of {len(members)}"
    newest = max((stream.attempt for stream in own), default=0)
    if newest:
        words.append(f"attempt {newest if choice.attempt is None else choice.attempt} of 0-{newest}")
    kinds = {stream.stream for stream in own}
    words.append(choice.kind or ("output and error" if len(kinds) > 1 else ""))
    return ", ".join(word for word in words if word)
