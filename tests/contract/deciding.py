"""The daemon's half beside an adapter that only carries out decisions, so that the suite sees whole stories.

It keeps what the store keeps: jobs, cursors and what was told, which outlive the adapter.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from overspan.adapters.abilities import Finding
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
from overspan.adapters.kubernetes.cluster import KubernetesCluster
from overspan.adapters.traits import Traits
from overspan.bridge.lifecycle.decision import decide
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job

LOOK_SECONDS = 0.2


@dataclass
class Kept:
    """What a store has of one launch."""

    job: Job
    cursor: str = ""
    told: list[Event] = field(default_factory=list)
    orders: set[str] = field(default_factory=set)
    owed: list[Order] = field(default_factory=list)


@dataclass
class Memory:
    """What outlives the adapter."""

    installation: str
    launches: dict[str, Kept] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    number: int = 0


class DaemonSide:
    """Decides for an adapter; as an adapter its cursors count what was told."""

    traits = Traits(decider=Decider.DAEMON)

    def __init__(self, adapter: KubernetesCluster, memory: Memory) -> None:
        self.adapter = adapter
        self.memory = memory
        self.name = adapter.name

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        sent = []
        for launch in launches:
            token = f"{self.memory.installation}-{launch.job.id}-{launch.job.launch}"
            self.memory.tokens[launch.token] = token
            sent.append(replace(launch, token=token))
        answers: list[Accepted | Refusal] = []
        for launch, answer in zip(launches, await self.adapter.submit(sent), strict=True):
            if isinstance(answer, Accepted):
                self.memory.launches.setdefault(answer.handle, Kept(launch.job))
                answers.append(Accepted(launch.token, answer.handle, answer.native_id))
            else:
                answers.append(replace(answer, token=launch.token))
        return answers

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        deadline, late = time.monotonic() + timeout, False
        while True:
            await self._give_owed()
            reports = self._report(since)
            if reports or late:
                return Observation(tuple(reports), time.time())
            # One look at least, however long the orders took.
            left = max(0.0, deadline - time.monotonic())
            late = not left
            unknown = await self._look([handle for handle in since if handle not in self.memory.launches], left)
            if unknown:
                return Observation(tuple(unknown), time.time())
            self._decide()

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        for order in orders:
            kept = self.memory.launches.get(order.handle)
            if kept is None or order.token in kept.orders or kept.job.over:
                continue
            kept.orders.add(order.token)
            self._note(kept, order.event)
        self._decide()
        await self._give_owed()
        return [None] * len(orders)

    async def logs(self, request: LogRequest) -> LogPart:
        return await self.adapter.logs(request)

    async def nodes(self) -> list[Node]:
        return await self.adapter.nodes()

    async def check(self) -> list[Finding]:
        return await self.adapter.check()

    def plan(self, job: Job) -> str:
        return self.adapter.plan(job)

    async def admit(self, job: Job) -> Refusal | None:
        return await self.adapter.admit(job)

    async def close(self) -> None:
        await self.adapter.close()

    def _note(self, kept: Kept, event: Event) -> None:
        before = kept.job
        kept.job = reduce(before, event)
        assert kept.job.late == before.late, f"{event} came late"
        kept.told.append(event)

    def _decide(self) -> None:
        for handle, kept in self.memory.launches.items():
            while found := decide(kept.job, time.time()).events:
                for event in found:
                    self._note(kept, event)
                    self.memory.number += 1
                    kept.owed.append(Order(f"order-{self.memory.number}", handle, event))

    async def _give_owed(self) -> None:
        self._decide()
        for kept in self.memory.launches.values():
            owed, kept.owed = kept.owed, []
            answers = await self._order(owed)
            kept.owed = [order for order, answer in zip(owed, answers, strict=True) if answer is not None]
            assert all(answer is None or answer.transient for answer in answers), answers

    async def _order(self, owed: Sequence[Order]) -> list[Refusal | None]:
        """The answers to orders. Looks meanwhile, as the daemon does: an order waits for its launch's first look."""
        call = asyncio.create_task(self.adapter.order(owed))
        # Most are answered at once.
        await asyncio.wait([call], timeout=LOOK_SECONDS)
        try:
            while not call.done():
                await self._look((), LOOK_SECONDS)
            return call.result()
        except SomeUnanswered as some:
            late = {order.token: Refusal(order.token, "not answered yet", True) for order in owed}
            return [{**late, **some.answers}[order.token] for order in owed]
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    async def _look(self, strangers: Iterable[str], timeout: float) -> list[Report]:
        """Take in what the adapter tells of live launches; gives what it tells of strangers."""
        live = {handle: kept.cursor for handle, kept in self.memory.launches.items() if not kept.job.over}
        observation = await self.adapter.observe({**live, **dict.fromkeys(strangers, "")}, min(timeout, LOOK_SECONDS))
        unknown = []
        for report in observation.reports:
            kept = self.memory.launches.get(report.handle)
            if kept is None:
                unknown.append(report)
                continue
            assert not report.gone, report
            for event in report.events:
                self._note(kept, event)
            kept.cursor = report.cursor
        return unknown

    def _report(self, since: Mapping[str, str]) -> list[Report]:
        reports = []
        for handle, cursor in since.items():
            kept = self.memory.launches.get(handle)
            begin = int(cursor or 0)
            if kept is not None and begin < len(kept.told):
                reports.append(Report(handle, tuple(kept.told[begin:]), str(len(kept.told))))
        return reports
