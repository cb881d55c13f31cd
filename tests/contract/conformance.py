"""What every adapter must do, as tests. A test module of an adapter makes a class of its own from `Conformance`.

    class TestLocal(Conformance):
        @pytest.fixture
        def rig(self, tmp_path): ...

A rig gives the adapter and jobs that do something there. Optional abilities that an adapter lacks are skipped by name.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pytest

from overspan.adapters.abilities import Admission, Check, Plan
from overspan.adapters.contract import (
    NOT_HERE,
    Accepted,
    Adapter,
    Launch,
    LogRequest,
    Order,
    Refusal,
    Report,
    SomeUnanswered,
)
from overspan.adapters.traits import Traits
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model.elastic import MemberOf
from overspan.bridge.model.errors import NotFound
from overspan.bridge.model.events import Cancel, Event, Granted, Queued, SetPeers
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import Form
from overspan.bridge.model.states import State

DEADLINE = 300.0
OUTPUT = b"one\ntwo\nthree\n"


class Rig(Protocol):
    """One cluster to test on. Jobs have ids that were not used before."""

    task: str
    """The name of its jobs' only task."""

    def open(self) -> Adapter:
        """Open the cluster, a second time too."""

    def short_job(self, exit_code: int = 0) -> Job:
        """A job that writes OUTPUT and ends."""

    def long_job(self) -> Job:
        """A job that runs until it is cancelled."""

    def impossible_job(self) -> Job:
        """A job that the cluster can never run."""

    def clean(self) -> None:
        """Leave nothing behind; the adapters are closed."""


class Follower:
    """Reads an adapter's news as the daemon does: cursors and jobs move together."""

    def __init__(self, adapter: Adapter, jobs: Mapping[str, Job], cursors: Mapping[str, str] | None = None) -> None:
        self.adapter = adapter
        self.jobs = dict(jobs)
        self.cursors = dict.fromkeys(jobs, "") | dict(cursors or {})
        self.events: dict[str, list[Event]] = {handle: [] for handle in jobs}

    async def step(self, timeout: float) -> Sequence[Report]:
        """Take in what is there, or what comes within the timeout."""
        observation = await self.adapter.observe(self.cursors, timeout)
        for report in observation.reports:
            assert report.handle in self.cursors, "a report of a launch that nobody asked for"
            self.cursors[report.handle] = report.cursor
            for event in report.events:
                self.events[report.handle].append(event)
                self.jobs[report.handle] = reduce(self.jobs[report.handle], event)
        return observation.reports

    async def order(self, token: str, handle: str) -> None:
        """Cancel a launch; what cannot be carried out yet is ordered again, as the daemon does."""
        order = Order(token, handle, Cancel(time.time()))
        deadline = time.monotonic() + DEADLINE
        while (answer := await self._ask(order)) is not None:
            assert answer.transient and time.monotonic() < deadline, answer
            await self.step(0.5)

    async def _ask(self, order: Order) -> Refusal | None:
        """The answer; a refusal for now where there is none yet."""
        try:
            return (await self.adapter.order([order]))[0]
        except SomeUnanswered:
            return Refusal(order.token, "not answered yet", True)

    async def until(self, fact: Callable[[], bool], what: str) -> None:
        """Follow until something is so."""
        deadline = time.monotonic() + DEADLINE
        while not fact():
            assert time.monotonic() < deadline, f"not within {DEADLINE:g} s: {what}; {self.jobs}"
            await self.step(1.0)

    async def until_state(self, handle: str, state: State) -> None:
        """Follow until a job is in a state."""
        await self.until(lambda: self.jobs[handle].state is state, f"{handle} is {state.value}")

    def told(self, handle: str) -> list[Event]:
        """The launch's events but for the reasons of its wait, which have no cursor."""
        return [event for event in self.events[handle] if not isinstance(event, Queued)]


class Conformance:
    """The tests; a subclass gives the fixture `rig`."""

    @pytest.fixture
    def rig(self) -> Rig:
        raise NotImplementedError

    def test_it_is_an_adapter(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            assert isinstance(adapter, Adapter)
            assert adapter.name and isinstance(adapter.traits, Traits)

        run(rig, story)

    def test_a_job_runs_to_its_end(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            handle, follower = await start(adapter, rig.short_job())
            await follower.until_state(handle, State.COMPLETED)
            assert follower.jobs[handle].exit_code == 0
            assert follower.jobs[handle].late == 0

        run(rig, story)

    def test_an_exit_code_is_kept(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            handle, follower = await start(adapter, rig.short_job(7))
            await follower.until_state(handle, State.FAILED)
            assert follower.jobs[handle].exit_code == 7

        run(rig, story)

    def test_a_token_finds_its_own_launch(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            job = rig.short_job()
            launch = Launch("token-1", job)
            first = await adapter.submit([launch])
            assert await adapter.submit([launch]) == first
            follower = Follower(adapter, {handle_of(first[0]): job})
            await follower.until_state(handle_of(first[0]), State.COMPLETED)
            # Also when it is over: it ran once.
            assert await adapter.submit([launch]) == first
            await follower.step(0.0)
            grants = [event for event in follower.events[handle_of(first[0])] if isinstance(event, Granted)]
            assert len(grants) == 1

        run(rig, story)

    def test_nothing_is_made_of_a_launch_that_is_not_wanted(self, rig: Rig) -> None:
        """A cancelled job's submission is looked up: what is there is found, and nothing is made."""

        async def find(adapter: Adapter, launch: Launch) -> Accepted | Refusal:
            deadline = time.monotonic() + DEADLINE
            while True:
                try:
                    (answer,) = await adapter.submit([launch])
                    return answer
                except SomeUnanswered:
                    assert time.monotonic() < deadline, "it is not known whether it is there"
                    await asyncio.sleep(0.2)

        async def story(adapter: Adapter) -> None:
            job = rig.short_job()
            unwanted = Launch(f"unwanted-{job.id}", replace(job, held=True), wanted=False)
            refusal = as_refusal(await find(adapter, unwanted))
            assert not refusal.transient and refusal.message == NOT_HERE
            # Made after all, it is found: nothing of the first question is left.
            (made,) = await adapter.submit([Launch(unwanted.token, job)])
            assert await find(adapter, unwanted) == made
            follower = Follower(adapter, {handle_of(made): job})
            await follower.until_state(handle_of(made), State.COMPLETED)

        run(rig, story)

    def test_answers_come_in_the_order_of_the_launches(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            jobs = [rig.short_job(), rig.impossible_job(), rig.short_job()]
            answers = await adapter.submit([Launch(f"batch-{job.id}", job) for job in jobs])
            assert [answer.token for answer in answers] == [f"batch-{job.id}" for job in jobs]
            assert [type(answer) for answer in answers] == [Accepted, Refusal, Accepted]
            assert not as_refusal(answers[1]).transient
            assert handle_of(answers[0]) != handle_of(answers[2])
            assert await adapter.submit([]) == []

        run(rig, story)

    def test_each_event_comes_once(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            handle, follower = await start(adapter, rig.short_job())
            await follower.until_state(handle, State.COMPLETED)
            seen = follower.told(handle)
            assert len(seen) == len(set(seen))
            assert not await follower.step(0.0)
            # From the start it is the same story again.
            again = Follower(adapter, {handle: rig.short_job()})
            await again.until(lambda: len(again.told(handle)) >= len(seen), "the events again")
            assert again.told(handle) == seen
            assert again.cursors == follower.cursors

        run(rig, story)

    def test_an_old_cursor_repeats_what_came_after_it(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            job = rig.long_job()
            handle, follower = await start(adapter, job)
            await follower.until_state(handle, State.RUNNING)
            middle, before = dict(follower.cursors), len(follower.told(handle))
            await follower.order("cancel-old", handle)
            await follower.until_state(handle, State.CANCELLED)
            rest = follower.told(handle)[before:]
            for _ in range(2):
                again = Follower(adapter, {handle: job}, middle)
                await again.until(lambda again=again: len(again.told(handle)) >= len(rest), "the rest again")  # type: ignore[misc]
                assert again.told(handle) == rest

        run(rig, story)

    def test_an_observation_ends_with_its_timeout(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            began = time.monotonic()
            observation = await adapter.observe({}, 0.2)
            assert observation.reports == ()
            assert time.monotonic() - began < 30

        run(rig, story)

    def test_a_launch_without_a_trace_is_gone(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            handle, follower = await start(adapter, rig.short_job())
            missing = unknown_handle(handle)
            await follower.until_state(handle, State.COMPLETED)
            deadline = time.monotonic() + DEADLINE
            while not (reports := (await adapter.observe({missing: ""}, 5.0)).reports):
                assert time.monotonic() < deadline, "nothing is told of a launch without a trace"
            assert [(report.handle, report.gone) for report in reports] == [(missing, True)]

        run(rig, story)

    def test_an_order_is_carried_out_once(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            handle, follower = await start(adapter, rig.long_job())
            await follower.until_state(handle, State.RUNNING)
            order = Order("cancel-1", handle, Cancel(time.time(), by="somebody"))
            assert await adapter.order([order, order]) == [None, None]
            assert await adapter.order([order]) == [None]
            await follower.until_state(handle, State.CANCELLED)
            await follower.step(0.0)
            assert len([event for event in follower.events[handle] if isinstance(event, Cancel)]) == 1
            assert follower.jobs[handle].late == 0

        run(rig, story)

    def test_a_member_is_told_of_its_group(self, rig: Rig) -> None:
        """`SetPeers` changes nothing of a run, and a repeated one nothing at all; a later one takes its place."""

        async def story(adapter: Adapter) -> None:
            job = rig.long_job()
            task = replace(job.spec.tasks[0], form=Form.RUN)
            member = MemberOf(job.id, "conformance", 0, task.name, 3)
            spec = replace(job.spec, tasks=(task,), group=False, member=member)
            handle, follower = await start(adapter, new_job(job.id, spec, time.time()))
            await follower.until_state(handle, State.RUNNING)
            own = (task.name, 3, "n", "10.0.0.1", "RUNNING")
            first, second = (SetPeers(time.time(), number, (own,) * number) for number in (1, 2))
            assert await adapter.order([Order("peers-1", handle, first)]) == [None]
            both = [Order("peers-1", handle, first), Order("peers-2", handle, second)]
            assert await adapter.order(both) == [None, None]
            await follower.step(0.5)
            assert follower.jobs[handle].state is State.RUNNING
            await adapter.order([Order("peers-end", handle, Cancel(time.time()))])
            await follower.until_state(handle, State.CANCELLED)

        run(rig, story)

    def test_ending_what_has_ended_is_fine(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            handle, follower = await start(adapter, rig.short_job())
            await follower.until_state(handle, State.COMPLETED)
            assert await adapter.order([Order("late-1", handle, Cancel(time.time()))]) == [None]
            assert await adapter.order([Order("late-2", unknown_handle(handle), Cancel(time.time()))]) == [None]
            await follower.step(0.2)
            assert follower.jobs[handle].state is State.COMPLETED
            assert await adapter.order([]) == []

        run(rig, story)

    def test_logs_are_read_by_offset(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            handle, follower = await start(adapter, rig.short_job())
            await follower.until_state(handle, State.COMPLETED)
            whole = await adapter.logs(LogRequest(handle, rig.task))
            assert (whole.data, whole.offset, whole.size, whole.gap) == (OUTPUT, 0, len(OUTPUT), 0)
            part = await adapter.logs(LogRequest(handle, rig.task, offset=4, limit=3))
            assert (part.data, part.offset, part.size) == (b"two", 4, len(OUTPUT))
            end = await adapter.logs(LogRequest(handle, rig.task, offset=len(OUTPUT)))
            assert (end.data, end.offset) == (b"", len(OUTPUT))
            with pytest.raises(NotFound):
                await adapter.logs(LogRequest(handle, "no-such-task"))
            with pytest.raises(NotFound):
                await adapter.logs(LogRequest(handle, rig.task, attempt=99))

        run(rig, story)

    def test_what_nodes_show_adds_up(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            idle = await adapter.nodes()
            assert idle and len({(node.name, node.partition) for node in idle}) == len(idle)
            assert any(node.default for node in idle)
            handle, follower = await start(adapter, rig.long_job())
            await follower.until_state(handle, State.RUNNING)
            busy = await adapter.nodes()
            assert sum(node.cpus_used for node in busy) > sum(node.cpus_used for node in idle)
            for node in busy:
                assert 0 <= node.cpus_used <= node.cpus
                assert 0 <= node.memory_used <= node.memory
                assert 0 <= node.gpus_used <= node.gpus
            await follower.order("cancel-nodes", handle)
            await follower.until_state(handle, State.CANCELLED)
            deadline = time.monotonic() + DEADLINE
            while sum(node.cpus_used for node in await adapter.nodes()) > sum(node.cpus_used for node in idle):
                assert time.monotonic() < deadline, "what was booked is not given back"
                await adapter.observe({}, 0.1)

        run(rig, story)

    def test_work_outlives_its_adapter(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            handle, follower = await start(adapter, rig.long_job())
            await follower.until_state(handle, State.RUNNING)
            await adapter.close()
            await adapter.close()
            second = rig.open()
            try:
                follower.adapter = second
                assert not [report for report in await follower.step(0.5) if report.gone]
                assert follower.jobs[handle].state is State.RUNNING
                assert sum(node.cpus_used for node in await second.nodes()) > 0
                await follower.order("cancel-2", handle)
                await follower.until_state(handle, State.CANCELLED)
            finally:
                await second.close()

        run(rig, story)

    def test_an_order_may_come_before_the_first_look(self, rig: Rig) -> None:
        """As after a restart of the daemon, which gives the orders that it owes while it begins to observe."""

        async def story(adapter: Adapter) -> None:
            handle, follower = await start(adapter, rig.long_job())
            await follower.until_state(handle, State.RUNNING)
            await adapter.close()
            second = rig.open()
            try:
                follower.adapter = second
                await follower.order("cancel-first", handle)
                await follower.until_state(handle, State.CANCELLED)
            finally:
                await second.close()

        run(rig, story)

    def test_what_ended_meanwhile_is_told(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            job = rig.short_job(3)
            handle = handle_of((await adapter.submit([Launch("away", job)]))[0])
            await adapter.close()
            second = rig.open()
            try:
                follower = Follower(second, {handle: job})
                await follower.until_state(handle, State.FAILED)
                assert follower.jobs[handle].exit_code == 3
            finally:
                await second.close()

        run(rig, story)

    def test_check_says_what_works(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            if not isinstance(adapter, Check):
                pytest.skip("the adapter has no Check")
            findings = await adapter.check()
            assert findings
            assert all(finding.what and (finding.works or finding.remedy) for finding in findings)

        run(rig, story)

    def test_a_plan_names_every_task(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            if not isinstance(adapter, Plan):
                pytest.skip("the adapter has no Plan")
            assert rig.task in adapter.plan(rig.short_job())

        run(rig, story)

    def test_the_impossible_is_not_admitted(self, rig: Rig) -> None:
        async def story(adapter: Adapter) -> None:
            if not isinstance(adapter, Admission):
                pytest.skip("the adapter has no Admission")
            assert await adapter.admit(rig.short_job()) is None
            refusal = await adapter.admit(rig.impossible_job())
            assert refusal is not None and refusal.message and not refusal.transient

        run(rig, story)


def run(rig: Rig, story: Callable[[Adapter], Coroutine[Any, Any, None]]) -> None:
    """Tell a story with an adapter that is opened for it and closed after it."""
    asyncio.run(tell(rig, story))


async def tell(rig: Rig, story: Callable[[Adapter], Coroutine[Any, Any, None]]) -> None:
    """The same for a loop that runs already, such as one with a time of its own."""
    adapter = rig.open()
    try:
        async with asyncio.timeout(2 * DEADLINE):
            await story(adapter)
    finally:
        await adapter.close()


async def start(adapter: Adapter, job: Job) -> tuple[str, Follower]:
    """Launch one job and follow it."""
    handle = handle_of((await adapter.submit([Launch(f"token-{job.id}", job)]))[0])
    return handle, Follower(adapter, {handle: job})


def handle_of(answer: Accepted | Refusal) -> str:
    """The handle of a launch that must have been accepted."""
    assert isinstance(answer, Accepted), answer
    return answer.handle


def as_refusal(answer: Accepted | Refusal) -> Refusal:
    """An answer that must be a refusal."""
    assert isinstance(answer, Refusal), answer
    return answer


def unknown_handle(handle: str) -> str:
    """A handle of the same form that names no launch."""
    return re.sub(r'("format":)?\d+', lambda found: found[0] if found[1] else f"98765{found[0]}", handle)
