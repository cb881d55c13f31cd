"""An orderer of sets over a transport that the test answers for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.unit.adapters.slurm.links import Link
from tests.unit.adapters.slurm.records import record
from tests.unit.adapters.slurm.samples import NOW
from tests.unit.adapters.slurm.watch_bench import Asked, Replacer, make_orderer

from overspan.adapters.contract import Decider, Order, Refusal, Report
from overspan.adapters.slurm.groups.handles import GroupCursor, GroupHandle, GroupPart, PartCursor
from overspan.adapters.slurm.observation.watch import Watch
from overspan.adapters.slurm.orders.delivered import DeliveredOrders
from overspan.bridge.model.events import Event, event_to_document

PARTS = (GroupPart(101, "a", 2), GroupPart(102, "b", 1))


class Bench:
    """A set of two tasks, native jobs 101 and 102, whose run directory is a folder here."""

    def __init__(self, folder: Path) -> None:
        self.link = Link()
        self.asked = Asked(self.link)
        self.orders = DeliveredOrders()
        self.watch = Watch(self.asked, self.orders, 0.001)
        self.replacer = Replacer()
        self.orderer = make_orderer(self.asked, self.orders, self.watch, self.replacer)
        self.handle = GroupHandle(7, 0, 30, str(folder), PARTS, Decider.DAEMON, True, "inst-7-0")
        self.cursor = GroupCursor((PartCursor(101, "a", 0), PartCursor(102, "b", 0)), granted=True)
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
