"""How long parts of a group across wait at their start gates for each other, and when they give back what they hold.

| stage of a part | it holds | what its cluster is owed |
|---|---|---|
| asks | nothing, or what a grant has begun | nothing |
| waits at its start gate: it has members | its nodes | nothing |
| away | nothing, once the hold is answered | a `Hold` |
| returns | nothing, until it is granted again | a `Release` |

A part goes away when it has waited for its limit and another part still asks, or is away and its cluster has not
answered the hold. It returns when all that are not away have what they asked for, and all holds are answered. A part
that went away may wait twice as long the next time, up to some hours, except the one with the most GPUs: in the end the
cheaper side waits long enough for the dearer one. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from overspan.bridge.controller.core.across.projection import (
    GateStage,
    JoinedReports,
    LaunchCursor,
    LaunchHandle,
    PartProgress,
    word_wait,
)
from overspan.bridge.model.events import Queued
from overspan.bridge.model.job import Job
from overspan.bridge.model.parts import rank_parts

LIMIT_SECONDS = 600
"""How long a part waits at its start gate for the others where the job file says no `start_timeout`."""
_MOST_DOUBLINGS = 20
_LONGEST_SECONDS = 4 * 3600
"""Up to which a limit is doubled."""


def find_dearest(job: Job) -> str:
    """The cluster of the part with the most GPUs; of several the last in the file."""
    return rank_parts(job)[-1][-1]


def find_limit(job: Job, cluster: str) -> int:
    """Seconds for which a part of this launch waits for the others, the first time.

    Launches in a row before it that gave up at the gate count like its own returns.
    """
    limit = LIMIT_SECONDS if job.spec.start_timeout is None else max(job.spec.start_timeout, 1)
    earlier = job.gate_timeouts if cluster != find_dearest(job) else 0
    return _double(limit, earlier)


def find_due(handle: LaunchHandle, cursor: LaunchCursor, settled: Collection[str]) -> float:
    """When a part may have to give back what it has; infinity for never. `settled` as for `judge_waits`."""
    if cursor.granted or cursor.over or not _list_asking(handle, cursor, settled):
        return math.inf
    waiting = ((name, part) for name, part in cursor.parts.items() if part.members)
    return min((part.since + _find_patience(handle, name, part) for name, part in waiting), default=math.inf)


def judge_waits(handle: LaunchHandle, cursor: LaunchCursor, settled: Collection[str], now: float) -> JoinedReports:
    """What changes at the start gates. `settled` are the parts whose cluster has answered what it was owed."""
    if cursor.granted or cursor.over or not handle.limits:
        return JoinedReports((), cursor)
    parts = {name: cursor.parts.get(name, PartProgress()) for name in handle.parts}
    asking = _list_asking(handle, cursor, settled)
    changed = dict[str, PartProgress]()
    for name, part in parts.items():
        if part.stage is GateStage.RETURNS and name in settled:
            changed[name] = replace(part, stage=GateStage.ASKS)
        elif part.stage is GateStage.AWAY and not asking:
            changed[name] = replace(part, stage=GateStage.RETURNS)
        elif part.members and asking and now - part.since >= _find_patience(handle, name, part):
            changed[name] = replace(part, cursor="", members=(), stage=GateStage.AWAY, returns=part.returns + 1)
    if not changed:
        return JoinedReports((), cursor)
    renewed = dict[str, PartProgress]()
    if any(part.stage is GateStage.RETURNS for part in changed.values()):
        # Who has waited for the answer to a hold waits its whole limit for the part that comes back.
        renewed = {name: replace(part, since=now) for name, part in parts.items() if part.members}
    after = replace(cursor, parts={**cursor.parts, **renewed, **changed})
    if all(part.stage is GateStage.ASKS for part in changed.values()):
        return JoinedReports((), after)
    waits = asking[0] if asking else next(iter(changed))
    return JoinedReports((Queued(now, word_wait(after, waits, parts[waits].reason or "Resources")),), after)


def _list_asking(handle: LaunchHandle, cursor: LaunchCursor, settled: Collection[str]) -> list[str]:
    """The parts that the others wait for: those that wait for nodes, then those away that cannot ask again yet."""
    parts = {name: cursor.parts.get(name, PartProgress()) for name in handle.parts}
    asking = [name for name, part in parts.items() if not part.members and part.stage is not GateStage.AWAY]
    return asking + [name for name, part in parts.items() if part.stage is GateStage.AWAY and name not in settled]


def _find_patience(handle: LaunchHandle, name: str, part: PartProgress) -> float:
    limit = handle.limits.get(name)
    if limit is None:
        # Its cluster cannot take it back at the gate.
        return math.inf
    return limit if name == handle.dearest else _double(limit, part.returns)


def _double(limit: int, times: int) -> int:
    return max(limit, min(limit << min(times, _MOST_DOUBLINGS), _LONGEST_SECONDS))
