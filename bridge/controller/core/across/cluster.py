"""The place that several clusters are together, as an adapter: a group across is one launch there.

Each cluster is given the whole job and runs the tasks that are its own (`take_part`). The daemon decides: all parts
wait at their start gates until each has what it asked for, and each decision goes to the cluster of its task. Before a
task starts, its cluster is told where the members elsewhere are.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from overspan.adapters.abilities import (
    Admission,
    Check,
    Entrance,
    Exec,
    Finding,
    KeptForm,
    Notes,
    OtherMembers,
    Plan,
    Sent,
    ShellRequest,
    StartGates,
)
from overspan.adapters.contract import (
    Accepted,
    Decider,
    Launch,
    LogPart,
    LogRequest,
    Node,
    Observation,
    Order,
    Refusal,
    Report,
    SomeUnanswered,
)
from overspan.adapters.traits import Traits
from overspan.bridge.controller.core.across.gate_orders import GateOrders
from overspan.bridge.controller.core.across.gate_waits import find_dearest, find_due, find_limit, judge_waits
from overspan.bridge.controller.core.across.projection import (
    LaunchCursor,
    LaunchHandle,
    parse_cursor,
    parse_handle,
    project,
)
from overspan.bridge.controller.core.clusters import Cluster
from overspan.bridge.controller.core.shared_paths import SharedPaths
from overspan.bridge.model import events
from overspan.bridge.model.errors import InvalidRequest, OverspanError, TimedOut, Unreachable
from overspan.bridge.model.job import Job, Placement
from overspan.bridge.model.parts import list_parts, rank_parts, take_part

T = TypeVar("T")

_log = logging.getLogger(__name__)

_STARTS = (events.Launch, events.NodeRelaunch)
_UNSUPPORTED = (events.Suspend, events.Resume)
_FOR_GATES = (events.Hold, events.Release)


class AcrossCluster:
    """Several clusters as one. `clusters` has them by name; `wake` makes the loop of one of them ask anew.

    `describe_access` says what the commands of a job's tasks are given on a cluster to reach the daemon,
    `describe_remains` what still runs on its clusters of a job's lost launch, empty for nothing;
    `hinder` why a job is not to be sent now, or never; `list_further` where the further members of elastic tasks are,
    of the launch with a handle on a place.
    """

    def __init__(
        self,
        name: str,
        clusters: Mapping[str, Cluster],
        paths: SharedPaths,
        wake: Callable[[str], None],
        describe_access: Callable[[Job, str], str],
        describe_remains: Callable[[Job, Collection[str]], str],
        hinder: Callable[[Job], Refusal | None],
        list_further: Callable[[str, str], Sequence[Placement]],
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        self._clusters = clusters
        self._paths = paths
        self._wake = wake
        self._describe_access = describe_access
        self._describe_remains = describe_remains
        self._hinder = hinder
        self._list_further = list_further
        self._clock = clock
        self._gates = GateOrders(clusters)
        self._subscriptions = {part: cluster.open_subscription(name) for part, cluster in clusters.items()}
        self._cursors: dict[str, LaunchCursor] = {}
        """Of the launches that are watched, with what has been told and is not stored yet."""
        self._unreadable: set[str] = set()
        """Handles of launches that a later version wrote."""
        self._told: dict[tuple[str, str], object] = {}
        """Which members elsewhere a part was told of, by handle and cluster."""
        self._telling: asyncio.Task[None] | None = None
        self.traits = Traits(decider=Decider.DAEMON, keeps_limits=self.keeps_limits, longest_time=self.longest_time)

    # --- the contract -------------------------------------------------------------------------------------------------

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        """Submit each part, or find it. What one cluster refuses is refused; the others release their parts.

        Raises Unreachable where no launch has all its answers: the place counts as silent until both answer again.
        """
        answers, silence = dict[str, Accepted | Refusal](), ""
        for launch in launches:
            try:
                answers[launch.token] = await self._submit(launch)
            except Unreachable as error:
                silence = error.message
        if silence and not answers:
            raise Unreachable(silence)
        if silence:
            raise _name_silence(answers, silence)
        return [answers[launch.token] for launch in launches]

    async def _submit(self, launch: Launch) -> Accepted | Refusal:
        names, answers = list_parts(launch.job), dict[str, Accepted | Refusal]()
        remains = self._describe_remains(launch.job, names)
        if remains:
            # Where one part was lost, the others run until their grace is over; none may run beside its next attempt.
            return Refusal(launch.token, remains, True, "Cleaning")
        hindrance = self._hinder(launch.job) if launch.wanted else None
        if hindrance is not None:
            return replace(hindrance, token=launch.token)
        for rank in rank_parts(launch.job):
            answers |= await _gather({name: self._submit_part(name, launch) for name in rank})
            if launch.wanted and any(isinstance(answer, Refusal) for answer in answers.values()):
                break
        refused = {name: answer for name, answer in answers.items() if isinstance(answer, Refusal)}
        final = {name: answer for name, answer in refused.items() if not answer.transient}
        for name, answer in (final or refused).items():
            return replace(answer, token=launch.token, message=f"{name}: {answer.message}")
        accepted = {name: answer for name, answer in answers.items() if isinstance(answer, Accepted)}
        tasks = {name: tuple(spec.name for spec in launch.job.spec.tasks if spec.cluster == name) for name in names}
        limits = {name: find_limit(launch.job, name) for name in names if self._returns(name)}
        dearest = find_dearest(launch.job)
        handle = LaunchHandle({name: answer.handle for name, answer in accepted.items()}, tasks, limits, dearest)
        native = ",".join(f"{name}:{answer.native_id}" for name, answer in accepted.items() if answer.native_id)
        return Accepted(launch.token, str(handle), native)

    async def _submit_part(self, name: str, launch: Launch) -> Accepted | Refusal:
        # Where the daemon can take a part back, it keeps the time; else the part itself gives up.
        limit = None if self._returns(name) else find_limit(launch.job, name)
        job = replace(launch.job, spec=replace(launch.job.spec, start_timeout=limit))
        part = replace(launch, job=self._take(job, name), access=self._describe_access(launch.job, name))
        (answer,) = await _named(name, self._clusters[name].adapter.submit([part]))
        return answer

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        """What the loops of the clusters hear of the parts."""
        handles, stored = self._read(since)
        self._cursors = {text: self._cursors.get(text, cursor) for text, cursor in stored.items()}
        self._told = {key: told for key, told in self._told.items() if key[0] in since}
        self._begin_telling(handles)
        self._gates.follow(handles, stored)
        for name in self._clusters:
            cursors = {
                handle.parts[name]: stored[text].cursor_of(name)
                for text, handle in handles.items()
                if name in handle.parts and not stored[text].over
            }
            if self._subscriptions[name].follow(cursors):
                self._wake(name)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            wakeups = [self._gates.answered, *(subscription.fresh for subscription in self._subscriptions.values())]
            seen = [wakeup.count for wakeup in wakeups]
            reports = self._collect(handles, stored)
            silences = [cluster.silence for cluster in self._clusters.values() if cluster.silence]
            left = deadline - loop.time()
            if reports or left <= 0:
                if not reports and len(silences) == len(self._clusters):
                    raise Unreachable("; ".join(silences))
                return Observation(tuple(reports), time.time(), "; ".join(silences))
            due = min((self._find_due(text, handle) for text, handle in handles.items()), default=math.inf)
            left = max(min(left, due - self._clock()), 0.0)
            waits = [
                asyncio.ensure_future(wakeup.wait(left, count)) for wakeup, count in zip(wakeups, seen, strict=True)
            ]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
                await asyncio.gather(*waits, return_exceptions=True)

    def _read(self, since: Mapping[str, str]) -> tuple[dict[str, LaunchHandle], dict[str, LaunchCursor]]:
        """Handles and cursors of the launches that this version can read; each other one is left alone."""
        handles, stored, unreadable = dict[str, LaunchHandle](), dict[str, LaunchCursor](), set[str]()
        for text, cursor in since.items():
            try:
                handle, stored[text] = parse_handle(text), parse_cursor(cursor)
                handles[text] = handle
            except ValueError as error:
                unreadable.add(text)
                if text not in self._unreadable:
                    _log.warning("a launch is left alone until the version that wrote it runs again: %s", error)
        self._unreadable = unreadable
        return handles, stored

    def _collect(self, handles: Mapping[str, LaunchHandle], stored: Mapping[str, LaunchCursor]) -> list[Report]:
        news = {
            (name, report.handle): report
            for name, subscription in self._subscriptions.items()
            for report in subscription.list_news()
        }
        found = []
        for text, handle in handles.items():
            reports = [(name, news[name, part]) for name, part in handle.parts.items() if (name, part) in news]
            told = project(handle, stored[text], reports, self._clock())
            self._gates.note_news(text, told.cursor, reports)
            waits = judge_waits(handle, told.cursor, self._gates.list_settled(text, told.cursor), self._clock())
            self._cursors[text] = waits.cursor
            news_told = (*told.events, *waits.events)
            if news_told or told.gone or waits.cursor != stored[text]:
                found.append(Report(text, news_told, str(waits.cursor), told.gone, waits.cursor.native_id))
        return found

    def _find_due(self, text: str, handle: LaunchHandle) -> float:
        cursor = self._cursors[text]
        return find_due(handle, cursor, self._gates.list_settled(text, cursor))

    def _returns(self, name: str) -> bool:
        return self._clusters[name].traits.returns_grants

    def _begin_telling(self, handles: Mapping[str, LaunchHandle]) -> None:
        """Tell in the background: a cluster that hangs must not keep the news of another."""
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell_changes(handles))

    async def _tell_changes(self, handles: Mapping[str, LaunchHandle]) -> None:
        """Tell parts where members elsewhere are now; each once by a new daemon, which cannot know what was told."""
        for text, handle in handles.items():
            for name in handle.parts:
                cursor = self._cursors.get(text, LaunchCursor())
                if not cursor.granted or cursor.over:
                    continue
                try:
                    await self._tell_part(text, handle, name)
                except OverspanError as error:
                    _log.info("%s is told of members elsewhere later: %s", name, error)

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        """Send each order to the clusters that it is for; one that does not answer keeps no order of another."""
        answers, silent = dict[str, Refusal | None](), dict[str, str]()
        for order in orders:
            names = self._name_clusters(order)
            try:
                if silent.keys().isdisjoint(names):
                    answers[order.token] = await self._order(order, names)
            except Unreachable as error:
                silent.update(dict.fromkeys(names, error.message))
        if silent:
            raise _name_silence(answers, "; ".join(dict.fromkeys(silent.values())))
        return [answers[order.token] for order in orders]

    def _name_clusters(self, order: Order) -> tuple[str, ...]:
        handle, task = parse_handle(order.handle), getattr(order.event, "task", "")
        names = (handle.cluster_of(task),) if task else tuple(handle.parts)
        if isinstance(order.event, events.SetTime):
            names = tuple(name for name in names if self._keeps_limits(name, handle))
        return names

    async def _order(self, order: Order, names: Sequence[str]) -> Refusal | None:
        if isinstance(order.event, _UNSUPPORTED):
            return Refusal(order.token, "a group across clusters is not suspended: `span requeue` or `span scancel`")
        handle = parse_handle(order.handle)
        if isinstance(order.event, _STARTS):
            refusal = await self._tell_members(order, handle, names[0])
            if refusal is not None:
                return refusal
        if isinstance(order.event, _FOR_GATES):
            if order.handle not in self._cursors:
                return Refusal(order.token, "where its parts are is not known yet", transient=True)
            cursor = self._cursors[order.handle]
            if not GateOrders.may_order(cursor):
                return Refusal(order.token, "a part is being asked for again", transient=True)
            names = [name for name in names if not (self._returns(name) and GateOrders.is_passed_over(cursor, name))]
            if isinstance(order.event, events.Hold) and not GateOrders.may_hold(cursor, names):
                return Refusal(order.token, "a part is being taken back", transient=True)
        answers = await _gather({name: self._order_part(name, order, handle.parts[name]) for name in names})
        refusals = [answer for answer in answers.values() if answer is not None]
        if isinstance(order.event, events.SetPeers):
            await self._tell_changes({order.handle: handle})
        return next((each for each in refusals if not each.transient), refusals[0] if refusals else None)

    async def _order_part(self, name: str, order: Order, handle: str) -> Refusal | None:
        (answer,) = await _named(name, self._clusters[name].adapter.order([replace(order, handle=handle)]))
        return answer

    async def _tell_members(self, order: Order, handle: LaunchHandle, name: str) -> Refusal | None:
        """Tell a cluster where the members elsewhere are, before it starts something that looks for them.

        With the first start all clusters that answer are told: where one refuses that, no side is to run alone.
        """
        if order.handle not in self._cursors or not self._cursors[order.handle].granted:
            if order.again:
                # An earlier daemon may have had it carried out: a refusal would say that nothing of it runs.
                raise Unreachable("where the members are is not known yet")
            return Refusal(order.token, "where the members are is not known yet", transient=True)
        untold = [other for other in handle.parts if other != name and (order.handle, other) not in self._told]
        for told in (name, *(other for other in untold if not self._clusters[other].silence)):
            try:
                await self._tell_part(order.handle, handle, told)
            except Unreachable:
                if told == name:
                    raise
            except OverspanError as error:
                return Refusal(order.token, f"{told}: {error.message}", remedy=error.remedy)
        return None

    async def _tell_part(self, text: str, handle: LaunchHandle, name: str) -> None:
        members, adapter = self._cursors[text].list_members(name), self._clusters[name].adapter
        further = tuple(
            member for member in self._list_further(self.name, text) if handle.cluster_of(member.task) != name
        )
        if self._told.get((text, name)) != (members, further) and isinstance(adapter, OtherMembers):
            await _named(name, adapter.tell_members(handle.parts[name], members, further))
            self._told[text, name] = (members, further)

    async def logs(self, request: LogRequest) -> LogPart:
        """Bytes of a log, from the cluster of its task."""
        cluster, handle = self._find_part(request.handle, request.task)
        return await cluster.adapter.logs(replace(request, handle=handle))

    async def nodes(self) -> list[Node]:
        """The nodes of all."""
        found = await asyncio.gather(*(cluster.adapter.nodes() for cluster in self._clusters.values()))
        return [node for nodes in found for node in nodes]

    async def close(self) -> None:
        """Nothing else is open: the clusters themselves are others' too."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
        await self._gates.close()

    # --- abilities ----------------------------------------------------------------------------------------------------

    def find_obstacle(self, job: Job) -> str:
        """Why a part cannot wait at a start gate."""
        for name, cluster in self._clusters.items():
            adapter = cluster.adapter
            obstacle = (
                adapter.find_obstacle(take_part(job, name))
                if isinstance(adapter, StartGates)
                else "its launches start by themselves"
            )
            if obstacle:
                return f"{name}: {obstacle}"
        return ""

    async def admit(self, job: Job) -> Refusal | None:
        """The refusal of the first cluster that could never run its part."""
        obstacle = self.find_obstacle(job)
        if obstacle:
            return Refusal("", obstacle)
        for name in list_parts(job):
            adapter = self._clusters[name].adapter
            refusal = await adapter.admit(self._take(job, name)) if isinstance(adapter, Admission) else None
            if refusal is not None:
                return replace(refusal, message=f"{name}: {refusal.message}")
        return None

    def notes(self, job: Job) -> tuple[str, ...]:
        """The notes of all."""
        return tuple(
            note
            for name in list_parts(job)
            if isinstance(adapter := self._clusters[name].adapter, Notes)
            for note in adapter.notes(self._take(job, name))
        )

    def plan(self, job: Job) -> str:
        """What each would be sent."""
        texts = []
        for name in list_parts(job):
            adapter = self._clusters[name].adapter
            if not isinstance(adapter, Plan):
                raise InvalidRequest(f"the cluster {name} cannot show a plan")
            texts.append(f"# --- on {name} ---\n{adapter.plan(self._take(job, name))}")
        return "\n".join(texts)

    async def enter(self, request: ShellRequest) -> Entrance:
        """What to run for a shell at a member, by its cluster."""
        cluster, handle = self._find_part(request.handle, request.task)
        if not isinstance(cluster.adapter, Exec):
            raise InvalidRequest(f"the cluster {cluster.name} has no shells")
        return await cluster.adapter.enter(replace(request, handle=handle))

    async def read_sent(self, handle: str) -> KeptForm | None:
        """What each part was sent as."""
        texts, sources = [], []
        for name, part in parse_handle(handle).parts.items():
            adapter = self._clusters[name].adapter
            kept = await adapter.read_sent(part) if isinstance(adapter, Sent) else None
            if kept is not None:
                texts.append(f"# --- on {name} ---\n{kept.text}")
                sources.append(f"{name}: {kept.source}")
        return KeptForm("\n".join(texts), "; ".join(sources)) if texts else None

    async def check(self) -> list[Finding]:
        """The checks of all."""
        found = []
        for cluster in self._clusters.values():
            if isinstance(cluster.adapter, Check):
                found += await cluster.adapter.check()
        return found

    def keeps_limits(self, text: str) -> bool:
        """Whether some part's cluster has to change its own limits."""
        handle = parse_handle(text)
        return any(self._keeps_limits(name, handle) for name in handle.parts)

    def _keeps_limits(self, name: str, handle: LaunchHandle) -> bool:
        return self._clusters[name].traits.keeps_limits(handle.parts[name])

    async def longest_time(self, text: str, task: str) -> int | None:
        """The longest wall time of a task, where its cluster has one."""
        cluster, handle = self._find_part(text, task)
        longest = cluster.traits.longest_time
        return None if longest is None else await longest(handle, task)

    def _find_part(self, text: str, task: str) -> tuple[Cluster, str]:
        """The cluster of a task, and the handle of the launch's part there."""
        handle = parse_handle(text)
        name = handle.cluster_of(task)
        return self._clusters[name], handle.parts[name]

    def _take(self, job: Job, name: str) -> Job:
        return self._paths.move(take_part(job, name), name)


def _name_silence(answers: Mapping[str, Any], silence: str) -> SomeUnanswered:
    """That some calls have no answer, in the words of who did not give it."""
    error = SomeUnanswered(answers)
    error.message = silence
    return error


async def _named(name: str, call: Awaitable[T]) -> T:
    """The answer of a cluster's call; silence names the cluster."""
    try:
        return await call
    except (Unreachable, TimedOut) as error:
        # Not `Unsent`: the parts on other clusters may have been sent.
        raise Unreachable(f"{name}: {error.message}", remedy=error.remedy, place=error.place) from error


async def _gather(calls: Mapping[str, Awaitable[Any]]) -> dict[str, Any]:
    """The answers of all calls by name; what one raises is raised when all have ended."""
    results = await asyncio.gather(*calls.values(), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return dict(zip(calls, results, strict=True))
