"""The soft gang: all-or-nothing start on clusters without gang scheduling, by deadline and back-off.

Pods wait at their start gates until all have nodes. A launch that is incomplete at the deadline deletes its pods, backs
off, and creates them again. The oldest waiting launch keeps its pods twice as long: that resolves the deadlock of two
groups that each hold what the other needs.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from overspan.adapters.kubernetes.launches.free_capacity import ask_capacity, find_shortage, read_demand
from overspan.adapters.kubernetes.launches.launches import Launches
from overspan.adapters.kubernetes.launches.ordering import RetryLater, make_pods
from overspan.adapters.kubernetes.launches.pod_actions import CreatePods
from overspan.adapters.kubernetes.launches.start_timeouts import judge_wait
from overspan.adapters.kubernetes.launches.withdrawal import HELD, drop_stuck, give_back, take_again
from overspan.adapters.kubernetes.manifests.rendering import PodSelection, render_pods
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch, describe_shortage
from overspan.adapters.kubernetes.observation.launch_summaries import LaunchSummary
from overspan.adapters.kubernetes.observation.projection import PodSnapshot, is_placed, is_stuck
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import OverspanError

_log = logging.getLogger(__name__)

LONGEST_WAIT = 300.0
"""Seconds between giving pods back and creating them again, the first time."""
LONGEST_ABSENCE = 1800.0
"""The longest back-off. It doubles each time, so that a group that never fits holds nodes for less and less time."""
PROBE_SECONDS = 15.0
"""How often free capacity is asked for while it is short."""


class WaitAction(Enum):
    """What is to be done about a launch that waits."""

    WAIT = "wait"
    GIVE_BACK = "give back"
    DROP = "drop"
    MAKE = "make"


@dataclass(frozen=True)
class WaitingLaunch:
    """The state of a waiting launch, as `choose_action` needs it. Times are seconds since the epoch."""

    summary: LaunchSummary
    snapshot: PodSnapshot
    gives_back: bool
    """Whether it gives pods back: a soft gang without a `start_timeout` of its own."""
    oldest: bool
    again_at: float = 0.0
    """When pods that were given back are made again; 0 for a launch that has given none back."""
    given_back: bool = False
    """Whether this process has given them back."""
    was_oldest: bool = False
    """Whether it was the oldest when it gave them back: then its back-off is not cut short."""
    at_start_gate: bool = False
    """Whether its pods wait at Overspan's own start gates."""


class MissingPods(NamedTuple):
    """Pods of a task's first attempt that are not there."""

    task: str
    attempt: int
    nodes: tuple[int, ...]


def choose_action(waiting: WaitingLaunch, timeout: float, now: float) -> WaitAction:
    """What is due for a launch that waits. Pure."""
    pods = list(waiting.snapshot.pods.values())
    if waiting.again_at:
        if any(pod.deleting_at is None for pod in pods) or (pods and not waiting.given_back):
            # Created meanwhile, or another process had begun to give them back.
            return WaitAction.GIVE_BACK
        if waiting.at_start_gate and any(is_stuck(pod, now) for pod in pods):
            return WaitAction.DROP
        promoted = waiting.oldest and not waiting.was_oldest
        # The time is kept in the cluster, for any daemon. One that is too far ahead: the clock was set back since.
        over = now >= waiting.again_at or HELD > waiting.again_at > now + LONGEST_ABSENCE
        due = not pods and (over or (promoted and waiting.again_at != HELD))
        return WaitAction.MAKE if due else WaitAction.WAIT
    if list_missing(waiting):
        return WaitAction.MAKE
    held = any(pod.node for pod in pods)
    if not waiting.gives_back or not held or all(map(is_placed, pods)):
        return WaitAction.WAIT
    limit = timeout * (2 if waiting.oldest else 1)
    return WaitAction.GIVE_BACK if now - max(pod.created_at for pod in pods) >= limit else WaitAction.WAIT


def list_missing(waiting: WaitingLaunch) -> list[MissingPods]:
    """The pods to create (again). A pod that vanished without being given back is reported as lost instead."""
    found = []
    for task in waiting.summary.tasks:
        keys = [(task.name, task.attempt, index) for index in range(task.nodes)]
        gone = () if waiting.again_at else waiting.snapshot.gone
        nodes = tuple(key[2] for key in keys if key not in waiting.snapshot.pods and key not in gone)
        if nodes:
            found.append(MissingPods(task.name, task.attempt, nodes))
    return found


def choose_wait(timeout: float, oldest: bool, returns: int = 0) -> float:
    """The back-off: seconds until pods that were given back are created again. Meanwhile other groups can start.

    `returns` is how often that was before.
    """
    wait = min(timeout, LONGEST_WAIT) * random.uniform(0.5, 1.0)
    return min((wait / 10 if oldest else wait) * 2.0 ** min(returns, 20), LONGEST_ABSENCE)


class SoftGang:
    """Drives the launches that wait for their pods."""

    def __init__(self, launches: Launches, settings: Settings) -> None:
        self._launches = launches
        self._settings = settings
        self._probes: dict[str, float] = {}
        """When free capacity is asked for again, by launch (monotonic time)."""

    async def look(self, launches: Iterable[WatchedLaunch], now: float) -> None:
        """Carry out what is due for each launch that has not been granted."""
        # Without its cursor it is unknown whether a launch waits: its pods may have ended long ago.
        known = (watched for watched in launches if watched.cursor_known and not watched.busy and not watched.gone)
        waiting = [watched for watched in known if not watched.cursor.granted]
        gathering = (watched for watched in waiting if watched.soft and watched.again_at != HELD)
        oldest = min(gathering, key=_age, default=None)
        await asyncio.gather(*(self._look(watched, watched is oldest, now) for watched in waiting))

    async def _look(self, watched: WatchedLaunch, oldest: bool, now: float) -> None:
        if watched.granting:
            return
        snapshot = self._launches.snapshot(watched)
        if watched.expiry is None:
            watched.expiry = judge_wait(watched, snapshot, self._settings.admission_timeout, now, time.monotonic())
        if watched.expiry is not None:
            watched.dirty = True
            self._launches.changed.set()
            return
        gives_back = watched.soft and watched.summary.start_timeout is None
        waiting = WaitingLaunch(
            *(watched.summary, snapshot, gives_back, oldest, watched.again_at, watched.given_back, watched.was_oldest),
            at_start_gate=watched.soft,
        )
        action = choose_action(waiting, self._settings.gang_timeout, now)
        if action is WaitAction.WAIT:
            return
        watched.busy += 1
        try:
            if action is WaitAction.GIVE_BACK:
                _log.info("launch %s gives its pods back: not all of them have a place", watched.token)
                # Read before the pods go: their conditions say what they lack.
                watched.shortage = describe_shortage(watched.summary, snapshot) or watched.shortage
                wait = choose_wait(self._settings.gang_timeout, oldest, watched.returns)
                watched.was_oldest = oldest
                await give_back(self._launches, watched, watched.again_at or now + wait)
            elif action is WaitAction.DROP:
                await drop_stuck(self._launches, watched, now)
            elif await self._has_capacity(watched, list_missing(waiting), now):
                await self._make(watched, list_missing(waiting))
        except (RetryLater, OverspanError) as error:
            _log.info("launch %s: %s: %s; trying again", watched.token, action.value, error)
        finally:
            watched.busy -= 1
            watched.dirty = True

    async def _has_capacity(self, watched: WatchedLaunch, missing: list[MissingPods], now: float) -> bool:
        """True if the pods that were given back may fit now, or if free capacity is unknown."""
        asks = bool(watched.again_at) and watched.soft and not self._settings.autoscaler
        # An autoscaler that the settings do not mention adds nodes for pending pods only: so try after a while.
        if not asks or now >= watched.again_at + LONGEST_ABSENCE:
            return True
        if time.monotonic() < self._probes.get(watched.token, 0.0):
            return False
        plan = await self._launches.read_plan(watched)
        if plan is None:
            watched.gone = True
            return False
        settings = self._settings.model_copy(update={"namespace": watched.namespace})
        demands = []
        for item in missing:
            (pod,) = render_pods(plan, settings, PodSelection(item.task, item.attempt, item.nodes[:1]))
            if pod["spec"].get("priorityClassName"):
                # The scheduler preempts others, but only for pods that exist.
                return True
            demands.append(read_demand(pod, len(item.nodes)))
        connection = self._launches.connection
        try:
            capacities = await connection.run(ask_capacity, connection, settings)
        except OverspanError as error:
            _log.info("launch %s: whether there is room is not known: %s", watched.token, error)
            capacities = None
        shortage = find_shortage(demands, capacities, settings) if capacities else ""
        if not shortage:
            self._probes.pop(watched.token, None)
            return True
        elapsed = time.monotonic()
        self._probes = {token: at for token, at in self._probes.items() if at > elapsed}
        self._probes[watched.token] = elapsed + PROBE_SECONDS
        watched.shortage = watched.shortage or shortage
        return False

    async def _make(self, watched: WatchedLaunch, missing: list[MissingPods]) -> None:
        if watched.again_at:
            await take_again(self._launches, watched)
        for item in missing:
            failed = await make_pods(
                self._launches, watched, self._settings, CreatePods(item.task, item.attempt, item.nodes, 0, "")
            )
            if failed:
                raise RetryLater(next(iter(failed.values())))


def _age(watched: WatchedLaunch) -> tuple[int, int]:
    return watched.summary.job, watched.summary.launch
