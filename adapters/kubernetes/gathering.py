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

from overspan.adapters.kubernetes.facts import View, is_placed
from overspan.adapters.kubernetes.launches import Launches
from overspan.adapters.kubernetes.ordering import Failed, make_pods
from overspan.adapters.kubernetes.overdue import judge_wait
from overspan.adapters.kubernetes.settings import Settings
from overspan.adapters.kubernetes.shapes import Shape
from overspan.adapters.kubernetes.steps import Create
from overspan.adapters.kubernetes.stories import Story
from overspan.adapters.kubernetes.withdrawing import HELD, give_back, take_again
from overspan.bridge.model.errors import OverspanError

_log = logging.getLogger(__name__)

LONGEST_WAIT = 300.0
"""Seconds between giving back and asking again, at most."""


class Move(Enum):
    """What is to be done about a launch that waits."""

    WAIT = "wait"
    GIVE_BACK = "give back"
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
        due = not pods and (now >= waiting.again_at or (waiting.oldest and waiting.again_at != HELD))
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


def choose_wait(timeout: float, oldest: bool) -> float:
    """Seconds until pods that were given back are made again: others have the chance that one just had."""
    wait = min(timeout, LONGEST_WAIT) * random.uniform(0.5, 1.0)
    return wait / 10 if oldest else wait


class Gatherer:
    """Looks after the launches that wait."""

    def __init__(self, launches: Launches, settings: Settings) -> None:
        self._launches = launches
        self._settings = settings

    async def look(self, stories: Iterable[Story], now: float) -> None:
        """Do what is due for each launch that has not been granted."""
        # Before its first look nobody knows whether a launch waits: its pods may have gone long ago.
        known = (story for story in stories if story.looked and not story.busy and not story.gone)
        waiting = [story for story in known if not story.cursor.granted]
        gathering = (story for story in waiting if story.soft and story.again_at != HELD)
        oldest = min(gathering, key=_age, default=None)
        await asyncio.gather(*(self._look(story, story is oldest, now) for story in waiting))

    async def _look(self, story: Story, oldest: bool, now: float) -> None:
        view = self._launches.view(story)
        if story.verdict is None:
            story.verdict = judge_wait(story, view, self._settings.admission_timeout, now)
        if story.verdict is not None:
            story.dirty = True
            self._launches.changed.set()
            return
        gives_back = story.soft and story.shape.start_timeout is None
        waiting = Waiting(story.shape, view, gives_back, oldest, story.again_at, story.given_back)
        move = choose_move(waiting, self._settings.gang_timeout, now)
        if move is Move.WAIT:
            return
        story.busy += 1
        try:
            if move is Move.GIVE_BACK:
                _log.info("launch %s gives its pods back: not all of them have a place", story.token)
                wait = choose_wait(self._settings.gang_timeout, oldest)
                await give_back(self._launches, story, story.again_at or now + wait)
            else:
                await self._make(story, list_absent(waiting))
        except (Failed, OverspanError) as error:
            _log.info("launch %s: %s: %s; trying again", story.token, move.value, error)
        finally:
            story.busy -= 1
            story.dirty = True

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
