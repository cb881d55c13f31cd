"""Tries the ways between clusters before a group that needs them starts: where nothing is known, its launch waits.

Only ports that tasks name are tried. A trial is a job as `span check --across` makes it. One that does not start soon,
or fails, says nothing: the group starts all the same, and the next trial of these ways comes an hour later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import NamedTuple

from overspan.adapters.contract import Refusal
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.features.reach.trial_job import TASKS, TrialRequest
from overspan.bridge.controller.features.reach.trials import ReachTrials
from overspan.bridge.controller.orders.orders import JobOrders
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.controller.submission.reach import check_reach, list_needs
from overspan.bridge.controller.submission.submitter import Submitter
from overspan.bridge.model.errors import OverspanError, Rejected, Unreachable
from overspan.bridge.model.job import Job
from overspan.bridge.model.reach import ReachNeed, judge_need
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.readers.submission import JOB_FILE, Submission

log = logging.getLogger(__name__)

START_SECONDS = 60
"""How long a trial may wait for its nodes and pods."""
AGAIN_SECONDS = 3600.0
"""How long after a trial that found out nothing the next one is made."""
MOST_PORTS = 8


class Ways(NamedTuple):
    """The ways between two clusters, both of them, by whose addresses pods have, for a user's jobs."""

    user: str
    clusters: tuple[str, ...]
    host_network: bool


class AutomaticTrials:
    """The trials under way, by their ways, with the groups that wait for them."""

    def __init__(self, submitter: Submitter, trials: ReachTrials, orders: JobOrders) -> None:
        self._submitter = submitter
        self._trials = trials
        self._orders = orders
        self._known = submitter.known_reach
        self._clock = submitter.recorder.clock
        self._under_way: dict[Ways, int] = {}
        """The job of each trial; 0 until it is submitted."""
        self._waiting: dict[Ways, set[int]] = {}
        self._silent_until: dict[Ways, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Stop; trials end by themselves."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hinder(self, job: Job) -> Refusal | None:
        """Why a group may not be sent to its clusters now, or never; None where nothing is against it."""
        if job.launch or tuple(task.name for task in job.spec.tasks) == TASKS:
            return None
        clusters = self._submitter.clusters
        try:
            check_reach(job, clusters, self._known)
            needs = [need for need in list_needs(job, clusters) if need.ports]
        except Rejected as error:
            return Refusal("", error.message, reason="BadConstraints", remedy=error.remedy)
        except Unreachable:
            # A cluster that cannot be opened says so itself.
            return None
        found = self._known.list_findings(job.spec.origin.user)
        for need in needs:
            ways = _name_ways(need, job.spec.origin.user)
            if judge_need(need, found) is None and self._silent_until.get(ways, 0.0) <= self._clock():
                self._begin(ways, job, needs)
                number = self._under_way[ways]
                trial = f"job {number} tries it" if number else "it is being tried"
                first, second = ways.clusters
                words = f"whether {first} and {second} reach each other is not known; {trial}"
                return Refusal("", words, transient=True, reason="Resources")
        return None

    def follow(self, before: Job | None, entry: JobEntry) -> None:
        """Take down what a trial has found out when it is over."""
        if entry.job.over and before is not None and not before.over and entry.job.id in self._under_way.values():
            ways = next(ways for ways, number in self._under_way.items() if number == entry.job.id)
            self._run(self._conclude(ways, entry.job.id))

    def _begin(self, ways: Ways, job: Job, needs: Iterable[ReachNeed]) -> None:
        self._waiting.setdefault(ways, set()).add(job.id)
        if ways not in self._under_way:
            self._under_way[ways] = 0
            mine = [need for need in needs if _name_ways(need, ways.user) == ways]
            self._run(self._submit(ways, job.spec, _list_ports(mine)))

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _submit(self, ways: Ways, spec: JobSpec, ports: tuple[int, ...]) -> None:
        origin = spec.origin
        image = next((task.image for task in spec.tasks if task.cluster in ways.clusters and task.image), "")
        request = TrialRequest(ways.clusters, ports, image, ways.host_network, START_SECONDS)
        try:
            file = await self._trials.prepare(request, ways.user)
            command = ("span", "check", "--across", *ways.clusters)
            places = {"directory": origin.directory or "/", "user": ways.user, "uid": origin.uid, "host": origin.host}
            submission = Submission(JOB_FILE, file.text, command=command, **places)  # type: ignore[arg-type]
            number = self._under_way[ways] = (await self._submitter.submit(submission)).id
            if self._is_over(number):
                # It was over before its number was in `_under_way`, so its end concluded nothing.
                await self._conclude(ways, number)
                return
            await asyncio.sleep(START_SECONDS)
            entry = self._submitter.recorder.registry.get(number)
            if entry is not None and not entry.job.over and entry.job.granted_at is None:
                await self._orders.cancel(CancelRequest((str(number),), by="the daemon"))
        except OverspanError as error:
            log.warning("whether %s reach each other is not tried: %s", " and ".join(ways.clusters), error)
            if not self._under_way.get(ways):
                self._settle(ways, silent=True)

    def _is_over(self, number: int) -> bool:
        entry = self._submitter.recorder.registry.get(number)
        return entry is None or entry.job.over

    async def _conclude(self, ways: Ways, number: int) -> None:
        silent = True
        try:
            outcome = await self._trials.conclude(str(number))
            silent = not outcome.findings
        except OverspanError as error:
            log.warning("what the trial %d has found out cannot be read: %s", number, error)
        self._settle(ways, silent=silent)

    def _settle(self, ways: Ways, *, silent: bool) -> None:
        """Have the groups that waited for a trial sent, or refused by what it found."""
        if silent:
            self._silent_until[ways] = self._clock() + AGAIN_SECONDS
        self._under_way.pop(ways, None)
        for job_id in sorted(self._waiting.pop(ways, ())):
            self._submitter.recorder.submit_soon(job_id)


def _name_ways(need: ReachNeed, user: str) -> Ways:
    names = tuple(sorted((need.source.cluster, need.target.cluster)))
    return Ways(user, names, need.source.host_network or need.target.host_network)


def _list_ports(needs: Iterable[ReachNeed]) -> tuple[int, ...]:
    """The first ports of each range that is named."""
    ports = [int(text.partition("-")[0]) for need in needs for text in need.ports]
    return tuple(dict.fromkeys(ports))[:MOST_PORTS]
