"""From a request to a job that is durable: read, check, ask the cluster, one transaction, answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from overspan.adapters.abilities import Admission, Plan, Verdict
from overspan.bridge.config.settings import Limits
from overspan.bridge.controller.book import Entry
from overspan.bridge.controller.clusters import Cluster, Clusters
from overspan.bridge.controller.notes import list_notes
from overspan.bridge.controller.recording import Recorder
from overspan.bridge.controller.rights import deny
from overspan.bridge.controller.trials import describe_trial
from overspan.bridge.controller.verdicts import await_verdict
from overspan.bridge.model.errors import InvalidRequest, OverspanError, Place, Rejected, Unreachable
from overspan.bridge.model.job import Departure, Job, new_job
from overspan.bridge.model.names import fill_name
from overspan.bridge.model.schedule import Schedule
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.readers.submission import SCRIPT, Submission
from overspan.bridge.store.schedule_records import StoredSchedule

FAILED = "Batch job submission failed"
BAD_PARTITION = "invalid partition specified"
BAD_GRES = "Invalid generic resource (gres) specification"
LARGE = 32 * 1024
"""Letters of a text from which on it is read in a thread, so that nobody waits for it."""


@dataclass(frozen=True)
class Reading:
    """What the readers made of a submission; `options` are those that the command itself acts on."""

    spec: JobSpec
    options: Mapping[str, Any] = field(default_factory=dict)


Reader = Callable[[Submission, Mapping[str, str], float], Reading]
"""Reads a submission, given the kinds of the clusters by name and the time."""


@dataclass(frozen=True)
class Submitted:
    """The answer: the job's number, its tasks' ids where it has several, and what was not heeded."""

    id: int
    task_ids: tuple[str, ...]
    name: str
    cluster: str
    notes: tuple[str, ...]
    options: Mapping[str, Any]
    text: str = ""
    schedule: int = 0
    """The schedule that was made instead of a job; `id` is 0 then."""
    next_due: float | None = None


@dataclass(frozen=True)
class Run:
    """A submission as a run of a schedule: what the job's spec says of it, and the schedule's record beside the job."""

    cron: Schedule
    record: Callable[[int], StoredSchedule]
    """Given the job's number."""


Scheduling = Callable[[Submission, Submitted, Schedule, bool], Awaitable[Submitted]]
"""Makes a schedule of a submission that was found good; with True only checks it."""


class Submitter:
    """Takes submissions; an answer means that the job is in the store."""

    def __init__(self, recorder: Recorder, clusters: Clusters, limits: Limits, reader: Reader) -> None:
        self.recorder = recorder
        self.clusters = clusters
        self.limits = limits
        self.reader = reader
        self.schedule: Scheduling | None = None

    async def submit(self, submission: Submission, run: Run | None = None) -> Submitted:
        """Make the job, or a schedule of a file with `cron` unless this is a run of one.

        Raises InvalidRequest, Rejected and StoreFailed; then nothing was written.
        """
        reading, cluster, job = await self._prepare(submission)
        if job.spec.cron is not None and run is None and self.schedule is not None:
            return await self.schedule(submission, _answer(job, cluster, reading), job.spec.cron, submission.test_only)
        if submission.test_only or reading.options.get("test_only"):
            return _answer(job, cluster, reading, await self._try(job, cluster))
        first = await self.recorder.ledger.next_ids(len(job.tasks))
        spec = replace(job.spec, name=_fill(job.spec.name, first), cron=run.cron if run is not None else None)
        fresh = new_job(first, spec, self.recorder.clock())
        job = replace(fresh, cluster=job.cluster, passed=job.passed, racers=job.racers)
        entry = Entry(job, cluster.name, submission.user)
        await self.recorder.insert([entry], run.record(first) if run is not None else None)
        await self._hear(entry, cluster, submission.kind)
        return _answer(entry.job, self.clusters.find(entry.cluster) or cluster, reading)

    async def _hear(self, entry: Entry, cluster: Cluster, kind: str) -> None:
        """Wait for the verdict of a cluster that gives one. Raises Rejected in its words."""
        try:
            adapter = cluster.adapter
        except OverspanError:
            return
        if not isinstance(adapter, Verdict):
            return
        refusal = await await_verdict(self.recorder, self.clusters, entry, adapter.verdict_seconds)
        if refusal is not None:
            raise Rejected(
                word_refusal(refusal) if kind == SCRIPT else refusal,
                remedy=f"`span show {entry.job.id}` keeps it; `span sinfo -M {cluster.name}` shows what is there",
            )

    async def _try(self, job: Job, cluster: Cluster) -> str:
        """What would become of the job; as with Slurm it costs an id."""
        number = await self.recorder.ledger.next_ids(len(job.tasks))
        try:
            nodes = await cluster.adapter.nodes()
        except Unreachable:
            nodes = []
        return describe_trial(job, number, nodes, self.recorder.clock())

    async def check(self, submission: Submission) -> Submitted:
        """Read and check a submission with no effect; raises what `submit` would."""
        reading, cluster, job = await self._prepare(submission)
        return _answer(job, cluster, reading)

    async def plan(self, submission: Submission) -> tuple[str, tuple[str, ...]]:
        """What the cluster would be sent, and the notes; with no effect at all."""
        _, cluster, job = await self._prepare(submission)
        adapter = cluster.adapter
        if not isinstance(adapter, Plan):
            raise InvalidRequest(f"the cluster {cluster.name} cannot show a plan")
        job = replace(job, spec=replace(job.spec, name=_fill(job.spec.name, 1)).public())
        return await asyncio.to_thread(adapter.plan, job), job.spec.notes

    async def _prepare(self, submission: Submission) -> tuple[Reading, Cluster, Job]:
        reading = await self._read(submission)
        self._check(reading.spec, submission)
        cluster, job, notes = await self._choose(reading.spec, submission)
        notes = (*list_notes(job, self.clusters, cluster), *notes)
        return reading, cluster, replace(job, spec=replace(job.spec, notes=notes))

    async def _choose(self, spec: JobSpec, submission: Submission) -> tuple[Cluster, Job, tuple[str, ...]]:
        """The first cluster that takes the job, the job as it is for that one, and what became of those before it.

        Where no other takes it, the first that is down has it. Rejected in each one's words where all refuse.
        """
        racers = self.clusters.list_racers(new_job(0, spec, self.recorder.clock()))
        names = racers or spec.clusters or ("",)
        down: list[tuple[Cluster, Job]] = []
        passed: list[Departure] = []
        for name in names:
            cluster = self.clusters.get(name)
            trouble = await cluster.find_trouble(self.recorder.clock()) if len(names) > 1 else ""
            try:
                job = await self._fit(spec, cluster, submission, asked=not trouble)
            except Rejected as error:
                if len(names) == 1:
                    raise
                passed.append(Departure(self.recorder.clock(), cluster.name, error.message, refused=True))
                continue
            if not trouble:
                return cluster, _note_passed(job, passed), _word_passed(passed, f"it goes to {cluster.name}")
            passed.append(Departure(self.recorder.clock(), cluster.name, trouble))
            down.append((cluster, job))
        if not down:
            raise Rejected(
                "\n".join(f"{each.cluster}: {each.text}" for each in passed),
                remedy="`span sinfo` shows what their nodes and partitions have",
            )
        cluster, job = down[0]
        before = [departure for departure in passed if departure.refused]
        return cluster, _note_passed(job, before), _word_passed(passed, f"it waits for {cluster.name}")

    async def _fit(self, spec: JobSpec, cluster: Cluster, submission: Submission, *, asked: bool) -> Job:
        """The job as it is for a cluster. Rejected in the cluster's words, where it is to be asked."""
        for task in spec.tasks:
            if task.cluster and task.cluster != cluster.name:
                raise InvalidRequest(
                    f"task {task.name!r} is for the cluster {task.cluster!r} and the job for {cluster.name!r}",
                    remedy="groups over several clusters are not carried out by this version; name one cluster",
                    place=Place(submission.file) if submission.file else None,
                )
        choice = len(spec.clusters) > 1
        if not spec.partition and cluster.config.kind == "local" and not choice:
            # Here it is known where the job will run; elsewhere the choice is the cluster's own.
            spec = replace(spec, partition=await cluster.find_default_partition())
        job = new_job(0, spec, self.recorder.clock())
        if choice and spec.array is None:
            job = replace(job, cluster=cluster.name, racers=self.clusters.list_racers(job))
        if asked:
            await _admit(cluster, job, submission.kind, trial=choice and spec.array is not None)
            if "," in spec.partition and cluster.config.kind == "local":
                job = replace(job, spec=replace(spec, partition=await _choose_partition(cluster, job)))
        return job

    async def _read(self, submission: Submission) -> Reading:
        arguments = (submission, self.clusters.kinds(), self.recorder.clock())
        if len(submission.text) > LARGE:
            return await asyncio.to_thread(self.reader, *arguments)
        return self.reader(*arguments)

    def _check(self, spec: JobSpec, submission: Submission) -> None:
        place = Place(submission.file) if submission.file else None
        if spec.parent is not None:
            self._check_parent(spec.parent, submission.user, place)
        if spec.later:
            raise InvalidRequest(
                f"this version cannot carry out {', '.join(sorted(spec.later))}",
                remedy="leave it out, or wait for the version that can",
                place=place,
            )
        if len(spec.tasks) > self.limits.max_tasks:
            raise InvalidRequest(f"a job has at most {self.limits.max_tasks} tasks here", place=place)
        if sum(task.num_nodes for task in spec.tasks) > self.limits.max_nodes:
            raise InvalidRequest(f"a job has at most {self.limits.max_nodes} nodes here", place=place)
        if self.recorder.book.live >= self.limits.max_live_jobs:
            raise Rejected(
                f"there are {self.recorder.book.live} jobs already, which is the limit",
                remedy="wait until some have ended, or raise limits.max_live_jobs",
            )

    def _check_parent(self, parent: int, user: str, place: Place | None) -> None:
        entry = self.recorder.book.get(parent)
        if entry is None or entry.job.over or entry.job.ending is not None:
            raise InvalidRequest(
                f"the group {parent} has ended, or is not known, so no job can join it",
                remedy="submit it with --no-job-group",
                place=place,
            )
        if entry.user != user:
            raise deny(f"the group {parent} is {entry.user}'s: submit the job with --no-job-group")
        if not entry.job.spec.group:
            raise InvalidRequest(f"job {parent} is no group", remedy="leave --job-group out", place=place)


def _note_passed(job: Job, passed: Sequence[Departure]) -> Job:
    """The job with the clusters that it was not given to."""
    return replace(job, passed=tuple(passed))


def _word_passed(passed: Sequence[Departure], rest: str) -> tuple[str, ...]:
    """What the submitter is told of clusters that were passed over."""
    texts = [f"{departure.cluster}: {' '.join(departure.text.split())}" for departure in passed]
    return (f"{'; '.join(texts)}; {rest}",) if passed else ()


async def _admit(cluster: Cluster, job: Job, kind: str, *, trial: bool) -> None:
    """Refuse at once what the cluster could never run; a cluster that does not answer is asked at the submission.

    `trial`: also where the cluster gives a verdict, which comes too late for another cluster to be chosen.
    """
    adapter = cluster.adapter
    if not isinstance(adapter, Admission) or (isinstance(adapter, Verdict) and not trial):
        return
    admission: Callable[[Job], Awaitable[Any]] = adapter.admit
    try:
        refusal = await admission(job)
    except Unreachable:
        return
    if refusal is not None and not refusal.transient:
        message = word_refusal(refusal.message) if kind == SCRIPT else refusal.message
        raise Rejected(message, remedy=f"`span sinfo -M {cluster.name}` shows what its nodes and partitions have")


async def _choose_partition(cluster: Cluster, job: Job) -> str:
    """The first of a list of partitions that takes the job: here they are one machine, so none starts it sooner."""
    adapter = cluster.adapter
    for name in job.spec.partition.split(","):
        one = replace(job, spec=replace(job.spec, partition=name))
        if isinstance(adapter, Admission) and await adapter.admit(one) is None:
            return name
    return job.spec.partition


def word_refusal(message: str) -> str:
    """A refusal as sbatch prints it; clients look for these lines (measured on Slurm 22.05).

    The last line is the verdict; sbatch itself finds what is wrong with generic resources, and adds nothing.
    """
    if message.startswith(BAD_PARTITION):
        return f"{message}\n{FAILED}: Invalid partition name specified"
    *details, verdict = message.split("\n")
    if verdict == BAD_GRES or verdict.startswith(FAILED):
        return message
    return "\n".join([*details, f"{FAILED}: {verdict}"])


def _fill(pattern: str, job_id: int) -> str:
    try:
        return fill_name(pattern, job_id)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None


def _answer(job: Job, cluster: Cluster, reading: Reading, text: str = "") -> Submitted:
    count = len(job.tasks)
    ids = tuple(f"{job.id}+{offset}" for offset in range(count)) if count > 1 else (str(job.id),)
    return Submitted(job.id, ids, job.spec.name, cluster.name, job.spec.notes, reading.options, text)
