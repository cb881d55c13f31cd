"""The local adapter: a queue, resource accounting of this machine, and supervisors that run the jobs."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Collection, Mapping, Sequence

from overspan.adapters.abilities import Entrance, Finding, KeptForm, ShellRequest, Step
from overspan.adapters.checkpoint_sources import WatchedFolder
from overspan.adapters.contract import (
    Accepted,
    ClusterConfig,
    Launch,
    LogPart,
    LogRequest,
    Node,
    Observation,
    Order,
    Refusal,
)
from overspan.adapters.local.checking import check_machine
from overspan.adapters.local.checkpoints.source import LocalCheckpoints
from overspan.adapters.local.data_cache import LocalCache
from overspan.adapters.local.files.ended_runs import RunPacker, forget_runs
from overspan.adapters.local.files.journals import Wake
from overspan.adapters.local.files.launch_files import LaunchFiles, find_last_job, parse_handle, read_document
from overspan.adapters.local.files.logs import read_log
from overspan.adapters.local.files.steps import list_steps
from overspan.adapters.local.launches.dispatch import Dispatch
from overspan.adapters.local.launches.gate_returns import give_back
from overspan.adapters.local.launches.gated_launches import find_obstacle
from overspan.adapters.local.launches.launches import make_root
from overspan.adapters.local.planning import render_launch, render_plan
from overspan.adapters.local.queue.admission import (
    GPUS_UNKNOWN,
    MEMORY_NEVER_FITS,
    NEVER_FITS,
    describe_misfit,
    find_refusal,
)
from overspan.adapters.local.queue.capacity import Capacity, keep_gpus, measure_capacity
from overspan.adapters.local.settings import Partition, read_settings
from overspan.adapters.local.unsent import LocalUnsent
from overspan.adapters.traits import FindKnown, Traits, choose_modes
from overspan.adapters.volume_folders import VolumeFolders
from overspan.bridge.model.checkpoints.listings import FolderListing
from overspan.bridge.model.documents import decode
from overspan.bridge.model.errors import InvalidRequest, Unreachable
from overspan.bridge.model.job import Job, Placement
from overspan.bridge.model.resources import MILLI
from overspan.bridge.model.secret_names import hide_secrets
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.data.mounts import list_folders
from overspan.bridge.runtime.data.rescue import RescuedData, rescue_job
from overspan.bridge.runtime.data.stores import read_store
from overspan.bridge.runtime.zip_application import build_archive

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Seconds between two rounds that check some journals without a wake-up, since a wake-up may be lost."""
GPU_SECONDS, MOST_GPU_SECONDS = 1.0, 60.0
"""Seconds after which nvidia-smi is asked again where it has never told the GPUs: first, and doubled up to that."""


class LocalCluster:
    """Real processes on this machine.

    All that was granted is on disk below the root, where the next daemon finds it. What waits is in memory, and comes
    from `ClusterConfig.list_waiting` when the cluster is opened.
    """

    def __init__(self, config: ClusterConfig) -> None:
        root = config.root or config.state
        if not root:
            raise InvalidRequest(f"clusters.{config.name}: a local cluster needs a root directory", remedy="set `root`")
        self.name = config.name
        self._root = os.path.abspath(root)
        self._settings = read_settings(config)
        self._list_waiting = config.list_waiting
        self._stores = config.stores
        self.traits = Traits(
            this_machine=True,
            gives_back=True,
            returns_grants=True,
            mount_modes=choose_modes(self._settings.data_fuse),
            data_cache=LocalCache(self._root, self._settings),
            unsent=LocalUnsent(self._root, self._settings.data_keep),
            default_partition=lambda: self._settings.default_partition.name,
            find_last_number=self.find_last_number,
            forget=self.forget,
            volumes=VolumeFolders(f"{self._root}/volumes"),
        )
        self._node = socket.gethostname().partition(".")[0]
        self._dispatch = self._make_dispatch()
        self._wake = Wake(f"{self._root}/wake", self._note_growth)
        self._capacity: Capacity | None = None
        self._lock = asyncio.Lock()
        self._checkpoints = LocalCheckpoints()
        self._packer = RunPacker(self._root, self._lock, lambda: self._dispatch.live_jobs)
        self._woken: set[str] = set()
        self._opening: asyncio.Task[None] | None = None
        self._follower: asyncio.Task[None] | None = None
        self._gpu_search: asyncio.Task[None] | None = None
        self._closed = False

    def place(self) -> str:
        """The root as a real path, so that one folder has one name, whichever links lead there."""
        return os.path.realpath(self._root)

    def find_last_number(self) -> int:
        """The highest job id with a run directory."""
        return find_last_job(self._root)

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        """Put each launch in the queue; those that fit start at once."""
        await self._ready()
        # Shielded: a cancelled caller must not stop it between the grant's files and the supervisor.
        return await asyncio.shield(asyncio.create_task(self._submit(launches)))

    async def _submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        async with self._lock:
            answers = await self._dispatch.submit(launches)
            await self._dispatch.schedule()
        self._dispatch.attention.set()
        return answers

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        """News of the launches in `since`: the reasons of waiting ones, the journals of others."""
        await self._ready()
        reports = self._dispatch.reports
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        cursors = dict(since)
        while True:
            reports.fresh.clear()
            found = await reports.collect(cursors)
            if reports.suspects:
                self._dispatch.attention.set()
            left = deadline - loop.time()
            if found or left <= 0:
                return Observation(tuple(found), time.time())
            try:
                async with asyncio.timeout(left):
                    await reports.fresh.wait()
            except TimeoutError:
                continue

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        """Carry out orders on waiting launches, and pass the others durably to their supervisors."""
        await self._ready()
        return await asyncio.shield(asyncio.create_task(self._order(orders)))

    async def _order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        async with self._lock:
            later = await give_back(self._dispatch, self._root, orders, self._list_waiting)
            done = [order for order in orders if order.token not in later]
            answers = dict(zip((order.token for order in done), await self._dispatch.order(done), strict=True))
            await self._dispatch.schedule()
        return [later.get(order.token) or answers[order.token] for order in orders]

    async def set_throttle(self, array: int, limit: int | None) -> None:
        """Limit how many elements of the array run at once; the next daemon's launches come with the new limit."""
        await self._ready()
        await asyncio.shield(asyncio.create_task(self._set_throttle(array, limit)))

    async def _set_throttle(self, array: int, limit: int | None) -> None:
        async with self._lock:
            self._dispatch.set_throttle(array, limit)
            await self._dispatch.schedule()

    async def logs(self, request: LogRequest) -> LogPart:
        """Bytes of a log, from the file that the supervisor named."""
        return await asyncio.to_thread(read_log, parse_handle(self._root, request.handle), request)

    async def steps(self, handles: Sequence[str]) -> list[Step]:
        """The steps that srun recorded in the run directories."""
        return await asyncio.to_thread(list_steps, [parse_handle(self._root, handle) for handle in handles])

    async def nodes(self) -> list[Node]:
        """This machine, once for each of its partitions."""
        await self._ready()
        first = self._settings.default_partition
        return [self._make_node(partition, partition is first) for partition in self._settings.partitions.values()]

    async def list_checkpoints(self, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        """What is in folders of this machine where checkpoints appear."""
        return await self._checkpoints.list(folders)

    async def await_changes(self, folders: Sequence[WatchedFolder], timeout: float) -> bool:
        """Wait until something changes there, by inotify where it tells all."""
        return await self._checkpoints.wait(folders, timeout)

    async def rescue_data(self, job: Job, handle: str) -> RescuedData | None:
        """Send what an ended job could not."""
        return await asyncio.to_thread(_rescue, self._root, job.id)

    async def close(self) -> None:
        """Stop watching; supervisors and their work go on."""
        self._closed = True
        self._checkpoints.close()
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._gpu_search is not None:
            self._gpu_search.cancel()
            await asyncio.gather(self._gpu_search, return_exceptions=True)
        async with self._lock:
            if self._follower is None:
                return
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)
            self._follower = None
            asyncio.get_running_loop().remove_reader(self._wake.fd)
            self._dispatch.close()
            self._wake.close()

    async def check(self) -> list[Finding]:
        """Probe what jobs need on this machine."""
        return await asyncio.to_thread(check_machine, self._root, self._settings)

    async def enter(self, request: ShellRequest) -> Entrance:
        """The command for a shell beside a member of a job."""
        return await asyncio.to_thread(_find_entrance, self._root, self._settings.python, request)

    def plan(self, job: Job) -> str:
        """The processes that would be started. Nothing is started or written."""
        return render_plan(job, self._settings, self._capacity or measure_capacity(self._settings, self._root))

    async def read_sent(self, handle: str) -> KeptForm | None:
        """The plan that the supervisor was given, from the run directory; that of a waiting launch from memory."""
        place, capacity, run = parse_handle(self._root, handle), await self._measure(), self._dispatch.runs.get(handle)
        if run is not None and run.launch is not None:
            job = hide_secrets(run.launch.job)
            return KeptForm(render_launch(job, capacity, None), "the plan that its supervisor will be given")
        return await asyncio.to_thread(_read_sent, place, capacity)

    def troubles(self) -> list[str]:
        """Lost launches, a sentence each."""
        return [lost.describe() for lost in self._dispatch.lost_launches.list_recent()]

    def notes(self, job: Job) -> tuple[str, ...]:
        """Parts of the job that are accepted and have no effect on this machine."""
        images = sorted({task.image for task in job.spec.tasks if task.image})
        return tuple(
            f"image {image} is not used: the local cluster runs the machine's own programs" for image in images
        )

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        """Pack the run directories of ended jobs, except those of these launches. Raises Unreachable."""
        # Before any wait: what comes from here on is not among the handles and tokens.
        self._dispatch.fresh_tokens.clear()
        await self._ready()
        await asyncio.shield(asyncio.create_task(self._end_unwanted(handles, tokens)))
        self._dispatch.reports.forget(handles)
        # Shielded: a cancelled caller must not release the lock while a thread still packs.
        await asyncio.shield(asyncio.create_task(self._packer.pack(handles, tokens)))

    async def _end_unwanted(self, handles: Collection[str], tokens: Collection[str]) -> None:
        async with self._lock:
            try:
                await self._dispatch.release(handles, frozenset(tokens))
            except OSError as error:
                raise Unreachable(f"parts of groups cannot be ended: {error.strerror or error}") from error
            await self._dispatch.schedule()

    def find_obstacle(self, job: Job) -> str:
        """Why a job cannot wait at a start gate: only parts of groups across can."""
        return find_obstacle(job, self._settings)

    async def tell_members(self, handle: str, members: Sequence[Placement], further: Sequence[Placement]) -> None:
        """Tell a part where its members on other clusters are. Its supervisor has the names of further ones."""
        await self._ready()
        await asyncio.shield(asyncio.create_task(self._place(handle, members)))

    async def _place(self, handle: str, members: Sequence[Placement]) -> None:
        async with self._lock:
            try:
                await self._dispatch.place(handle, members)
            except OSError as error:
                raise Unreachable(f"where members are cannot be written: {error.strerror or error}") from error

    async def forget(self, before: float, find_known: FindKnown) -> int:
        """Remove run directories older than that time of jobs that are not known any more."""
        waiting = [launch.job.id for launch in self._list_waiting()]
        return await forget_runs(self._root, before, self._dispatch.live_jobs.union(waiting), find_known)

    async def admit(self, job: Job) -> Refusal | None:
        """The refusal of a job that this machine can never run; None if it can."""
        capacity = await self._measure()
        refusal = find_refusal(job, self._settings, capacity)
        if refusal == GPUS_UNKNOWN:
            return None
        misfit = describe_misfit(job, capacity) if refusal in (NEVER_FITS, MEMORY_NEVER_FITS) else ""
        return Refusal("", refusal, remedy=misfit) if refusal else None

    @property
    def gpus_unknown(self) -> bool:
        """Whether nvidia-smi is still asked which GPUs there are."""
        return self._gpu_search is not None and not self._gpu_search.done()

    # --- watching ----------------------------------------------------------------------------------------------------

    async def _measure(self) -> Capacity:
        if self._capacity is None:
            self._capacity = await asyncio.to_thread(measure_capacity, self._settings, self._root)
        return self._capacity

    def _make_dispatch(self) -> Dispatch:
        boot_id = kernel.read_boot_id()
        return Dispatch(self._root, self._settings, self.name, self._node, boot_id, stores=self._stores)

    async def _ready(self) -> None:
        """Load all launches and start watching, once, at the first use. Raises Unreachable."""
        if self._closed:
            raise Unreachable(f"the local cluster {self.name} was closed")
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        try:
            await asyncio.shield(self._opening)
        except Unreachable:
            self._opening = None
            raise

    async def _open(self) -> None:
        capacity = await self._measure()
        self._dispatch = self._make_dispatch()
        try:
            await asyncio.to_thread(make_root, self._root)
            if self._settings.gpus is None and capacity.gpus_known:
                await asyncio.to_thread(keep_gpus, self._root, capacity.gpus)
            self._wake.open()
            await self._dispatch.load(capacity, self._list_waiting())
        except OSError as error:
            self._dispatch.close()
            self._wake.close()
            raise Unreachable(
                f"the local cluster's folder {self._root} cannot be used: {error.strerror or error}",
                remedy="free space or mend its rights; `span check local` shows more",
            ) from error
        asyncio.get_running_loop().add_reader(self._wake.fd, self._wake.read)
        await self._dispatch.schedule()
        self._follower = asyncio.create_task(self._follow())
        if not capacity.gpus_known:
            self._gpu_search = asyncio.create_task(self._search_gpus())

    async def _search_gpus(self) -> None:
        """Ask nvidia-smi again until it tells which GPUs there are: jobs with GPUs wait for that."""
        pause = GPU_SECONDS
        _log.warning("cluster %s: %s; jobs with GPUs wait", self.name, GPUS_UNKNOWN)
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, MOST_GPU_SECONDS)
            capacity = await asyncio.to_thread(measure_capacity, self._settings, self._root)
            if not capacity.gpus_known:
                continue
            _log.info("cluster %s: nvidia-smi tells of %d GPUs", self.name, len(capacity.gpus))
            async with self._lock:
                self._capacity = capacity
                self._dispatch.learn_gpus(capacity)
            self._dispatch.attention.set()
            try:
                await asyncio.to_thread(keep_gpus, self._root, capacity.gpus)
            except OSError as error:
                _log.warning("cluster %s: its GPUs cannot be kept for the next start: %s", self.name, error)
            return

    async def _follow(self) -> None:
        """Release the resources of ended launches, and start the next ones."""
        dispatch = self._dispatch
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        while True:
            await self._wait()
            check_others = loop.time() - looked_at >= LOOK_SECONDS
            dispatch.attention.clear()
            woken, self._woken = self._woken, set()
            try:
                async with self._lock:
                    all_launches, self._wake.full = self._wake.full, False
                    await dispatch.settle(woken, check_others=check_others, all_launches=all_launches)
                    await dispatch.schedule()
            except (OSError, MemoryError) as error:
                _log.warning("cluster %s: %s", self.name, error)
                dispatch.stalled = True
            except Exception:
                # The loop must go on: launches that end later have to be noticed.
                _log.exception("cluster %s", self.name)
                dispatch.stalled = True
            if check_others:
                looked_at = loop.time()
                dispatch.reports.repeat_gone()

    async def _wait(self) -> None:
        """Wait for a wake-up by a supervisor, or while there are launches at most LOOK_SECONDS."""
        try:
            async with asyncio.timeout(LOOK_SECONDS if self._dispatch.busy else None):
                await self._dispatch.attention.wait()
        except TimeoutError:
            pass

    def _note_growth(self, handle: str) -> None:
        self._woken.add(handle)
        self._dispatch.attention.set()

    def _make_node(self, partition: Partition, default: bool) -> Node:
        bookings, capacity = self._dispatch.bookings, self._dispatch.bookings.capacity
        used = (bookings.cpu_milli, bookings.memory_mib, bookings.gpu_milli)
        full = bookings.cpu_milli >= capacity.cpu_milli
        return Node(
            name=self._node,
            partition=partition.name,
            state="allocated" if full else "mixed" if any(used) else "idle",
            cpus=capacity.cpu_milli / MILLI,
            cpus_used=bookings.cpu_milli / MILLI,
            memory=capacity.memory_mib,
            memory_used=bookings.memory_mib,
            gpus=len(capacity.gpus),
            gpus_used=bookings.gpu_milli / MILLI,
            gpu_kind=next((kind for kind in capacity.gpus if kind), ""),
            default=default,
            time_limit=partition.time_limit,
        )


def open_cluster(config: ClusterConfig) -> LocalCluster:
    """Open a local cluster: nothing is touched before its first use. InvalidRequest for a wrong setting."""
    return LocalCluster(config)


def _read_sent(place: LaunchFiles, capacity: Capacity) -> KeptForm | None:
    """The plan of a launch, as far as its files are there and can be read. Raises Unreachable."""
    try:
        plan, grant = read_document(place.plan), read_document(place.grant)
        if plan is None:
            return None
        job = hide_secrets(decode(Job, plan["job"]))
        return KeptForm(render_launch(job, capacity, grant), "the plan that its supervisor was given")
    except OSError as error:
        raise Unreachable(f"{place.plan} cannot be read: {error.strerror or error}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Unreachable(f"{place.plan} holds no plan: {error!r}") from error


def _find_entrance(root: str, python: str, request: ShellRequest) -> Entrance:
    """The runtime's command for a shell. Raises InvalidRequest for a foreign handle, Unreachable."""
    place = parse_handle(root, request.handle)
    try:
        archive = build_archive(f"{root}/cache")
    except OSError as error:
        raise Unreachable(f"the local cluster's folder {root} cannot be used: {error.strerror or error}") from error
    member = (place.folder, str(place.launch), "", request.task, str(request.node))
    return Entrance((python, "-I", "-S", archive, "shell", *member, *request.command))


def _rescue(root: str, job: int) -> RescuedData | None:
    names = {folder.mount.store for folder in list_folders(root, job) if folder.written}
    return rescue_job(root, job, {name: read_store(root, name) for name in names})
