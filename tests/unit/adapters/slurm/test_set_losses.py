"""What a set loses while orders for it are under way: each attempt that was ordered starts or ends, and none twice."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock, patch

import pytest
from tests.unit.adapters.slurm.records import record
from tests.unit.adapters.slurm.samples import NOW
from tests.unit.adapters.slurm.set_facts import STANDS
from tests.unit.adapters.slurm.set_orders import Bench
from tests.unit.adapters.slurm.submissions import play
from tests.unit.adapters.slurm.watch_bench import open_over

from overspan.adapters import first_observation
from overspan.adapters.contract import Order, Refusal, Report
from overspan.adapters.slurm.groups.handles import PartCursor, parse_group_cursor
from overspan.adapters.slurm.groups.parts import PartToken
from overspan.adapters.slurm.groups.projection import MARGIN
from overspan.adapters.slurm.transports.transport import Done
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model import events
from overspan.bridge.model.events import Event, event_to_document
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec

LAUNCHES = (events.Launch(NOW, "b", 0), events.Launch(NOW, "b", 1))
LOST = events.NodeEnded(NOW, "b", 0, 0, signal=9, cause="node")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a look takes, orders wait for it."""
    monkeypatch.setattr(first_observation, "SECONDS", 3600.0)


async def settle(bench: Bench) -> list[Event]:
    """Look until nothing is new, and give every cursor back; all events that were told."""
    found: list[Event] = []
    quiet = 0
    while quiet < 4:
        reports = await bench.look()
        quiet = 0 if reports else quiet + 1
        for report in reports:
            found += take(bench, report)
    return found


def take(bench: Bench, report: Report) -> tuple[Event, ...]:
    bench.cursor = parse_group_cursor(bench.handle, report.cursor)
    return report.events


def list_ends(found: list[Event]) -> list[tuple[str, int, int, int, str]]:
    return [(end.task, end.attempt, end.node, end.run, end.cause) for end in found if isinstance(end, events.NodeEnded)]


class TestFirstLook:
    @pytest.mark.parametrize("launch", LAUNCHES)
    def test_orders_of_a_new_daemon_wait_for_it(self, bench: Bench, launch: events.Launch) -> None:
        async def story() -> None:
            ordering = asyncio.create_task(bench.order(launch))
            await asyncio.sleep(0)
            assert not ordering.done()
            await bench.look()
            assert await ordering is None and bench.orders_of("b") == ["Launch"]

        play(story())

    def test_another_attempt_waits_for_slurms_first_answer(self, bench: Bench) -> None:
        async def story() -> None:
            bench.asked.gate = asyncio.Event()
            looking = asyncio.create_task(bench.look())
            while bench.watch.groups.find(str(bench.handle)) is None:
                await asyncio.sleep(0)
            # Whether the native job that stands can have it, is not known.
            ordering = asyncio.create_task(bench.order(LAUNCHES[1]))
            for _ in range(10):
                await asyncio.sleep(0)
            assert not ordering.done()
            # What needs no answer of Slurm's does not wait.
            assert await bench.order(events.HoldOver(NOW), "other") is None
            bench.asked.gate.set()
            await looking
            assert await ordering is None and bench.orders_of("b") == ["Launch"]

        play(story())

    def test_one_wait_is_for_all(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        waits: list[object] = []

        async def await_first_poll(is_looked: object) -> bool:
            waits.append(is_looked)
            return False

        monkeypatch.setattr("overspan.adapters.slurm.groups.ordering.await_first_observation", await_first_poll)

        async def story() -> None:
            orders = [Order(str(event.attempt), str(bench.handle), event) for event in LAUNCHES]
            answers = await bench.orderer.order(orders)
            assert [isinstance(answer, Refusal) and answer.transient for answer in answers] == [True, True]
            assert len(waits) == 1

        play(story())

    def test_without_a_look_it_is_refused_for_a_while(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(first_observation, "SECONDS", 0)

        async def story() -> None:
            answer = await bench.order(LAUNCHES[0])
            assert answer is not None and answer.transient and bench.orders_of("b") == []

        play(story())


class TestGone:
    def test_the_order_of_a_replacement_that_nobody_knows_is_read_before_its_end_is_told(self, bench: Bench) -> None:
        async def story() -> None:
            bench.cursor = bench.cursor.put(PartCursor(201, "b", 1))
            bench.member("b", 1).mkdir()
            line = json.dumps({"seq": 1, "event": event_to_document(LAUNCHES[1]), "token": "tok"})
            (bench.member("b", 1) / "orders.0.jsonl").write_text(f"{line}\n")
            # Slurm has lost 201: twice nobody knows it.
            assert list_ends(await settle(bench)) == [("b", 1, 0, 0, "node")]
            assert bench.cursor.part("b").over

        play(story())

    def test_what_was_read_before_tells_no_end(self, bench: Bench) -> None:
        async def story() -> None:
            bench.write("b", STANDS["b"], LAUNCHES[0], events.NodeStarted(NOW, "b", 0, 0))
            assert list_ends(await settle(bench)) == []
            del bench.asked.records[102]
            ended = events.NodeEnded(NOW + 5, "b", 0, 0, exit_code=3)
            found: list[Event] = []
            for _ in range(2):
                # The journal is not read with the question, but after it.
                bench.watch.journals.next_read = float("inf")
                bench.watch.next_ask = 0.0
                since = {str(bench.handle): str(bench.cursor)}
                await bench.watch.look(since)
                while bench.watch.busy:
                    await asyncio.sleep(0)
                found += [event for report in bench.watch.collect(since) for event in report.events]
            assert list_ends(found) == []
            bench.write("b", ended)
            assert list_ends(await settle(bench))[0] == ("b", 0, 0, 0, "")

        play(story())

    def test_a_new_number_is_not_gone_for_what_nobody_knew_of_the_old_one(self, bench: Bench) -> None:
        async def story() -> None:
            del bench.asked.records[102]
            await settle(bench)
            answer = await bench.order(LAUNCHES[1])
            assert answer is not None and answer.transient and bench.replacer.asked == [("b", 1)]
            (report,) = await bench.look()
            take(bench, report)
            # Once nobody knows the new one either: that may be a listing that is late.
            assert bench.cursor.part("b").native == 201
            bench.be(201, "RUNNING")
            assert await settle(bench) == [] and not bench.cursor.part("b").over

        play(story())


def test_a_task_has_no_node_until_its_replacement_is_granted_one(bench: Bench) -> None:
    async def story() -> None:
        job = new_job(7, JobSpec("g", tasks=(TaskSpec("a", num_nodes=2), TaskSpec("b")), group=True), NOW)
        job = reduce(job, events.Granted(NOW, (*STANDS["a"].members, *STANDS["b"].members)))

        def list_nodes() -> list[str]:
            return [place.node for place in job.placements]

        bench.be(102, "NODE_FAIL")
        await settle(bench)
        assert list_nodes() == ["n1", "n2", "n3"]
        await bench.order(LAUNCHES[1])
        bench.be(201, "PENDING")
        for report in await bench.look():
            for event in take(bench, report):
                job = reduce(job, event)
        assert list_nodes() == ["n1", "n2", ""]
        assert await settle(bench) == []
        bench.member("b", 1).mkdir()
        (bench.member("b", 1) / "journal.0.jsonl").write_text(
            json.dumps(event_to_document(events.Granted(NOW + 9, (("b", 0, "n5", "", ()),)))) + "\n"
        )
        bench.be(201, "RUNNING")
        for event in await settle(bench):
            job = reduce(job, event)
        assert list_nodes() == ["n1", "n2", "n5"]

    play(story())


class TestNumbers:
    """A slurmctld that was killed before it had saved its state gives a number again."""

    @pytest.mark.parametrize(("token", "lost"), [("b/0", False), ("a/0", True), ("b/1", True)])
    def test_a_number_that_another_job_of_the_set_has_is_lost(self, bench: Bench, token: str, lost: bool) -> None:
        async def story() -> None:
            bench.asked.records[102] = record(102, f"inst-7-0/{token}", "RUNNING", 0)
            await settle(bench)
            assert bench.cursor.part("b").over is lost

        play(story())


class TestRaces:
    def test_what_was_told_as_lost_gets_no_further_attempt(self, bench: Bench) -> None:
        async def story() -> None:
            bench.write("b", STANDS["b"], LAUNCHES[0], LOST)
            (report,) = await bench.look()
            assert LOST in report.events
            # The daemon decides by these before it gives the cursor back.
            answer = await bench.order(LAUNCHES[1])
            assert answer is not None and answer.transient
            assert bench.orders_of("b") == [] and bench.replacer.asked == [("b", 1)]

        play(story())

    def test_an_order_that_came_behind_the_reading_is_read_before_the_end_is_told(self, bench: Bench) -> None:
        async def story() -> None:
            await bench.look()
            bench.be(102, "NODE_FAIL")
            bench.watch.next_ask = 0.0
            since = {str(bench.handle): str(bench.cursor)}
            for _ in range(3):
                await bench.watch.look(since)
                while bench.watch.busy:
                    await asyncio.sleep(0)
                bench.watch.next_ask = float("inf")
            # Everything is known for the end of 102. Before it is told, an order is carried out.
            known = bench.watch.groups.find(str(bench.handle))
            assert known is not None and not known.is_over(bench.cursor.part("b"))
            assert await bench.order(LAUNCHES[0]) is None
            assert bench.watch.collect(since) == []
            assert list_ends(await settle(bench)) == [("b", 0, 0, 0, "node")]

        play(story())

    def test_an_order_whose_folder_is_not_there_is_not_done(self, bench: Bench) -> None:
        async def story() -> None:
            await bench.look()
            bench.member("b").rename(bench.member("b").with_name("away"))
            answer = await bench.order(LAUNCHES[0])
            assert answer is not None and answer.transient

        play(story())

    def test_a_node_run_for_a_job_that_is_gone_ends(self, bench: Bench) -> None:
        async def story() -> None:
            bench.write("a", STANDS["a"], events.Launch(NOW, "a", 0))
            bench.be(101, "NODE_FAIL")
            assert len(list_ends(await settle(bench))) == 2
            relaunch = events.NodeRelaunch(NOW, "a", 0, 1, 1)
            answer = await bench.order(relaunch)
            assert answer is not None and answer.transient
            assert list_ends(await settle(bench)) == [("a", 0, 1, 1, "node")]
            # Where that was not stored, the order is owed still, and it is told again.
            assert await bench.order(relaunch) is not None
            assert list_ends(await settle(bench)) == [("a", 0, 1, 1, "node")]

        play(story())

    @pytest.mark.parametrize("event", [LAUNCHES[1], events.NodeRelaunch(NOW, "b", 0, 0, 1)])
    def test_what_a_supervisor_takes_no_more_is_not_done(self, bench: Bench, event: Event) -> None:
        async def story() -> None:
            await bench.look()
            (bench.member("b") / "closed.0").touch()
            answer = await bench.order(event)
            assert answer is not None and answer.transient and bench.orders_of("b") == []

        play(story())


class TestEnding:
    @pytest.mark.parametrize(
        ("state", "words"), [("PENDING", ("--state=PENDING", "102")), ("CONFIGURING", ("scancel", "102"))]
    )
    @pytest.mark.parametrize("event", [events.Terminate(NOW, "b", 0, "cancel", NOW + 30), events.Kill(NOW, "b", 0)])
    def test_an_attempt_whose_job_waits_ends_at_once(
        self, bench: Bench, state: str, words: tuple[str, str], event: Event
    ) -> None:
        async def story() -> None:
            bench.be(102, state)
            await bench.look()
            bench.link.commands.clear()
            assert await bench.order(LAUNCHES[0], "one") is None
            assert bench.link.commands == []
            assert await bench.order(event, "two") is None
            # Behind the line, which it reads if it starts in between.
            assert bench.orders_of("b") == ["Launch", type(event).__name__]
            assert [command[-2:] for command in bench.link.commands] == [words]
            bench.be(102, "CANCELLED")
            assert list_ends(await settle(bench)) == [("b", 0, 0, 0, "node")]

        play(story())

    def test_a_job_that_is_about_to_start_reads_the_order(self, bench: Bench) -> None:
        async def story() -> None:
            bench.be(102, "PENDING")
            await bench.look()
            bench.link.answer = lambda words: Done(124, b"", b"")
            assert await bench.order(events.Terminate(NOW, "b", 0, "cancel", NOW + 30)) is None

        play(story())

    def test_what_runs_or_waits_for_another_attempt_is_only_told(self, bench: Bench) -> None:
        async def story() -> None:
            bench.write("a", STANDS["a"])
            bench.cursor = bench.cursor.put(PartCursor(201, "b", 2))
            bench.member("b", 2).mkdir()
            bench.be(201, "PENDING")
            await bench.look()
            bench.link.commands.clear()
            await bench.order(events.Terminate(NOW, "a", 0, "cancel", NOW + 30), "one")
            await bench.order(events.Terminate(NOW, "b", 1, "cancel", NOW + 30), "two")
            assert not any(command[-1] == "201" or command[-2] == "--state=PENDING" for command in bench.link.commands)

        play(story())

    def test_the_job_of_a_supervisor_that_does_not_kill_is_ended(self, bench: Bench) -> None:
        async def story() -> None:
            bench.write("b", STANDS["b"], LAUNCHES[0], events.NodeStarted(NOW, "b", 0, 0))
            await settle(bench)
            sets, now = bench.watch.groups, time.time()
            with patch("time.time", lambda: now):
                assert await bench.order(events.Kill(NOW, "b", 0)) is None
            assert sets.list_overdue(now) == []
            assert sets.list_overdue(now + MARGIN + 1) == ["102"]
            assert sets.list_overdue(now + MARGIN + 2) == []
            assert sets.list_overdue(now + MARGIN + 40) == ["102"]
            bench.write("b", events.NodeEnded(NOW, "b", 0, 0, signal=9))
            await settle(bench)
            assert sets.list_overdue(now + 1000) == []

        play(story())

    def test_a_signal_is_for_what_runs_alone(self, bench: Bench) -> None:
        async def story() -> None:
            bench.be(102, "PENDING")
            await bench.look()
            assert await bench.order(events.Signal(NOW, 10), "one") is None
            assert await bench.order(events.Signal(NOW, 10, "b"), "two") is None
            assert (bench.orders_of("a"), bench.orders_of("b")) == (["Signal"], [])
            # Its journal tells sooner than Slurm that it has started.
            bench.write("b", STANDS["b"])
            await bench.look()
            assert await bench.order(events.Signal(NOW, 10, "b"), "three") is None
            assert bench.orders_of("b") == ["Signal"]

        play(story())

    @pytest.mark.parametrize("event", [events.Suspend(NOW), events.Resume(NOW)])
    def test_what_waits_learns_of_a_suspension_when_it_starts(self, bench: Bench, event: Event) -> None:
        async def story() -> None:
            bench.be(102, "PENDING")
            await bench.look()
            bench.link.commands.clear()
            assert await bench.order(event) is None
            name = type(event).__name__
            assert bench.link.commands == [("scontrol", name.lower(), "101")]
            assert (bench.orders_of("a"), bench.orders_of("b")) == ([name], [name])

        play(story())


class TestRequeued:
    def test_a_job_that_was_requeued_is_lost_and_is_to_be_ended(self, bench: Bench) -> None:
        async def story() -> None:
            bench.write("b", STANDS["b"], LAUNCHES[0], events.NodeStarted(NOW, "b", 0, 0))
            await settle(bench)
            bench.asked.records[102] = record(102, "inst-7-0/b/0", "PENDING", 1)
            assert list_ends(await settle(bench)) == [("b", 0, 0, 0, "node")]
            assert bench.watch.groups.list_requeued() == {PartToken("inst-7-0", "b", 0)}
            bench.watch.groups.forget_requeued({PartToken("inst-7-0", "b", 0)})
            assert bench.watch.groups.list_requeued() == set()

        play(story())

    def test_one_that_was_held_by_an_operator_waits(self, bench: Bench) -> None:
        async def story() -> None:
            bench.cursor = replace(bench.cursor, granted=False)
            bench.write("a", STANDS["a"])
            bench.be(102, "HELD")
            reports = await bench.look()
            assert [event for report in reports for event in report.events] == [
                events.Queued(at, "JobHeldUser", partition="main") for at in [reports[0].events[0].at]
            ]
            assert not bench.watch.groups.list_requeued()

        play(story())


def test_what_would_run_again_or_does_not_end_is_ended_with_the_look(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        cluster = open_over(bench.asked)
        bench.watch = cluster.watch
        for task in ("a", "b"):
            bench.write(task, STANDS[task], events.Launch(NOW, task, 0))
        await settle(bench)
        assert await cluster.order([Order("tok", str(bench.handle), events.Kill(NOW, "a", 0))]) == [None]
        bench.asked.records[102] = again = record(102, "inst-7-0/b/0", "PENDING", 1)
        monkeypatch.setattr(bench.asked, "own_queue", AsyncMock(return_value=(again,)))
        await bench.look()
        bench.link.commands.clear()
        later = time.time() + MARGIN + 1
        elapsed = time.clock_gettime(time.CLOCK_BOOTTIME) + MARGIN + 1
        monkeypatch.setattr("overspan.adapters.slurm.cluster.time.time", lambda: later)
        monkeypatch.setattr("overspan.adapters.slurm.cluster.time.clock_gettime", lambda which: elapsed)
        found = await cluster.observe({str(bench.handle): str(bench.cursor)}, 0)
        assert list_ends([event for report in found.reports for event in report.events]) == [("b", 0, 0, 0, "node")]
        assert [command[-2:] for command in bench.link.commands] == [("scancel", "101"), ("scancel", "102")]
        await cluster.close()

    play(story())
