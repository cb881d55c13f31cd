"""The adapter of a Kubernetes cluster: a job's tasks as bare pods, whose phases are the tasks' states.

The daemon decides; this carries single decisions out and reports what pods do. It has no state that must survive:
anchors, pods and cursors hold everything.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from overspan.adapters.abilities import Entrance, Finding, KeptForm, ShellRequest, StepEntrance, StepRequest, Trace
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
    before_sending,
)
from overspan.adapters.gpu_defaults import bound_gpu_defaults
from overspan.adapters.kubernetes.api.connection import Connection, open_connection
from overspan.adapters.kubernetes.api.discovery import find_backend
from overspan.adapters.kubernetes.checkpoints.mounts import find_mount
from overspan.adapters.kubernetes.checkpoints.source import KubernetesCheckpoints
from overspan.adapters.kubernetes.claims import ClaimKeeper, find_claim_obstacle
from overspan.adapters.kubernetes.diagnosis.checking import check_cluster
from overspan.adapters.kubernetes.launches.flushes import Flushes
from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.launches.launches import Handle, Launches, parse_anchor, parse_handle
from overspan.adapters.kubernetes.launches.mailboxes import PodMailboxes
from overspan.adapters.kubernetes.launches.ordering import Orderer
from overspan.adapters.kubernetes.launches.orphans import find_traces, remove_traces
from overspan.adapters.kubernetes.launches.other_members import render_slices, write_slices
from overspan.adapters.kubernetes.launches.peer_objects import PeerObjects
from overspan.adapters.kubernetes.launches.preflight import Preflight
from overspan.adapters.kubernetes.launches.releasing import Releaser
from overspan.adapters.kubernetes.launches.rescue import KubernetesRescue
from overspan.adapters.kubernetes.launches.secret_renewals import SecretRenewals
from overspan.adapters.kubernetes.launches.sidecars import SidecarCheck
from overspan.adapters.kubernetes.launches.soft_gang import SoftGang
from overspan.adapters.kubernetes.launches.start_timeouts import find_failover_timeout
from overspan.adapters.kubernetes.launches.submission import Submitter, admit
from overspan.adapters.kubernetes.launches.unsent import KubernetesUnsent
from overspan.adapters.kubernetes.logs.live_logs import LiveLogs
from overspan.adapters.kubernetes.logs.logs import Logs
from overspan.adapters.kubernetes.logs.output_files import OutputFiles, note_unwritable
from overspan.adapters.kubernetes.logs.output_sync import OutputSync
from overspan.adapters.kubernetes.manifests.lifetimes import longest_time
from overspan.adapters.kubernetes.manifests.names import has_names, name_anchor, parse_token
from overspan.adapters.kubernetes.manifests.overlay import has_host_network
from overspan.adapters.kubernetes.manifests.partitions import (
    find_refusal,
    find_unknown_node,
    list_partitions,
    names_nodes,
    settle_partition,
)
from overspan.adapters.kubernetes.manifests.storage import find_mount_obstacle
from overspan.adapters.kubernetes.observation.evidence import is_slow, read_trouble
from overspan.adapters.kubernetes.observation.failed_probes import read_failures
from overspan.adapters.kubernetes.observation.following import TICK_SECONDS, LaunchObserver
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.nodes import PORTION, NodeCache, ask_nodes, ask_sizes
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.adapters.kubernetes.planning import list_notes, render_kept, render_plan
from overspan.adapters.kubernetes.settings import Settings, read_settings
from overspan.adapters.kubernetes.shells import enter_pod
from overspan.adapters.kubernetes.steps import StepSource, prepare_step
from overspan.adapters.kubernetes.tunnels import prepare_python
from overspan.adapters.traits import Traits, choose_modes
from overspan.bridge.model.checkpoints.listings import FolderListing
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound, OverspanError, Unreachable
from overspan.bridge.model.job import Job, Placement
from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.runtime.data.rescue import RescuedData

_log = logging.getLogger(__name__)

ASK_SECONDS = 2.0
"""How long a submission waits for the cluster's checks before the job is accepted."""
TIDY_SECONDS = 3.0
"""How often ended pods of live launches are removed."""
LAST_LINES_SECONDS = 12.0
"""How long the daemon's shutdown waits for the last lines of pods that are being ended: their nodes remove them."""
PROGRESS_SECONDS = 5.0
"""How often pods whose data is on its way are asked how far it is."""
TROUBLE_SECONDS = 10.0
"""How often events are read while pods do not start; their status is silent about mounts."""


class KubernetesCluster:
    """One namespace of one cluster. Nothing is contacted before its first use."""

    def __init__(self, config: ClusterConfig, connection: Connection | None = None) -> None:
        self.name = config.name
        self._settings: Settings = read_settings(config)
        self._connection = connection or open_connection(self._settings)
        self.launches = Launches(self._connection)
        folder = config.state or os.path.join(os.path.expanduser("~"), ".local", "state", "overspan", config.name)
        self._live = LiveLogs(self._connection, self.launches.note_end)
        self._files = OutputFiles(os.path.join(folder, "logs"))
        self._logs = Logs(self._connection, os.path.join(folder, "logs"), self._live, self._files)
        self._flushes = Flushes(self._connection, self.launches)
        self._outputs = OutputSync(self.launches, self._logs, self._files)
        self._peer_objects = PeerObjects(self.launches, os.path.join(folder, "peers"), config.stores)
        self._secret_renewals = SecretRenewals(self.launches, config.stores)
        self._rescue = KubernetesRescue(self.launches, self._settings, config.stores)
        self._releaser = Releaser(self.launches, self._logs, self._peer_objects)
        self._submitter = Submitter(
            self.launches, self._releaser, self._settings, self._files, SidecarCheck(self._connection), config.stores
        )
        self._orderer = Orderer(self.launches, self._settings, self._logs.follow_to_end)
        self._soft_gang = SoftGang(self.launches, self._settings)
        self._observer = LaunchObserver(self.launches, self._live, self._logs, self._outputs.holds)
        self._node_cache = NodeCache(lambda: ask_sizes(self._connection, self._settings))
        self._preflight = Preflight(self._connection)
        self._checkpoints = KubernetesCheckpoints(
            self._connection, self.launches, self._settings, lambda: min(self._installations, default="")
        )
        self._swept, kept = False, self._settings.data_volume
        self._installations: set[str] = set()
        """Those of this daemon, as seen in its calls."""
        self.traits = Traits(
            decider=Decider.DAEMON,
            returns_grants=True,
            captures_logs=True,
            warns_of_preemption=True,
            failover_timeout=self.failover_timeout,
            default_partition=self.default_partition,
            known_nodes=self.known_nodes,
            longest_time=self.longest_time,
            mount_modes=choose_modes(bool(self._settings.data_fuse)),
            find_mount_obstacle=find_mount_obstacle,
            prepare_step=self.prepare_step,
            remote_python=self.remote_python,
            mailboxes=PodMailboxes(self._connection, self.launches),
            volumes=ClaimKeeper(self._connection),
            unsent=None if kept is None else KubernetesUnsent(self.launches, self._settings, kept),
            has_leftovers=self._peer_objects.has_any,
        )
        self._backend: GangBackend | None = None
        self._housekeeping: asyncio.Task[None] | None = None
        self._closed = False

    def place(self) -> str:
        """The server and the namespace, as the kubeconfig has them now. Raises Unreachable."""
        return self._connection.address

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        """Make each launch's objects, or find those that its token already made."""
        self._check_open()
        if not launches:
            return []
        async with before_sending():
            namespace = await self._find_namespace()
            obstacle = await self._preflight.find_obstacle(namespace)
            if obstacle is not None:
                return [Refusal(launch.token, obstacle.message, remedy=obstacle.remedy) for launch in launches]
            self._installations.update(parse_token(launch.token).installation for launch in launches)
            self._start_housekeeping()
            nodes = await self._node_cache.ask([launch.job for launch in launches])
            launches = [replace(launch, job=bound_gpu_defaults(launch.job, nodes, PORTION)) for launch in launches]
            backend = await self._find_gang_backend(namespace)
        call = self._submitter.submit(launches, namespace, backend)
        # A caller that gives up must not cancel it half-way.
        answers = await asyncio.shield(asyncio.create_task(call))
        if any(isinstance(answer, Refusal) and not answer.transient for answer in answers):
            self._preflight.forget(namespace)
        return answers

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        """Events of the launches in `since`, from one watch, however many they are."""
        self._check_open()
        self._start_housekeeping()
        return await self._observer.observe(since, timeout)

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        """Carry out decisions on pods. Ending what has ended is fine."""
        self._check_open()
        return await asyncio.shield(asyncio.create_task(self._orderer.order(orders)))

    async def logs(self, request: LogRequest) -> LogPart:
        """Bytes of a pod's log; of one that was removed, as it was kept."""
        self._check_open()
        handle = parse_handle(request.handle)
        watched = self.launches.watched.get(handle.token)
        try:
            return await self._logs.read(request, handle.token, self.launches.pods(watched) if watched else [])
        except NotFound:
            if watched is not None and self.launches.fresh and self.launches.trouble() is None:
                raise
            # The watch has not seen its pods yet, or is behind: ask for them.
            pods = await self._ask_pods(handle)
            return await self._logs.read(request, handle.token, pods)

    async def _ask_pods(self, handle: Handle) -> list[PodRecord]:
        """A launch's pods as they are now; none where it is gone. Raises Unreachable."""
        watched = await self.launches.find(handle)
        return list((await self.launches.fetch_snapshot(watched)).pods.values()) if watched is not None else []

    async def rescue_data(self, job: Job, handle: str) -> RescuedData | None:
        """Send what an ended job could not."""
        self._check_open()
        return await self._rescue.send(job, handle)

    async def nodes(self) -> list[Node]:
        """The nodes, with what all pods there ask for."""
        self._check_open()
        nodes = await asyncio.to_thread(ask_nodes, self._connection, self._settings)
        self._node_cache.note(nodes)
        return nodes

    def known_nodes(self) -> Sequence[Node]:
        """The nodes as they were seen last; none where an autoscaler may make larger ones."""
        return () if self._settings.autoscaler else self._node_cache.known

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        """Remove every launch of the installation but those that are named."""
        self._check_open()
        self._installations.add(installation)
        self._start_housekeeping()
        self._releaser.begin()
        namespace = await self._find_namespace()
        await asyncio.shield(asyncio.create_task(self._releaser.release(namespace, installation, handles, tokens)))
        if not self._swept:
            # Those that an earlier daemon has left; later ones are swept by their source.
            self._swept = True
            await self._checkpoints.sweep(namespace)

    async def longest_time(self, handle: str, task: str) -> int | None:
        """The longest wall time that a task's pods leave room for; they end by themselves some time after theirs."""
        watched = await self.launches.find(parse_handle(handle))
        plan = await self.launches.read_plan(watched) if watched is not None else None
        if plan is None:
            return None
        settings = settle_partition(self._settings, plan.job.spec.partition)
        return longest_time(plan.job, plan.job.spec_of(task), settings)

    async def find_traces(self) -> list[Trace]:
        """The launches of all installations that have anything in the namespace."""
        self._check_open()
        return await find_traces(self.launches, await self._find_namespace(), time.time())

    async def remove_traces(self, traces: Sequence[Trace]) -> None:
        """End these launches and remove all of them."""
        self._check_open()
        call = remove_traces(self.launches, self._releaser, await self._find_namespace(), traces)
        await asyncio.shield(asyncio.create_task(call))

    async def close(self) -> None:
        """Close watches and connections; the work goes on."""
        if self._closed:
            return
        self._closed = True
        if self._housekeeping is not None:
            self._housekeeping.cancel()
            await asyncio.gather(self._housekeeping, return_exceptions=True)
        looks = (self._flushes, self._checkpoints, self._peer_objects, self._secret_renewals)
        await asyncio.gather(*(look.close() for look in looks))
        await self._node_cache.close()
        await self._logs.finish(LAST_LINES_SECONDS)
        await asyncio.gather(self._outputs.close(), self._logs.close(), self._orderer.close())
        await self._live.close()
        await self.launches.close()
        await asyncio.to_thread(self._connection.close)

    async def check(self) -> list[Finding]:
        """Try what jobs need on this cluster."""
        return await asyncio.to_thread(check_cluster, self._connection, self._settings)

    def plan(self, job: Job) -> str:
        """The manifests that would be sent, with no effect at all."""
        return render_plan(bound_gpu_defaults(job, self._node_cache.known, PORTION), self._settings, self._backend)

    async def read_sent(self, handle: str) -> KeptForm | None:
        """The manifests of a launch, from the plan that its anchor keeps as long as anything of it is there."""
        self._check_open()
        found = parse_handle(handle)
        anchor = await self.launches.calls(found.namespace).get("ConfigMap", name_anchor(found.token))
        if anchor is None:
            return None
        settings = self._settings.model_copy(update={"namespace": found.namespace})
        try:
            text = await asyncio.to_thread(lambda: render_kept(parse_anchor(anchor), settings))
        except (ValueError, LookupError, InvalidRequest) as error:
            raise Unreachable(f"the anchor {name_anchor(found.token)} holds no plan: {error}") from error
        return KeptForm(text, "rendered from the plan that the cluster keeps of the launch")

    async def tell_members(self, handle: str, members: Sequence[Placement], further: Sequence[Placement]) -> None:
        """Give members on other clusters names in the launch's domain."""
        watched = await self.launches.find(parse_handle(handle))
        plan = await self.launches.read_plan(watched) if watched is not None else None
        if watched is None or plan is None or not has_names(plan.job):
            return
        slices = render_slices(plan.job, watched.token, [*members, *further])
        await write_slices(self.launches.calls(watched.namespace), slices, name_anchor(watched.token), watched.anchor)

    def find_obstacle(self, job: Job) -> str:
        """Empty: every pod of a job with several candidates waits at a start gate."""
        return ""

    def uses_host_network(self, job: Job, task: TaskSpec) -> bool:
        """Whether a task's pods have their nodes' addresses: by the settings, the job or the task."""
        return has_host_network(job, self._settings, task)

    def failover_timeout(self, job: Job) -> float | None:
        """How long the pods of a job with further candidates may wait for a node."""
        return find_failover_timeout(job, self._settings)

    def notes(self, job: Job) -> tuple[str, ...]:
        """The options of a job that have no or only partial effect here."""
        return (
            *list_notes(job, self._settings, self._backend or GangBackend.SOFT),
            *note_unwritable(job, self._settings),
        )

    async def admit(self, job: Job) -> Refusal | None:
        """The refusal of a job that cannot be rendered, or that the cluster is known to refuse."""
        refusal = find_refusal(job, self._settings)
        if refusal:
            return Refusal("", refusal, remedy=self._name_partitions() if job.spec.partition else "")
        refused = await asyncio.to_thread(admit, job, self._settings)
        if refused is not None or self.launches.trouble() is not None:
            return refused
        # For the note on a job that no node can hold.
        await self._node_cache.look_first(ASK_SECONDS)
        try:
            async with asyncio.timeout(ASK_SECONDS):
                if names_nodes(job) and (wrong := find_unknown_node(job, await self.nodes())):
                    return Refusal("", wrong)
                namespace = await self._find_namespace()
                calls = self.launches.calls(namespace)
                found = (
                    await self._preflight.find_obstacle(namespace)
                    or await self._preflight.find_name_conflict(job, calls, self._installations)
                    or await find_claim_obstacle(job, calls, self._settings)
                )
        except (TimeoutError, OverspanError):
            # The submission asks again.
            return None
        return Refusal("", found.message, remedy=found.remedy) if found is not None else None

    def default_partition(self) -> str:
        """The partition of jobs that name none."""
        return list_partitions(self._settings)[0].name

    def _name_partitions(self) -> str:
        names = ", ".join(one.name for one in list_partitions(self._settings))
        return f"partitions of {self.name}: {names}; `partitions` of the cluster's settings has them"

    async def enter(self, request: ShellRequest) -> Entrance:
        """What enters a member's pod on the user's terminal: kubectl's exec."""
        self._check_open()
        watched = await self.launches.find(parse_handle(request.handle))
        pods = self.launches.pods(watched) if watched is not None else []
        return enter_pod(request, pods, self._settings)

    async def prepare_step(self, request: StepRequest) -> StepEntrance:
        """What starts a step in a batch script's pods, or in an allocation's: kubectl's exec of a prepared program."""
        self._check_open()
        watched = await self.launches.find(parse_handle(request.handle))
        plan = await self.launches.read_plan(watched) if watched is not None else None
        if watched is None or plan is None:
            raise Conflict("the job's pods are gone")
        settings = settle_partition(self._settings, plan.job.spec.partition)
        source = StepSource(plan.job, self.launches.pods(watched), settings)
        return await prepare_step(request, source, self._connection)

    async def remote_python(self, words: Sequence[str], address: str) -> Sequence[str]:
        """The command that runs python3 in the pod of an address, which is made if need be. Raises OverspanError."""
        self._check_open()
        calls = self.launches.calls(await self._find_namespace())
        return await prepare_python(words, address, calls, self._settings)

    async def list_checkpoints(self, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        """What is in folders on volumes of pods where checkpoints appear."""
        self._check_open()
        return await self._checkpoints.list(folders)

    def check_folder(self, job: Job, task: str, path: str) -> None:
        """Raise InvalidRequest for a folder on no volume that outlives the task's pods."""
        find_mount(job, task, path, settle_partition(self._settings, job.spec.partition))

    # --- keeping -----------------------------------------------------------------------------------------------------

    async def _find_namespace(self) -> str:
        return await asyncio.to_thread(lambda: self._connection.namespace)

    async def _find_gang_backend(self, namespace: str) -> GangBackend:
        if self._backend is None:
            found = await asyncio.to_thread(find_backend, self._connection, self._settings, namespace)
            _log.info("cluster %s: groups start by %s", self.name, found.seen)
            self._backend = found.backend
        return self._backend

    def _start_housekeeping(self) -> None:
        if self._housekeeping is None:
            self._housekeeping = asyncio.create_task(self._run())

    async def _run(self) -> None:
        """The housekeeping loop: soft gangs, ended pods, pods that do not start, output files."""
        tidied = troubled = told = cared = time.monotonic()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            if now - cared >= PROGRESS_SECONDS:
                # Whether there is a watch, and what it shows, is no matter of these.
                cared = now
                self._peer_objects.begin()
            try:
                if self.launches.trouble() is not None or not self.launches.fresh:
                    continue
                launches = list(self.launches.watched.values())
                self._outputs.look(launches)
                await self._soft_gang.look(launches, time.time())
                if now - tidied >= TIDY_SECONDS:
                    tidied = now
                    await asyncio.gather(
                        *(self._releaser.tidy(watched) for watched in launches if watched.cursor.granted)
                    )
                if now - told >= PROGRESS_SECONDS:
                    told = now
                    self._flushes.begin([watched for watched in launches if watched.flushes])
                    self._secret_renewals.begin(launches)
                if now - troubled >= TROUBLE_SECONDS:
                    troubled = now
                    await self._find_troubles(launches)
            except OverspanError as error:
                _log.info("cluster %s: %s", self.name, error)
            except Exception:
                _log.exception("cluster %s", self.name)

    async def _find_troubles(self, launches: Sequence[WatchedLaunch]) -> None:
        """Read the events of pods that do not start or are not ready: their status is silent about the cause."""
        now = time.time()
        slow = [
            watched
            for watched in launches
            if any(is_slow(pod, now) for pod in self.launches.pods(watched))
            or watched.list_unready(self.launches.snapshot(watched))
        ]
        for namespace in {watched.namespace for watched in slow}:
            path, query = f"/api/v1/namespaces/{namespace}/events", {"fieldSelector": "type=Warning", "limit": 500}
            answer = await self._connection.call("GET", path, query=query)
            items = answer.document.get("items") or []
            troubles, failures = read_trouble(items), read_failures(items)
            for watched in slow:
                if watched.namespace == namespace and (watched.troubles, watched.failures) != (troubles, failures):
                    watched.troubles, watched.failures, watched.dirty = troubles, failures, True
                    self.launches.changed.set()

    def _check_open(self) -> None:
        if self._closed:
            raise Unreachable(f"the cluster {self.name} was closed")


def open_cluster(config: ClusterConfig) -> KubernetesCluster:
    """Open a Kubernetes cluster: nothing is touched before its first use. InvalidRequest for a wrong setting."""
    return KubernetesCluster(config)
