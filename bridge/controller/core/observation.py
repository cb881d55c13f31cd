"""Reads clusters' reports into facts: one loop for each cluster that has launches.

A cursor is stored in the transaction that stores the effect of the events before it, so each event counts exactly once,
whichever process dies. A cluster that does not answer is stale; no conclusion is drawn from its silence.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from overspan.adapters.contract import Decider, Observation, Report
from overspan.adapters.cursors import Cursors
from overspan.adapters.traits import Traits
from overspan.bridge.controller.core.backoff import next_try
from overspan.bridge.controller.core.bids import follow_bid
from overspan.bridge.controller.core.cluster_locations import ClusterLocations
from overspan.bridge.controller.core.clusters import Cluster
from overspan.bridge.controller.core.outbox import ORDER
from overspan.bridge.controller.core.recording import Recorder
from overspan.bridge.controller.core.unit_of_work import UnitOfWork
from overspan.bridge.controller.core.wakeups import Wakeup
from overspan.bridge.lifecycle.clocks import date_report
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.errors import Conflict, OverspanError, StoreFailed, Unreachable
from overspan.bridge.model.events import Granted, LaunchLost
from overspan.bridge.model.spec import Backoff

log = logging.getLogger(__name__)

SKEW = 5.0
"""Seconds by which a cluster's clock may differ from this machine's before its times are corrected."""
HELD_SECONDS = 0.2
"""Seconds after which a cluster is asked again that told a grant before it has answered a hold."""
GRACE = 0.05
"""Seconds that a call under way still gets when there is another launch to watch."""


class Observer:
    """Watches the launches of every cluster."""

    def __init__(self, recorder: Recorder, locations: ClusterLocations, backoff: Backoff, tick: float) -> None:
        self.recorder = recorder
        self.locations = locations
        self.clusters = locations.clusters
        self.backoff = backoff
        self.tick = tick
        self._loops: dict[str, asyncio.Task[None]] = {}
        self._wakeups: dict[str, Wakeup] = {}
        self._started = asyncio.Event()
        """Until it is set, reports are read but not stored: an owed order may have to be given again first."""
        self._failures: Counter[str] = Counter()
        """How many calls to each cluster have failed in a row."""

    def start(self) -> None:
        """Watch every live launch; the calls owed to clusters are under way by now."""
        self._started.set()
        for cluster in self.recorder.registry.watched_clusters():
            self.wake(cluster)

    def wake(self, name: str) -> None:
        """Watch another launch of a cluster."""
        cluster = self.clusters.find(name)
        if cluster is None:
            log.warning("the cluster %s is not configured any more; its jobs are left as they are", name)
        elif name not in self._loops:
            self._wakeups[name] = Wakeup()
            self._loops[name] = asyncio.ensure_future(self._run(name))
        else:
            self._wakeups[name].wake()

    async def close(self) -> None:
        """Stop; nothing is lost, since the cursors are stored."""
        loops = list(self._loops.values())
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    async def catch_up(self, seconds: float) -> None:
        """Read what happened while no daemon ran, from the clusters that are open, for at most `seconds` each.

        A cluster that is owed an order is left out: the answer has to come first, or the end that the order brought
        about would look like one of the job's own.
        """
        for cluster in self.clusters:
            since = dict(self.recorder.registry.cursors(cluster.name))
            if not since or not cluster.opened or self.recorder.outbox.of_queue((cluster.name, ORDER)):
                continue
            try:
                async with asyncio.timeout(seconds):
                    await self._write(cluster, await cluster.adapter.observe(since, 0))
            except (TimeoutError, OverspanError) as error:
                log.info("cluster %s is looked at later: %s", cluster.name, error, extra={"cluster": cluster.name})

    async def _run(self, name: str) -> None:
        """The loop of a cluster; it is found each time, since a pool may be another one of the same name by now."""
        while (cluster := self.clusters.find(name)) is not None:
            await self.observe_once(cluster)
        del self._loops[name]

    async def observe_once(self, cluster: Cluster) -> None:
        """Ask once and store the answer; or wait until there is a launch to ask about."""
        wakeup = self._wakeups.setdefault(cluster.name, Wakeup())
        seen = wakeup.count
        since = self._list_cursors(cluster)
        if not since:
            # Without launches there is nothing that could be missing.
            cluster.miss(self.recorder.clock(), "")
            cluster.unwatched()
            await wakeup.wait()
            return
        try:
            if cluster.displaced:
                await self.locations.find_again(cluster)
            observation = await self._ask(cluster, since, asyncio.ensure_future(wakeup.wait(seen=seen)))
            if not self._started.is_set():
                # The next question is from the same cursors.
                await self._started.wait()
            elif observation is not None:
                for subscription in cluster.subscriptions.values():
                    subscription.take(observation.reports, since)
                returns = self._judge(cluster, observation)
                put_off = await self._write(cluster, observation)
                if returns:
                    # While the cluster could not be opened, its decider was unknown. Decide what fell due meanwhile.
                    await self.recorder.change(
                        self.recorder.registry.watched(cluster.name).values(), lambda units: None
                    )
                if put_off:
                    await self._rest(cluster, self.recorder.clock() + HELD_SECONDS)
        except Exception as error:
            if not isinstance(error, OverspanError):
                log.error("observing cluster %s", cluster.name, exc_info=error)
            if not isinstance(error, StoreFailed | Conflict):
                cluster.failed(self.recorder.clock(), error, observed=True)
            await self._back_off(cluster)

    def _judge(self, cluster: Cluster, observation: Observation) -> bool:
        """Note gaps and trouble of an answer; whether the cluster answers again after failures."""
        cluster.miss(self.recorder.clock(), observation.gap)
        if observation.trouble:
            cluster.failed(self.recorder.clock(), Unreachable(observation.trouble), observed=True)
            return False
        cluster.note_answer(self.recorder.clock())
        cluster.answered(observed=True)
        return bool(self._failures.pop(cluster.name, 0))

    def _list_cursors(self, cluster: Cluster) -> dict[str, str]:
        """From where the cluster is asked, of the launches that are followed for others too."""
        cursors = self.recorder.registry.cursors(cluster.name)
        if cluster.opened and cluster.traits.follows_cursors and not cluster.subscriptions:
            return cursors
        found = dict(cursors)
        for subscription in cluster.subscriptions.values():
            found |= subscription.list_cursors()
        return found

    async def _ask(self, cluster: Cluster, since: dict[str, str], more: asyncio.Future[bool]) -> Observation | None:
        """The cluster's reports; None if another launch to watch (`more`) comes first."""
        call = asyncio.ensure_future(self._observe(cluster, since))
        try:
            # Who follows the daemon's own cursors sees the other launch without a new question.
            others = () if isinstance(since, Cursors) else (more,)
            await asyncio.wait((call, *others), return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                # Every call passes the cursors, so an abandoned one loses nothing.
                await asyncio.wait((call,), timeout=GRACE)
            return call.result() if call.done() else None
        finally:
            more.cancel()
            call.cancel()
            await asyncio.gather(call, more, return_exceptions=True)

    async def _observe(self, cluster: Cluster, since: dict[str, str]) -> Observation:
        return await cluster.adapter.observe(since, self.tick)

    async def _write(self, cluster: Cluster, observation: Observation) -> bool:
        """Store what is told; whether a grant has to be told again, because its launch is owed a hold."""
        watched = self.recorder.registry.watched(cluster.name)
        reports = {watched[report.handle]: report for report in observation.reports if report.handle in watched}
        now, traits = self.recorder.clock(), cluster.traits
        put_off: set[int] = set()

        def work(units: list[UnitOfWork]) -> None:
            for unit in units:
                report = reports[unit.job.id]
                daemon = traits.find_decider(report.handle) is Decider.DAEMON
                is_launch = unit.entry.handle == report.handle and unit.entry.watched
                if is_launch and daemon and unit.is_hold_owed and _tells_grant(report):
                    # Behind its start gate nothing has started, and the cluster's answer decides whether it may.
                    put_off.add(unit.job.id)
                elif is_launch or follow_bid(unit, cluster.name, report, now):
                    follow_report(unit, report, now, traits)

        if reports:
            await self.recorder.change(reports, work)
        return bool(put_off)

    async def _back_off(self, cluster: Cluster) -> None:
        """Wait before the next call, or until any other call to the cluster is answered."""
        self._failures[cluster.name] += 1
        at = next_try(self.backoff, self.recorder.clock(), self._failures[cluster.name], cluster.name)
        await self._rest(cluster, at, cluster.back)

    async def _rest(self, cluster: Cluster, until: float, *sooner: Wakeup) -> None:
        """Wait for a time, or until one of the wake-ups."""
        timer, due = f"observe:{cluster.name}", Wakeup()
        self.recorder.timers.set(timer, until, due.wake)
        waits = [asyncio.ensure_future(wakeup.wait()) for wakeup in (due, *sooner)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.recorder.timers.drop(timer)
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


def _tells_grant(report: Report) -> bool:
    return any(isinstance(event, Granted) for event in report.events)


def follow_report(unit: UnitOfWork, report: Report, now: float, traits: Traits) -> None:
    """Apply a launch's report to the unit, up to its end or to the job's next launch.

    Where the daemon decides, events whose time is off by more than SKEW are dated now.
    """
    launch, dated = unit.job.launch, traits.find_decider(report.handle) is Decider.DAEMON
    for event in report.events:
        if unit.job.launch != launch:
            break
        try:
            unit.follow(date_report(unit.job, event, now, SKEW) if dated else event, traits.requeued_by)
        except Exception:
            # One malformed event must not stop the others.
            log.exception("job %d: the event %r changes nothing", unit.job.id, event, extra={"job": unit.job.id})
    if report.gone and unit.job.launch == launch and not unit.job.over:
        unit.follow(LaunchLost(now, launch, Cause.NODE.value, "the cluster no longer knows the launch"))
    if report.native_id and unit.job.launch == launch and report.native_id != unit.entry.native_id:
        unit.native_id = report.native_id
    if report.cursor != unit.entry.cursor and unit.job.launch == launch:
        unit.cursor = report.cursor
