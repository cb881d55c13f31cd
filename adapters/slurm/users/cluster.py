"""A Slurm cluster for several users: one SlurmCluster for each user, joined into one adapter.

Each user's calls run as that user, so the user's own files, rights and limits apply.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from overspan.adapters.abilities import (
    Entrance,
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
    Launch,
    LogPart,
    LogRequest,
    Node,
    Observation,
    Order,
    Refusal,
    SomeUnanswered,
    Unmet,
)
from overspan.adapters.identities import AccountDatabase
from overspan.adapters.settings import refuse_setting
from overspan.adapters.slurm.cluster import SlurmCluster
from overspan.adapters.slurm.files.logs import find_written
from overspan.adapters.slurm.settings import COMMANDS, LOCAL, Settings, describe_place, read_settings
from overspan.adapters.slurm.transports.local import UserTransport
from overspan.adapters.slurm.users.concurrent_calls import ConcurrentCalls
from overspan.adapters.slurm.users.handles import (
    group_handles,
    join_owner,
    own_needs,
    owner_of,
    split_cursors,
    split_owner,
)
from overspan.adapters.slurm.users.observation import UserWatches
from overspan.adapters.slurm.users.users import Users
from overspan.bridge.model.checkpoints.listings import FolderListing, fail_listing
from overspan.bridge.model.errors import InvalidRequest, OverspanError, Unreachable
from overspan.bridge.model.job import Job

log = logging.getLogger(__name__)

USER = "{user}"
"""Placeholder for the owner's name in `root`."""
TOGETHER = 4
"""Users for whom `release` and `find_traces` ask Slurm in parallel."""
_WAITS = "what it waits for is another user's: Overspan waits for it"


class SharedCluster:
    """One cluster, reached as each user. Nothing is contacted before its first use."""

    def __init__(self, config: ClusterConfig, accounts: AccountDatabase | None = None) -> None:
        self.name = config.name
        self._config = replace(config, personal=False)
        self._settings = read_settings(self._config)
        check_settings(config, self._settings)
        self._accounts = accounts or AccountDatabase()
        self._clusters: dict[str, SlurmCluster] = {}
        # The query of nodes is the same for every user, so it runs as the daemon.
        self._site = SlurmCluster(self._config)
        self._submitting: ConcurrentCalls[Launch, Accepted | Refusal] = ConcurrentCalls(self._submit)
        self._ordering: ConcurrentCalls[Order, Refusal | None] = ConcurrentCalls(self._order)
        self._watches = UserWatches(lambda user, since, timeout: self.as_user(user).observe(since, timeout))
        self._users = Users(config.state)
        self._arrays: dict[int, str] = {}
        self._polled = False
        # What holds for one user's cluster holds for all, by the handle without its owner. The calls that are left are
        # those of the daemon's own queries; each user's are counted apart.
        one = self._site.traits
        self.traits = replace(
            one,
            decider_of=lambda handle: one.find_decider(split_owner(handle)[1]),
            keeps_limits=lambda handle: one.keeps_limits(split_owner(handle)[1]),
            waits_for=self.waits_for,
            find_written=self.find_written,
            find_end=None,
            mount_modes=frozenset(),
            login=None,
            find_job=None,
            prepare_step=self.prepare_step,
            as_user=self.as_user,
        )

    def place(self) -> str:
        """Where its commands run, and the folder of the run directories."""
        return describe_place(self._settings, self._config.root)

    def find_written(self, handle: str) -> Written:
        """A launch's working directory and output files; a shared daemon always sees its users' files."""
        return find_written(handle.partition("/")[2], True)

    def as_user(self, user: str) -> SlurmCluster:
        """The cluster as that user reaches it."""
        if not user:
            raise InvalidRequest("the job has no owner, so there is no user in whose name to send it")
        if user not in self._clusters:
            config = replace(self._config, root=self._config.root.replace(USER, user))
            self._clusters[user] = self._open(config, user)
        return self._clusters[user]

    def _open(self, config: ClusterConfig, user: str) -> SlurmCluster:
        return SlurmCluster(config, UserTransport(user, self._accounts, self._settings.path))

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        """Submit each launch as its owner. Raises SomeUnanswered while a user's call takes long."""
        by_user: dict[str, list[Launch]] = {}
        put_off: dict[str, Accepted | Refusal] = {}
        for launch in launches:
            user = owner_of(launch.job)
            needs = own_needs(user, launch.needs)
            if needs is None:
                put_off[launch.token] = Refusal(launch.token, _WAITS, True, "Dependency")
                continue
            if launch.job.element is not None:
                self._arrays[launch.job.element.array] = user
            by_user.setdefault(user, []).append(replace(launch, needs=needs))
        answers = {**put_off, **(await self._submitting.make(by_user))}
        return [answers[launch.token] for launch in launches]

    async def _submit(self, user: str, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        self._users.add(user)
        try:
            answers = await self.as_user(user).submit(launches)
        except SomeUnanswered as some:
            raise SomeUnanswered({token: _own(user, answer) for token, answer in some.answers.items()}) from None
        return [_own(user, answer) for answer in answers]

    def troubles(self) -> list[str]:
        """Troubles with single launches, of all users."""
        return [text for cluster in self._clusters.values() for text in cluster.troubles()]

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        """News of all users' launches: one query a tick for each user with launches."""
        parts = split_cursors(since)
        self._polled = True
        reports = tuple(await self._watches.observe(parts, timeout))
        return Observation(reports, time.time(), gap=self._watches.gap)

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        """Carry out each order as the owner of its launch. Raises SomeUnanswered while a user's call takes long."""
        by_user: dict[str, list[Order]] = {}
        put_off: dict[str, Refusal | None] = {}
        for order in orders:
            user, handle = split_owner(order.handle)
            needs = own_needs(user, order.needs)
            if needs is None:
                put_off[order.token] = Refusal(order.token, _WAITS, True, "Dependency")
            else:
                by_user.setdefault(user, []).append(replace(order, handle=handle, needs=needs))
        answers = {**put_off, **(await self._ordering.make(by_user))}
        return [answers[order.token] for order in orders]

    async def _order(self, user: str, orders: Sequence[Order]) -> list[Refusal | None]:
        return await self.as_user(user).order(orders)

    def waits_for(self, job: Job, needs: Sequence[Unmet]) -> bool:
        """Whether Slurm itself can wait for all of these; for another user's job the daemon does."""
        user = owner_of(job)
        own = own_needs(user, needs)
        return own is not None and self.as_user(user).waits_for(job, own)

    async def logs(self, request: LogRequest) -> LogPart:
        """Bytes of a log, read as the owner."""
        user, handle = split_owner(request.handle)
        return await self.as_user(user).logs(replace(request, handle=handle))

    async def steps(self, handles: Sequence[str]) -> list[Step]:
        """The steps of the launches, queried as their owners; without those of users whose query fails."""
        wanted = group_handles(handles)
        calls = [self.as_user(user).steps(own) for user, own in wanted.items()]
        found: list[Step] = []
        for user, steps in zip(wanted, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(steps, OverspanError):
                log.warning("the steps of %s cannot be listed: %s", user, steps.message)
            elif isinstance(steps, BaseException):
                raise steps
            else:
                found += [replace(step, handle=join_owner(user, step.handle)) for step in steps]
        return found

    async def enter(self, request: ShellRequest) -> Entrance:
        """The command that the owner runs for a shell."""
        user, handle = split_owner(request.handle)
        return await self.as_user(user).enter(replace(request, handle=handle))

    async def prepare_step(self, request: StepRequest) -> StepEntrance:
        """The command that the owner runs for a step."""
        user, handle = split_owner(request.handle)
        return await self.as_user(user).prepare_step(replace(request, handle=handle))

    async def list_checkpoints(self, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        """What is in folders of the cluster where checkpoints appear, each seen with the rights of the job's owner."""
        by_user: dict[str, list[WatchedFolder]] = {}
        for folder in folders:
            by_user.setdefault(owner_of(folder.job), []).append(folder)

        async def look(user: str, own: Sequence[WatchedFolder]) -> list[FolderListing]:
            try:
                return await self.as_user(user).list_checkpoints(own)
            except OverspanError as error:
                return [fail_listing(folder.request, error.message) for folder in own]

        found = await asyncio.gather(*(look(*item) for item in by_user.items()))
        listings = {listing.key: listing for part in found for listing in part}
        return [listings[folder.request.key] for folder in folders]

    async def nodes(self) -> list[Node]:
        """Every node, once for each of its partitions."""
        return await self._site.nodes()

    async def set_throttle(self, array: int, limit: int | None) -> None:
        """Let at most so many elements of an array run from now on."""
        user = self._arrays.get(array)
        if user is not None:
            await self.as_user(user).set_throttle(array, limit)
        elif self._clusters or not self._polled:
            await asyncio.gather(*(cluster.set_throttle(array, limit) for cluster in self._clusters.values()))
            if not self._clusters:
                raise Unreachable(f"{self.name} has not been polled yet")

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        """End what is left of sets that have been released, and remove files that no run refers to."""
        wanted = group_handles(handles)
        limit = asyncio.Semaphore(TOGETHER)

        async def release(user: str) -> None:
            async with limit:
                await self.as_user(user).release(installation, wanted.get(user, ()), tokens)
            if user not in wanted and not tokens:
                self._users.drop(user)

        users = sorted({*wanted, *self._users.names()})
        for error in await asyncio.gather(*map(release, users), return_exceptions=True):
            if error is not None:
                raise error

    async def find_traces(self) -> list[Trace]:
        """The launches in Slurm of every user whom this daemon has served. Raises Unreachable."""
        limit = asyncio.Semaphore(TOGETHER)

        async def find(user: str) -> list[Trace]:
            async with limit:
                traces = await self.as_user(user).find_traces()
                return [replace(trace, handle=join_owner(user, trace.handle)) for trace in traces]

        users = sorted({*self._clusters, *self._users.names()})
        return [trace for found in await asyncio.gather(*map(find, users)) for trace in found]

    async def remove_traces(self, traces: Sequence[Trace]) -> None:
        """End these launches, each as its owner. Raises Unreachable."""
        by_user: dict[str, list[Trace]] = {}
        for trace in traces:
            by_user.setdefault(split_owner(trace.handle)[0], []).append(trace)
        for user, own in by_user.items():
            await self.as_user(user).remove_traces(
                [replace(trace, handle=split_owner(trace.handle)[1]) for trace in own]
            )

    def notes(self, job: Job) -> tuple[str, ...]:
        """Parts of the job that are accepted and have no effect on this cluster."""
        return self.as_user(owner_of(job)).notes(job)

    def plan(self, job: Job) -> str:
        """The exact command and script of a submission. Nothing is sent and nothing is written."""
        return self.as_user(owner_of(job)).plan(job)

    async def read_sent(self, handle: str) -> KeptForm | None:
        """The scripts of a launch, as Slurm gives them to their owner."""
        user, own = split_owner(handle)
        return await self.as_user(user).read_sent(own)

    async def admit(self, job: Job) -> Refusal | None:
        """What sbatch says of the job to its owner, without submitting it. Raises Unreachable."""
        return await self.as_user(owner_of(job)).admit(job)

    async def close(self) -> None:
        """Let go of everything; the jobs go on."""
        await self._submitting.close()
        await self._ordering.close()
        await self._watches.close()
        for cluster in (*self._clusters.values(), self._site):
            await cluster.close()


def _own(user: str, answer: Accepted | Refusal) -> Accepted | Refusal:
    """The answer with its owner's name in the handle."""
    return replace(answer, handle=join_owner(user, answer.handle)) if isinstance(answer, Accepted) else answer


def check_settings(config: ClusterConfig, settings: Settings) -> None:
    """Refuse settings with which one process cannot act for several users. Raises InvalidRequest."""

    def refuse(key: str, value: Any, why: str, remedy: str) -> None:
        refuse_setting(config, key, f"{value} cannot be used by a shared daemon: {why}", remedy)

    if settings.transport != LOCAL:
        why = "its connection would be one account's for all"
        refuse("transport", settings.transport, why, "run the daemon where Slurm's commands work, without `host`")
    if not settings.shared:
        why = "it would read users' files itself"
        refuse("shared", "false", why, "run it where users' files are those of the jobs, or let users run their own")
    if settings.reader != COMMANDS:
        refuse("reader", settings.reader, "it would ask as one account for all", f"leave it out, or write {COMMANDS}")
    if config.root.startswith("/") and USER not in config.root:
        remedy = f"write a folder of each user's, such as ~/.overspan or /scratch/{USER}/overspan"
        refuse("root", config.root, "one folder is one user's", remedy)
