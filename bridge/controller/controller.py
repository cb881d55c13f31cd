"""The controller: everything the API can ask for, over the loops that keep the jobs going."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from overspan.adapters.abilities import Troubles
from overspan.adapters.contract import Launch
from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.core.across.cluster import AcrossCluster
from overspan.bridge.controller.core.backoff import unanswered
from overspan.bridge.controller.core.clock import describe_jump
from overspan.bridge.controller.core.cluster_locations import ClusterLocations
from overspan.bridge.controller.core.clusters import Cluster, Clusters, OpenerOf
from overspan.bridge.controller.core.dependency_resolver import DependencyResolver
from overspan.bridge.controller.core.dispatch import Dispatcher
from overspan.bridge.controller.core.intake import Intake
from overspan.bridge.controller.core.job_access import JobAccess
from overspan.bridge.controller.core.known_reach import KnownReach
from overspan.bridge.controller.core.observation import Observer
from overspan.bridge.controller.core.recording import Clock, Recorder
from overspan.bridge.controller.core.references import Directory
from overspan.bridge.controller.core.registry import JobEntry, Registry
from overspan.bridge.controller.core.releases import LaunchReleases
from overspan.bridge.controller.core.repository import Repository
from overspan.bridge.controller.core.rows import elements_reason
from overspan.bridge.controller.core.timers import Timers
from overspan.bridge.controller.core.unit_of_work import Completion
from overspan.bridge.controller.features.access import Access
from overspan.bridge.controller.features.allocations import Allocations
from overspan.bridge.controller.features.arrays import ArrayElements
from overspan.bridge.controller.features.crontabs import Crontabs
from overspan.bridge.controller.features.data_caches import DataCaches
from overspan.bridge.controller.features.dependencies import DependencyTracker
from overspan.bridge.controller.features.elastic.elastic_tasks import ElasticTasks
from overspan.bridge.controller.features.elastic.requests import ScaleRequests
from overspan.bridge.controller.features.evaluations.evaluations import Evaluations
from overspan.bridge.controller.features.evaluations.requests import EvaluationRequests
from overspan.bridge.controller.features.failover import Failover
from overspan.bridge.controller.features.joined_jobs import JoinedJobs
from overspan.bridge.controller.features.orphans import OrphanCheck
from overspan.bridge.controller.features.pools.pools import Pools
from overspan.bridge.controller.features.reach.automatic import AutomaticTrials
from overspan.bridge.controller.features.reach.trials import ReachTrials
from overspan.bridge.controller.features.schedules import Schedules
from overspan.bridge.controller.features.storage import Storage
from overspan.bridge.controller.features.tunnels import Tunnels
from overspan.bridge.controller.features.unsent_data import UnsentJobs
from overspan.bridge.controller.features.volumes import Volumes
from overspan.bridge.controller.orders.orders import JobOrders
from overspan.bridge.controller.submission.folder_uploads import FolderUploads
from overspan.bridge.controller.submission.made_buckets import MadeBuckets
from overspan.bridge.controller.submission.resubmission import ResubmitRequest, Resubmitter
from overspan.bridge.controller.submission.submitter import Reader, Submitted, Submitter
from overspan.bridge.controller.views.cluster_health import ClusterHealth
from overspan.bridge.controller.views.details import describe_end, describe_job
from overspan.bridge.controller.views.history import Handles, list_history
from overspan.bridge.controller.views.listing import Selection, list_queue
from overspan.bridge.controller.views.logs import Logs
from overspan.bridge.controller.views.obstacles import Obstacles
from overspan.bridge.controller.views.queue_changes import ChangeFeed
from overspan.bridge.controller.views.sent_forms import SentForms
from overspan.bridge.controller.views.steps import StepListing
from overspan.bridge.lifecycle.members import list_further
from overspan.bridge.listings.rows import StepRow
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.job import Job, Placement
from overspan.bridge.model.parts import place_task
from overspan.bridge.model.spec import Form, JobSpec
from overspan.bridge.model.states import State
from overspan.bridge.readers.submission import Submission
from overspan.bridge.store.records import JobQuery, TimelineRow

log = logging.getLogger(__name__)

CATCH_UP_SECONDS = 1.0
_KNOWN_AT_ONCE = 10_000
"""Jobs that the store is asked about in one query."""
FORGET_EVERY = 6 * 3600.0
"""Seconds between two looks for finished jobs older than the retention."""
KEEP_ALIVE = 15.0
"""Seconds after which a silent event stream shows that it is alive."""
EVENTS_AT_ONCE = 1000


@dataclass(frozen=True)
class ControllerParts:
    """What a controller is made of."""

    repository: Repository
    settings: Settings
    state_dir: str
    timers: Timers
    clock: Clock
    reader: Reader
    opener_of: OpenerOf | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for all work, by which it finds this daemon and its commands."""
    access: JobAccess | None = None
    """How commands inside jobs reach the daemon; None where nothing listens for them."""
    personal: bool = False
    """Whether there are several users, so that each cluster is to be reached as each of them."""
    take_jump: Callable[[], float] = lambda: 0.0
    """Seconds by which the machine's clock was set since this was last asked; `clock` shows it from then on."""


class _StoredLaunches:
    """What clusters ask of the store about their launches; the dispatcher is made after the clusters."""

    def __init__(self, find_dispatcher: Callable[[], Dispatcher]) -> None:
        self._find = find_dispatcher

    def list_waiting(self, name: str) -> Sequence[Launch]:
        return self._find().list_waiting(name)

    def list_cursors(self, name: str) -> Mapping[str, str]:
        return self._find().list_cursors(name)

    def find_launch(self, name: str, handle: str) -> Launch | None:
        return self._find().find_launch(name, handle)


class Controller:
    """One per daemon. `open` starts it, `close` stops it; the work goes on without it.

    The API calls its methods and those of eighteen ports: `access`, `allocations`, `crontabs`, `data_caches`,
    `evaluations`, `feed`, `health`, `logs`, `orders`, `orphans`, `pools`, `reach`, `scaling`, `schedules`,
    `sent_forms`, `storage`, `unsent_data` and `volumes`. All other attributes are parts inside.
    """

    def __init__(self, parts: ControllerParts, installation: str) -> None:
        self.parts = parts
        self.clock = parts.clock
        self.closing = False
        settings = parts.settings
        backoff = unanswered(settings.ticks)
        # A cluster asks which jobs it has, and jobs ask their cluster: these two close the circle.
        self.clusters = Clusters(
            settings,
            parts.state_dir,
            parts.opener_of,
            personal=parts.personal,
            has_launches=self._has_launches,
            open_across=self._open_across,
            launches=_StoredLaunches(lambda: self.dispatcher),
        )
        self.recorder = _make_recorder(parts, self.clusters, installation)
        self.arrays = ArrayElements(self.recorder, self.clusters)
        self.dependencies = DependencyTracker(self.recorder)
        self.joined_jobs = JoinedJobs(self.recorder)
        self.failover = Failover(self.recorder, self.clusters)
        self.directory = Directory(self.recorder.registry, parts.repository)
        self.known_reach = KnownReach(parts.repository, parts.clock)
        self.made_buckets = MadeBuckets(parts.state_dir, settings.stores, parts.clock, self._list_live)
        self.uploads = FolderUploads(settings.stores, self.made_buckets)
        self.submitter = Submitter(self.recorder, self.clusters, settings, parts.reader, self.known_reach, self.uploads)
        self.locations = ClusterLocations(self.recorder, self.clusters)
        self.obstacles = Obstacles(self.recorder, self.locations)
        port = parts.access.port if parts.access is not None else None
        self.tunnels = Tunnels(self.clusters, settings.clusters, port, shared=parts.personal)
        self.health = ClusterHealth(self.recorder.registry, self.locations, parts.clock, self.tunnels.check)
        self.feed = ChangeFeed(self.recorder.registry, self.health, self._settle, parts.clock)
        unsent_in_use: set[int] = set()
        self.orders = JobOrders(self.recorder, self.directory, self.locations, unsent_in_use)
        self.resubmitter = Resubmitter(self.submitter, self.directory)
        self.access = Access(self.recorder, self.clusters)
        self.allocations = Allocations(self.recorder, self.clusters, parts.access)
        self.schedules = Schedules(self.recorder, self.submitter, self.orders)
        self.crontabs = Crontabs(self.schedules)
        self.logs = Logs(self.directory, self.clusters, parts.clock, self.joined_jobs.list_joined)
        self.checkpoints = Evaluations(self.recorder, self.clusters, self.submitter, self.logs)
        self.reach = ReachTrials(self.clusters, self.known_reach, self.directory, self.logs)
        self.automatic_trials = AutomaticTrials(self.submitter, self.reach, self.orders)
        self.evaluations = EvaluationRequests(self.checkpoints, self.directory, self.clusters, self.submitter)
        self.elastic = ElasticTasks(self.recorder, self.clusters, self.submitter, self.joined_jobs)
        self.scaling = ScaleRequests(self.elastic, self.directory)
        self.pools = Pools(self.recorder, self.clusters, self.submitter, parts.state_dir, shared=parts.personal)
        self.sent_forms = SentForms(self.directory, self.clusters)
        self.steps = StepListing(self.clusters)
        self.storage = Storage(
            self.clusters, settings.stores, self.directory, self.uploads, unsent_in_use, shared=parts.personal
        )
        self.data_caches = DataCaches(self.clusters, parts.personal)
        self.unsent_data = UnsentJobs(
            self.clusters,
            parts.repository,
            self.directory,
            parts.clock,
            settings.retention,
            unsent_in_use,
            shared=parts.personal,
        )
        self.volumes = Volumes(self.clusters, self.recorder.registry, parts.personal)
        self.dispatcher = Dispatcher(
            self.recorder, self.locations, backoff, settings.clusters, parts.environment, parts.access
        )
        self.recorder.use_intake(Intake(self.recorder, self.clusters, self.dispatcher.make_launch).accept)
        self.releases = LaunchReleases(self.recorder, self.clusters, backoff)
        self.orphans = OrphanCheck(self.recorder, self.clusters, self.releases)
        self.observer = Observer(self.recorder, self.locations, backoff, float(settings.ticks.observe))
        self._subscribe()
        self._upkeep: list[asyncio.Task[None]] = []
        self._lost = ""
        """A warning that the database was lost, and history with it; empty if it was not."""

    def _open_across(self, name: str, clusters: Mapping[str, Cluster]) -> AcrossCluster:
        return AcrossCluster(
            name,
            clusters,
            self.clusters.shared_paths,
            self.observer.wake,
            self.dispatcher.describe_access,
            self.releases.remains.describe,
            self.automatic_trials.hinder,
            self._list_further,
            self.recorder.clock,
        )

    def _list_further(self, cluster: str, handle: str) -> tuple[Placement, ...]:
        """The further members of elastic tasks of the group whose launch has a handle on a cluster."""
        registry = self.recorder.registry
        number = registry.watched(cluster).get(handle)
        entry = None if number is None else registry.get(number)
        return () if entry is None else list_further(entry.job)

    def _list_live(self) -> list[JobSpec]:
        return [entry.job.spec for entry in self.recorder.registry if not entry.job.over]

    def _has_launches(self, name: str) -> bool:
        return self.locations.has_launches(name)

    def _subscribe(self) -> None:
        """Who acts on what. The order is that of the calls: `tests/unit/controller/test_changes.py` pins it."""
        changes = self.recorder.changes
        changes.committed.subscribe(
            self.arrays.follow,
            self.dependencies.follow,
            self.joined_jobs.follow,
            self.failover.follow,
            self.allocations.follow,
            self.schedules.follow,
            self.checkpoints.follow,
            self.elastic.follow,
            self.pools.follow,
            self.dispatcher.follow,
            self.releases.follow,
            self.automatic_trials.follow,
        )
        changes.withdrawn.subscribe(self.joined_jobs.forget)
        changes.owed.subscribe(self.dispatcher.wake)
        changes.watched.subscribe(self.observer.wake)
        changes.before_send.subscribe(self.releases.note)
        changes.after_send.subscribe(self.releases.sent)
        changes.unreached.subscribe(self.failover.leave_soon)

    @classmethod
    async def open(cls, parts: ControllerParts) -> Controller:
        """Make a controller and start it. Raises StoreFailed."""
        installation = await parts.repository.meta("installation")
        if installation is None:
            installation = uuid.uuid4().hex[:12]
            await parts.repository.set_meta("installation", installation)
        controller = cls(parts, installation)
        await controller.start()
        return controller

    async def start(self) -> None:
        """Load the jobs, make the calls that are owed, watch what runs. Raises InvalidRequest for wrong settings."""
        self.clusters.open_local()
        await self._reserve_numbers()
        await self.pools.load()
        await self.locations.load()
        await self.known_reach.load()
        await self.recorder.load()
        await self.locations.look_for_absent()
        await self.arrays.load()
        # The first answer should already know what ended while no daemon was there.
        await self.observer.catch_up(CATCH_UP_SECONDS)
        # Orders that an earlier daemon may have given come before the ends that they brought about.
        self.dispatcher.start()
        self.observer.start()
        await self.releases.start()
        await self.schedules.start()
        await self.checkpoints.start()
        self.elastic.start()
        self.pools.start()
        self.tunnels.start()
        upkeep = (self._forget(), self.made_buckets.run(), self.unsent_data.run())
        self._upkeep = [asyncio.ensure_future(run) for run in upkeep]

    async def _reserve_numbers(self) -> None:
        """Reserve the job numbers in use in run folders, which a daemon with a lost database would give again."""
        for cluster in self.clusters:
            if cluster.opened and (find_last_number := cluster.traits.find_last_number) is not None:
                last = find_last_number()
                if await self.parts.repository.reserve_ids(last + 1):
                    text = f"{cluster.name} has runs of jobs up to {last} that the database does not know:"
                    self._lost = f"{text} history is missing, and new jobs begin at {last + 1}"
                    log.warning("%s", self._lost)

    def end_waits(self) -> None:
        """End all waits for jobs and all event streams."""
        self.closing = True
        self.allocations.end_holds()
        self.pools.end_waits()
        self.feed.close()
        self.recorder.changes.jobs.wake_all()
        self.recorder.changes.timeline.wake()

    async def close(self) -> None:
        """Stop the loops, finish the writes under way; the store stays open."""
        self.end_waits()
        for task in self._upkeep:
            task.cancel()
        await self.tunnels.close()
        await self.pools.close()
        await self.checkpoints.close()
        await self.automatic_trials.close()
        await self.dispatcher.close()
        await self.observer.close()
        await self.releases.close()
        self.parts.timers.close()
        await self.recorder.close()
        await self.clusters.close()

    def describe(self) -> dict[str, Any]:
        """Where the daemon keeps its state, since when it runs (epoch seconds), and what hinders it."""
        return {
            "state_dir": self.parts.state_dir,
            "since": self.health.since,
            "clusters": len(self.clusters),
            "problems": self.problems,
        }

    @property
    def problems(self) -> list[str]:
        """What hinders the daemon now, a line each."""
        trouble = self.parts.repository.trouble
        found = [trouble.line] if trouble is not None else []
        for cluster in self.clusters:
            # What it says of its own runs is so wherever its jobs are.
            if cluster.opened and isinstance(adapter := cluster.open(), Troubles):
                found += [f"{cluster.name}: {text}" for text in adapter.troubles()]
        found += [self._lost] if self._lost else []
        found += [f"{damage.text}; it is left as it is" for damage in self.parts.repository.damages]
        return found + [trouble.line for trouble in self.locations.list_troubles().values()]

    # --- submitting ---------------------------------------------------------------------------------------------------

    async def submit(self, submission: Submission) -> Submitted:
        """Make a job, or a schedule of a file with `cron`. Raises InvalidRequest, Rejected and StoreFailed."""
        return await self.submitter.submit(submission, self.schedules.create)

    async def resubmit(self, request: ResubmitRequest) -> Submitted:
        """Make a new job of an old one. See `Resubmitter`."""
        return await self.resubmitter.resubmit(request)

    async def list_resubmit_values(self, ref: str) -> dict[str, str]:
        """What a resubmission of a job may change, with the present values."""
        return await self.resubmitter.list_values(ref)

    async def plan(self, submission: Submission) -> tuple[str, tuple[str, ...]]:
        """What the cluster would be sent, and the notes; with no effect. Raises as `submit`."""
        return await self.submitter.plan(submission)

    # --- looking ------------------------------------------------------------------------------------------------------

    def queue(self, selection: Selection) -> bytes:
        """The queue as the API sends it."""
        now = self.clock()
        self.settle_queue(now)
        return self._listing(self.list_rows(selection, now), selection.columns, now)

    def settle_queue(self, now: float) -> int:
        """Bring up to date what the queue shows and no event changes: jobs that leave it, and what hinders others.

        Gives the queue's revision, which grows with every change of a row.
        """
        self.recorder.registry.forget_finished(now)
        self.obstacles.refresh()
        return self.recorder.registry.revision

    def _settle(self) -> None:
        self.settle_queue(self.clock())

    def list_rows(self, selection: Selection, now: float) -> list[bytes]:
        """The queue's rows alone, encoded, as they were settled last."""
        return list_queue(self.recorder.registry, selection, now)

    def count_jobs(self) -> int:
        """How many jobs are in memory: all that are not over, and those that ended a short while ago."""
        return len(self.recorder.registry)

    async def queue_with_steps(self, selection: Selection, within: str = "") -> bytes:
        """The queue, and the steps of its jobs; of one user's only, where `within` names one."""
        shown: list[JobEntry] = []
        now = self.clock()
        self.settle_queue(now)
        rows = list_queue(self.recorder.registry, selection, now, shown)
        own = [entry for entry in shown if within in ("", entry.user)]
        return self._listing(rows, selection.columns, self.clock(), await self.steps.rows(own))

    async def history(self, selection: Selection) -> AsyncIterator[bytes]:
        """Jobs of any age, in the same form, with their steps where they are asked for: a document in pieces."""
        shown: Handles | None = {} if selection.steps else None
        head: dict[str, Any] = self.describe_listing(selection.columns, self.clock())
        comma = b', "rows":['
        text = json.dumps(head).encode()[:-1]
        async for rows in list_history(self.recorder.registry, self.parts.repository, selection, shown):
            if rows:
                yield text + comma + b",".join(rows)
                text, comma = b"", b","
        tail = {} if shown is None else await self._past_steps(shown)
        end = b"".join(b", " + json.dumps(name).encode() + b":" + json.dumps(tail[name]).encode() for name in tail)
        yield text + (comma if text else b"") + b"]" + end + b"}"

    async def _past_steps(self, shown: Handles) -> dict[str, Any]:
        return {"step_columns": StepRow._fields, "steps": await self.steps.past_rows(shown, self.parts.repository)}

    async def job(self, ref: str) -> dict[str, Any]:
        """One job in full."""
        target = await self.directory.find(ref)
        entry = target.entry
        cluster = self.clusters.find(entry.cluster)
        stale = cluster.stale_since if cluster is not None and not entry.job.over else None
        why = cluster.message if cluster is not None and stale is not None else ""
        facts = {
            **describe_job(entry, await self.joined_jobs.list_joined(entry), target.waiting),
            "stale_since": stale,
            "stale_why": why,
        }
        if entry.job.array is not None and entry.job.state is State.PENDING:
            facts["reason"] = elements_reason(entry, self.recorder.registry.elements(entry.job.id))
        troubles = {} if entry.job.over else self.locations.list_troubles()
        told = [troubles[name].line for name in dict.fromkeys(entry.places()) if name in troubles]
        facts |= {"obstacle": self.obstacles.describe(entry), "configured": cluster is not None or entry.job.over}
        return {**facts, "notes": [*(facts.get("notes") or ()), *told]} if told else facts

    def find_live(self, number: int) -> JobEntry | None:
        """The job of that number while it lives."""
        entry = self.recorder.registry.get(number)
        return None if entry is None or entry.job.over else entry

    def find_cluster(self, number: int, task: str) -> str:
        """The cluster of a task of a job in memory, of the first task without its name; empty for no such job."""
        entry = self.recorder.registry.get(number)
        if entry is None:
            return ""
        spec = entry.job.spec
        known = task if any(each.name == task for each in spec.tasks) else spec.tasks[0].name
        return place_task(entry.job, known, entry.cluster)

    async def find_job(self, ref: str) -> Job:
        """The facts of a job. NotFound, InvalidRequest."""
        return (await self.directory.find(ref)).entry.job

    async def find_owner(self, ref: str) -> tuple[str, bool]:
        """Whose job it is, and whether it is in memory as squeue's are. NotFound, InvalidRequest."""
        entry = (await self.directory.find(ref)).entry
        return entry.user, self.recorder.registry.get(entry.job.id) is not None

    async def script(self, ref: str) -> str:
        """The batch script, or the job file, of a job."""
        spec = (await self.directory.find(ref)).entry.job.spec
        first = spec.tasks[0]
        return first.run if first.form is Form.BATCH and len(spec.tasks) == 1 else spec.origin.text

    async def timeline(self, ref: str) -> list[TimelineRow]:
        """A job's transitions, or those of one task, oldest first."""
        target = await self.directory.find(ref)
        rows = await self.parts.repository.timeline(target.entry.job.id)
        return [row for row in rows if not target.task or row.task in ("", target.task)]

    async def wait(self, ref: str, timeout: float) -> dict[str, Any]:
        """Wait for the end of a job or task, at most `timeout` seconds; how it stands then."""
        target = await self.directory.find(ref)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            job_id = target.entry.job.id
            entry = self.recorder.registry.get(job_id) or target.entry
            end = describe_end(entry.job, entry.job.task(target.task) if target.task else None)
            left = deadline - loop.time()
            if end["over"] or left <= 0 or self.closing:
                return end
            await self.recorder.changes.jobs.wait(job_id, left)
            if target.waiting:
                # An element that waited may have become a job.
                target = await self.directory.find(ref)

    async def events(self, since: int | None, follow: bool, within: str = "") -> AsyncIterator[list[TimelineRow]]:
        """Transitions after a seq (None: only new ones) in batches; an empty batch shows that the stream is alive.

        Of one user's jobs only, where `within` names one.
        """
        wakeup = self.recorder.changes.timeline
        seq = self.parts.repository.last_seq if since is None else since
        while not self.closing:
            seen = wakeup.count
            rows = await self.parts.repository.events(seq, EVENTS_AT_ONCE)
            if rows:
                seq = rows[-1].seq
                yield await self._keep_own(rows, within) if within else rows
            elif not follow:
                return
            elif not await wakeup.wait(KEEP_ALIVE, seen):
                yield []

    async def _keep_own(self, rows: Sequence[TimelineRow], user: str) -> list[TimelineRow]:
        """The rows of a user's jobs."""
        entries = {row.job_id: self.recorder.registry.get(row.job_id) for row in rows}
        own = {job_id for job_id, entry in entries.items() if entry is not None and entry.user == user}
        older = tuple(job_id for job_id, entry in entries.items() if entry is None)
        stored = await self.parts.repository.find(JobQuery(ids=older, users=(user,))) if older else []
        own |= {found.job.id for found in stored}
        return [row for row in rows if row.job_id in own]

    # --- inside -------------------------------------------------------------------------------------------------------

    def _listing(
        self, rows: list[bytes], columns: Sequence[str], now: float, steps: list[StepRow] | None = None
    ) -> bytes:
        head = self.describe_listing(columns, now)
        if steps is not None:
            head |= {"step_columns": StepRow._fields, "steps": steps}
        return json.dumps(head).encode()[:-1] + b', "rows":[' + b",".join(rows) + b"]}"

    def describe_listing(self, columns: Sequence[str], now: float) -> dict[str, Any]:
        """What stands before the rows of a listing."""
        return {"format": 1, "now": now, "columns": columns, "stale": self.health.list_stale()}

    async def apply_clock_jump(self) -> None:
        """Shift all due times if the machine's clock was set, so that delays stay as long as they were.

        What follows the calendar does not: jobs and schedules are looked at by the new clock.
        """
        self.parts.timers.look()
        seconds = self.parts.take_jump()
        if not seconds:
            return
        log.warning("%s", describe_jump(seconds))
        self.parts.timers.move(seconds)
        self.health.move_clock(seconds)
        for cluster in self.clusters:
            cluster.move_clock(seconds)
        self.failover.move_clock(seconds)
        self.schedules.look_again()
        await self.recorder.move_clock(seconds)

    async def _forget(self) -> None:
        """Drop jobs that finished longer ago than the retention, now and then."""
        while True:
            before = self.clock() - self.parts.settings.retention
            try:
                count = await self.parts.repository.forget(before)
                if count:
                    log.info("%d finished jobs were dropped after the retention time", count)
                await self.parts.repository.evaluations.forget()
                await self.clusters.forget(before, self._find_known)
            except (OverspanError, OSError) as error:
                log.warning("finished jobs cannot be dropped: %s", error)
            await asyncio.sleep(FORGET_EVERY)

    async def _find_known(self, jobs: Collection[int]) -> set[int]:
        """Which of these jobs are stored, live or ended."""
        chosen, known = sorted(jobs), set[int]()
        for start in range(0, len(chosen), _KNOWN_AT_ONCE):
            known.update(
                await self.parts.repository.find_ids(JobQuery(ids=tuple(chosen[start : start + _KNOWN_AT_ONCE])))
            )
        return known


def _make_recorder(parts: ControllerParts, clusters: Clusters, installation: str) -> Recorder:
    registry = Registry(clusters.written_of)
    resolver = DependencyResolver(registry, parts.repository, clusters, parts.clock)
    completion = Completion(installation, clusters, resolver)
    return Recorder(parts.repository, parts.timers, parts.clock, registry, completion)
