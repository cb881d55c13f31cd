"""Inventory for `span fsck`: the launches in Slurm, of any installation, found by the token in the comment. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from overspan.adapters.abilities import Trace
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.groups.handles import GroupHandle
from overspan.adapters.slurm.groups.parts import split_token
from overspan.adapters.slurm.handles import is_handle, parse_any
from overspan.adapters.slurm.observation.outcomes import Phase, judge
from overspan.adapters.slurm.observation.requeues import Future, foresee
from overspan.adapters.slurm.rendering.script import find_token

_TOKEN = re.compile(r"(.+)-(\d+)-(\d+)")
_RUNS = (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED, Phase.ENDING)

Natives = Mapping[tuple[int, int | None], str]
"""The handles that are watched, by native job and element."""


class _LaunchKey(NamedTuple):
    """The key of one trace: a launch, or an orphaned native job."""

    token: str
    handle: str


def index_handles(handles: Iterable[str]) -> dict[tuple[int, int | None], str]:
    """The handles by native job and element; of several runs of one native job, the handle of the latest."""
    found: dict[tuple[int, int | None], str] = {}
    runs: list[tuple[int, tuple[int, int | None], str]] = []
    for text in handles:
        if not is_handle(text):
            continue
        handle = parse_any(text)
        if isinstance(handle, GroupHandle):
            found.update({(job.native, None): text for job in handle.list_jobs()})
        else:
            runs.append((handle.run, (handle.native, handle.index), text))
    for _, native, text in sorted(runs, key=lambda run: run[0]):
        found[native] = text
    return found


def list_traces(records: Iterable[QueueRecord], natives: Natives) -> list[Trace]:
    """The launches that are watched or have live native jobs, sorted by installation and job."""
    places: dict[_LaunchKey, list[QueueRecord]] = {}
    for record in records:
        token = find_token(record.comment)
        member = split_token(token)
        token = token if member is None else member.token
        if not _TOKEN.fullmatch(token):
            continue
        leader = record.array_job or record.het_job or record.raw
        handle = natives.get((leader, record.array_index)) or natives.get((leader, None), "")
        if handle or foresee(record.state, bool(record.nodes)) is not Future.OVER:
            places.setdefault(_LaunchKey(token, handle or f"native.{leader}"), []).append(record)
    traces = [_trace(place, listed) for place, listed in places.items()]
    return sorted(traces, key=lambda trace: (trace.installation, trace.job, trace.launch, trace.handle))


def _trace(place: _LaunchKey, records: Sequence[QueueRecord]) -> Trace:
    match = _TOKEN.fullmatch(place.token)
    assert match is not None
    words = [f"job {record.shown} {_name_state(record)}" for record in records]
    running = sum(judge(record.state).phase in _RUNS for record in records)
    return Trace(place.token, place.handle, match[1], int(match[2]), int(match[3]), tuple(words), running, resumes=True)


def _name_state(record: QueueRecord) -> str:
    state = record.state
    return "+".join([word for word in (state.base, *sorted(state.flags), state.unknown) if word]) or "?"


def list_natives(traces: Iterable[Trace]) -> list[str]:
    """The names of all native jobs of these launches, for scancel."""
    names = (words.split()[1] for trace in traces for words in trace.objects)
    # scancel takes the waiting elements of an array by the array's own id.
    return list(dict.fromkeys(name.partition("_[")[0] for name in names))
