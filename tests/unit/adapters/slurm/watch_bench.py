"""A watch of groups over a transport that the test answers for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.adapters.slurm.links import SITE, Link
from tests.unit.adapters.slurm.records import record

from overspan.adapters.contract import ClusterConfig, Order, Refusal, Report
from overspan.adapters.slurm.cluster import SlurmCluster
from overspan.adapters.slurm.commands.queries import Queries, Site
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.groups.handles import GroupHandle, GroupPart
from overspan.adapters.slurm.groups.ordering import GroupOrderer
from overspan.adapters.slurm.groups.submission import PartSubmitter
from overspan.adapters.slurm.handles import Handle
from overspan.adapters.slurm.observation.watch import Watch
from overspan.adapters.slurm.orders.delivered import DeliveredOrders
from overspan.adapters.slurm.orders.ordering import Orderer
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.submission.arrays import Lookup
from overspan.bridge.model import events
from overspan.bridge.model.errors import OverspanError, Unreachable
from overspan.bridge.model.events import Event, event_to_document

TICK = 0.001


class Asked(Queries):
    def __init__(self, link: Link) -> None:
        super().__init__(link, 10)
        self.link = link
        self.records: dict[int, QueueRecord] = {}
        self.asked = 0
        self.down = False
        self.gate: asyncio.Event | None = None

    async def site(self) -> Site:
        return SITE

    async def look(self, ids: Sequence[int]) -> Lookup:
        self.asked += 1
        if self.down:
            raise Unreachable("no controller")
        if self.gate is not None:
            await self.gate.wait()
        return Lookup(found for number, found in self.records.items() if number in ids)

    async def runs(self, names: Sequence[str]) -> dict[str, list[Any]]:
        return {name: [] for name in names}


def open_over(asked: Asked) -> SlurmCluster:
    """The adapter over these answers, which looks all the time."""
    settings = Settings.model_construct(tick=TICK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("overspan.adapters.slurm.cluster.open_queries", lambda *given: asked)
        patch.setattr("overspan.adapters.slurm.cluster.read_settings", lambda config: settings)
        return SlurmCluster(ClusterConfig("c", "slurm", {}))


class Replacer(PartSubmitter):
    """Submits nothing; gives the next native id, or the error that it was told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.error = ""
        self.refusal = ""

    async def replace(self, handle: GroupHandle, order: Order, event: events.Launch) -> int | Refusal:
        if self.error:
            raise OverspanError(self.error)
        if self.refusal:
            return Refusal(order.token, self.refusal)
        self.asked.append((event.task, event.attempt))
        return 200 + len(self.asked)


def make_orderer(asked: Queries, orders: DeliveredOrders, watch: Watch, replacer: Replacer | None = None) -> Orderer:
    """An orderer that submits nothing."""
    return Orderer(asked, orders, watch, GroupOrderer(replacer or Replacer(), watch, asyncio.Lock()))


class Bench:
    """A group with native id 42 whose run directory is a folder here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.link = Link()
        self.asked = Asked(self.link)
        self.orders = DeliveredOrders()
        self.watch = Watch(self.asked, self.orders, TICK)
        self.orderer = make_orderer(self.asked, self.orders, self.watch)
        self.handle = GroupHandle(7, 0, 30, str(folder), (GroupPart(42),))
        self.job = self.handle.list_jobs()[0]
        self.place = ""

    def open_cluster(self) -> SlurmCluster:
        """The adapter over these answers; from then on its watch is the one that looks."""
        cluster = open_over(self.asked)
        self.watch = cluster.watch
        return cluster

    def be(self, state: str) -> None:
        self.asked.records[42] = record(42, "t", state, 0)

    def write(self, *happened: Event, end: bool = False) -> None:
        lines = [json.dumps(event_to_document(event)) for event in happened] + ['{"end":true}'] * end
        with Path(self.job.journal).open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    async def look(self, times: int = 1, handle: Handle | None = None) -> list[Event]:
        """Look for the group, or for a job, until everything that was asked is answered; the events that were told."""
        found: list[Event] = []
        for _ in range(times):
            since = {str(handle or self.handle): self.place}
            self.watch.journals.next_read = self.watch.next_ask = self.watch.next_accounts = 0.0
            await self.watch.look(since)
            while self.watch.busy:
                await asyncio.sleep(0)
            for report in self.watch.collect(since):
                self.place = report.cursor
                found += report.events
        return found

    def report(self) -> Report | None:
        return next(iter(self.watch.collect({str(self.handle): self.place})), None)

    async def order(self, event: Event, token: str = "t") -> Refusal | None:
        return (await self.orderer.order([Order(token, str(self.handle), event)]))[0]

    @property
    def given(self) -> list[str]:
        """The kinds of orders in the group's file."""
        path = Path(self.handle.orders)
        return [json.loads(line)["event"]["event"] for line in path.read_text().splitlines()] if path.exists() else []
