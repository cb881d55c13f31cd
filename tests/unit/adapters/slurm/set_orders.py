"""An orderer of sets over a transport that the test answers for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.unit.adapters.slurm.links import Link
from tests.unit.adapters.slurm.records import record
from tests.unit.adapters.slurm.samples import NOW
from tests.unit.adapters.slurm.watch_bench import Asked

from overspan.adapters.contract import Order, Refusal, Report
from overspan.adapters.slurm.observation.watch import Watch
from overspan.adapters.slurm.orders.delivered import DeliveredOrders
from overspan.adapters.slurm.orders.ordering import Orderer
from overspan.adapters.slurm.sets.handles import PartCursor, SetCursor, SetHandle, SetPart
from overspan.adapters.slurm.sets.ordering import SetOrderer
from overspan.adapters.slurm.sets.submission import SetSubmitter
from overspan.bridge.model import events
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.events import Event, event_to_document


class Replacer(SetSubmitter):
    """Submits nothing; gives the next native id, or the error that it was told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.error = ""
        self.refusal = ""

    async def replace(self, handle: SetHandle, order: Order, event: events.Launch) -> int | Refusal:
        if self.error:
            raise OverspanError(self.error)
        if self.refusal:
            return Refusal(order.token, self.refusal)
        self.asked.append((event.task, event.attempt))
        return 200 + len(self.asked)


class Bench:
    """A set of two tasks, native jobs 101 and 102, whose run directory is a folder here."""

    def __init__(self, folder: Path) -> None:
        self.link = Link()
        self.asked = Asked(self.link)
        self.orders = DeliveredOrders()
        self.watch = Watch(self.asked, self.orders, 0.001)
        self.replacer = Replacer()
        self.orderer = Orderer(
            self.asked, self.orders, self.watch, SetOrderer(self.replacer, self.watch, asyncio.Lock())
        )
        self.handle = SetHandle(7, 0, 30, True, "inst-7-0", str(folder), (SetPart("a", 2, 101), SetPart("b", 1, 102)))
        self.cursor = SetCursor((PartCursor("a", 0, 101), PartCursor("b", 0, 102)), granted=True)
        self.folder = folder
        for task in ("a", "b"):
            self.member(task).mkdir(parents=True)
        self.be(101, "RUNNING")
        self.be(102, "RUNNING")

    def member(self, task: str, first: int = 0) -> Path:
        return self.folder / "members" / task / str(first)

    def be(self, native: int, state: str) -> None:
        self.asked.records[native] = record(native, "t", state, 0)

    def write(self, task: str, *happened: Event) -> None:
        with (self.member(task) / "journal.0.jsonl").open("a") as file:
            file.writelines(f"{json.dumps(event_to_document(event))}\n" for event in happened)

    async def look(self) -> list[Report]:
        since = {str(self.handle): str(self.cursor)}
        self.watch.journals.next_read = self.watch.next_ask = self.watch.next_accounts = 0.0
        await self.watch.look(since)
        while self.watch.busy:
            await asyncio.sleep(0)
        assert self.watch.next_kill(since, NOW) is None
        return self.watch.collect(since)

    async def order(self, event: Event, token: str = "tok") -> Refusal | None:
        (answer,) = await self.orderer.order([Order(token, str(self.handle), event)])
        return answer

    def orders_of(self, task: str, first: int = 0) -> list[str]:
        path = self.member(task, first) / "orders.0.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)["event"]["event"] for line in lines]
