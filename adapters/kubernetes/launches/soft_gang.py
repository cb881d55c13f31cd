"""Start together where the cluster has nothing for it: what a group holds without being whole is given back in time.

Pods wait behind their barriers until all have a place. A launch that is not whole in time gives its pods back, waits,
and makes them again. The oldest launch that waits keeps its pods twice as long, so that one of two groups that hold
what the other needs gets it all.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from overspan.adapters.kubernetes.launches.free_capacity import ask_rooms, find_shortage, read_need
from overspan.adapters.kubernetes.launches.launches import Launches
from overspan.adapters.kubernetes.launches.ordering import Failed, make_pods
from overspan.adapters.kubernetes.launches.start_timeouts import judge_wait
from overspan.adapters.kubernetes.launches.steps import Create
from overspan.adapters.kubernetes.launches.withdrawal import HELD, drop_stuck, give_back, take_again
from overspan.adapters.kubernetes.manifests.rendering import PodSet, render_pods
from overspan.adapters.kubernetes.observation.launch_progress import Story, describe_shortage
from overspan.adapters.kubernetes.observation.launch_summaries import Shape
from overspan.adapters.kubernetes.observation.projection import View, is_placed, is_stuck
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import OverspanError

_log = logging.getLogger(__name__)

LONGEST_WAIT = 300.0
"""Seconds between giving back and asking again, the first time."""
LONGEST_ABSENCE = 1800.0
"""The same after many times: each is twice as long as the one before, so that what never fits holds less and less."""
PROBE_SECONDS = 15.0
"""How often room is looked for while there is none."""


class Move(Enum):
    """What is to be done about a launch that waits."""

    WAIT = "wait"
    GIVE_BACK = "give back"
    DROP = "drop"
    MAKE = "make"


@dataclass(frozen=True)
class Waiting:
    """A launch that waits, as the choice of a move needs it. Times are seconds since the epoch."""

    shape: Shape
    view: View
    gives_back: bool
    """Whether its pods wait behind Overspan's own barriers, and nobody else gathers them."""
    oldest: bool
    again_at: float = 0.0
    """When pods that were given back are made again; 0 for a launch that has given none back."""
    given_back: bool = False
    """Whether this process has given them back."""
    was_oldest: bool = False
    """Whether it was the oldest when it gave them back: then it has had its chance."""
    barred: bool = False
    """Whether its pods wait behind Overspan's own barriers, whoever gathers them."""


class Absent(NamedTuple):
    """Pods of a task's first attempt that are not there."""

    task: str
    attempt: int
    nodes: tuple[int, ...]


def choose_move(waiting: Waiting, timeout: float, now: float) -> Move:
    """What is due for a launch that waits. Pure."""
    pods = list(waiting.view.pods.values())
    if waiting.again_at:
        if any(pod.deleting_at is None for pod in pods) or (pods and not waiting.given_back):
            # Made meanwhile, or another process began with it.
            return Move.GIVE_BACK
        if waiting.barred and any(is_stuck(pod, now) for pod in pods):
            return Move.DROP
        promoted = waiting.oldest and not waiting.was_oldest
        due = not pods and (now >= waiting.again_at or (promoted and waiting.again_at != HELD))
        return Move.MAKE if due else Move.WAIT
    if list_absent(waiting):
        return Move.MAKE
    held = any(pod.node for pod in pods)
    if not waiting.gives_back or not held or all(map(is_placed, pods)):
        return Move.WAIT
    patience = timeout * (2 if waiting.oldest else 1)
    return Move.GIVE_BACK if now - max(pod.created_at for pod in pods) >= patience else Move.WAIT


def list_absent(waiting: Waiting) -> list[Absent]:
    """The pods that have to be made (again). One that vanished without having been given back is told instead."""
    found = []
    for task in waiting.shape.tasks:
        keys = [(task.name, task.attempt, index) for index in range(task.nodes)]
        gone = () if waiting.again_at else waiting.view.gone
        nodes = tuple(key[2] for key in keys if key not in waiting.view.pods and key not in gone)
        if nodes:
            found.append(Absent(task.name, task.attempt, nodes))
    return found


def choose_wait(timeout: float, oldest: bool, returns: int = 0) -> float:
    """Seconds until pods that were given back are made again: others have the chance that one just had.

    `returns` is how often that was before.
    """
    wait = min(timeout, LONGEST_WAIT) * random.uniform(0.5, 1.0)
    return min((wait / 10 if oldest else wait) * 2.0 ** min(returns, 20), LONGEST_ABSENCE)


class Gatherer:
    """Looks after the launches that wait."""

    def __init__(self, launches: Launches, settings: Settings) -> None:
        self._launches = launches
        self._settings = settings
        self._probes: dict[str, float] = {}
        """When room is looked for again, by launch."""

    async def look(self, stories: Iterable[Story], now: float) -> None:
        """Do what is due for each launch that has not been granted."""
        # Before its first look nobody knows whether a launch waits: its pods may have gone long ago.
        known = (story for story in stories if story.looked and not story.busy and not story.gone)
        waiting = [story for story in known if not story.cursor.granted]
        gathering = (story for story in waiting if story.soft and story.again_at != HELD)
        oldest = min(gathering, key=_age, default=None)
        await asyncio.gather(*(self._look(story, story is oldest, now) for story in waiting))

    async def _look(self, story: Story, oldest: bool, now: float) -> None:
        if story.granting:
            return
        view = self._launches.view(story)
        if story.verdict is None:
            story.verdict = judge_wait(story, view, self._settings.admission_timeout, now)
        if story.verdict is not None:
            story.dirty = True
            self._launches.changed.set()
            return
        gives_back = story.soft and story.shape.start_timeout is None
        waiting = Waiting(
            *(story.shape, view, gives_back, oldest, story.again_at, story.given_back, story.was_oldest),
            barred=story.soft,
        )
        move = choose_move(waiting, self._settings.gang_timeout, now)
        if move is Move.WAIT:
            return
        story.busy += 1
        try:
            if move is Move.GIVE_BACK:
                _log.info("launch %s gives its pods back: not all of them have a place", story.token)
                # The last moment at which the pods can tell what they lack.
                story.shortage = describe_shortage(story.shape, view) or story.shortage
                wait = choose_wait(self._settings.gang_timeout, oldest, story.returns)
                story.was_oldest = oldest
                await give_back(self._launches, story, story.again_at or now + wait)
            elif move is Move.DROP:
                await drop_stuck(self._launches, story, now)
            elif await self._has_room(story, list_absent(waiting), now):
                await self._make(story, list_absent(waiting))
        except (Failed, OverspanError) as error:
            _log.info("launch %s: %s: %s; trying again", story.token, move.value, error)
        finally:
            story.busy -= 1
            story.dirty = True

    async def _has_room(self, story: Story, absent: list[Absent], now: float) -> bool:
        """Whether all pods that were given back may have a place now; as far as anybody knows, where nobody does."""
        asks = bool(story.again_at) and story.soft and not self._settings.autoscaler
        # Nodes may be made for pods that ask, where nobody said so: in the end they ask.
        if not asks or now >= story.again_at + LONGEST_ABSENCE:
            return True
        if now < self._probes.get(story.token, 0.0):
            return False
        blueprint = await self._launches.read_blueprint(story)
        if blueprint is None:
            story.gone = True
            return False
        settings = self._settings.model_copy(update={"namespace": story.namespace})
        needs = []
        for item in absent:
            (pod,) = render_pods(blueprint, settings, PodSet(item.task, item.attempt, item.nodes[:1]))
            if pod["spec"].get("priorityClassName"):
                # What others use may be had: the scheduler preempts them for pods that are there.
                return True
            needs.append(read_need(pod, len(item.nodes)))
        connection = self._launches.connection
        try:
            rooms = await connection.run(ask_rooms, connection, settings)
        except OverspanError as error:
            _log.info("launch %s: whether there is room is not known: %s", story.token, error)
            rooms = None
        shortage = find_shortage(needs, rooms, settings) if rooms else ""
        if not shortage:
            self._probes.pop(story.token, None)
            return True
        self._probes = {token: at for token, at in self._probes.items() if at > now}
        self._probes[story.token] = now + PROBE_SECONDS
        story.shortage = story.shortage or shortage
        return False

    async def _make(self, story: Story, absent: list[Absent]) -> None:
        if story.again_at:
            await take_again(self._launches, story)
        for item in absent:
            failed = await make_pods(
                self._launches, story, self._settings, Create(item.task, item.attempt, item.nodes, 0, "")
            )
            if failed:
                raise Failed(next(iter(failed.values())))


def _age(story: Story) -> tuple[int, int]:
    return story.shape.job, story.shape.launch
