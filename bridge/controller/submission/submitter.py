"""Submission, from a request to a durable job: parse, check, ask the cluster, one transaction, answer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from overspan.adapters.abilities import Admission, Plan
from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.core.clusters import Cluster, Clusters
from overspan.bridge.controller.core.known_reach import KnownReach
from overspan.bridge.controller.core.recording import Recorder
from overspan.bridge.controller.core.registry import JobEntry, entry_of
from overspan.bridge.controller.core.repository import Repository
from overspan.bridge.controller.core.rights import deny
from overspan.bridge.controller.submission.across import settle_clusters
from overspan.bridge.controller.submission.evaluation_checks import check_evaluations
from overspan.bridge.controller.submission.folder_uploads import ASK, DONE, FolderUpload, FolderUploads, list_uploads
from overspan.bridge.controller.submission.gpu_defaults import fill_gpu_defaults, note_gpu_defaults
from overspan.bridge.controller.submission.mount_sources import check_sources
from overspan.bridge.controller.submission.node_capacity import find_misfit
from overspan.bridge.controller.submission.notes import StandingNotes, list_notes, list_standing, note_size
from overspan.bridge.controller.submission.pool_jobs import leave_to_worker
from overspan.bridge.controller.submission.reach import check_reach, describe_reach
from overspan.bridge.controller.submission.start_estimates import describe_trial
from overspan.bridge.controller.submission.storage_checks import check_storage, note_storage
from overspan.bridge.controller.submission.verdicts import await_verdict
from overspan.bridge.controller.views.plans import describe_conditions, render_plan
from overspan.bridge.lifecycle.eligibility import judge
from overspan.bridge.lifecycle.stages import carry, list_deferred, split_stages
from overspan.bridge.model.errors import (
    Conflict,
    InvalidRequest,
    OverspanError,
    Place,
    Rejected,
    StoreFailed,
    Unreachable,
)
from overspan.bridge.model.job import Departure, Job, new_job
from overspan.bridge.model.names import fill_name
from overspan.bridge.model.parts import split_clusters
from overspan.bridge.model.schedule import Schedule
from overspan.bridge.model.slurm.words import BAD_GRES, BAD_PARTITION
from overspan.bridge.model.spec import Candidate, JobSpec
from overspan.bridge.readers.group_checks import LARGEST_ID
from overspan.bridge.readers.submission import JOB_FILE, SCRIPT, Submission
from overspan.bridge.store.records import JobQuery, Receipt
from overspan.bridge.store.schedule_records import StoredSchedule

FAILED = "Batch job submission failed"
LARGE = 32 * 1024
"""Length from which a text is parsed in a thread, so that the event loop goes on meanwhile."""


@dataclass(frozen=True)
class ParsedSubmission:
    """What the readers made of a submission; `options` are those that the command itself acts on."""

    spec: JobSpec
    options: Mapping[str, Any] = field(default_factory=dict)


Reader = Callable[[Submission, Mapping[str, str], float], ParsedSubmission]
"""Reads a submission, given the kinds of the clusters by name and the time."""


@dataclass(frozen=True)
class Submitted:
    """The answer: the job's number, its tasks' ids if it has several, and notes on options without effect."""

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
    uploads: tuple[FolderUpload, ...] = ()
    """What the command is to have sent before it submits again; there is no job then."""


class PreparedSubmission(NamedTuple):
    """A checked submission: its parse, the chosen cluster, the job there, and the notes that hold for all such jobs."""

    reading: ParsedSubmission
    cluster: Cluster
    job: Job
    standing: frozenset[str]


@dataclass(frozen=True)
class ScheduledRun:
    """A submission as a run of a schedule: what the job's spec says of it, and the schedule's record beside the job."""

    cron: Schedule
    record: Callable[[int], StoredSchedule]
    """Given the job's number."""


Scheduling = Callable[[Submission, Submitted, Schedule, bool], Awaitable[Submitted]]
"""Makes a schedule of a submission that was found good; with True only checks it."""


class Submitter:
    """Takes submissions; an answer means that the job is in the store."""

    def __init__(
        self,
        recorder: Recorder,
        clusters: Clusters,
        settings: Settings,
        reader: Reader,
        known_reach: KnownReach,
        uploads: FolderUploads,
    ) -> None:
        self.recorder = recorder
        self.known_reach = known_reach
        self.clusters = clusters
        self.limits = settings.limits
        self.stores = settings.stores
        self.reader = reader
        self.uploads = uploads
        self._standing = StandingNotes()
        self._newest = new_job(0, JobSpec(name="", tasks=()), 0.0)
        """The newest job: a loop of submissions makes many that share its spec, and the facts of tasks that wait."""

    async def submit(self, submission: Submission, schedule: Scheduling | None = None) -> Submitted:
        """Make the job; of a file with `cron`, what `schedule` makes.

        Raises InvalidRequest, Rejected and StoreFailed; then nothing was written.
        """
        return await self.take(await self._read(submission), submission, schedule=schedule)

    async def make_run(self, submission: Submission, run: ScheduledRun) -> Submitted:
        """Make the job of a schedule's run; raises as `submit`."""
        return await self.take(await self._read(submission), submission, run=run)

    async def take(
        self,
        reading: ParsedSubmission,
        submission: Submission,
        *,
        run: ScheduledRun | None = None,
        schedule: Scheduling | None = None,
    ) -> Submitted:
        """Make the job of what was read, or find the one that was made of it before; raises as `submit`.

        Hardly any submission is a second sending, and the store refuses that: only then is the first one looked for.
        Where folders are to be sent it is looked for before: the first sending has sent them.
        """
        try:
            return await self._make(reading, submission, run, schedule)
        except OverspanError:
            receipt = await find_receipt(self.recorder.repository, submission)
            if receipt is None or not receipt.job_id:
                raise
            taken = await self._find_taken(receipt.job_id, reading, submission)
        return taken or await self._make(reading, submission, run, schedule)

    async def _make(
        self,
        reading: ParsedSubmission,
        submission: Submission,
        run: ScheduledRun | None,
        schedule: Scheduling | None,
    ) -> Submitted:
        """Make the job; raises as `submit`, and Conflict where it was made before."""
        reading, cluster, job, standing = await self._settle(reading, submission)
        if job.spec.cron is not None and schedule is not None:
            return await schedule(submission, _answer(job, cluster.name, reading), job.spec.cron, submission.test_only)
        if submission.test_only or reading.options.get("test_only"):
            return _answer(job, cluster.name, reading, await self._try(job, cluster))
        uploads = list_uploads(job.spec)
        if uploads and submission.uploads != DONE:
            if await find_receipt(self.recorder.repository, submission) is not None:
                raise Conflict("a job was made of this submission before")
            if submission.uploads == ASK:
                return replace(_answer(job, cluster.name, reading), uploads=tuple(uploads))
            await self.uploads.send_all(uploads)
        first = await self.recorder.repository.next_ids(len(job.tasks))
        spec = replace(job.spec, name=_fill(job.spec.name, first), cron=run.cron if run is not None else None)
        fresh = new_job(first, spec, self.recorder.clock())
        if spec == self._newest.spec:
            fresh = replace(fresh, spec=self._newest.spec, tasks=self._newest.tasks)
        self._newest = fresh
        job = replace(fresh, cluster=job.cluster, candidate=job.candidate, passed=job.passed, racers=job.racers)
        entry = JobEntry(job, cluster.name, sys.intern(submission.user))
        receipt = make_receipt(submission, self.recorder.clock(), job_id=first)
        await self.recorder.insert([entry], run.record(first) if run is not None else None, receipt)
        self.uploads.note_job(entry.job.spec)
        await self._hear(entry, submission.kind)
        answer = _answer(entry.job, entry.cluster, reading)
        if not reading.options.get("verbose"):
            now = self.recorder.clock()
            answer = replace(answer, notes=self._standing.choose(submission.user, answer.notes, standing, now))
        return self._tell_silence(entry, answer)

    def _tell_silence(self, entry: JobEntry, answer: Submitted) -> Submitted:
        """The answer, with a note where the job waits for a cluster that does not answer."""
        cluster = self.clusters.find(entry.cluster)
        silence = cluster.silence if cluster is not None and not entry.launched and not entry.job.over else ""
        return replace(answer, notes=(*answer.notes, f"the job waits: {silence}")) if silence else answer

    async def _find_taken(self, job: int, reading: ParsedSubmission, submission: Submission) -> Submitted | None:
        """The answer to a submission that was made that job before; None where there is no such job any more."""
        entry = self.recorder.registry.get(job)
        if entry is not None:
            await self._hear(entry, submission.kind)
            return self._tell_silence(entry, _answer(entry.job, entry.cluster, reading))
        found = await self.recorder.repository.find(JobQuery(ids=(job,)))
        if found and entry_of(found[0]).shunned and await self.recorder.repository.withdraw(job):
            # The daemon died before it could say so: the cluster is asked again, and what it says is the answer.
            return None
        return _answer(found[0].job, found[0].cluster, reading) if found else None

    async def _hear(self, entry: JobEntry, kind: str) -> None:
        """Wait for the verdict of a cluster that gives one. Raises Rejected in its words; then there is no job."""
        name = entry.cluster
        seconds = self.clusters.find_traits(name).verdict_seconds
        refusal = None if seconds is None else await await_verdict(self.recorder, self.clusters, entry, seconds)
        if refusal is None:
            return
        remedy = f"`span sinfo -M {name}` shows what is there"
        if entry.job.spec.cron is None:
            # Its number was never answered, so there is no job, as with Slurm. A schedule's run stays as a record.
            try:
                await self.recorder.withdraw(entry.job.id)
            except StoreFailed:
                remedy = f"`span show {entry.job.id}` keeps it; {remedy}"
        raise Rejected(word_refusal(refusal) if kind == SCRIPT else refusal, remedy=remedy)

    async def _try(self, job: Job, cluster: Cluster) -> str:
        """What would become of the job; as with Slurm it costs an id."""
        number = await self.recorder.repository.next_ids(len(job.tasks))
        try:
            nodes = await cluster.adapter.nodes()
        except Unreachable:
            nodes = []
        return describe_trial(carry(job), number, nodes, self.recorder.clock())

    async def check(self, submission: Submission) -> Submitted:
        """Read and check a submission with no effect; raises what `submit` would."""
        reading, cluster, job, _ = await self._prepare(submission)
        return _answer(job, cluster.name, reading)

    async def plan(self, submission: Submission) -> tuple[str, tuple[str, ...]]:
        """What the cluster would be sent, and the notes; with no effect at all."""
        _, cluster, job, _ = await self._prepare(submission)
        adapter = cluster.adapter
        if not isinstance(adapter, Plan):
            raise InvalidRequest(f"the cluster {cluster.name} cannot show a plan")
        job = replace(job, spec=replace(job.spec, name=_fill(job.spec.name, 1)).public())
        job = self.clusters.shared_paths.move(job, cluster.name)
        reach = describe_reach(job, self.clusters, self.known_reach) if split_clusters(cluster.name) else ""
        head = describe_conditions(job) + reach
        return head + await asyncio.to_thread(render_plan, adapter, job), job.spec.notes

    async def _prepare(self, submission: Submission) -> PreparedSubmission:
        return await self._settle(await self._read(submission), submission)

    async def _settle(self, reading: ParsedSubmission, submission: Submission) -> PreparedSubmission:
        self._check(reading.spec, submission)
        place = Place(submission.file) if submission.file else None
        spec = settle_clusters(self._name_default(reading.spec, submission.home), self.clusters, place)
        spec = fill_gpu_defaults(spec, self.clusters)
        cluster, job, notes = await self._choose(spec, submission)
        if cluster.traits.warm_nodes:
            lean, left = leave_to_worker(job.spec)
            job, notes = replace(job, spec=lean), (*notes, *left)
        checked = self._check_storage(job.spec, cluster)
        stored = note_storage(job.spec, checked)
        job = replace(job, spec=check_sources(checked, cluster, submission))
        own = (*stored, *note_gpu_defaults(job.spec, cluster), *await self._note_unknown(job))
        standing = list_standing(self.clusters.shared_paths.move(_name_in_full(job), cluster.name), cluster)
        notes = (*list_notes(job, self.clusters, cluster), *standing, *note_size(job, cluster), *own, *notes)
        notes = (*notes, *await check_evaluations(job, cluster, self.clusters, self.try_evaluation))
        if split_clusters(cluster.name):
            notes = (*notes, *check_reach(job, self.clusters, self.known_reach))
        job = replace(job, spec=replace(job.spec, notes=tuple(dict.fromkeys(notes))))
        return PreparedSubmission(reading, cluster, job, frozenset(standing))

    def _check_storage(self, spec: JobSpec, cluster: Cluster) -> JobSpec:
        """The spec with the stores of its mounts, which all clusters that may have the job can make."""
        others = [self.clusters.get(candidate.cluster) for candidate in spec.places]
        return check_storage(spec, list({each.name: each for each in (cluster, *others)}.values()), self.stores)

    async def try_evaluation(self, spec: JobSpec) -> None:
        """Refuse what the clusters of an evaluation could never run; raises as a submission does."""
        submission = Submission(JOB_FILE, spec.origin.text, spec.origin.file, directory=spec.origin.directory or "/")
        cluster, job, _ = await self._choose(fill_gpu_defaults(self._name_default(spec), self.clusters), submission)
        self._check_storage(job.spec, cluster)

    async def try_worker(self, spec: JobSpec, submission: Submission) -> None:
        """Refuse a pool whose workers could never run; raises as a submission does."""
        await self._settle(ParsedSubmission(spec), submission)

    async def _note_unknown(self, job: Job) -> tuple[str, ...]:
        """A note for each unknown job of a dependency, which counts as met, as in Slurm."""
        unknown = await self.recorder.dependency_resolver.list_unknown(job.spec.dependency)
        return tuple(f"no job {number} is known, so the need of it counts as met, as in Slurm" for number in unknown)

    def _name_default(self, spec: JobSpec, home: str = "") -> JobSpec:
        """The spec whose alternatives name the default cluster where they name none.

        What is submitted from inside a job goes to that job's own cluster, `home`.
        """
        if home and not spec.clusters and not any(task.cluster for task in spec.tasks):
            spec = replace(spec, clusters=(home,))
            return replace(spec, candidates=tuple(replace(each, cluster=home) for each in spec.candidates))
        if not spec.candidates or spec.clusters:
            return spec
        name = self.clusters.get("").name
        candidates = tuple(replace(candidate, cluster=name) for candidate in spec.candidates)
        return replace(spec, clusters=(name,), candidates=candidates)

    async def _choose(self, spec: JobSpec, submission: Submission) -> tuple[Cluster, Job, tuple[str, ...]]:
        """The first cluster that takes the job, the job as it is for that one, and what became of those before it.

        Where no other takes it, the first that is down has it. Rejected in each one's words where all refuse.
        """
        racers = self.clusters.list_racers(new_job(0, spec, self.recorder.clock()))
        places = [place for place in enumerate(spec.places) if not racers or place[1].cluster in racers]
        places = places or [(0, Candidate(""))]
        down: dict[str, tuple[Cluster, Job]] = {}
        passed: list[Departure] = []
        for number, candidate in places:
            cluster = self.clusters.get(candidate.cluster)
            self._check_inside(cluster, submission)
            if cluster.name in down:
                continue
            trouble = await cluster.find_trouble(self.recorder.clock()) if len(places) > 1 else ""
            try:
                job = await self._fit(spec.take(candidate), number, cluster, submission, asked=not trouble)
                if not trouble and any(other.cluster == candidate.cluster for other in spec.places[number + 1 :]):
                    await _check_size(cluster, job)
            except Rejected as error:
                if len(places) == 1:
                    raise
                now, own = self.recorder.clock(), error.remedy if error.remedy != _name_sizes(cluster) else ""
                text = f"{error.message}; {own}" if own else error.message
                passed.append(Departure(now, cluster.name, text, refused=True, candidate=number))
                continue
            if not trouble:
                return cluster, _note_passed(job, passed), _word_passed(passed, f"it goes to {cluster.name}")
            passed.append(Departure(self.recorder.clock(), cluster.name, trouble, candidate=number))
            down[cluster.name] = cluster, job
        if not down:
            raise Rejected(
                "\n".join(dict.fromkeys(f"{each.cluster}: {each.text}" for each in passed)),
                remedy="`span sinfo` shows what their nodes and partitions have",
            )
        cluster, job = next(iter(down.values()))
        before = [departure for departure in passed if departure.refused]
        return cluster, _note_passed(job, before), _word_passed(passed, f"it waits for {cluster.name}")

    def _check_inside(self, cluster: Cluster, submission: Submission) -> None:
        """Keep a job's token to clusters that are open to jobs: a pod is no way to the daemon's own machine."""
        if submission.job and cluster.name != submission.home and not self.clusters.is_open_to_jobs(cluster.name):
            raise deny(f"from inside a job nothing is submitted to {cluster.name}, which has no `daemon_address`")

    async def _fit(self, spec: JobSpec, number: int, cluster: Cluster, submission: Submission, *, asked: bool) -> Job:
        """The job as it is for the place of that number. Rejected in the cluster's words, where it is to be asked."""
        choice = spec.choice
        default_partition = self.clusters.find_traits(cluster.name).default_partition
        if not spec.partition and default_partition is not None and not choice:
            # Here it is known where the job will run; elsewhere the choice is the cluster's own.
            spec = replace(spec, partition=default_partition())
        job = new_job(0, spec, self.recorder.clock())
        if choice and spec.array is None:
            job = replace(job, cluster=cluster.name, candidate=number, racers=self.clusters.list_racers(job))
        if asked:
            moved = self.clusters.shared_paths.move(_name_in_full(job), cluster.name)
            # A pool's file is refused before its workers are replaced by such as never start.
            trial = spec.worker is not None or self._is_sent_later(job, cluster)
            await _admit(cluster, moved, submission.kind, trial=trial)
            if "," in spec.partition and default_partition is not None:
                job = replace(job, spec=replace(spec, partition=await _choose_partition(cluster, job)))
        return job

    def _is_sent_later(self, job: Job, cluster: Cluster) -> bool:
        """Whether a cluster's verdict on a job would come too late for the submitter, and a trial may tell it now."""
        if cluster.stale_since is not None and not job.spec.choice:
            return False
        full = cluster.slots is not None and len(self.recorder.registry.watched(cluster.name)) >= cluster.slots
        in_parts = job.spec.array is not None or job.stage is not None or bool(list_deferred(job))
        return full or in_parts or not judge(job, self.recorder.clock()).now

    async def _read(self, submission: Submission) -> ParsedSubmission:
        arguments = (submission, self.clusters.kinds(), self.recorder.clock())
        if len(submission.text) > LARGE:
            return await asyncio.to_thread(self.reader, *arguments)
        return self.reader(*arguments)

    def _check(self, spec: JobSpec, submission: Submission) -> None:
        place = Place(submission.file) if submission.file else None
        if spec.parent is not None and spec.evaluation is None:
            self._check_parent(spec.parent, submission, place)
        if submission.job and spec.cron is not None:
            raise deny("a schedule outlives the job: make it where the job was submitted")
        if spec.later:
            raise _refuse_later(spec, place)
        if len(spec.tasks) > self.limits.max_tasks:
            raise InvalidRequest(f"a job has at most {self.limits.max_tasks} tasks here", place=place)
        if sum(task.num_nodes for task in spec.tasks) > self.limits.max_nodes:
            raise InvalidRequest(f"a job has at most {self.limits.max_nodes} nodes here", place=place)
        if self.is_full():
            raise Rejected(
                f"there are {self.recorder.registry.live} jobs already, which is the limit",
                remedy="wait until some have ended, or raise limits.max_live_jobs",
            )

    def is_full(self) -> bool:
        """Whether there are as many jobs as the settings allow."""
        return self.recorder.registry.live >= self.limits.max_live_jobs

    def _check_parent(self, parent: int, submission: Submission, place: Place | None) -> None:
        user = submission.user
        if submission.job not in (0, parent):
            raise deny(f"from inside job {submission.job} a job can join that one alone")
        entry = self.recorder.registry.get(parent)
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


def make_receipt(submission: Submission, at: float, *, job_id: int = 0) -> Receipt | None:
    """What tells the submission's second sending from another submission; None where it has no token."""
    return Receipt(submission.token, submission.user, at, job_id) if submission.token else None


async def find_receipt(repository: Repository, submission: Submission) -> Receipt | None:
    """What was made of the submission when it was sent before; None where it was not."""
    return await repository.find_receipt(submission.token, submission.user) if submission.token else None


def _refuse_later(spec: JobSpec, place: Place | None) -> InvalidRequest:
    """The refusal of what is read and cannot be carried out: the first of it, and each other in a line of its own."""
    if "pool" in spec.later:
        remedy = "`span pool apply -p NAME FILE` makes the pool; `pool: NAME` in a job file runs the job there"
        where = spec.later_places.get("pool", place)
        return InvalidRequest("this file describes a pool, which is no job", remedy=remedy, place=where)
    found = sorted(spec.later_places.items(), key=lambda item: item[1])
    words = found[0][0] if found else ", ".join(sorted(spec.later))
    lines = [f"this version cannot carry out {words}", *(f"{where}: nor {words}" for words, where in found[1:])]
    return InvalidRequest(
        "\n".join(lines),
        remedy="leave it out, or wait for the version that can",
        place=found[0][1] if found else place,
    )


def _note_passed(job: Job, passed: Sequence[Departure]) -> Job:
    """The job with the clusters that it was not given to."""
    return replace(job, passed=tuple(passed))


def _word_passed(passed: Sequence[Departure], rest: str) -> tuple[str, ...]:
    """A note about the clusters that were passed over."""
    texts = [f"{departure.cluster}: {' '.join(departure.text.split())}" for departure in passed]
    return (f"{'; '.join(texts)}; {rest}",) if passed else ()


async def _admit(cluster: Cluster, job: Job, kind: str, *, trial: bool) -> None:
    """Refuse at once what the cluster could never run; a cluster that does not answer is asked at the submission.

    `trial`: also where the cluster gives a verdict on what it is sent.
    """
    adapter = cluster.adapter
    if not isinstance(adapter, Admission) or (adapter.traits.verdict_seconds is not None and not trial):
        return
    admission: Callable[[Job], Awaitable[Any]] = adapter.admit
    for stage in split_stages(job):
        try:
            refusal = await admission(stage)
        except Unreachable:
            return
        if refusal is not None and not refusal.transient:
            message = word_refusal(refusal.message) if kind == SCRIPT else refusal.message
            raise Rejected(message, remedy=refusal.remedy or _name_sizes(cluster))


def _name_sizes(cluster: Cluster) -> str:
    """What may help where nothing better is known."""
    return f"`span sinfo -M {cluster.name}` shows what its nodes and partitions have"


async def _check_size(cluster: Cluster, job: Job) -> None:
    """Refuse what no node of a cluster could ever hold, where it has another alternative: some take it and wait."""
    try:
        misfit = find_misfit(job, await cluster.adapter.nodes())
    except Unreachable:
        return
    if misfit:
        raise Rejected(misfit)


async def _choose_partition(cluster: Cluster, job: Job) -> str:
    """The first of a list of partitions that takes the job: here they are one machine, so none starts it sooner."""
    adapter = cluster.adapter
    for name in job.spec.partition.split(","):
        one = replace(job, spec=replace(job.spec, partition=name))
        if isinstance(adapter, Admission) and not any([await adapter.admit(stage) for stage in split_stages(one)]):
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


def _name_in_full(job: Job) -> Job:
    """The job with an id in its name that is longer than the one it will have, for checks."""
    name = _fill(job.spec.name, LARGEST_ID)
    return job if name == job.spec.name else replace(job, spec=replace(job.spec, name=name))


def _answer(job: Job, cluster: str, reading: ParsedSubmission, text: str = "") -> Submitted:
    count = len(job.tasks)
    ids = tuple(f"{job.id}+{offset}" for offset in range(count)) if count > 1 else (str(job.id),)
    return Submitted(job.id, ids, job.spec.name, cluster, job.spec.notes, reading.options, text)
