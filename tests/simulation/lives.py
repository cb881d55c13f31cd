"""Daemons over one store: each dies at any await, and the next takes up what it leaves."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.clockwork import LIFE, Chaos, Life, SteppedStore

from overspan.bridge.controller.controller import Controller, ControllerParts
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.store.records import JobQuery, StoredJob, TimelineRow


class Lives:
    """What stays of a seed: chance, the store, the users; and the daemon that lives now."""

    def __init__(self, chaos: Chaos, make_parts: Callable[[SteppedStore], ControllerParts]) -> None:
        self.chaos = chaos
        self.store = SteppedStore.open_within(chaos)
        self.controller: Controller
        self.crashes = 0
        self.staying: set[asyncio.Task[Any]] = set()
        """Tasks of users and of the cluster, which no crash ends."""
        self._make_parts = make_parts
        self._life = Life()
        self._started = asyncio.Event()
        self._parts: ControllerParts | None = None

    def stay(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start what no crash ends."""
        task = asyncio.ensure_future(work)
        self.staying.add(task)
        return task

    async def keep(self) -> None:
        """Start a daemon whenever there is none, as commands do."""
        while True:
            self._life = Life()
            context = contextvars.copy_context()
            context.run(LIFE.set, self._life)
            opening = asyncio.create_task(self._open(), context=context)
            died = self.stay(self._life.died.wait())
            await asyncio.wait((opening, died), return_when=asyncio.FIRST_COMPLETED)
            if opening.done() and not opening.cancelled():
                opening.result()
            await died
            self._started.clear()
            self.crashes += 1
            self.bury()
            await asyncio.sleep(self.chaos.random.uniform(0, 2))

    async def _open(self) -> None:
        await self.store.set_meta("installation", "here")
        self._parts = self._make_parts(self.store)
        self.controller = await Controller.open(self._parts)
        self._started.set()

    def bury(self) -> None:
        """What belongs to a crashed daemon ends; the cluster and the users go on."""
        for task in asyncio.all_tasks() - self.staying:
            task.cancel()
        if self._parts is not None:
            self._parts.timers.close()

    async def ask(self, make: Callable[[Controller], Coroutine[Any, Any, Any]]) -> Any:
        """Ask the daemon; None where it died before it answered, or refused."""
        await self._started.wait()
        life = self._life
        context = contextvars.copy_context()
        context.run(LIFE.set, life)
        call = asyncio.create_task(make(self.controller), context=context)
        died = self.stay(life.died.wait())
        try:
            await asyncio.wait((call, died), return_when=asyncio.FIRST_COMPLETED)
            answered = call.done() and not call.cancelled()
            if not answered or isinstance(call.exception(), OverspanError) or life.dead:
                return None
            return call.result()
        finally:
            died.cancel()
            self.staying.discard(died)

    async def find(self) -> list[StoredJob]:
        """Every job in the store."""
        found: list[StoredJob] | None = await self.ask(lambda daemon: self.store.find(JobQuery()))
        assert found is not None
        return found

    async def timeline(self, job_id: int) -> list[TimelineRow]:
        """A job's transitions."""
        rows: list[TimelineRow] = await self.ask(lambda daemon: self.store.timeline(job_id))
        return rows
