"""Watches checkpoints, has each evaluated once, and reads the results.

What was decided is in the store before anything follows from it: a row for each evaluation, unique by watch, checkpoint
and content. Its job is submitted under a token that follows from the row, so a daemon that was killed in between finds
that job and makes no second one. All else (what was seen, what waits) is found out again by the next daemon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

from overspan.bridge.controller.core.checkpoint_paths import mount_folder, place_evaluation, translate_path
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.recording import Recorder
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.unit_of_work import UnitOfWork
from overspan.bridge.controller.features.evaluations.descriptions import LiveState, describe_watch, sum_up_watch
from overspan.bridge.controller.features.evaluations.looking import LINGER_SECONDS, RETRY_SECONDS, FolderLooks
from overspan.bridge.controller.features.evaluations.result_logs import fetch_result
from overspan.bridge.controller.features.evaluations.templates import CheckpointValues, make_evaluation_job
from overspan.bridge.controller.features.evaluations.wanted import asks_for_watches, list_watches
from overspan.bridge.controller.features.evaluations.watches import CheckpointWatch, KnownContent, ReadyCheckpoint
from overspan.bridge.controller.orders.orders import place
from overspan.bridge.controller.submission.submitter import ParsedSubmission, Submitter
from overspan.bridge.controller.views.logs import Logs
from overspan.bridge.lifecycle.checkpoint_choice import Scored, find_stop
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.checkpoints.listings import FolderListing
from overspan.bridge.model.documents import decode
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound, OverspanError, StoreFailed, Unreachable
from overspan.bridge.model.evaluations import EvaluationOf, EvaluationSpec, ReadyRule, StopRule
from overspan.bridge.model.job import Job
from overspan.bridge.model.parts import place_task
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.model.states import State
from overspan.bridge.readers.submission import JOB_FILE, Submission
from overspan.bridge.store.evaluation_records import (
    EvaluationFacts,
    EvaluationTally,
    JobLabel,
    StoredEvaluation,
    StoredWatch,
    WatchFacts,
)
from overspan.bridge.store.records import JobQuery

log = logging.getLogger(__name__)

MOST_LISTED = 200
"""Watches in a list of all, besides those that are open."""
GIVE_UP_SECONDS = 86400.0
"""How long after the job's end a folder that cannot be read is asked for."""
BY = "stop_when"
REASONS = {StopRule.SCORE: "ScoreReached", StopRule.NO_GAIN: "NoGain"}
"""The reason of a job that its scores have ended."""
_UNKNOWN = KnownContent("", ())


class Evaluations:
    """All watches that are open, the loops that look for them, and their evaluations."""

    def __init__(self, recorder: Recorder, clusters: Clusters, submitter: Submitter, logs: Logs) -> None:
        self.recorder = recorder
        self.clusters = clusters
        self.submitter = submitter
        self.logs = logs
        self.watches: dict[int, CheckpointWatch] = {}
        self._of_job: dict[int, set[int]] = {}
        self._looks = FolderLooks(clusters, self._list_watches, self._take)
        self._filling: dict[int, asyncio.Lock] = {}
        self._ended_jobs: set[int] = set()
        self._loaded = False

    # --- start and end ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the open watches, find what was submitted and what has ended meanwhile, and look. Raises StoreFailed."""
        repository = self.recorder.repository
        for stored in await repository.evaluations.find_watches():
            await self._open(stored)
        self._loaded = True
        for entry in list(self.recorder.registry):
            if asks_for_watches(entry.job):
                await self._ensure(entry)

    async def close(self) -> None:
        """Stop looking; what is stored is gone on with by the next daemon."""
        await self._looks.close()

    async def _open(self, stored: StoredWatch) -> CheckpointWatch | None:
        """Take a stored watch into memory, with its evaluations that are not over."""
        if stored.id in self.watches:
            return self.watches[stored.id]
        found = await self._find_job(stored.job_id)
        if found is None:
            log.warning("job %d is not known any more, so its checkpoints are not watched", stored.job_id)
            return None
        job, handle = found
        watch = CheckpointWatch(stored, job, handle)
        repository = self.recorder.repository
        names = [name for name, _ in await repository.evaluations.list_names(stored.id)]
        known = await repository.evaluations.find([stored.id], live_only=not watch.changes_count)
        watch.taken = {name: watch.taken.get(name) or _UNKNOWN for name in names}
        for evaluation in known:
            if not evaluation.run:
                watch.taken[evaluation.checkpoint] = _content_of(evaluation)
            if not evaluation.over:
                watch.live[evaluation.id] = await self._find_submitted(watch, evaluation)
        if stored.id in self.watches:
            # Opened by another change of the job while the store was asked. What began since then is in that one alone.
            return self.watches[stored.id]
        self.watches[stored.id] = watch
        self._of_job.setdefault(stored.job_id, set()).add(stored.id)
        entry = self.recorder.registry.get(stored.job_id)
        if entry is not None:
            # It may have ended while the store was asked: its end found no watch to close then.
            self._attach(watch, entry)
        self._note_end(watch)
        for evaluation in list(watch.live.values()):
            if evaluation.job_id:
                await self._look_after(evaluation.job_id)
        self._looks.begin(watch.cluster)
        self._attempt(f"evaluations:{stored.id}", lambda: self._fill(watch))
        # A daemon may have died between a score and what follows from it.
        self._attempt(f"stop:{stored.id}", lambda: self._stop(watch))
        return watch

    async def _find_submitted(self, watch: CheckpointWatch, evaluation: StoredEvaluation) -> StoredEvaluation:
        """The evaluation with its job, where a daemon died after it had submitted that and before it could say so."""
        if evaluation.job_id:
            return evaluation
        receipt = await self.recorder.repository.find_receipt(_token(evaluation), watch.stored.user)
        if receipt is None or not receipt.job_id:
            return evaluation
        found = replace(evaluation, job_id=receipt.job_id)
        await self.recorder.repository.evaluations.change(found)
        return found

    async def _find_job(self, job_id: int) -> tuple[Job, str] | None:
        entry = self.recorder.registry.get(job_id)
        if entry is not None:
            return entry.job, entry.handle if entry.watched else ""
        found = await self.recorder.repository.find(JobQuery(ids=(job_id,)))
        return (found[0].job, "") if found else None

    # --- what happens to jobs -----------------------------------------------------------------------------------------

    def follow(self, before: Job | None, entry: JobEntry) -> None:
        """A job has changed: one that is watched, or an evaluation."""
        job = entry.job
        of = job.spec.evaluation
        if of is not None and job.over and (before is None or not before.over) and self._loaded:
            self.recorder.spawn(self._conclude(job.id), f"the result of job {job.id}")
        if self._loaded and asks_for_watches(job) and job.id not in self._of_job:
            self._attempt(f"watches:{job.id}", lambda: self._ensure(entry))
        for watch_id in self._of_job.get(job.id, ()):
            watch = self.watches[watch_id]
            self._attach(watch, entry)
            if self._note_end(watch):
                self._looks.wake(watch.cluster)
                if _is_unwanted(watch):
                    self._attempt(f"evaluations:{watch_id}", lambda watch=watch: self._fill(watch))  # type: ignore[misc]

    def _attach(self, watch: CheckpointWatch, entry: JobEntry) -> None:
        """Follow the watched job, also to another cluster: where it goes before it starts, its checkpoints are."""
        watch.job, watch.handle = entry.job, entry.handle if entry.watched else ""
        cluster = place_task(entry.job, watch.spec.task, entry.cluster)
        if cluster != watch.cluster:
            watch.stored = replace(watch.stored, facts=replace(watch.stored.facts, cluster=cluster))
            store = self.recorder.repository.evaluations
            self._attempt(f"watch:{watch.stored.id}", lambda: store.change_watch(watch.stored))
            self._looks.begin(cluster)

    def _attempt(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Do something in the background, and again after a while where the store or a cluster fails."""

        async def attempt() -> None:
            try:
                await work()
            except (StoreFailed, Unreachable) as error:
                log.warning("%s: %s; trying again", name, error)
                self._defer(name, work)

        self.recorder.spawn(attempt(), name)

    def _defer(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Do something after a while."""
        self.recorder.timers.set(name, self.recorder.clock() + RETRY_SECONDS, lambda: self._attempt(name, work))

    def _note_end(self, watch: CheckpointWatch) -> bool:
        """Note whether the watched job is over; True if that has changed."""
        before = watch.over_at
        if not watch.job.over:
            watch.over_at = None
        elif before is None:
            watch.over_at = asyncio.get_running_loop().time()
        return (before is None) != (watch.over_at is None)

    async def _ensure(self, entry: JobEntry) -> None:
        """Store the watches that a job's file asks for, unless they are there, and open those that are not closed."""
        job = entry.job
        for spec in list_watches(job):
            await self.add(job, place_task(job, spec.task, entry.cluster), entry.user, spec)

    async def add(self, job: Job, cluster: str, user: str, spec: EvaluationSpec) -> StoredWatch:
        """Store a watch of a job unless it has one of that name, and look for its checkpoints."""
        repository = self.recorder.repository
        facts = WatchFacts(spec, self.recorder.clock(), cluster)
        new = StoredWatch(0, job.id, spec.name, user, False, facts)
        stored = (await repository.evaluations.find_watches(ids=(await repository.evaluations.keep_watch(new),)))[0]
        if stored.closed and not job.over:
            # A finished job was requeued.
            stored = replace(stored, closed=False)
            await repository.evaluations.change_watch(stored)
        if not stored.closed:
            await self._open(stored)
        self._tell_queue(stored)
        return stored

    # --- what people ask ----------------------------------------------------------------------------------------------

    async def describe(self, *jobs: int) -> list[dict[str, Any]]:
        """Every watch of these jobs, with its evaluations, oldest first, and what is not complete yet."""
        repository = self.recorder.repository
        documents = []
        for stored in await repository.evaluations.find_watches(jobs=jobs):
            watch = self.watches.get(stored.id)
            known = await repository.evaluations.find([stored.id])
            documents.append(describe_watch(watch.stored if watch else stored, watch, known, self._find_states(known)))
        return documents

    async def sum_up(self, user: str = "") -> list[dict[str, Any]]:
        """The newest watches and all open ones, newest first, with their evaluations counted by state.

        With a user: the own ones, and those of jobs that the queue shows.
        """
        repository, registry = self.recorder.repository, self.recorder.registry
        watched = (entry.job for entry in registry if entry.job.spec.on_checkpoint or entry.job.id in self._of_job)
        shown = [job.id for job in watched] if user else []
        found = await repository.evaluations.find_newest_watches(MOST_LISTED, user, shown)
        jobs = await repository.evaluations.label_jobs([stored.job_id for stored in found])
        tallies: dict[int, list[EvaluationTally]] = {}
        for tally in await repository.evaluations.count_ended([stored.id for stored in found]):
            tallies.setdefault(tally.watch_id, []).append(tally)
        documents = []
        for stored in reversed(found):
            watch = self.watches.get(stored.id)
            states = self._find_states(watch.live.values() if watch else ())
            facts = (jobs.get(stored.job_id, JobLabel()), tallies.get(stored.id, []), states)
            documents.append(sum_up_watch(watch.stored if watch else stored, watch, *facts))
        return documents

    def _find_states(self, known: Iterable[StoredEvaluation]) -> dict[int, LiveState]:
        """The states of the jobs in memory, by id, with why they wait; COMPLETING while a result is not read yet."""
        found: dict[int, LiveState] = {}
        for each in known:
            entry = self.recorder.registry.get(each.job_id) if each.job_id and not each.over else None
            if entry is not None:
                job = entry.job
                state = State.COMPLETING if job.over else job.state
                found[job.id] = LiveState(state.value, _word_reason(entry.obstacle or job.reason))
        return found

    async def run(self, job_id: int, checkpoint: str, name: str) -> list[StoredEvaluation]:
        """Evaluate a checkpoint once more, by all watches of a job or the named one, without the selection."""
        repository = self.recorder.repository
        chosen = [each for each in await repository.evaluations.find_watches(jobs=(job_id,)) if name in ("", each.name)]
        if not chosen:
            raise NotFound(
                f"job {job_id} has no evaluation {name!r}" if name else f"job {job_id} has no evaluations",
                remedy="`span evals watch` adds one",
            )
        made = []
        for stored in chosen:
            if stored.closed:
                stored = replace(stored, closed=False)
                await repository.evaluations.change_watch(stored)
            watch = await self._open(stored)
            if watch is not None:
                made.append(await self._run(watch, checkpoint))
        return made

    async def _run(self, watch: CheckpointWatch, checkpoint: str) -> StoredEvaluation:
        prefix = watch.spec.path.rstrip("/") + "/"
        wanted = checkpoint.removeprefix(prefix).rstrip("/")
        fields = watch.pattern.match(wanted)
        if fields is None:
            raise InvalidRequest(
                f"{checkpoint!r} does not fit the pattern {watch.spec.pattern!r} of {watch.spec.name}",
                remedy=f"name a checkpoint in {watch.spec.path}",
            )
        known = await self.recorder.repository.evaluations.find([watch.stored.id])
        number = max((each.run for each in known if each.checkpoint == wanted), default=0) + 1
        facts = EvaluationFacts(step=watch.candidate(wanted).number, fields=fields, ready_at=self.recorder.clock())
        new = StoredEvaluation(0, watch.stored.id, wanted, "", number, 0, False, facts)
        new = replace(new, id=await self.recorder.repository.evaluations.keep(new))
        watch.started(new)
        self._tell_queue(watch.stored)
        await self._fill(watch)
        return watch.live.get(new.id, new)

    # --- looking ------------------------------------------------------------------------------------------------------

    def _list_watches(self, cluster: str) -> list[CheckpointWatch]:
        return [watch for watch in self.watches.values() if watch.cluster == cluster]

    async def _take(self, watch: CheckpointWatch, listing: FolderListing, now: float) -> None:
        """Begin the evaluations of what a listing shows as complete, and end the watch where nothing can come."""
        for ready in watch.take(listing, now):
            await self._begin(watch, ready)
        await self._note(watch)
        await self._fill(watch)
        await self._finish(watch, now)

    # --- evaluations --------------------------------------------------------------------------------------------------

    async def _begin(self, watch: CheckpointWatch, ready: ReadyCheckpoint) -> None:
        """Store the evaluation of a complete checkpoint: from here on it is owed."""
        new = ready.start(watch.stored.id, self.recorder.clock())
        new = replace(new, id=await self.recorder.repository.evaluations.keep(new))
        if new.id:
            watch.started(new)
            self._tell_queue(watch.stored)
            return
        # It was stored already: by this watch before, or by a write that was told as a failure.
        watch.taken[new.checkpoint] = _content_of(new)
        watch.ready.pop(new.checkpoint, None)
        for known in await self.recorder.repository.evaluations.find([watch.stored.id], live_only=True):
            watch.live.setdefault(known.id, known)

    async def _fill(self, watch: CheckpointWatch) -> None:
        """Submit as many of the waiting evaluations as may run."""
        async with self._filling.setdefault(watch.stored.id, asyncio.Lock()):
            if _is_unwanted(watch):
                watch.ready.clear()
                await self._drop_waiting(watch)
            for ready in watch.choose() if watch.ready else ():
                await self._begin(watch, ready)
            for evaluation in watch.next_ones():
                if not await self._submit(watch, evaluation):
                    return

    async def _drop_waiting(self, watch: CheckpointWatch) -> None:
        """Give up what was not submitted: the job was cancelled, or failed and asks for no more."""
        now = self.recorder.clock()
        for each in [each for each in watch.live.values() if not each.job_id and not each.run]:
            facts = replace(each.facts, state=State.CANCELLED.value, ended_at=now)
            await self._store(watch, replace(each, over=True, facts=facts))

    async def _submit(self, watch: CheckpointWatch, evaluation: StoredEvaluation) -> bool:
        """Submit an evaluation; False where it has to wait."""
        facts, now = evaluation.facts, self.recorder.clock()
        try:
            spec = self._make_job(watch, evaluation)
            origin = spec.origin
            submission = Submission(
                JOB_FILE,
                origin.text,
                origin.file,
                directory=origin.directory or "/",
                user=watch.stored.user,
                uid=origin.uid,
                token=_token(evaluation),
            )
            done = await self.submitter.take(ParsedSubmission(spec), submission)
        except (StoreFailed, Unreachable) as error:
            log.warning("evaluation %s of %s waits: %s", watch.spec.name, evaluation.checkpoint, error)
            self._retry(watch)
            return False
        except OverspanError as error:
            if self.submitter.is_full():
                self._retry(watch)
                return False
            log.warning("evaluation %s of %s was refused: %s", watch.spec.name, evaluation.checkpoint, error)
            facts = replace(facts, state="REFUSED", trouble=error.message, ended_at=now)
            await self._store(watch, replace(evaluation, over=True, facts=facts))
            return True
        facts = replace(facts, submitted_at=facts.submitted_at or now, cluster=done.cluster)
        await self._store(watch, replace(evaluation, job_id=done.id, facts=facts))
        # Its lease is written with the next look.
        self._looks.wake(watch.cluster)
        await self._look_after(done.id)
        return True

    def _make_job(self, watch: CheckpointWatch, evaluation: StoredEvaluation) -> JobSpec:
        spec = watch.spec
        (target, *_) = place_evaluation(decode(JobSpec, dict(spec.template)), watch.cluster).places
        folder = self.clusters.shared_paths.locate_of(watch.job, spec.path, watch.cluster)
        path = f"{folder.rstrip('/')}/{evaluation.checkpoint}"
        path = translate_path(self.clusters, path, watch.cluster, target.cluster)
        of = EvaluationOf(
            watch.stored.job_id,
            watch.stored.id,
            evaluation.id,
            spec.name,
            evaluation.checkpoint,
            path,
            evaluation.facts.step,
        )
        facts = evaluation.facts
        values = CheckpointValues(evaluation.checkpoint, path, facts.fields, facts.step)
        made = place_evaluation(make_evaluation_job(spec, of, values, watch.stored.job_id), watch.cluster)
        elsewhere = target.cluster != watch.cluster
        return made if elsewhere else mount_folder(made, watch.job.spec.task(spec.task), folder)

    def _retry(self, watch: CheckpointWatch) -> None:
        self._defer(f"evaluations:{watch.stored.id}", lambda: self._fill(watch))

    async def _store(self, watch: CheckpointWatch, changed: StoredEvaluation) -> None:
        await self.recorder.repository.evaluations.change(changed)
        if changed.over:
            watch.live.pop(changed.id, None)
        else:
            watch.live[changed.id] = changed
        self.recorder.changes.timeline.wake()
        self._tell_queue(watch.stored)

    def _tell_queue(self, stored: StoredWatch) -> None:
        """Tell clients that follow the queue of the watched job: they look at its evaluations again."""
        self.recorder.registry.changes.note(stored.job_id)

    # --- results ------------------------------------------------------------------------------------------------------

    async def _look_after(self, job_id: int) -> None:
        """Read the result of an evaluation that is over already."""
        found = await self._find_job(job_id)
        if found is None or found[0].over:
            self.recorder.spawn(self._conclude(job_id), f"the result of job {job_id}")

    async def _conclude(self, job_id: int) -> None:
        """Store the result of an evaluation that has ended, and go on."""
        pair = next(
            ((watch, each) for watch in self.watches.values() for each in watch.live.values() if each.job_id == job_id),
            None,
        )
        if pair is None or job_id in self._ended_jobs:
            return
        watch, evaluation = pair
        self._ended_jobs.add(job_id)
        try:
            found = await self._find_job(job_id)
            now = self.recorder.clock()
            if found is None:
                facts = replace(
                    evaluation.facts, state="UNKNOWN", trouble="its job is not known any more", ended_at=now
                )
            else:
                job = found[0]
                result = await fetch_result(self.logs, watch.spec.result, job)
                facts = replace(
                    evaluation.facts,
                    state=job.state.value,
                    ended_at=job.ended_at or now,
                    score=result.score,
                    values=result.values,
                    trouble=result.trouble,
                    reason=_word_reason(job.reason),
                )
            await self._store(watch, replace(evaluation, over=True, facts=facts))
        except OverspanError as error:
            log.warning("the result of job %d: %s; trying again", job_id, error)
            self._defer(f"evaluation:{job_id}", lambda: self._conclude(job_id))
            return
        finally:
            self._ended_jobs.discard(job_id)
        await self._tell(watch, _word_result(watch, evaluation.checkpoint, facts))
        self._attempt(f"evaluations:{watch.stored.id}", lambda: self._fill(watch))
        self._attempt(f"stop:{watch.stored.id}", lambda: self._stop(watch))
        self._looks.wake(watch.cluster)

    async def _stop(self, watch: CheckpointWatch) -> None:
        """End the watched job as done, where its scores say so."""
        rule = watch.job.spec.stop_when
        if rule is None or rule.evaluation != watch.spec.name or watch.job.over or watch.job.ending is not None:
            return
        known = await self.recorder.repository.evaluations.find([watch.stored.id])
        scores = [
            Scored(watch.candidate(each.checkpoint), each.facts.score)
            for each in known
            if each.over and each.facts.score is not None
        ]
        why = find_stop(rule, scores, lowest=watch.spec.result.lowest)
        if not why:
            return
        log.info("job %d is done: %s", watch.stored.job_id, why)

        def work(units: list[UnitOfWork]) -> None:
            now = self.recorder.clock()
            for unit in units:
                try:
                    place(unit, events.Cancel(now, by=BY, done=REASONS[rule.rule]), now)
                except Conflict:
                    continue

        await self.recorder.change([watch.stored.job_id], work)
        await self._tell(watch, why)

    async def _tell(self, watch: CheckpointWatch, text: str) -> None:
        """Put a line into the watched job's timeline, which scripts follow; lost where the job is not in memory."""

        def work(units: list[UnitOfWork]) -> None:
            for unit in units:
                unit.amend(self.recorder.clock(), unit.job, text)

        try:
            await self.recorder.change([watch.stored.job_id], work)
        except OverspanError as error:
            log.warning("job %d: %s; not in its timeline: %s", watch.stored.job_id, text, error)

    # --- the end of a watch -------------------------------------------------------------------------------------------

    async def _note(self, watch: CheckpointWatch) -> None:
        changed = watch.note(watch.trouble or watch.hint or watch.unpinned, self.recorder.clock())
        if changed is not None:
            watch.stored = changed
            await self.recorder.repository.evaluations.change_watch(changed)
            self._tell_queue(changed)

    async def _finish(self, watch: CheckpointWatch, now: float) -> None:
        """Evaluate the last checkpoint, and close the watch when nothing can come any more."""
        if watch.over_at is None or now < watch.over_at + _linger(watch):
            return
        if watch.trouble and now < watch.over_at + GIVE_UP_SECONDS:
            return
        if not _is_unwanted(watch):
            last = watch.choose_last()
            if last is not None:
                await self._begin(watch, last)
                watch.last = None
                await self._fill(watch)
        if watch.live or watch.ready:
            return
        watch.stored = replace(watch.stored, closed=True)
        await self.recorder.repository.evaluations.change_watch(watch.stored)
        del self.watches[watch.stored.id]
        self._filling.pop(watch.stored.id, None)
        of_job = self._of_job[watch.stored.job_id]
        of_job.discard(watch.stored.id)
        if not of_job:
            del self._of_job[watch.stored.job_id]


def _word_result(watch: CheckpointWatch, checkpoint: str, facts: EvaluationFacts) -> str:
    """An evaluation's end, for the timeline of the job."""
    score = f", score {facts.score:g}" if facts.score is not None else ""
    return f"evaluation {watch.spec.name} of {checkpoint}: {facts.state}{score}" + (
        f" ({facts.trouble})" if facts.trouble else ""
    )


def _word_reason(reason: str) -> str:
    """The reason as squeue shows it; empty in place of its `None`."""
    return "" if reason == "None" else reason


def _token(evaluation: StoredEvaluation) -> str:
    """The idempotency key of an evaluation's submission."""
    return f"evaluation/{evaluation.watch_id}/{evaluation.id}"


def _content_of(evaluation: StoredEvaluation) -> KnownContent:
    return KnownContent(evaluation.content, evaluation.facts.files)


def _linger(watch: CheckpointWatch) -> float:
    """How long after the job's end a checkpoint may still become complete."""
    rule = watch.spec.ready
    quiet = rule.rule is ReadyRule.QUIET or (rule.rule is ReadyRule.LAYOUT and bool(watch.waits))
    return LINGER_SECONDS + (rule.quiet if quiet else 0.0)


def _is_unwanted(watch: CheckpointWatch) -> bool:
    """Whether nothing more is to be evaluated: the job was cancelled, or failed and its file asks for that."""
    job = watch.job
    if job.ending is not None and job.ending.cause is Cause.CANCEL:
        return True
    return job.over and job.state is not State.COMPLETED and not watch.spec.last_after_failure
