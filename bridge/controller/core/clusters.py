"""The configured clusters, their adapters, and what is known of their health."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from overspan.adapters.abilities import Located, StartGates, Written
from overspan.adapters.contract import Adapter, ClusterConfig, Decider, Launch, Opener, SharedFolder
from overspan.adapters.installed import LOCAL, POOL, find_opener, find_pool_opener, is_this_machine
from overspan.adapters.traits import FindKnown, Traits
from overspan.bridge.config.settings import Settings
from overspan.bridge.config.store_settings import open_access
from overspan.bridge.controller.core.shared_paths import HERE, SharedPaths
from overspan.bridge.controller.core.subscriptions import Subscription
from overspan.bridge.controller.core.wakeups import Wakeup
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound, OverspanError, Unreachable
from overspan.bridge.model.job import Job
from overspan.bridge.model.parts import split_clusters
from overspan.bridge.model.resources import GpuDefaults
from overspan.bridge.model.storage import StoreAccess

log = logging.getLogger(__name__)

OpenerOf = Callable[[str], Opener]
OpenAcross = Callable[[str, Mapping[str, "Cluster"]], Adapter]
"""Makes the adapter of the place that several clusters are together, of that name."""

ACROSS = "across"
"""The kind of a place that is several clusters."""
UNKNOWN = Traits()
"""Of a cluster that cannot be asked; its supervisors decide, and ask nothing of the daemon."""
ANSWER_SECONDS = 5.0
"""Seconds within which a cluster has to answer to count as up, when a job can go to another."""
NO_GPU_DEFAULTS = GpuDefaults(0, 0)
"""In a pool, jobs that name no CPUs take one."""
HEARD_SECONDS = 2.0
"""Seconds for which an answer counts."""


@dataclass
class Cluster:
    """One configured cluster; its adapter is opened when it is first needed."""

    config: ClusterConfig
    opener_of: OpenerOf
    gpu_defaults: GpuDefaults = field(default_factory=GpuDefaults)
    """The CPUs and memory that a task's GPUs bring by default."""
    stale_since: float | None = None
    """Since when it has not answered; None while it does."""
    message: str = ""
    answered_at: float | None = None
    """When it last answered; None before its first answer."""
    answer_seconds: float | None = None
    """How long its last answer took, of those that do not wait for news."""
    gap: str = ""
    """What the cluster cannot tell at present, while it answers all else; `gap_since` is since when."""
    gap_since: float = 0.0
    back: Wakeup = field(default_factory=Wakeup)
    """Wakes when it answers again."""
    home: str = ""
    """The place where its launches are, while there are any; empty where that is not known."""
    has_launches: Callable[[], bool] = lambda: False
    """Whether it has, or may have, launches that are not over."""
    slots: int | None = None
    """How many jobs the settings let be there at once; None for no limit."""
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    """What others than the jobs here want to hear of, by the place that is made of this cluster and others."""
    _place: str = ""
    _adapter: Adapter | None = None
    _asking: asyncio.Task[tuple[str, bool]] | None = None
    _heard_at: float | None = None
    _unobserved: bool = False
    """Whether its reports fail: then the answer to another call does not end its staleness."""

    @property
    def name(self) -> str:
        """The name that -M takes."""
        return self.config.name

    @property
    def opened(self) -> bool:
        """Whether the adapter has been opened."""
        return self._adapter is not None

    @property
    def limited(self) -> bool:
        """Whether the settings limit how many jobs may be there at once."""
        return self.slots is not None

    @property
    def silence(self) -> str:
        """That it does not answer, since when and why; empty where it does."""
        if self.stale_since is None:
            return ""
        return f"cluster {self.name} has not answered since {format_timestamp(self.stale_since)}: {self.message}"

    @property
    def gives_back(self) -> bool:
        """Whether a waiting launch can be withdrawn for certain."""
        return self.traits.gives_back or self.holds_back

    @property
    def holds_back(self) -> bool:
        """Whether launches wait there at a start gate, so that a decision of the daemon alone ends them."""
        try:
            return not self.traits.gives_back and isinstance(self.adapter, StartGates)
        except OverspanError:
            return False

    @property
    def place(self) -> str:
        """The place that the configuration gives the name; handles are valid only there. Raises as `open`."""
        if not self._place:
            adapter = self.open()
            self._place = f"{self.config.kind} {adapter.place() if isinstance(adapter, Located) else ''}".strip()
        return self._place

    @property
    def displaced(self) -> bool:
        """Whether its launches are in another place than the configuration says now. Raises as `open`."""
        # Asked for each call of each job, and hardly ever so: the launches are looked for last.
        if not self.home or self.home == self._place:
            return False
        return self.has_launches() and self.home != self.place

    def settle(self, home: str) -> None:
        """Note the place where its launches are now; empty where it has none."""
        self.home = home

    @property
    def adapter(self) -> Adapter:
        """The adapter. Raises Unreachable when it cannot be opened, or would ask another place about its launches."""
        if self.displaced:
            raise Unreachable(
                f"jobs of {self.name} are at {self.home}, and the configuration says {self.place} now:"
                " they are left as they are, and others wait",
                remedy=f"put the entry {self.name} back, and give the new place a name of its own",
            )
        return self.open()

    def open(self) -> Adapter:
        """The adapter, wherever it leads. Raises Unreachable when it cannot be opened."""
        if self._adapter is None:
            try:
                opened = self.opener_of(self.config.kind)(self.config)
                _check_traits(opened, self.config)
                self._adapter = opened
            except OverspanError as error:
                if isinstance(error, InvalidRequest) and error.place is None:
                    error.place = self.config.positions.key(())
                raise
            except Exception as error:
                log.exception("cluster %s cannot be opened", self.name, extra={"cluster": self.name})
                raise Unreachable(f"the cluster {self.name} cannot be opened: {error}") from error
        return self._adapter

    def adapter_for(self, user: str) -> Adapter:
        """The adapter as a user has it, for what is asked without a job. Raises as `adapter` does."""
        adapter = self.adapter
        as_user = adapter.traits.as_user
        return adapter if as_user is None else as_user(user)

    @property
    def traits(self) -> Traits:
        """What its adapter states of it, wherever that leads; nothing where it cannot be opened."""
        try:
            return self.open().traits
        except OverspanError:
            return UNKNOWN

    async def find_trouble(self, now: float) -> str:
        """Why nothing can be sent there now: it cannot be opened, or does not answer. Empty where it does.

        Many jobs ask at the same time; the cluster is asked once.
        """
        return (await self._find_trouble(now))[0]

    async def find_silence(self, now: float) -> str:
        """Why nothing reaches it now; empty also where it refuses the question, since it may take submissions."""
        trouble, silent = await self._find_trouble(now)
        return trouble if silent else ""

    async def _find_trouble(self, now: float) -> tuple[str, bool]:
        if self._heard_at is not None and now - self._heard_at < HEARD_SECONDS and self.stale_since is None:
            return "", False
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask(now))
        trouble, silent = await asyncio.shield(self._asking)
        self._heard_at = None if trouble else now
        return trouble, silent

    async def _ask(self, now: float) -> tuple[str, bool]:
        """What hinders it, and whether that is silence."""
        began = time_call()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self.adapter.nodes()
        except TimeoutError:
            # It may be slow, and answer a submission.
            return f"no answer within {ANSWER_SECONDS:g} s", False
        except OverspanError as error:
            return error.message, isinstance(error, Unreachable)
        except Exception as error:
            log.exception("asking cluster %s", self.name)
            return f"{type(error).__name__}: {error}", False
        took = time_call() - began
        self.note_answer(now + took, took)
        self.answered()
        return "", False

    def open_subscription(self, place: str) -> Subscription:
        """The subscription of a place, which is made where it has none yet."""
        return self.subscriptions.setdefault(place, Subscription())

    async def close(self) -> None:
        """Stop asking, and close the adapter if it was opened."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        if self._adapter is not None:
            try:
                await self._adapter.close()
            except Exception:
                log.exception("closing cluster %s", self.name)

    def note_answer(self, now: float, seconds: float | None = None) -> None:
        """Note when it answered, and how long that took where it was asked for something at once."""
        self.answered_at = now
        if seconds is not None:
            self.answer_seconds = seconds

    def answered(self, *, observed: bool = False) -> None:
        """Note an answer. While reports fail, only a report (`observed`) ends staleness; others wake the observer."""
        if self.stale_since is not None:
            self.back.wake()
        if self._unobserved and not observed:
            return
        self._unobserved = False
        if self.stale_since is not None:
            log.info("cluster %s answers again", self.name, extra={"cluster": self.name})
        self.stale_since, self.message = None, ""

    def miss(self, now: float, gap: str) -> None:
        """Note what the cluster cannot tell at present; empty if it tells all."""
        if gap and not self.gap:
            self.gap_since = now
        if gap != self.gap:
            log.info("cluster %s: %s", self.name, gap or "all is answered again", extra={"cluster": self.name})
        self.gap = gap

    def move_clock(self, seconds: float) -> None:
        """The machine's clock was set by so much."""
        self._heard_at = None
        self.gap_since += seconds
        if self.answered_at is not None:
            self.answered_at += seconds
        if self.stale_since is not None:
            self.stale_since += seconds

    def unwatched(self) -> None:
        """Forget that reports failed: no launch is watched there now."""
        self._unobserved = False

    def failed(self, now: float, error: BaseException, *, observed: bool = False) -> None:
        """Note that a call was not answered (`observed`: the one for reports); no job is judged by that."""
        self._unobserved = self._unobserved or observed
        message = f"{type(error).__name__}: {error}"
        if isinstance(error, OverspanError):
            message = error.line
        if self.stale_since is None:
            self.stale_since = now
            log.warning("cluster %s does not answer: %s", self.name, message, extra={"cluster": self.name})
        self.message = message


def time_call() -> float:
    """The seconds of the loop's clock, for how long calls take."""
    return asyncio.get_running_loop().time()


class LaunchSource(Protocol):
    """What adapters whose launches are in memory ask of the store (`ClusterConfig`), by the cluster's name."""

    def list_waiting(self, name: str) -> Sequence[Launch]:
        """See `ClusterConfig.list_waiting`."""

    def list_cursors(self, name: str) -> Mapping[str, str]:
        """See `ClusterConfig.list_cursors`."""

    def find_launch(self, name: str, handle: str) -> Launch | None:
        """See `ClusterConfig.find_launch`."""


class Clusters:
    """All clusters by name, and the default one."""

    def __init__(
        self,
        settings: Settings,
        state_dir: str,
        opener_of: OpenerOf | None = None,
        *,
        personal: bool = False,
        has_launches: Callable[[str], bool] = lambda name: False,
        launches: LaunchSource | None = None,
        open_across: OpenAcross | None = None,
    ) -> None:
        self._open_across = open_across
        self._across: dict[str, Cluster] = {}
        self._launches = launches
        self._state_dir = state_dir
        self._has_launches = has_launches
        finder = opener_of or find_opener
        self.store_settings = settings.stores
        self.stores = _open_stores(settings)
        configs = [self._give_launches(config) for config in _configure(settings, state_dir, personal)]
        self._clusters: dict[str, Cluster] = {
            config.name: Cluster(
                config,
                finder,
                _read_gpu_defaults(settings, config.name),
                has_launches=functools.partial(has_launches, config.name),
                slots=_count_slots(settings, config.name),
            )
            for config in configs
        }
        self.shared_paths = _read_shared_paths(settings, self._clusters.values())
        self._open = frozenset(name for name, each in settings.clusters.items() if each.daemon_address)
        self._tunnelled = frozenset(name for name, each in settings.clusters.items() if each.daemon_tunnel)
        self.default = _choose_default(settings, self._clusters)

    def _give_launches(self, config: ClusterConfig) -> ClusterConfig:
        """The configuration with what the store knows of the cluster's launches."""
        source, config = self._launches, replace(config, stores=self.stores)
        if source is None:
            return config
        return replace(
            config,
            list_waiting=functools.partial(source.list_waiting, config.name),
            list_cursors=functools.partial(source.list_cursors, config.name),
            find_launch=functools.partial(source.find_launch, config.name),
        )

    def add_pool(self, name: str) -> Cluster:
        """Add a pool as a cluster. Raises Conflict where a cluster has that name."""
        if name in self._clusters:
            raise Conflict(f"there is a cluster of the name {name!r} already", remedy="name the pool otherwise")
        state = os.path.join(self._state_dir, "clusters", name)
        config = self._give_launches(ClusterConfig(name, POOL, state=state))
        has_launches = functools.partial(self._has_launches, name)
        cluster = Cluster(config, find_pool_opener, NO_GPU_DEFAULTS, has_launches=has_launches)
        self._clusters[name] = cluster
        return cluster

    async def remove_pool(self, name: str) -> None:
        """Remove a pool that has no launches any more."""
        cluster = self._clusters.pop(name, None)
        if cluster is not None:
            await cluster.close()

    def __iter__(self) -> Iterator[Cluster]:
        return iter(list(self._clusters.values()))

    def __len__(self) -> int:
        return len(self._clusters)

    def get(self, name: str) -> Cluster:
        """The cluster of that name, the default one for an empty name. Raises NotFound."""
        found = self.find(name or self.default)
        if found is None:
            raise NotFound(f"no cluster {name!r}", remedy=f"configured clusters: {', '.join(sorted(self._clusters))}")
        return found

    def find(self, name: str) -> Cluster | None:
        """The cluster of that name, or the place that several are together; None where one of them is not there."""
        return self._clusters.get(name) or self._across.get(name) or self._join(name)

    def list_single(self, name: str) -> tuple[str, ...]:
        """The clusters that a place consists of: several for the one of a group across."""
        return split_clusters(name) or (name,)

    def _join(self, name: str) -> Cluster | None:
        open_across = self._open_across
        parts = {part: self._clusters[part] for part in split_clusters(name) if part in self._clusters}
        if open_across is None or not parts or len(parts) < len(split_clusters(name)):
            return None

        def open_cluster(config: ClusterConfig) -> Adapter:
            return open_across(name, parts)

        joined = Cluster(
            ClusterConfig(name, ACROSS),
            lambda kind: open_cluster,
            has_launches=functools.partial(self._has_launches, name),
        )
        self._across[name] = joined
        return joined

    def is_open_to_jobs(self, name: str) -> bool:
        """Whether jobs of a cluster may be given orders for, and be submitted to, by commands inside jobs."""
        return self._open.issuperset(self.list_single(name))

    def has_tunnel(self, name: str) -> bool:
        """Whether the address at which a cluster's jobs reach the daemon is a tunnel's."""
        return name in self._tunnelled

    def kinds(self) -> dict[str, str]:
        """The kind of each cluster, by name."""
        return {cluster.name: cluster.config.kind for cluster in self}

    def find_traits(self, name: str) -> Traits:
        """What the adapter of a cluster states; nothing where it may not be asked now, as one that is displaced."""
        try:
            return self.get(name).adapter.traits
        except OverspanError:
            return UNKNOWN

    def decider_of(self, name: str, handle: str) -> Decider:
        """Who decides about a launch there."""
        return self.find_traits(name).find_decider(handle)

    def written_of(self, name: str, handle: str) -> Written:
        """Where a launch there works and writes."""
        return self.find_traits(name).find_written(handle) if handle else Written()

    def keeps_limits(self, name: str, handle: str) -> bool:
        """Whether only the cluster can change the wall time of a launch there."""
        return self.find_traits(name).keeps_limits(handle)

    def find_failover_timeout(self, name: str, job: Job) -> float | None:
        """How long a cluster has to start a job that could go elsewhere, by its own settings; None: for ever."""
        return self.find_traits(name).failover_timeout(job)

    def list_racers(self, job: Job) -> tuple[str, ...]:
        """The clusters of a job's list that may race for it; none where there are not two of them."""
        if not job.spec.race or job.spec.array is not None:
            return ()
        names = tuple(name for name in job.spec.clusters if not self.find_obstacle(name, job))
        return names if len(names) > 1 else ()

    def find_obstacle(self, name: str, job: Job) -> str:
        """Why a cluster takes no part in a race for a job; empty where it may."""
        try:
            adapter = self.get(name).adapter
        except OverspanError as error:
            return error.message
        return adapter.find_obstacle(job) if isinstance(adapter, StartGates) else "it starts a job by itself"

    def open_local(self) -> None:
        """Open the clusters that are this machine, so that a mistake in their settings shows at the start."""
        for cluster in self:
            if is_this_machine(cluster.config.kind) and not cluster.opened and not cluster.config.personal:
                cluster.open()

    async def forget(self, before: float, find_known: FindKnown) -> None:
        """Have opened clusters remove what is older than that time of jobs that are not known any more."""
        for cluster in self:
            if cluster.opened and (forget := cluster.traits.forget) is not None:
                await forget(before, find_known)

    async def close(self) -> None:
        """Close every adapter that was opened."""
        for cluster in (*self._across.values(), *self):
            await cluster.close()


def _open_stores(settings: Settings) -> dict[str, StoreAccess]:
    """The object stores whose credentials are there; of another one a submission says what it lacks."""
    found = {}
    for name, store in settings.stores.items():
        try:
            found[name] = open_access(name, store, os.environ)
        except InvalidRequest as error:
            log.warning("%s", error.message)
    return found


def _read_gpu_defaults(settings: Settings, name: str) -> GpuDefaults:
    if name not in settings.clusters:
        return GpuDefaults()
    own = settings.clusters[name].gpu_defaults
    return GpuDefaults(own.cpus_per_gpu, own.memory_per_cpu)


def _count_slots(settings: Settings, name: str) -> int | None:
    own = settings.clusters.get(name)
    limits = (own.max_running, own.max_submitted) if own is not None else ()
    return min((limit for limit in limits if limit is not None), default=None)


def _check_traits(adapter: Adapter, config: ClusterConfig) -> None:
    """Refuse an adapter that states no traits, or cannot be used by a daemon of several users."""
    if not isinstance(getattr(adapter, "traits", None), Traits):
        raise InvalidRequest(
            f"the adapter for clusters of kind {config.kind!r} states no traits: it is for another version of Overspan",
            remedy="install a version of its package that is for this one; docs/adapters.md says what it has to state",
        )
    if config.personal and adapter.traits.as_user is None:
        raise InvalidRequest(
            f"the shared daemon cannot use the cluster {config.name}: clusters of the kind"
            f" {config.kind} are not reached as each user",
            remedy="a daemon of your own can: put SPAN_SERVER= before the command",
        )


def _configure(settings: Settings, state_dir: str, personal: bool) -> Iterator[ClusterConfig]:
    """The clusters of the files, and `local` always but in a daemon of several users.

    A Slurm beside it has to be named in a file: not everything can be sent there yet, and an `sbatch` on PATH may be
    one that calls `span`.
    """
    found = {name: (part.kind, part.own, part.root) for name, part in settings.clusters.items()}
    if not personal:
        found.setdefault(LOCAL, (LOCAL, {}, ""))
    for name, (kind, own, root) in found.items():
        state = os.path.join(state_dir, "clusters", name)
        paths = _list_folders(settings, name)
        yield ClusterConfig(name, kind, own, root, state, personal, settings.find_positions(name), paths=paths)


def _list_folders(settings: Settings, name: str) -> dict[str, SharedFolder]:
    part = settings.clusters.get(name)
    folders = part.paths if part is not None else {}
    return {key: SharedFolder(each.path, each.volume, key in settings.paths) for key, each in folders.items()}


def _read_shared_paths(settings: Settings, clusters: Iterable[Cluster]) -> SharedPaths:
    """What this machine and each cluster call the folders that they share; the local cluster is this machine."""
    here = dict(settings.paths)
    roots: dict[str, Mapping[str, str]] = {HERE: here}
    for cluster in clusters:
        own = {name: folder.path for name, folder in cluster.config.paths.items()}
        roots[cluster.name] = {**here, **own} if is_this_machine(cluster.config.kind) else own
    return SharedPaths(roots)


def _choose_default(settings: Settings, clusters: Mapping[str, Cluster]) -> str:
    """What the file says, else `slurm` where it is, else `local`; never another one by accident."""
    if settings.default_cluster:
        if settings.default_cluster not in clusters:
            raise InvalidRequest(
                f"the default cluster {settings.default_cluster!r} is not there",
                remedy=f"clusters: {', '.join(sorted(clusters))}",
            )
        return settings.default_cluster
    if LOCAL not in clusters and len(clusters) == 1:
        return next(iter(clusters))
    return "slurm" if "slurm" in clusters else LOCAL
