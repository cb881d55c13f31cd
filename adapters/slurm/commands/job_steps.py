"""The steps of srun inside native jobs: from sacct, or without accounting the running ones from squeue.

They are queried only when a user asks for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from overspan.adapters.abilities import Step
from overspan.adapters.slurm.commands.errors import FailureKind, read_failure
from overspan.adapters.slurm.commands.listings import (
    FIELD_END,
    ExitStatus,
    ask,
    join_format,
    read_exit,
    read_number,
    read_text,
    read_time,
    split_parsable,
    split_records,
)
from overspan.adapters.slurm.commands.queries import SACCT_IDS, Queries
from overspan.adapters.slurm.commands.sacct import JOB_ID, SUBMIT_LINE, SUBMIT_LINE_SINCE
from overspan.adapters.slurm.commands.squeue import read_nodes
from overspan.adapters.slurm.commands.states import NativeState, read_state
from overspan.adapters.slurm.handles import Handle, parse_handle
from overspan.bridge.model.errors import NotFound, OverspanError, Unreachable
from overspan.bridge.model.state_words import ENDED_WORDS

SECONDS = 5.0
"""Timeout of the cluster's answer, in seconds, since a user waits for it."""
MOST = 1000
"""Jobs of one answer, the newest ones."""
_KEPT = 2000
"""Ended jobs whose steps are cached: these no longer change."""
_FIELDS = ("JobID", "State", "ExitCode", "Start", "End", "NTasks", "NCPUS", "NodeList", "JobName")
_RUNNING = ("StepID", "NumTasks", "StartTime", "Nodes", "StepName")
_SIGKILL = 9


class NativeStepRecord(NamedTuple):
    """A line about a job (`number` is None) or about a step of srun: ids as in squeue, nodes by name."""

    job: str
    component: int | None
    number: int | None
    state: NativeState
    exit: ExitStatus | None
    start: float | None
    end: float | None
    ntasks: int
    cpus: int
    nodes: tuple[str, ...]
    name: str
    line: str


class JobSteps:
    """Queries steps; `nodes_of` gives the nodes of a launch, in the order of its members, if they are known."""

    def __init__(self, queries: Queries, nodes_of: Callable[[str], Sequence[str]]) -> None:
        self._queries = queries
        self._nodes_of = nodes_of
        self._ended: dict[str, list[Step]] = {}

    async def find(self, handles: Sequence[str]) -> list[Step]:
        """The steps of single jobs and elements; groups have none. Raises Unreachable."""
        wanted = _read_handles(handles)
        fresh = {name: text for name, text in wanted.items() if text not in self._ended}
        try:
            async with asyncio.timeout(SECONDS):
                found = await self._ask(fresh) if fresh else {}
        except TimeoutError:
            raise Unreachable(f"the cluster has not listed its steps within {SECONDS:g} s") from None
        while len(self._ended) > _KEPT:
            del self._ended[next(iter(self._ended))]
        return [step for text in wanted.values() for step in found.get(text, self._ended.get(text, []))]

    async def _ask(self, wanted: Mapping[str, str]) -> dict[str, list[Step]]:
        names = sorted(wanted)
        site = await self._queries.site()
        if site.accounting:
            try:
                return await self._ask_accounts(names, wanted, site.version)
            except OverspanError:
                # squeue still knows the running steps.
                pass
        done = await self._run(ask("squeue", "--steps", "--noheader", f"--jobs={','.join(names)}", *_ask_running()))
        return self._collect(read_running(done), wanted)

    async def _ask_accounts(
        self, names: Sequence[str], wanted: Mapping[str, str], version: tuple[int, ...]
    ) -> dict[str, list[Step]]:
        found: dict[str, list[Step]] = {}
        for start in range(0, len(names), SACCT_IDS):
            fields = list_fields(version)
            words = ["sacct", "--noheader", "--parsable", f"--delimiter={FIELD_END}", f"--format={','.join(fields)}"]
            text = await self._run(ask(*words, f"--jobs={','.join(names[start : start + SACCT_IDS])}"))
            found |= self._collect(read_steps(text, version), wanted)
        return found

    async def _run(self, words: Sequence[str]) -> str:
        done = await self._queries.transport.run(words, timeout=SECONDS)
        if done.rc != 0:
            failure = read_failure(done.words, done.rc)
            if failure.kind is not FailureKind.UNKNOWN_JOB:
                raise failure.error()
        return done.text

    def _collect(self, records: Sequence[NativeStepRecord], wanted: Mapping[str, str]) -> dict[str, list[Step]]:
        """The steps by handle; those of ended jobs go into the cache."""
        jobs = {record.job: record for record in records if record.number is None}
        found: dict[str, list[Step]] = {text: [] for text in wanted.values()}
        for record in records:
            text = wanted.get(record.job)
            if record.number is None or text is None:
                continue
            own = jobs.get(record.job)
            names = self._nodes_of(text) or (own.nodes if own is not None else ())
            found[text].append(make_step(text, record, names))
        for name, job in jobs.items():
            steps = found[wanted[name]] if name in wanted else []
            # The accounting may hear of a job's end before those of its steps.
            if job.end is not None and name in wanted and not any(step.running for step in steps):
                self._ended[wanted[name]] = steps
        return found


def _read_handles(handles: Iterable[str]) -> dict[str, str]:
    """The handles of the newest jobs, by the names of their native jobs. Groups have none: their steps are tasks."""
    found: dict[str, Handle] = {}
    for text in handles:
        try:
            handle = parse_handle(text)
        except NotFound:
            continue
        found[handle.name] = handle
    newest = sorted(found.values(), key=lambda handle: (handle.native, handle.index or 0))[-MOST:]
    return {handle.name: str(handle) for handle in newest}


def make_step(text: str, record: NativeStepRecord, names: Sequence[str]) -> Step:
    """A step as the contract has it; its nodes are numbered within the launch."""
    places = {name: index for index, name in enumerate(names)}
    status = record.exit or ExitStatus()
    running = record.end is None and record.state.base not in ENDED_WORDS
    # Slurm shows CANCELLED also for a step that died of a signal by itself; only a cancelled one says by whom.
    cancelled = record.state.base == "CANCELLED" and record.state.by is not None
    return Step(
        handle=text,
        number=record.number or 0,
        component=record.component,
        task=parse_handle(text).task,
        name=record.name,
        command=record.line,
        started_at=record.start or 0.0,
        ended_at=record.end,
        running=running,
        exit_code=0 if status.signal else status.code,
        signal=_SIGKILL if cancelled and not status.signal else status.signal,
        cancelled=cancelled,
        ntasks=record.ntasks,
        cpus=record.cpus,
        nodes=tuple(places[name] for name in record.nodes if name in places),
        layout="Unknown",
        host="",
        pid=0,
    )


def list_fields(version: tuple[int, ...]) -> tuple[str, ...]:
    """The fields that a Slurm of that version has; the users' own text is last, since it may hold separators."""
    return (*_FIELDS, SUBMIT_LINE) if version >= SUBMIT_LINE_SINCE else _FIELDS


def read_steps(text: str, version: tuple[int, ...]) -> list[NativeStepRecord]:
    """The jobs and the steps of srun in an answer of sacct."""
    fields = list_fields(version)
    rows = (dict(zip(fields, values, strict=True)) for values in split_parsable(text, len(fields)).records)
    return [record for row in rows if (record := _read_row(row, row["JobID"])) is not None]


def _ask_running() -> tuple[str, ...]:
    return (f"--Format={join_format(_RUNNING)}",)


def read_running(text: str) -> list[NativeStepRecord]:
    """The steps of srun in an answer of squeue."""
    found = []
    for step, ntasks, start, nodes, name in split_records(text, len(_RUNNING)).records:
        row = {"State": "RUNNING", "Start": start, "NTasks": ntasks, "NodeList": nodes, "JobName": name}
        record = _read_row(row, step)
        if record is not None and record.number is not None:
            # squeue does not show a step's CPUs; srun's default is one for each rank.
            found.append(record._replace(cpus=record.ntasks))
    return found


def _read_row(row: Mapping[str, str], shown: str) -> NativeStepRecord | None:
    match = JOB_ID.fullmatch(shown.strip())
    if match is None:
        return None
    job, index, rest, offset, step = match.groups()
    if rest is not None or (step is not None and not step.isdigit()):
        # An array's waiting elements, the batch script's own step, or a step that Slurm makes (extern, interactive).
        return None
    return NativeStepRecord(
        job=job if index is None else f"{job}_{index}",
        component=None if offset is None else int(offset),
        number=None if step is None else int(step),
        state=read_state(row["State"]),
        exit=read_exit(row.get("ExitCode", "")),
        start=read_time(row["Start"]),
        end=read_time(row.get("End", "")),
        ntasks=read_number(row["NTasks"]) or 1,
        cpus=read_number(row.get("NCPUS", "")) or 0,
        nodes=read_nodes(row["NodeList"]),
        name=read_text(row["JobName"]),
        line=row.get(SUBMIT_LINE, ""),
    )
