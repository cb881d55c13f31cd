"""Joins what the parts of a group across report to the events of its one launch. Pure.

The launch is granted when each part is: until then all wait at their start gates. A part that is lost before that, or
whose cluster no longer knows it, is the loss of the launch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from overspan.adapters.contract import Report
from overspan.bridge.model import events
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Placement

_FORMAT = 1


@dataclass(frozen=True)
class LaunchHandle:
    """The handles of a launch's parts, and which tasks each has, by cluster.

    `limits` has the seconds for which a part waits at its start gate for the others, of those that can be taken back
    there; `dearest` is the cluster of the part with the most GPUs.
    """

    parts: Mapping[str, str]
    tasks: Mapping[str, tuple[str, ...]]
    limits: Mapping[str, int] = field(default_factory=dict)
    dearest: str = ""

    def __str__(self) -> str:
        return json.dumps({"format": _FORMAT, **encode(self)}, separators=(",", ":"))

    def cluster_of(self, task: str) -> str:
        """The cluster that has a task; the first one for a task of none."""
        return next((name for name, tasks in self.tasks.items() if task in tasks), next(iter(self.parts)))


def parse_handle(text: str) -> LaunchHandle:
    """The handle that was written. Raises ValueError for any other text."""
    document = json.loads(text)
    if not isinstance(document, dict) or document.pop("format", None) != _FORMAT:
        raise ValueError("not the handle of a group across")
    return decode(LaunchHandle, document)


def list_handles(text: str) -> tuple[str, ...]:
    """The handles of the parts; none for the handle of another launch."""
    try:
        return tuple(parse_handle(text).parts.values())
    except ValueError:
        return ()


def find_handle(text: str, cluster: str) -> str:
    """The handle of a launch on one of its clusters: a part's, or the launch's own where it has no parts."""
    try:
        return parse_handle(text).parts.get(cluster, "")
    except ValueError:
        return text


class GateStage(Enum):
    """Whether a part asks for its nodes, or has them; was taken back; or is to ask anew."""

    ASKS = "asks"
    AWAY = "away"
    RETURNS = "returns"


@dataclass(frozen=True)
class PartProgress:
    """How far a part has been read, and where its members are: (task, index, node, address, gpus).

    `since` is when it was granted (seconds since the epoch, by the daemon's clock), `returns` how often it was taken
    back from its start gate, `reason` why it waits.
    """

    cursor: str = ""
    partition: str = ""
    members: tuple[tuple[str, int, str, str, tuple[int, ...]], ...] = ()
    native_id: str = ""
    since: float = 0.0
    stage: GateStage = GateStage.ASKS
    returns: int = 0
    reason: str = ""


@dataclass(frozen=True)
class LaunchCursor:
    """The progress of each part by cluster; `granted` and `over` are the launch's."""

    parts: Mapping[str, PartProgress] = field(default_factory=dict)
    granted: bool = False
    over: bool = False

    def __str__(self) -> str:
        return json.dumps({"format": _FORMAT, **encode(self)}, separators=(",", ":"))

    def cursor_of(self, cluster: str) -> str:
        """The cursor of a part; empty before its first report."""
        part = self.parts.get(cluster)
        return "" if part is None else part.cursor

    @property
    def native_id(self) -> str:
        """The native ids of the parts, by cluster, for people; empty while some is not known."""
        if not all(part.native_id for part in self.parts.values()):
            return ""
        return ",".join(f"{name}:{part.native_id}" for name, part in self.parts.items() if part.native_id)

    def list_members(self, but: str = "") -> tuple[Placement, ...]:
        """Where the members are that are known by now, without those of a cluster."""
        return tuple(
            Placement(*member[:4]) for name, part in self.parts.items() if name != but for member in part.members
        )


def parse_cursor(text: str) -> LaunchCursor:
    """The cursor that was written; the first one for an empty text. Raises ValueError for any other text."""
    document = json.loads(text or "{}")
    # The first ones had no format.
    number = document.pop("format", _FORMAT) if isinstance(document, dict) else None
    if number != _FORMAT:
        raise ValueError(f"the cursor of a group across has format {number}; this version reads {_FORMAT}")
    return decode(LaunchCursor, document)


class JoinedReports(NamedTuple):
    """Events of the launch in order, the cursor behind the last, and whether a cluster no longer knows its part."""

    events: tuple[Event, ...]
    cursor: LaunchCursor
    gone: bool = False


def project(
    handle: LaunchHandle, cursor: LaunchCursor, reports: Sequence[tuple[str, Report]], now: float
) -> JoinedReports:
    """The events behind a cursor, of reports by their clusters."""
    found: list[Event] = []
    gone = False
    for cluster, report in reports:
        if cursor.over:
            break
        if is_away(cursor, cluster):
            # What it still tells is of the grant that it gives back.
            told: list[Event] = []
        else:
            told, cursor = _follow_part(handle, cursor, cluster, report, now)
        found += told
        gone = report.gone and not cursor.over
        if gone:
            cursor = replace(cursor, over=True)
    return JoinedReports(tuple(found), cursor, gone)


def _follow_part(
    handle: LaunchHandle, cursor: LaunchCursor, cluster: str, report: Report, now: float
) -> tuple[list[Event], LaunchCursor]:
    part = cursor.parts.get(cluster, PartProgress())
    part = replace(part, cursor=report.cursor, native_id=report.native_id or part.native_id)
    found: list[Event] = []
    for event in report.events:
        if isinstance(event, events.Granted):
            own = tuple(member for member in event.members if member[0] in handle.tasks.get(cluster, ()))
            if not own:
                # A part is told where members elsewhere are.
                continue
            since = part.since if part.members else now
            part = replace(_note_members(part, event._replace(members=own)), since=since)
            cursor, grant = _note_grant(handle, _put(cursor, cluster, part), event.at)
            found += grant
        elif isinstance(event, events.LaunchLost):
            detail = f"{cluster}: {event.detail}" if event.detail else f"the part on {cluster} was lost"
            return [*found, event._replace(detail=detail)], replace(_put(cursor, cluster, part), over=True)
        elif not isinstance(event, events.REPORTS):
            # What the daemon has decided or ordered: the part has carried it out.
            continue
        elif not isinstance(event, events.Queued) or event.task:
            found.append(event)
        elif not cursor.granted:
            part = replace(part, reason=event.reason)
            found.append(event._replace(reason=word_wait(cursor, cluster, event.reason)))
    return found, _put(cursor, cluster, part)


def _note_grant(handle: LaunchHandle, cursor: LaunchCursor, at: float) -> tuple[LaunchCursor, list[Event]]:
    """The grant of the launch, once the last part has its own; later ones tell where single members are now."""
    if not cursor.granted and not all(cursor.parts.get(name, PartProgress()).members for name in handle.parts):
        return cursor, []
    return replace(cursor, granted=True), [_join_grants(at, cursor)]


def is_away(cursor: LaunchCursor, cluster: str) -> bool:
    """Whether a part was taken back from its start gate."""
    part = cursor.parts.get(cluster)
    return part is not None and part.stage is GateStage.AWAY


def word_wait(cursor: LaunchCursor, cluster: str, reason: str) -> str:
    """Why the launch waits: for that part, and which others have given their nodes back meanwhile.

    Slurm's word stays first, since filters and columns take it; the cluster stands behind it.
    """
    word, colon, text = reason.partition(":")
    away = ", ".join(name for name in cursor.parts if name != cluster and is_away(cursor, name))
    said = [text.strip()] if colon else []
    said += [f"given back meanwhile: {away}"] if away else []
    return f"{word}: {cluster}: {'; '.join(said)}" if said else f"{word}: {cluster}"


def _put(cursor: LaunchCursor, cluster: str, part: PartProgress) -> LaunchCursor:
    return replace(cursor, parts={**cursor.parts, cluster: part})


def _note_members(part: PartProgress, event: events.Granted) -> PartProgress:
    told = {(member[0], member[1]) for member in event.members}
    kept = tuple(member for member in part.members if (member[0], member[1]) not in told)
    return replace(part, members=(*kept, *event.members), partition=event.partition or part.partition)


def _join_grants(at: float, cursor: LaunchCursor) -> events.Granted:
    parts = cursor.parts.values()
    members = tuple(member for part in parts for member in part.members)
    return events.Granted(at, members, ",".join(dict.fromkeys(part.partition for part in parts if part.partition)))
