"""Tells clusters to take parts back from their start gates, and to ask for them again.

What is owed follows from the stored cursors, so the next daemon owes the same. Orders go in the background: a cluster
that hangs must not keep the news of another.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Collection, Mapping, Sequence

from overspan.adapters.contract import Order, Report
from overspan.bridge.controller.core.across.projection import (
    GateStage,
    LaunchCursor,
    LaunchHandle,
    PartProgress,
    is_away,
)
from overspan.bridge.controller.core.clusters import Cluster
from overspan.bridge.controller.core.wakeups import Wakeup
from overspan.bridge.model import events
from overspan.bridge.model.errors import OverspanError

_log = logging.getLogger(__name__)

PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between tries where a cluster does not answer, or asks for another one; then the next question sends anew."""


class GateOrders:
    """The orders that the parts of launches are owed at their start gates."""

    def __init__(self, clusters: Mapping[str, Cluster]) -> None:
        self._clusters = clusters
        self._settled: dict[tuple[str, str], tuple[GateStage, int]] = {}
        """Of which stage and return a part's cluster has answered the order, by handle and cluster."""
        self._count = itertools.count()
        self._followed: Collection[str] = ()
        self._sending: dict[tuple[str, str], asyncio.Task[None]] = {}
        self.answered = Wakeup()
        """Wakes when a cluster has answered."""

    def follow(self, handles: Mapping[str, LaunchHandle], stored: Mapping[str, LaunchCursor]) -> None:
        """Send what is owed by stored cursors, except what is being sent."""
        self._followed = {text for text, cursor in stored.items() if not cursor.over}
        self._settled = {key: state for key, state in self._settled.items() if key[0] in stored}
        self._sending = {key: task for key, task in self._sending.items() if not task.done()}
        for text, handle in handles.items():
            cursor = stored[text]
            for name in () if cursor.granted or cursor.over else handle.parts:
                if (text, name) not in self._sending and self._is_owed(text, cursor, name):
                    sending = self._send(text, name, handle.parts[name], cursor.parts[name])
                    self._sending[text, name] = asyncio.create_task(sending)

    def note_news(self, text: str, cursor: LaunchCursor, reports: Sequence[tuple[str, Report]]) -> None:
        """Note which parts that are away have told a grant all the same: their hold came before their first cursor."""
        for name, report in reports:
            if is_away(cursor, name) and any(isinstance(event, events.Granted) for event in report.events):
                self._settled.pop((text, name), None)

    def list_settled(self, text: str, cursor: LaunchCursor) -> tuple[str, ...]:
        """The parts of a launch whose cluster has answered the order of their present stage."""
        return tuple(
            name for name, part in cursor.parts.items() if self._settled.get((text, name)) == (part.stage, part.returns)
        )

    async def close(self) -> None:
        """Stop; the next daemon sends what is owed."""
        for task in self._sending.values():
            task.cancel()
        await asyncio.gather(*self._sending.values(), return_exceptions=True)

    @staticmethod
    def may_order(cursor: LaunchCursor) -> bool:
        """Whether a user's hold or release is not overtaken by one of these orders."""
        return cursor.granted or all(part.stage is not GateStage.RETURNS for part in cursor.parts.values())

    @staticmethod
    def may_hold(cursor: LaunchCursor, names: Collection[str]) -> bool:
        """Whether a user's hold for these parts keeps the launch from its start: one of them asks for its nodes."""
        parts = (cursor.parts.get(name, PartProgress()) for name in names)
        return cursor.granted or any(part.stage is GateStage.ASKS and not part.members for part in parts)

    @staticmethod
    def is_passed_over(cursor: LaunchCursor, name: str) -> bool:
        """Whether a user's hold or release is not for a part: it is away, or waits at its gate for its limit."""
        part = cursor.parts.get(name)
        return part is not None and (part.stage is GateStage.AWAY or bool(part.members))

    def _is_owed(self, text: str, cursor: LaunchCursor, name: str) -> bool:
        part = cursor.parts.get(name)
        if part is None or part.stage is GateStage.ASKS:
            return False
        return self._settled.get((text, name)) != (part.stage, part.returns)

    async def _send(self, text: str, name: str, handle: str, part: PartProgress) -> None:
        event = events.Hold(time.time()) if part.stage is GateStage.AWAY else events.Release(time.time())
        for pause in (*PAUSES, 0.0):
            if text not in self._followed:
                # A hold would have the cluster take a launch again that it was told to let go.
                return
            # Each try has a token of its own: a cluster may have carried out an earlier one before it was due.
            order = Order(f"gate-{handle}-{time.time_ns()}-{next(self._count)}", handle, event)
            try:
                (answer,) = await self._clusters[name].adapter.order([order])
            except OverspanError as error:
                _log.info("%s is told later to %s a part: %s", name, type(event).__name__.lower(), error)
                await asyncio.sleep(pause)
                continue
            if answer is None or not answer.transient:
                self._settled[text, name] = (part.stage, part.returns)
                self.answered.wake()
                return
            await asyncio.sleep(pause)
