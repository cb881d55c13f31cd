"""Looks that come at a bad time: slow or silent accountings, journals read late, numbers that are another's now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from tests.unit.adapters.slurm.journal_lines import START
from tests.unit.adapters.slurm.links import OK
from tests.unit.adapters.slurm.records import mark, record, run
from tests.unit.adapters.slurm.samples import NOW
from tests.unit.adapters.slurm.watch_bench import Bench

from overspan.adapters.contract import Order
from overspan.adapters.slurm.commands.sacct import AccountingRecord
from overspan.adapters.slurm.files.application import InstalledApplication
from overspan.adapters.slurm.handles import Cursor, Handle
from overspan.adapters.slurm.observation import watch
from overspan.adapters.slurm.observation.journal_watch import JournalReading, JournalWatch
from overspan.adapters.slurm.observation.projection import Projection, project
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.transports.transport import Done
from overspan.adapters.slurm.unshared.relays import Relays
from overspan.bridge.model import events
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.events import Event

JOB = Handle(42, run=0, job=7, launch=0, attempt=0, nodes=1, grace=30, task="main")
OTHER = replace(JOB, native=43, job=8)
PATIENCE = 60.0


class Books:
    """An accounting: its runs, whether it answers, and a gate that keeps its answers back."""

    def __init__(self) -> None:
        self.runs: dict[str, list[AccountingRecord]] = {}
        self.down = False
        self.asked = 0
        self.gate: asyncio.Event | None = None

    async def ask(self, names: Sequence[str]) -> dict[str, list[AccountingRecord]]:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.down:
            raise Unreachable("Connection refused")
        return {name: self.runs.get(name, []) for name in names}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def books(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Books:
    books = Books()
    monkeypatch.setattr(bench.asked, "runs", books.ask)
    return books


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def lost(told: Sequence[Event]) -> list[str]:
    return [event.cause for event in told if isinstance(event, events.LaunchLost)]


async def run_without_journals(bench: Bench) -> asyncio.Event:
    """Have the group run, and the folder of the journals not answer until the event is set."""
    bench.be("RUNNING")
    bench.write(*START)
    await bench.look(2)
    bench.link.gate = asyncio.Event()
    bench.watch.journals.next_read = 0.0
    return bench.link.gate


async def ask(bench: Bench, *handles: object) -> None:
    """Have Slurm asked once more, whatever else is under way."""
    bench.watch.next_ask = 0.0
    await bench.watch.look({str(handle): bench.place for handle in handles})
    await settle()


async def settle() -> None:
    """Until everything that can be answered is."""
    for _ in range(50):
        await asyncio.sleep(0)


class TestAccounting:
    def test_a_slow_one_keeps_no_other_news_back(self, bench: Bench, books: Books) -> None:
        async def story() -> None:
            books.gate = asyncio.Event()
            bench.asked.records[43] = record(43, "inst-8-0", "PENDING", 0)
            since = {str(JOB): "", str(OTHER): ""}
            async with asyncio.timeout(PATIENCE):
                await bench.watch.look(since)
            assert books.asked == 1
            assert [report.handle for report in bench.watch.collect(since)] == [str(OTHER)]
            books.gate.set()
            await bench.watch.close()

        play(story())

    def test_one_that_took_long_is_asked_more_seldom_and_squeue_is_not(self, bench: Bench, books: Books) -> None:
        async def story() -> None:
            bench.asked.records[43] = record(43, "inst-8-0", "PENDING", 0)
            await bench.look(1, JOB)
            bench.watch.next_accounts = float("inf")
            looks = bench.asked.asked
            for _ in range(5):
                await ask(bench, JOB, OTHER)
            assert (books.asked, bench.asked.asked) == (1, looks + 5)
            assert lost(await bench.look(1, JOB)) == ["launch"]

        play(story())

    def test_a_gap_lasts_until_the_next_answer(self, bench: Bench, books: Books) -> None:
        async def story() -> None:
            books.down = True
            await bench.look(1, JOB)
            assert "Connection refused" in bench.watch.gap
            books.gate = asyncio.Event()
            bench.watch.next_ask = bench.watch.next_accounts = 0.0
            looking = asyncio.ensure_future(bench.watch.look({str(JOB): ""}))
            await settle()
            # The question is under way, and nothing is better yet.
            assert books.asked == 2 and "Connection refused" in bench.watch.gap
            books.down = False
            books.gate.set()
            await looking
            await settle()
            assert bench.watch.gap == ""
            await bench.watch.close()

        play(story())

    def test_one_that_is_back_may_not_have_all_yet(self, bench: Bench, books: Books) -> None:
        async def story() -> None:
            books.down = True
            await bench.look(3, JOB)
            books.down = False
            # slurmctld has kept the job's end for it, and tries again after some seconds.
            assert await bench.look(5, JOB) == []
            books.runs["42"] = [run(mark("inst-7-0"), "COMPLETED")]
            told = await bench.look(1, JOB)
            assert [event.cause for event in told if isinstance(event, events.NodeEnded)] == ["success"]

        play(story())

    def test_what_one_that_has_had_time_does_not_know_is_gone(
        self, bench: Bench, books: Books, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def story() -> None:
            books.down = True
            await bench.look(3, JOB)
            books.down = False
            monkeypatch.setattr(watch, "LAG", 0.0)
            assert lost(await bench.look(2, JOB)) == ["launch"]

        play(story())


def test_news_do_not_wait_for_addresses(bench: Bench, books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(bench.asked, "addresses", AsyncMock(side_effect=Unreachable("no answer within 60 s")))
        bench.asked.records[42] = replace(record(42, "inst-7-0", "RUNNING", 0), nodes=("n1",))
        assert [event.members[0][2:4] for event in await bench.look(1, JOB) if isinstance(event, events.Granted)] == [
            ("n1", "")
        ]

    play(story())


def test_of_jobs_that_were_told_nothing_is_worked_out_again_until_slurm_is_asked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        told: list[Handle] = []

        def count(handle: Handle, *given: Any) -> Projection:
            told.append(handle)
            return project(handle, *given)

        monkeypatch.setattr(watch, "project", count)
        bench.asked.records[42] = record(42, "t", "PENDING", 0)
        await bench.look(2, JOB)
        since = {str(JOB): bench.place}
        assert bench.watch.collect(since) == []
        counted = len(told)
        for _ in range(50):
            assert bench.watch.collect(since) == []
        assert len(told) == counted
        # An order and another look are news.
        bench.orders.add(str(JOB), "t", events.Hold(1.0))
        assert [report.events for report in bench.watch.collect(since)] == [(events.Hold(1.0),)]
        bench.asked.records[42] = replace(record(42, "t", "RUNNING", 0), nodes=("n1",), start=NOW)
        assert any(isinstance(event, events.Granted) for event in await bench.look(1, JOB))

    play(story())


class TestNumbers:
    def test_a_number_that_is_anothers_now_is_not_ended(
        self, bench: Bench, books: Books, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def story() -> None:
            place = str(Cursor(2, kill_at=int(NOW)))
            since = {str(JOB): place}
            bench.place = place
            bench.asked.records[42] = record(42, "inst-7-0", "RUNNING", 0)
            await bench.look(1, JOB)
            assert bench.watch.overdue(since, NOW + 1) == ["42"]
            monkeypatch.setattr(watch, "KILL_AGAIN", 0.0)
            assert bench.watch.overdue(since, NOW + 1) == ["42"]
            # slurmctld and the accounting were killed, and the user has given Slurm another job since.
            books.down = True
            bench.asked.records[42] = record(42, "inst-8-0", "RUNNING", 0)
            await bench.look(1, JOB)
            assert bench.watch.overdue(since, NOW + 1) == []
            books.down = False
            await bench.look(1, JOB)
            assert bench.watch.overdue(since, NOW + 1) == []

        play(story())

    @pytest.mark.parametrize(("token", "ordered"), [("inst-7-0", True), ("inst-8-0", False)])
    @pytest.mark.parametrize("seen_before", [True, False])
    def test_no_order_reaches_whoever_has_the_number_now(
        self, bench: Bench, books: Books, token: str, ordered: bool, seen_before: bool
    ) -> None:
        async def story() -> None:
            books.down = True
            if seen_before:
                bench.asked.records[42] = record(42, "inst-7-0", "RUNNING", 0)
                await bench.look(1, JOB)
            bench.asked.records[42] = record(42, token, "RUNNING", 0)
            await bench.look(1, JOB)
            bench.link.answer = lambda words: Done(0, b"", b"")
            assert await bench.orderer.order([Order("t", str(JOB), events.Cancel(NOW))]) == [None]
            assert any("scancel" in words for words in bench.link.commands) == ordered
            # The same number is the launch's own again where slurmctld has found its state.
            bench.asked.records[42] = record(42, "inst-7-0", "RUNNING", 0)
            await bench.look(1, JOB)
            assert not bench.watch.is_taken(str(JOB))

        play(story())


class TestJournals:
    def test_what_was_chosen_before_an_end_was_known_is_too_old_for_it(self, bench: Bench) -> None:
        async def story() -> None:
            reading = JournalReading(bench.job, 0, True)
            chosen = time.time()
            while time.time() <= chosen:
                await asyncio.sleep(0)
            journals = JournalWatch(bench.link, 10)
            await journals.read([reading])
            page = journals.page(bench.job, 0)
            assert page is not None and page.asked <= chosen

        play(story())

    def test_an_end_that_is_told_again_with_each_look_is_closed_by_the_first_journal_behind_it(
        self, bench: Bench
    ) -> None:
        async def story() -> None:
            bench.be("RUNNING")
            bench.write(*START)
            await bench.look(2)
            bench.be("NODE_FAIL")
            bench.watch.journals.next_read = float("inf")
            await ask(bench, bench.handle)
            # The reading takes so long that Slurm is looked at again meanwhile.
            bench.link.gate = asyncio.Event()
            for _ in range(2):
                await ask(bench, bench.handle)
                assert bench.watch.busy and bench.report() is None
            bench.link.gate.set()
            await settle()
            report = bench.report()
            assert report is not None and lost(report.events) == ["node"]
            await bench.watch.close()

        play(story())

    def test_an_end_that_slurm_has_told_and_forgotten_waits_for_the_journal(self, bench: Bench) -> None:
        async def story() -> None:
            never = await run_without_journals(bench)
            for state in ("COMPLETED", ""):
                bench.asked.records.clear()
                if state:
                    bench.be(state)
                for _ in range(3):
                    await ask(bench, bench.handle)
                    assert bench.report() is None
            never.set()
            await settle()
            bench.write(events.NodeEnded(NOW, "a", 0, 0), end=True)
            told = await bench.look(2)
            assert [type(event) for event in told] == [events.NodeEnded]

        play(story())

    def test_what_nobody_knows_is_gone_once_its_journal_was_read_again(self, bench: Bench) -> None:
        async def story() -> None:
            never = await run_without_journals(bench)
            bench.asked.records.clear()
            for _ in range(3):
                await ask(bench, bench.handle)
            assert bench.report() is None
            never.set()
            await settle()
            assert lost(await bench.look(2)) == ["launch"]

        play(story())


def test_an_end_of_a_grace_that_finds_no_cluster_is_a_trouble(
    bench: Bench, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        cluster = bench.open_cluster()
        bench.asked.records[42] = record(42, "inst-7-0", "RUNNING", 0)
        place = str(Cursor(2, kill_at=int(NOW)))
        await bench.look(1, JOB)
        monkeypatch.setattr(time, "time", lambda: NOW + 5)

        def answer(words: Sequence[str]) -> Done:
            raise Unreachable("no route")

        bench.link.answer = answer
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(Unreachable, match="no route"):
                await cluster.observe({str(JOB): place}, 3600)
            # The next answer is the first after a trouble: it is told at once, with nothing in it.
            found = await cluster.observe({str(JOB): place}, 3600)
        assert found.reports == ()
        await cluster.close()

    play(story())


def test_a_relay_that_cannot_be_started_is_said_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        relays = Relays(bench.asked, Settings(), str(bench.folder))
        answers = [Done(1, b"", b"sh: cannot fork\n")] * 2 + [OK] + [Done(1, b"", b"sh: cannot fork\n")]

        async def run(argv: Sequence[str], **given: Any) -> Done:
            return answers.pop(0)

        monkeypatch.setattr(bench.link, "run", run)
        monkeypatch.setattr(InstalledApplication, "bring", AsyncMock())
        monkeypatch.setattr("overspan.adapters.slurm.unshared.relays.LOOK_SECONDS", 0.0)
        said = []
        while answers:
            relays.keep([bench.job])
            await settle()
            relays.keep([])
            said.append(len(caplog.records))
        assert said == [1, 1, 1, 2]
        await relays.close()

    play(story())
    assert "cannot be started: sh: cannot fork" in caplog.text
