"""Watching and ordering groups over a link that is a script: what is asked, how often, and what comes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.unit.adapters.slurm.journal_lines import START
from tests.unit.adapters.slurm.links import OK, Link
from tests.unit.adapters.slurm.records import record
from tests.unit.adapters.slurm.samples import NOW
from tests.unit.adapters.slurm.watch_bench import Bench

from overspan.adapters.slurm.groups.handles import NativeJob
from overspan.adapters.slurm.handles import Handle
from overspan.adapters.slurm.observation import journal_watch
from overspan.adapters.slurm.observation.journal_watch import JournalReading, JournalWatch
from overspan.adapters.slurm.observation.journals import LIMIT
from overspan.adapters.slurm.transports.transport import Done
from overspan.bridge.model import events
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.events import event_to_document

T = TypeVar("T")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def play(story: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(story)


class TestWatch:
    def test_a_story_from_the_queue_to_the_end(self, bench: Bench) -> None:
        async def story() -> None:
            bench.be("PENDING")
            assert [type(event) for event in await bench.look()] == [events.Queued]
            bench.be("RUNNING")
            bench.write(*START)
            assert await bench.look(2) == list(START)
            bench.be("CANCELLED")
            (lost,) = await bench.look(3)
            assert isinstance(lost, events.LaunchLost) and lost.cause == "cancel"
            assert await bench.look() == []

        play(story())

    def test_nothing_is_asked_of_a_journal_that_has_ended(self, bench: Bench) -> None:
        async def story() -> None:
            bench.be("RUNNING")
            bench.write(*START, end=True)
            assert await bench.look(2) == list(START)
            reads = len(bench.link.programs)
            bench.be("FAILED")
            assert await bench.look(3) == []
            assert len(bench.link.programs) == reads

        play(story())

    def test_a_controller_that_is_down_keeps_no_journal_back(self, bench: Bench) -> None:
        async def story() -> None:
            bench.be("RUNNING")
            await bench.look()
            bench.asked.down = True
            bench.write(*START)
            assert await bench.look(2) == list(START)
            assert isinstance(bench.watch.take_trouble(), Unreachable)
            assert bench.watch.take_trouble() is None

        play(story())

    def test_what_slurm_has_forgotten_is_told_by_the_journal(self, bench: Bench) -> None:
        async def story() -> None:
            bench.write(*START, end=True)
            assert await bench.look(4) == list(START)
            bench.place = ""
            assert await bench.look(2) == list(START)

        play(story())

    def test_a_journal_that_was_read_while_slurm_was_asked_is_too_old_for_its_answer(self, bench: Bench) -> None:
        async def story() -> None:
            bench.be("RUNNING")
            await bench.look()
            bench.asked.gate = asyncio.Event()
            bench.watch.journals.next_read = bench.watch.next_ask = 0.0
            # The journal is read; meanwhile the group does all of its work, and then Slurm looks.
            await bench.watch.look({str(bench.handle): bench.place})
            bench.write(*START, end=True)
            bench.be("COMPLETED")
            bench.asked.gate.set()
            while bench.watch.busy:
                await asyncio.sleep(0)
            assert bench.report() is None
            assert await bench.look(2) == list(START)

        play(story())

    @pytest.mark.parametrize(
        ("token", "lost"),
        [("inst-8-0", True), ("inst-7-1", True), ("inst-7-0", False), ("inst-7-0/trainer/0", False), ("", False)],
    )
    def test_a_number_that_slurm_has_given_again_is_another_job(self, bench: Bench, token: str, lost: bool) -> None:
        async def story() -> None:
            bench.be("PENDING")
            await bench.look()
            bench.asked.records[42] = record(42, token, "RUNNING", 0)
            told = await bench.look(3)
            assert [event.cause for event in told if isinstance(event, events.LaunchLost)] == ["launch"] * lost

        play(story())

    @pytest.mark.parametrize(("token", "known"), [("inst-7-0", True), ("inst-7-1", True), ("inst-7-2", False)])
    def test_a_requeued_job_keeps_the_token_of_its_first_run(self, bench: Bench, token: str, known: bool) -> None:
        async def story() -> None:
            requeued = Handle(42, run=1, job=7, launch=1, attempt=1, nodes=1, grace=30, task="main")
            bench.asked.records[42] = record(42, token, "PENDING", 1)
            assert any(isinstance(event, events.Queued) for event in await bench.look(3, requeued)) == known

        play(story())

    def test_what_nobody_knows_is_gone(self, bench: Bench) -> None:
        async def story() -> None:
            found = await bench.look(4)
            assert [type(event) for event in found] == [events.LaunchLost]

        play(story())

    def test_a_supervisor_that_does_not_end_is_ended_by_slurm(self, bench: Bench) -> None:
        async def story() -> None:
            bench.be("RUNNING")
            bench.write(*START, events.Cancel(NOW))
            await bench.look(2)
            since = {str(bench.handle): bench.place}
            kill = NOW + 30 + 15
            assert bench.watch.next_kill(since, kill - 9) == 9
            assert bench.watch.overdue(since, kill - 1) == []
            assert bench.watch.overdue(since, kill) == ["42"]
            # Not again at once.
            assert bench.watch.overdue(since, kill + 1) == []
            await bench.orderer.end(["42"])
            assert bench.link.commands == [("timeout", "20", "scancel", "42")]

        play(story())


class TestOrders:
    def test_a_cancel_is_written_once_and_never_lost(self, bench: Bench) -> None:
        async def story() -> None:
            bench.be("PENDING")
            await bench.look()
            cancel = events.Cancel(NOW, by="ada")
            assert await bench.order(cancel) is None
            assert await bench.order(cancel) is None
            # Another process of the daemon's makes it once more.
            again = Bench(bench.folder)
            assert await again.order(cancel) is None
            assert bench.given == ["Cancel"]
            clock, pending = ("date", "+%s"), ("timeout", "20", "scancel", "--state=PENDING", "42")
            assert bench.link.commands == [clock, pending]
            # It had started meanwhile: the supervisor tells.
            bench.be("RUNNING")
            bench.write(*START, cancel)
            assert await bench.look(2) == [*START, cancel]

        play(story())

    def test_a_controller_that_is_down_has_a_cancel_tried_again(self, bench: Bench) -> None:
        async def story() -> None:
            down = Done(1, b"", b"scancel: error: Unable to contact slurm controller (connect failure)\n")
            bench.link.answer = lambda words: down
            refusal = await bench.order(events.Cancel(NOW))
            assert refusal is not None and refusal.transient
            bench.link.answer = lambda words: OK
            assert await bench.order(events.Cancel(NOW)) is None
            assert bench.given == ["Cancel"]

        play(story())

    def test_a_hint_that_fails_is_no_failure(self, bench: Bench) -> None:
        async def story() -> None:
            bench.be("RUNNING")
            bench.write(*START)
            await bench.look(2)
            bench.link.answer = lambda words: Done(1, b"", b"scancel: error: whatever\n")
            assert await bench.order(events.Restart(NOW, "a")) is None
            assert bench.given == ["Restart"]
            assert bench.link.commands[-1][-2:] == ("--signal=USR1", "42")

        play(story())

    def test_a_suspension_that_slurm_refuses_is_not_told_to_the_supervisor(self, bench: Bench) -> None:
        async def story() -> None:
            bench.link.answer = lambda words: Done(1, b"", b"Access/permission denied for job 42\n")
            refusal = await bench.order(events.Suspend(NOW))
            assert refusal is not None and not refusal.transient and "denied" in refusal.message
            assert bench.given == []
            bench.link.answer = lambda words: OK
            assert await bench.order(events.Suspend(NOW), "u") is None
            assert bench.given == ["Suspend"]

        play(story())

    def test_a_limit_that_may_not_grow_refuses_the_wall_time(self, bench: Bench) -> None:
        from tests.unit.adapters.slurm.group_facts import HEAD, PLACE, SERVER, TRAINER
        from tests.unit.adapters.slurm.samples import read_file

        from overspan.adapters.contract import Launch
        from overspan.adapters.slurm.groups.rendering import render_launch
        from overspan.adapters.slurm.settings import Settings

        job = read_file(HEAD + TRAINER + SERVER)
        for name, data in render_launch(Launch("i-7-0", job), Settings(), PLACE, False).files.items():
            (bench.folder / name).write_bytes(data)

        async def story() -> None:
            bench.link.answer = lambda words: Done(1, b"", b"Access/permission denied for job 42\n")
            refusal = await bench.order(events.SetTime(NOW, 7200, "trainer"))
            assert refusal is not None and "denied" in refusal.message
            assert bench.given == []
            assert await bench.order(events.SetTime(NOW, 60, "server"), "s") is None
            assert bench.given == ["SetTime"]

        play(story())


class TestReading:
    def test_waiting_groups_are_read_with_the_tick_only(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journal_watch, "READ_SECONDS", 3600.0)
        watch = JournalWatch(Link(), 10)
        active = JournalReading(NativeJob(1, 1, 0, str(tmp_path)), 0, True)
        waiting = JournalReading(NativeJob(2, 2, 0, str(tmp_path)), 0, False)
        assert watch.choose([active, waiting], 3600) == [active, waiting]
        play(watch.read([active, waiting]))
        watch.next_read = 0.0
        assert watch.choose([active, waiting], 3600) == [active]
        assert watch.choose([active, waiting], 3600) == []

    def test_nobody_looks_again_at_once_where_there_is_nothing_to_read(self, tmp_path: Path) -> None:
        watch = JournalWatch(Link(), 10)
        waiting = JournalReading(NativeJob(2, 2, 0, str(tmp_path)), 0, False)
        watch.choose([waiting], 3600)
        play(watch.read([waiting]))
        watch.next_read = 0.0
        assert watch.choose([waiting], 3600) == []
        assert watch.next_read > 0

    def test_a_line_longer_than_a_read_is_read(self, tmp_path: Path) -> None:
        members = tuple(("a", number, "n" * 90, "10.0.0.1", ()) for number in range(LIMIT // 100))
        handle = NativeJob(1, 1, 0, str(tmp_path))
        granted = events.Granted(NOW, members)
        Path(handle.journal).write_text(json.dumps(event_to_document(granted)) + "\n")
        watch = JournalWatch(Link(), 10)
        play(watch.read([JournalReading(handle, 0, True)]))
        page = watch.page(handle, 0)
        assert page is not None and [line.event for line in page.lines] == [granted]
        assert watch.page(handle, 5) is page
        assert JournalWatch(Link(), 10).page(handle, 0) is None
