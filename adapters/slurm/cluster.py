"""The adapter of a Slurm cluster: single jobs through Slurm's own commands, here or over ssh.

Slurm decides about its jobs; the adapter copies its verdicts and carries orders out. It stores no state of its own:
handles and cursors, which the daemon stores, are enough to go on after a restart.
"""

from __future__ import annotations

import asyncio
import math
import os
import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from overspan.adapters.abilities import (
    Entrance,
    Finding,
    Foreign,
    Invitation,
    KeptForm,
    ShellRequest,
    Step,
    StepEntrance,
    StepRequest,
    Trace,
    Written,
)
from overspan.adapters.checkpoint_sources import WatchedFolder
from overspan.adapters.contract import (
    Accepted,
    ClusterConfig,
    Decider,
    Launch,
    LogPart,
    LogRequest,
    Node,
    Observation,
    Order,
    Refusal,
    SomeUnanswered,
    Unmet,
    before_sending,
)
from overspan.adapters.slurm.access.imports import NativeJobImporter
from overspan.adapters.slurm.access.inventory import index_handles, list_natives, list_traces
from overspan.adapters.slurm.access.native_steps import NativeSteps
from overspan.adapters.slurm.access.sent_scripts import read_sent
from overspan.adapters.slurm.access.shells import Shells
from overspan.adapters.slurm.commands.admission import is_unclear, read_trial, refuse_memory
from overspan.adapters.slurm.commands.job_steps import JobSteps
from overspan.adapters.slurm.commands.pyslurm_reader import LibraryQueries
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.diagnosis.checking import check_cluster
from overspan.adapters.slurm.files.cache import SlurmCache
from overspan.adapters.slurm.files.checkpoints import SlurmCheckpoints
from overspan.adapters.slurm.files.logs import Logs, find_written
from overspan.adapters.slurm.files.mailboxes import SlurmMailboxes
from overspan.adapters.slurm.files.rescue import SlurmRescue
from overspan.adapters.slurm.files.unsent import SlurmUnsent
from overspan.adapters.slurm.files.volumes import SlurmVolumes
from overspan.adapters.slurm.groups.handles import GroupHandle, find_decider, parse_group
from overspan.adapters.slurm.groups.ordering import GroupOrderer
from overspan.adapters.slurm.groups.other_members import tell_members
from overspan.adapters.slurm.groups.parts import find_obstacle, is_set, list_parts, may_be_set, needs_hetjob
from overspan.adapters.slurm.groups.submission import PartSubmitter
from overspan.adapters.slurm.handles import parse_any
from overspan.adapters.slurm.observation.projection import BY_SLURM
from overspan.adapters.slurm.observation.watch import Watch
from overspan.adapters.slurm.orders.delivered import DeliveredOrders
from overspan.adapters.slurm.orders.job_commands import cancel_natives
from overspan.adapters.slurm.orders.ordering import Orderer
from overspan.adapters.slurm.rendering.forms import find_mount_obstacle, is_group, needs_nodes, refuse_unknown
from overspan.adapters.slurm.rendering.images import PYXIS
from overspan.adapters.slurm.rendering.renderer import (
    DEFAULT_ROOT,
    ClusterFacts,
    Renderer,
    explain,
    resolve_root,
    without_array,
)
from overspan.adapters.slurm.settings import LOCAL, PARAMIKO, PYSLURM, Settings, describe_place, read_settings
from overspan.adapters.slurm.submission.arrays import MOST
from overspan.adapters.slurm.submission.predecessors import Predecessors
from overspan.adapters.slurm.submission.submitter import BATCH, Submitter
from overspan.adapters.slurm.submission.throttles import Throttles
from overspan.adapters.slurm.submission.trials import PassedTrials
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.adapters.slurm.transports.openssh import Address, OpenSsh
from overspan.adapters.slurm.transports.paramiko_ssh import ParamikoSsh
from overspan.adapters.slurm.transports.rate_limit import RateLimited
from overspan.adapters.slurm.transports.transport import Transport
from overspan.adapters.slurm.unshared.relays import Relays
from overspan.adapters.slurm.unshared.staging import check_sources, list_carried, preview_carried, preview_staged
from overspan.adapters.traits import ArraySizes, Traits, choose_modes
from overspan.bridge.model.checkpoints.listings import FolderListing
from overspan.bridge.model.errors import InvalidRequest, OverspanError, Rejected, TimedOut, Unreachable
from overspan.bridge.model.job import Job, Placement
from overspan.bridge.model.spec import Form
from overspan.bridge.runtime.core.clock_jumps import JumpDetector
from overspan.bridge.runtime.data.rescue import RescuedData

VERDICT_SECONDS = 5.0
"""How long a submission waits for sbatch's answer."""
_TRAITS = Traits(
    gives_back=True,
    requeued_by=BY_SLURM,
    own_queue=True,
    verdict_seconds=VERDICT_SECONDS,
    arrays=ArraySizes(elements=MOST, submissions=BATCH),
)
"""What holds for every Slurm cluster."""
_TRIAL = "trial"


class SlurmCluster:
    """One Slurm cluster. Nothing is contacted before its first use."""

    def __init__(self, config: ClusterConfig, transport: Transport | None = None) -> None:
        self.name = config.name
        self._settings = read_settings(config)
        self._root = config.root
        self.transport = transport or open_transport(config.name, self._settings)
        self._paced = RateLimited(self.transport)
        self._queries = open_queries(self._paced, self._settings)
        self._renderer = Renderer(self._settings, config.root, config.name)
        self._throttles = Throttles(self._queries)
        self._submitter = Submitter(self._queries, self._renderer, find_process_start(), self._throttles, config.stores)
        self._predecessors = Predecessors(self._queries)
        self._importer = NativeJobImporter(self._queries)
        self._orders = DeliveredOrders()
        self.watch = Watch(self._queries, self._orders, self._settings.tick, self._throttles)
        self._lock = asyncio.Lock()
        self._part_submitter = PartSubmitter(self._submitter)
        groups = GroupOrderer(self._part_submitter, self.watch, self._lock)
        self._orderer = Orderer(self._queries, self._orders, self.watch, groups)
        self._logs = Logs(self._queries, self._settings.shared_root)
        self._rescue = SlurmRescue(self._queries, self.transport, self._settings, config.root, config.stores)
        self._relays = None if self._settings.shared_root else Relays(self._queries, self._settings, config.root)
        self.watch.unshared = self._relays is not None
        self._steps = JobSteps(self._queries, self.watch.nodes_of)
        self._checkpoints = SlurmCheckpoints(self._paced, self._settings.python, self._queries.timeout)
        self.traits = replace(
            _TRAITS,
            decider_of=find_decider,
            keeps_limits=self.keeps_limits,
            waits_for=self.waits_for,
            find_written=self.find_written,
            remote_python=self.remote_python if isinstance(self.transport, OpenSsh) else None,
            find_end=self.find_end,
            login=self.login,
            find_job=self.find_job,
            mount_modes=choose_modes(self._settings.data_fuse) if self._settings.shared_root else frozenset(),
            find_mount_obstacle=find_mount_obstacle,
            prepare_step=self.prepare_step,
            calls_left=self._paced.describe_left,
            data_cache=self._open_cache(),
            unsent=self._open_unsent(),
            volumes=self._open_volumes(),
            mailboxes=SlurmMailboxes(self._paced, self._settings.python) if self._settings.shared_root else None,
        )
        self._trials = PassedTrials()
        self._clock = JumpDetector()
        self._closed = False
        self._troubled = False
        self._gap = self._hang = ""
        self._watched: frozenset[str] = frozenset()

    async def rescue_data(self, job: Job, handle: str) -> RescuedData | None:
        """Send what an ended job could not."""
        self._check_open()
        return await self._rescue.send(job, handle)

    def _open_cache(self) -> SlurmCache | None:
        """What the settings name for it."""
        return SlurmCache(self._queries, self._settings, self._root) if self._settings.data_cache else None

    def _open_unsent(self) -> SlurmUnsent | None:
        """What jobs could not send, which is below a shared root."""
        shared = self._settings.shared_root
        return SlurmUnsent(self._queries, self.transport, self._settings, self._root) if shared else None

    def _open_volumes(self) -> SlurmVolumes | None:
        """The volumes of a shared root; without one, jobs name none."""
        return SlurmVolumes(self._paced, self._root, self._queries.timeout) if self._settings.shared_root else None

    def place(self) -> str:
        """Where its commands run, as which user, and the folder of the run directories."""
        return describe_place(self._settings, self._root)

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        """Submit each launch, or find what its token already submitted. SomeUnanswered while one is in doubt."""
        self._check_open()
        if not launches:
            return []
        # Shielded: a caller that stops waiting must not cut a submission off between sbatch and its answer.
        answers = await asyncio.shield(asyncio.create_task(self._submit(launches)))
        if len(answers) < len(launches):
            raise SomeUnanswered(answers)
        return [answers[launch.token] for launch in launches]

    async def _submit(self, launches: Sequence[Launch]) -> dict[str, Accepted | Refusal]:
        async with self._lock:
            answers = await self._importer.submit(launches, self._submit_own)
        self._watched |= {answer.handle for answer in answers.values() if isinstance(answer, Accepted)}
        if self._gap != (self.watch.gap or self._submitter.in_doubt):
            self.watch.fresh.set()
        return answers

    async def _submit_own(self, launches: Sequence[Launch]) -> dict[str, Accepted | Refusal]:
        async with before_sending():
            await self._queries.site()
            chosen = {launch.token for launch in launches if await self._becomes_set(launch.job)}
        whole = [launch for launch in launches if launch.token in chosen]
        others = [launch for launch in launches if launch.token not in chosen]
        answers = await self._submitter.submit(others) if others else {}
        if whole:
            answers |= await self._part_submitter.submit(whole)
        return answers

    def troubles(self) -> list[str]:
        """Launches in doubt: it is not known whether Slurm has them."""
        return [in_doubt] if (in_doubt := self._submitter.in_doubt) else []

    async def _becomes_set(self, job: Job) -> bool:
        """Whether a job becomes a set: it asks for that, or Slurm could start it in no other form."""
        if is_set(job) or not may_be_set(job) or (await self._queries.site()).hetjobs:
            return is_set(job)
        return needs_hetjob(job, await self._queries.nodes(), self._settings.partition)

    def keeps_limits(self, handle: str) -> bool:
        """Whether Slurm's time limits have to follow wall times that the daemon keeps; a supervisor keeps its own."""
        return find_decider(handle) is Decider.DAEMON

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        """End what is left of sets that have been released, and remove files that no run refers to."""
        self._check_open()
        await self._part_submitter.release(installation, handles, tokens)
        root = resolve_root(self._root, (await self._queries.site()).home)
        # A renewal under way would bring back what is removed.
        await self._submitter.renewals.settle()
        await self._submitter.references.release(root, installation, handles, tokens)

    async def find_traces(self) -> list[Trace]:
        """What Slurm has of launches, by the tokens in its comments. Raises Unreachable."""
        self._check_open()
        # Under the submission lock: a job whose handle is not known yet would look like an orphan.
        async with self._lock:
            records = await self._queries.own_queue()
        return list_traces(records, index_handles(self._watched))

    async def remove_traces(self, traces: Sequence[Trace]) -> None:
        """End all that Slurm has of these launches. Raises OverspanError where some of it may live."""
        self._check_open()
        await cancel_natives(self._queries.transport, list_natives(traces), self._queries.timeout)

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        """News of the launches in `since`: one query for all of them, each tick, and sooner for young launches.

        The first answer after a failure returns at once, even without news, so that the cluster is no longer shown
        as stale.
        """
        self._check_open()
        deadline = time.monotonic() + timeout
        since = self.watch.list_readable(since)
        self._watched = frozenset(since)
        self._part_submitter.note_watched(since)
        self._submitter.references.note_watched(since)
        if not since:
            self._throttles.note_watched(())
        while True:
            self.watch.fresh.clear()
            self._follow_clock()
            self._submitter.renewals.begin(since)
            await self.watch.look(since)
            if self._relays is not None:
                self._relays.keep(self.watch.list_running())
            reports = self.watch.collect(since)
            await self._end_overdue(since)
            left = deadline - time.monotonic()
            trouble = self.watch.trouble
            if trouble is not None and not reports and (self.watch.take_trouble() or left <= 0):
                self._troubled = True
                raise trouble.with_traceback(None)
            recovered, self._troubled = self._troubled and trouble is None, trouble is not None
            gap = self.watch.gap or self._submitter.in_doubt
            recovered = recovered or gap != self._gap or self._paced.hang != self._hang
            if reports or recovered or left <= 0:
                self._gap, self._hang = gap, self._paced.hang
                hangs = describe_trouble(trouble) or self._hang
                return Observation(tuple(reports), time.time(), hangs, self._gap)
            await self._wait(since, left)

    def _follow_clock(self) -> None:
        """Keep the ages of what was noted where this machine's clock was set: order and grace periods follow them."""
        seconds = self._clock.take_jump()
        if seconds:
            self._orders.move_clock(seconds)
            self.watch.move_clock(seconds)

    async def _end_overdue(self, since: Mapping[str, str]) -> None:
        """End launches that outlived their grace period, and jobs of sets that Slurm requeued. Raises Unreachable."""
        groups, now = self.watch.groups, time.time()
        overdue, requeued = [*self.watch.overdue(since, now), *groups.list_overdue(now)], groups.list_requeued()
        try:
            if overdue:
                await self._orderer.end(overdue)
            await self._part_submitter.end(requeued)
            groups.forget_requeued(requeued)
        except OverspanError:
            self._troubled = True
            raise

    async def _wait(self, since: Mapping[str, str], left: float) -> None:
        """Wait until the next query is due, an order was carried out, or a grace period ends."""
        until = [left, self.watch.next_kill(since, time.time())]
        if since:
            until.append(self.watch.next_look - time.monotonic())
        seconds = max(0.01, min(value for value in until if value is not None))
        try:
            async with asyncio.timeout(seconds):
                await self.watch.fresh.wait()
        except TimeoutError:
            pass

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        """Carry out each order by Slurm's own commands."""
        self._check_open()
        return await self._orderer.order(orders)

    async def tell_members(self, handle: str, members: Sequence[Placement], further: Sequence[Placement]) -> None:
        """Tell a set where its members on other clusters are. Its supervisors have the names of further ones."""
        self._check_open()
        await tell_members(parse_group(handle), members, self._queries.transport)

    def find_obstacle(self, job: Job) -> str:
        """Why a job cannot wait at a set's start gate; empty where it can."""
        return find_obstacle(job)

    def waits_for(self, job: Job, needs: Sequence[Unmet]) -> bool:
        """Whether Slurm itself can wait for all of these."""
        return self._predecessors.waits_for(job, needs)

    def find_written(self, handle: str) -> Written:
        """A launch's working directory and output files, where these differ from the submitter's own paths."""
        return find_written(handle, self._settings.shared)

    async def logs(self, request: LogRequest) -> LogPart:
        """Bytes of a log, from the file that Slurm or the supervisor names."""
        return await self._logs.read(request)

    async def steps(self, handles: Sequence[str]) -> list[Step]:
        """The steps of srun in single jobs and elements; those that have ended only where there is accounting."""
        self._check_open()
        return await self._steps.find(handles)

    async def nodes(self) -> list[Node]:
        """Every node, once for each of its partitions."""
        self._check_open()
        await self._queries.site()
        return await self._queries.nodes()

    async def list_checkpoints(self, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        """What is in folders of the cluster where checkpoints appear, as the login node sees them."""
        self._check_open()
        return await self._checkpoints.list(folders)

    async def close(self) -> None:
        """Close the connection; the jobs go on."""
        self._closed = True
        await self._checkpoints.close()
        await self.watch.close()
        await self._submitter.late_commits.close()
        await self._submitter.renewals.close()
        if self._relays is not None:
            await self._relays.close()
        await self.transport.close()

    async def set_throttle(self, array: int, limit: int | None) -> None:
        """Let at most so many elements of an array run from now on."""
        self._check_open()
        task = asyncio.create_task(self._set_throttle(array, limit))
        task.add_done_callback(_retrieve)
        await asyncio.shield(task)

    async def _set_throttle(self, array: int, limit: int | None) -> None:
        async with self._lock:
            await self._throttles.set_limit(array, limit)

    async def check(self) -> list[Finding]:
        """Try what jobs need on this cluster."""
        if isinstance(self.transport, OpenSsh | ParamikoSsh):
            self.transport.retry()
        root = self._root
        try:
            root = resolve_root(self._root, (await self._queries.site()).home)
        except OverspanError:
            # The check asks again and reports why that fails.
            pass
        return await check_cluster(self._queries, self._settings, root)

    async def login(self) -> Invitation:
        """The command that opens the connection on the user's terminal."""
        return await invite(self.name, self.transport, self._settings)

    async def remote_python(self, words: Sequence[str], address: str) -> Sequence[str]:
        """The command that runs python3 on the login node over the ssh connection. Raises Unreachable."""
        assert isinstance(self.transport, OpenSsh)
        return await self.transport.stream_words(shlex.join((self._settings.python, *words)))

    async def enter(self, request: ShellRequest) -> Entrance:
        """What to run on the user's terminal for a shell at a member of a job."""
        self._check_open()
        return await Shells(self._queries, self.transport, self._settings, self._root).enter(request)

    async def prepare_step(self, request: StepRequest) -> StepEntrance:
        """What to run on the user's terminal for a step in an allocation."""
        self._check_open()
        library = self._submitter.library
        return await NativeSteps(self._queries, self.transport, self._settings, self._root, library).prepare(request)

    async def find_end(self, handle: str) -> float | None:
        """When Slurm will end a running launch: by its own `--time`, else by its partition's default or MaxTime."""
        self._check_open()
        parsed = parse_any(handle)
        natives = [job.native for job in parsed.list_jobs()] if isinstance(parsed, GroupHandle) else [parsed.native]
        records = (await self._queries.queue(natives)).values()
        if any(each.state.base == "PENDING" or not each.start or not each.limit.known for each in records):
            # The start of one that waits is an estimate.
            return None
        limits = [math.inf if each.limit.seconds is None else each.limit.seconds for each in records]
        ends = [each.start + limit for each, limit in zip(records, limits, strict=True) if each.start]
        return min(ends, default=None)

    async def find_job(self, native: str) -> Foreign:
        """The facts of a job that a user submitted to Slurm directly."""
        self._check_open()
        return await self._importer.find_job(native)

    def notes(self, job: Job) -> tuple[str, ...]:
        """Parts of the job that are accepted and have no effect on this cluster."""
        return list_notes(job, self._settings)

    def plan(self, job: Job) -> str:
        """The exact command and script of a submission. Nothing is sent and nothing is written."""
        travels, inline = "", None
        if not self._settings.shared_root:
            job, inline, travels = preview_carried(job)
        elif not self._settings.shared:
            job, travels = preview_staged(job, self._root or DEFAULT_ROOT)
        site, nodes = self._queries.known_site, self._queries.known_nodes
        alone = site is not None and not site.hetjobs and may_be_set(job)
        as_set = is_set(job) or (alone and needs_hetjob(job, nodes, self._settings.partition))
        return travels + self._renderer.plan(job, nodes, as_set, inline)

    async def read_sent(self, handle: str) -> KeptForm | None:
        """The scripts of a launch, as Slurm keeps them."""
        self._check_open()
        return await read_sent(self._queries, handle)

    async def admit(self, job: Job) -> Refusal | None:
        """The refusal by `sbatch --test-only`, in its own words; None if it accepts the job. Raises Unreachable."""
        self._check_open()
        try:
            refuse_unknown(without_array(job))
            if not self._settings.shared_root:
                job, _ = await asyncio.to_thread(list_carried, job)
            elif not self._settings.shared:
                await asyncio.to_thread(check_sources, job, self._settings.max_staged << 20)
            async with asyncio.timeout(VERDICT_SECONDS):
                return await self._try(without_array(job))
        except (InvalidRequest, Rejected) as error:
            return Refusal("", explain(error))
        except (TimeoutError, TimedOut):
            raise Unreachable(f"{self.name} has not answered within {VERDICT_SECONDS:g} s") from None

    async def _try(self, job: Job) -> Refusal | None:
        site = await self._queries.site()
        facts = ClusterFacts(site, await self._queries.nodes() if needs_nodes(job) else ())
        launch = Launch(_TRIAL, job)
        parts: Sequence[Launch] = list_parts(launch) if await self._becomes_set(job) else [launch]
        calls = [self._renderer.render(part, facts, test_only=True).call for part in parts]
        if self._trials.passed(calls):
            return None
        for done in await self.transport.run_all(calls, VERDICT_SECONDS):
            if done is None:
                raise Unreachable(f"{self.name} has not answered within {VERDICT_SECONDS:g} s")
            unclear = is_unclear(done.rc, done.words)
            nodes = await self._queries.nodes() if unclear else ()
            refusal = refuse_memory(job, nodes) if unclear else read_trial(done.rc, done.words)
            if refusal is not None:
                return refusal
        self._trials.note_passed(calls)
        return None

    def _check_open(self) -> None:
        if self._closed:
            raise Unreachable(f"the cluster {self.name} was closed")


def _retrieve(task: asyncio.Task[None]) -> None:
    """Retrieve a shielded task's exception: asyncio logs one that is never retrieved, as when the caller has gone."""
    if not task.cancelled():
        task.exception()


def describe_trouble(trouble: Exception | None) -> str:
    """Why the cluster has not answered, as a sentence; empty where it has."""
    if trouble is None:
        return ""
    return trouble.message if isinstance(trouble, OverspanError) else f"{type(trouble).__name__}: {trouble}"


def open_queries(transport: Transport, settings: Settings) -> Queries:
    """Queries by commands, or by pyslurm for the queue where the settings ask for it."""
    kind = LibraryQueries if settings.reader == PYSLURM else Queries
    return kind(transport, settings.timeout)


def open_transport(cluster: str, settings: Settings) -> Transport:
    """The transport that the settings ask for; nothing is contacted. InvalidRequest where its package is missing."""
    if settings.transport == LOCAL:
        return LocalTransport(settings.path)
    config = os.path.expanduser(settings.ssh_config)
    address = Address(settings.host, settings.user, settings.port, config, settings.ssh_options)
    if settings.transport == PARAMIKO:
        return ParamikoSsh(address, settings.path)
    return OpenSsh(cluster, address, settings.path)


def find_process_start() -> float:
    """When this process started, in seconds since the epoch (proc(5), stat): another one made older submissions."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def open_cluster(config: ClusterConfig) -> SlurmCluster:
    """Open a Slurm cluster: nothing is touched before its first use. InvalidRequest for a wrong setting."""
    return SlurmCluster(config)


async def invite(name: str, transport: Transport, settings: Settings) -> Invitation:
    """The command to run on a terminal; none if the connection is open, or if its transport asks no questions."""
    if isinstance(transport, OpenSsh):
        is_open, words = await transport.invite()
        end = shlex.join(transport.control_words("exit"))
        word = "already open" if is_open else "open"
        message = f"the connection to {name} is {word}, until `{end}` or {settings.host} ends it"
        return Invitation(message, tuple(words), tuple(transport.control_words("check")))
    if settings.transport == LOCAL:
        return Invitation(f"{name} is reached by commands of this machine: there is nothing to log in to")
    return Invitation(
        f"{name} is reached by {settings.transport}, which takes keys and agents and asks no questions: "
        f"set `transport: ssh` where {settings.host} wants passwords or codes"
    )


def list_notes(job: Job, settings: Settings) -> tuple[str, ...]:
    """Notes for the submitter about parts of a job that are accepted without their full effect, a sentence each."""
    notes = []
    task = job.spec.tasks[0]
    if job.spec.start_timeout is not None and not is_set(job):
        notes.append("start_timeout counts only where the group is a set: one allocation starts as a whole")
    if is_group(job):
        return tuple(notes)
    if job.spec.hold_on_failure and task.form is Form.BATCH:
        notes.append(
            "hold_on_failure has no effect on a batch script on Slurm: its nodes go back when it ends; "
            "a job file's task keeps them"
        )
    if task.image and settings.containers == PYXIS:
        notes.append(
            f"grace_period of {task.name} has no effect on a cancel: what runs in an image by Pyxis is a step, "
            "which srun ends at once; with `containers: apptainer` it has its grace"
        )
    return tuple(notes)
