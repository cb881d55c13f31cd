"""Orders on sets over a link that is a script: who gets which line, and when a new native job is submitted."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.adapters.slurm.samples import NOW
from tests.unit.adapters.slurm.test_group_watch import Asked, Link
from tests.unit.adapters.slurm.test_set_stories import STANDS
from tests.unit.adapters.slurm.test_submission import play, record

from overspan.adapters.contract import Order, Refusal, Report
from overspan.adapters.slurm.given_orders import Orders
from overspan.adapters.slurm.ordering import Orderer
from overspan.adapters.slurm.sets.handles import MemberCursor, Part, SetCursor, SetHandle, parse_set_cursor
from overspan.adapters.slurm.sets.ordering import SetOrderer
from overspan.adapters.slurm.sets.submission import SetSubmitter
from overspan.adapters.slurm.watching import Watch, next_kill
from overspan.bridge.model import events
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.events import Event, event_to_document


class Replacer(SetSubmitter):
    """Submits nothing; gives the next native id, or the error that it was told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.error = ""

    async def replace(self, handle: SetHandle, order: Order, event: events.Launch) -> int:
        if self.error:
            raise OverspanError(self.error)
        self.asked.append((event.task, event.attempt))
        return 200 + len(self.asked)


class Bench:
    """A set of two tasks, native jobs 101 and 102, whose run directory is a folder here."""

    def __init__(self, folder: Path) -> None:
        self.link = Link()
        self.asked = Asked(self.link)
        self.orders = Orders()
        self.watch = Watch(self.asked, self.orders, 0.001)
        self.replacer = Replacer()
        self.orderer = Orderer(
            self.asked, self.orders, self.watch, SetOrderer(self.replacer, self.watch, asyncio.Lock())
        )
        self.handle = SetHandle(7, 0, 30, True, "inst-7-0", str(folder), (Part("a", 2, 101), Part("b", 1, 102)))
        self.cursor = SetCursor((MemberCursor("a", 0, 101), MemberCursor("b", 0, 102)), granted=True)
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
        self.watch.journals._next = self.watch._next = 0.0
        await self.watch.look(since)
        while self.watch._looking.task is not None or self.watch._reading.task is not None:
            await asyncio.sleep(0)
        assert next_kill(since, NOW) is None
        return self.watch.collect(since)

    async def order(self, event: Event, token: str = "tok") -> Refusal | None:
        (answer,) = await self.orderer.order([Order(token, str(self.handle), event)])
        return answer

    def orders_of(self, task: str, first: int = 0) -> list[str]:
        path = self.member(task, first) / "orders.0.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)["event"]["event"] for line in lines]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_nothing_is_ordered_before_the_set_was_looked_at(bench: Bench) -> None:
    async def story() -> None:
        answer = await bench.order(events.Launch(NOW, "a", 0))
        assert answer is not None and answer.transient
        await bench.look()
        assert await bench.order(events.Launch(NOW, "a", 0)) is None
        assert bench.orders_of("a") == ["Launch"] and bench.orders_of("b") == []

    play(story())


def test_each_task_gets_its_own_lines_and_a_signal_to_all_goes_to_all(bench: Bench) -> None:
    async def story() -> None:
        await bench.look()
        kill = events.Terminate(NOW, "b", 0, "cancel", NOW + 30)
        assert await bench.order(kill, "one") is None
        assert await bench.order(kill, "one") is None
        assert await bench.order(events.Signal(NOW, 10), "two") is None
        assert await bench.order(events.HoldOver(NOW), "three") is None
        assert bench.orders_of("a") == ["Signal"]
        assert bench.orders_of("b") == ["Terminate", "Signal"]

    play(story())


def test_a_supervisor_that_has_begun_is_woken(bench: Bench) -> None:
    async def story() -> None:
        bench.write("b", STANDS["b"])
        await bench.look()
        bench.link.commands.clear()
        await bench.order(events.Launch(NOW, "b", 0), "one")
        assert [words[-1] for words in bench.link.commands if "scancel" in words] == ["102"]

    play(story())


def test_the_next_attempt_is_for_the_job_that_stands(bench: Bench) -> None:
    async def story() -> None:
        await bench.look()
        assert await bench.order(events.Launch(NOW, "b", 1)) is None
        assert bench.orders_of("b") == ["Launch"] and bench.replacer.asked == []

    play(story())


@pytest.mark.parametrize("why", ["closed", "ended", "over"])
def test_a_job_that_takes_no_more_orders_is_replaced(bench: Bench, why: str) -> None:
    async def story() -> None:
        if why == "closed":
            (bench.member("b") / "closed.0").touch()
        elif why == "ended":
            bench.be(102, "NODE_FAIL")
        else:
            bench.cursor = bench.cursor.put(replace(bench.cursor.member("b"), over=True))
        await bench.look()
        launch = events.Launch(NOW, "b", 1)
        answer = await bench.order(launch)
        assert answer is not None and answer.transient, "it is owed until the new job is noted"
        assert bench.replacer.asked == [("b", 1)] and bench.orders_of("b") == []
        (report,) = await bench.look()
        member = json.loads(report.cursor)[2][1]
        assert member[:3] == ["b", 1, 201]
        bench.cursor = bench.cursor.put(MemberCursor("b", 1, 201))
        await bench.look()
        assert await bench.order(launch) is None
        assert bench.replacer.asked == [("b", 1)]

    play(story())


def test_a_replacement_that_cannot_be_submitted_stays_owed(bench: Bench) -> None:
    async def story() -> None:
        bench.be(102, "NODE_FAIL")
        await bench.look()
        bench.replacer.error = "Invalid qos specification"
        answer = await bench.order(events.Launch(NOW, "b", 1))
        assert answer is not None and answer.transient and answer.message == "Invalid qos specification"

    play(story())


def test_a_first_attempt_whose_job_is_gone_ends_so_that_the_next_has_another(bench: Bench) -> None:
    async def story() -> None:
        await bench.look()
        (bench.member("b") / "closed.0").touch()
        launch = events.Launch(NOW, "b", 0)
        answer = await bench.order(launch)
        assert answer is not None and answer.transient
        bench.cursor = bench.cursor.put(replace(bench.cursor.member("b"), over=True))
        await bench.look()
        answer = await bench.order(launch)
        assert answer is not None and answer.transient
        (report,) = await bench.look()
        assert [(type(event), event.cause) for event in report.events if isinstance(event, events.NodeEnded)] == [
            (events.NodeEnded, "node")
        ]
        bench.cursor = parse_set_cursor(bench.handle, report.cursor)
        assert await bench.look() == []
        assert await bench.order(launch) is None
        assert bench.replacer.asked == []

    play(story())


def test_only_a_set_that_waits_is_withdrawn(bench: Bench) -> None:
    async def story() -> None:
        await bench.look()
        assert await bench.order(events.Expire(NOW, "failover"), "one") is None
        assert not any("scancel" in words for words in bench.link.commands)
        bench.cursor = replace(bench.cursor, granted=False)
        await bench.look()
        assert await bench.order(events.Expire(NOW, "failover"), "two") is None
        assert {words[-1] for words in bench.link.commands if "scancel" in words} == {"102"}
        (report,) = await bench.look()
        assert events.Expire(NOW, "failover") in report.events

    play(story())


def test_a_waiting_set_is_held_and_changed_as_a_whole(bench: Bench) -> None:
    async def story() -> None:
        await bench.look()
        bench.link.commands.clear()
        assert await bench.order(events.Hold(NOW), "one") is None
        assert await bench.order(events.SetNice(NOW, 50), "two") is None
        assert set(bench.link.commands) == {
            ("scontrol", "hold", "101"),
            ("scontrol", "hold", "102"),
            ("scontrol", "update", "JobId=101", "Nice=50"),
            ("scontrol", "update", "JobId=102", "Nice=50"),
        }

    play(story())


def test_a_suspension_stops_every_job_and_is_told(bench: Bench) -> None:
    async def story() -> None:
        await bench.look()
        assert await bench.order(events.Suspend(NOW)) is None
        assert {words[-1] for words in bench.link.commands if "suspend" in words} == {"101", "102"}
        assert bench.orders_of("a") == ["Suspend"]
        (report,) = await bench.look()
        assert report.events == (events.Suspend(NOW),)

    play(story())
