"""What users ask of a daemon: submissions, and orders about any job, whenever it happens to live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from tests.simulation.lives import Lives

from overspan.bridge.controller.controller import Controller
from overspan.bridge.controller.orders.requests import CancelRequest, Update
from overspan.bridge.model import events
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job
from overspan.bridge.readers.submission import Submission

Ask = Callable[[Controller], Coroutine[Any, Any, Any]]
ENDING = ("cancel", "requeue", "restart")
KINDS = (*ENDING, "hold", "release", "priority")


class Orders:
    """The users of one seed, and what they were answered."""

    def __init__(self, lives: Lives, seconds: float, kinds: Iterable[str] = KINDS) -> None:
        self._lives, self._pause, self._kinds = lives, seconds / 8, tuple(kinds)
        self.submitted: dict[str, Submission] = {}
        self.answered: dict[int, str] = {}
        self.disturbed: set[int] = set()
        """Jobs of which somebody asked what may change their end."""

    async def submit(self, submission: Submission) -> None:
        """Submit once; the answer may never come."""
        self.submitted[submission.name] = submission
        done = await self._lives.ask(lambda daemon: _submit(daemon, submission))
        if done is not None:
            assert done.id not in self.answered, f"{done.id} was answered twice"
            self.answered[done.id] = submission.name

    async def meddle(self) -> None:
        """Some orders about any job."""
        chance = self._lives.chaos.random
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(chance.uniform(0, self._pause))
            if self.answered:
                await self._give(chance.choice(sorted(self.answered)))

    async def _give(self, job: int) -> None:
        ref = str(job)
        kind = self._lives.chaos.random.choice(self._kinds)
        if kind in ENDING:
            self.disturbed.add(job)
        orders: dict[str, Ask] = {
            "cancel": lambda daemon: daemon.orders.cancel(CancelRequest((ref,), by="me")),
            "hold": lambda daemon: daemon.orders.give(ref, lambda at, task: events.Hold(at, "me")),
            "release": lambda daemon: daemon.orders.give(ref, lambda at, task: events.Release(at, "me")),
            "requeue": lambda daemon: daemon.orders.give(ref, lambda at, task: events.Requeue(at, "me")),
            "restart": lambda daemon: daemon.orders.give(ref, lambda at, task: events.Restart(at, task, "me")),
            "priority": lambda daemon: daemon.orders.update(ref, Update({"priority": 7}, "me")),
        }
        await self._lives.ask(orders[kind])

    async def release(self, jobs: Iterable[Job]) -> None:
        """Let these jobs start."""
        for job in jobs:
            await self._release(str(job.id))

    async def _release(self, ref: str) -> None:
        await self._lives.ask(lambda daemon: daemon.orders.give(ref, lambda at, task: events.Release(at, "me")))


async def _submit(daemon: Controller, submission: Submission) -> Any:
    try:
        return await daemon.submit(submission)
    except InvalidRequest as error:
        raise AssertionError(f"a submission is wrong: {error.message}") from error
