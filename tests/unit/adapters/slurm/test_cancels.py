"""Cancelling arrays at once, and cancels of which the answer is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.slurm_jobs import Behaviour
from tests.fakes.slurm_world import SlurmWorld
from tests.unit.adapters.slurm.links import OK, Link
from tests.unit.adapters.slurm.records import record
from tests.unit.adapters.slurm.samples import read_script
from tests.unit.adapters.slurm.watch_bench import Asked, make_orderer

from overspan.adapters.contract import Order, Refusal, Report
from overspan.adapters.slurm.commands.listings import ExitStatus
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.groups.ordering import GroupOrderer
from overspan.adapters.slurm.handles import Handle, make_handle
from overspan.adapters.slurm.observation.watch import Watch
from overspan.adapters.slurm.orders.command_lines import cancel_arrays
from overspan.adapters.slurm.orders.delivered import DeliveredOrders
from overspan.adapters.slurm.orders.ordering import Orderer
from overspan.adapters.slurm.transports.transport import Done
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model import events
from overspan.bridge.model.states import State

JOB = read_script("#!/bin/sh\n", number=8)
HANDLE = make_handle(JOB, 42)


class Desk:
    """Orders for a single job, and its story; `end` is that of each command."""

    def __init__(self, end: Done | BaseException | None = OK) -> None:
        self.end = end
        self.link, self.orders = Link(), DeliveredOrders()
        self.link.answer = self.answer
        self.asked = Asked(self.link)
        self.watch = Watch(self.asked, self.orders, 1.0)
        self.orderer = make_orderer(self.asked, self.orders, self.watch)

    def answer(self, words: Sequence[str]) -> Done | None:
        if isinstance(self.end, BaseException):
            raise self.end
        return Done(0, b"%d" % time.time(), b"") if words[0] == "date" and self.end else self.end

    async def give(self, *orders: Order) -> list[Refusal | None]:
        return await self.orderer.order(orders)

    async def see(self, one: QueueRecord) -> None:
        self.asked.records[42] = one
        self.watch.next_ask = 0.0
        await self.watch.look({str(HANDLE): ""})
        while self.watch.busy:
            await asyncio.sleep(0)

    def tell(self) -> list[Report]:
        return self.watch.collect({str(HANDLE): ""})


def ended(reason: str, status: tuple[int, int], at: float) -> QueueRecord:
    one = replace(record(42, "inst-8-0", "FAILED", 0), reason=reason, exit=ExitStatus(*status))
    return replace(one, start=at - 5, end=at)


def follow(reports: Sequence[Report]) -> State:
    job = JOB
    for report in reports:
        for event in report.events:
            job = reduce(job, event)
    return job.state


class TestLostAnswers:
    @pytest.mark.parametrize("end", [None, asyncio.CancelledError(), RuntimeError("the daemon ends")])
    def test_the_end_is_not_told_before_it_is_known_what_came_of_a_cancel(self, end: Done | None) -> None:
        async def story() -> None:
            desk, now = Desk(end), time.time()
            cancel = Order("t", str(HANDLE), events.Cancel(now))
            try:
                await desk.give(cancel)
            except BaseException:
                assert end is not None
            await desk.see(ended("RaisedSignal", (0, 53), now + 1))
            assert desk.tell() == []
            desk.end = OK
            await desk.give(replace(cancel, again=True))
            assert follow(desk.tell()) is State.CANCELLED

        asyncio.run(story())

    @pytest.mark.parametrize("said", [b"", b"scancel: error: Job/step already completing or completed\n"])
    @pytest.mark.parametrize("status", [(0, 15), (0, 53), (3, 0)])
    def test_a_job_that_a_former_daemon_has_cancelled_ends_as_cancelled(
        self, said: bytes, status: tuple[int, int]
    ) -> None:
        async def story() -> None:
            desk, asked = Desk(Done(1, b"", said) if said else OK), time.time() - 60
            cancel = Order("t", str(HANDLE), events.Cancel(asked), again=True)
            # It has ended long before this daemon gave the order once more.
            await desk.see(ended("NonZeroExitCode", status, asked + 2))
            await desk.give(cancel)
            assert follow(desk.tell()) is State.CANCELLED

        asyncio.run(story())

    def test_one_that_had_ended_before_it_was_cancelled_keeps_its_end(self) -> None:
        async def story() -> None:
            for again in (False, True):
                desk, asked = Desk(OK), time.time() - 60
                await desk.see(ended("NonZeroExitCode", (3, 0), asked - 5))
                await desk.give(Order("t", str(HANDLE), events.Cancel(asked), again=again))
                assert follow(desk.tell()) is State.FAILED

        asyncio.run(story())

    def test_its_end_is_not_told_while_others_of_the_same_call_are_being_planned(self) -> None:
        """A former daemon gave the cancel; with it, this one has an order of a set that was not looked at yet."""

        async def story() -> None:
            desk, asked = Desk(OK), time.time() - 60
            told: list[Report] = []

            class Sets(GroupOrderer):
                def __init__(self) -> None:
                    pass

                async def await_first_poll(self, orders: Sequence[Order]) -> None:
                    await desk.see(ended("RaisedSignal", (0, 15), asked + 2))
                    told.extend(desk.tell())

            orderer = Orderer(desk.asked, desk.orders, desk.watch, Sets())
            await orderer.order([Order("t", str(HANDLE), events.Cancel(asked), again=True)])
            assert told == [] and follow(desk.tell()) is State.CANCELLED

        asyncio.run(story())


class TestArrays:
    def test_what_waits_of_an_array_is_ended_before_its_elements_one_by_one(self) -> None:
        async def story() -> None:
            desk = Desk(OK)
            handles = [Handle(9, 0, 100 + i, 0, 0, 1, 30, "main", index=i, array=50) for i in range(450)]
            now = events.Cancel(time.time())
            await desk.give(*(Order(f"t{i}", str(handle), now) for i, handle in enumerate(handles)))
            clock, whole, *_ = desk.link.commands
            assert clock[0] == "date"
            assert list(whole[5:9]) == ["cancel", "9", "9_0", "9_1"] and len(whole) == 7 + 450

        asyncio.run(story())

    @pytest.mark.parametrize(
        ("waiting", "whole"),
        [
            ("2,3", True),
            ("3", True),
            # Some that are not to be ended, and none at all.
            ("2,3,33", False),
            ("13", False),
            ("", False),
        ],
    )
    def test_an_array_is_ended_by_its_id_where_all_that_waits_of_it_is_meant(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: str, whole: bool
    ) -> None:
        world = SlurmWorld(tmp_path, monkeypatch)
        world.transport.behave = lambda job: Behaviour(None)
        ((*words,),) = cancel_arrays({1: [1, 2, 3]})

        async def story() -> None:
            # Where none waits, one runs.
            await world.transport.run(
                ["sbatch", f"--array={waiting or '1'}", *["--hold"] * bool(waiting)], b"#!/bin/sh"
            )
            await asyncio.sleep(5)
            done = await world.transport.run(words)
            assert (done.rc, done.words) == (0, "")
            assert (("scancel", "--state=PENDING", "1") in world.transport.commands) is whole
            assert all(job.over is whole for job in world.slurm.jobs.values())

        world.play(story())
