"""The queue, references, waiting, events and logs."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.controller.fakes import Bench, end, give_order, play, start_job, turn, until

from overspan.adapters.contract import LogPart, LogRequest
from overspan.bridge.controller.views.listing import Selection, list_queue
from overspan.bridge.controller.views.logs import LogQuery
from overspan.bridge.model import events
from overspan.bridge.model.errors import InvalidRequest, NotFound, Unreachable


def test_the_queue_and_its_filters() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench, "a b")
        await bench.submit("solo hold")
        registry = bench.controller.recorder.registry

        def count(selection: Selection) -> int:
            return len(list_queue(registry, selection, bench.clock.now))

        assert count(Selection()) == 2
        assert count(Selection(tasks=True)) == 3
        assert count(Selection(tasks=True, ids=("1+1", "3"))) == 2
        assert count(Selection(states=frozenset({"RUNNING"}))) == 1
        assert count(Selection(users=frozenset({"you"}))) == 0
        assert count(Selection(ids=("77", "nonsense"))) == 0
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "COMPLETED")
        assert count(Selection()) == 1
        assert count(Selection(states=frozenset({"ALL"}))) == 2
        bench.clock.now += 400
        assert count(Selection(states=frozenset({"ALL"}))) == 1
        assert b'"raw_id"' in bench.controller.queue(Selection())
        parts = [part async for part in bench.controller.history(Selection(ids=("1",), tasks=True))]
        assert b"".join(parts).count(b'"COMPLETED"') == 2

    play(scene)


def test_references_by_number_task_and_name() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench, "a b-c")
        find = bench.controller.directory.find
        assert (await find("1")).task == ""
        assert (await find("1+1")).task == (await find("1.b-c")).task == (await find("2")).task == "b-c"
        assert (await find("local:native-1.0")).entry.job.id == 1
        for wrong in ("9", "1+2", "1.x", "1_3", "local:none"):
            with pytest.raises(NotFound):
                await find(wrong)
        for wrong in ("", "x", "0", "1" * 400):
            with pytest.raises(InvalidRequest):
                await find(wrong)

    play(scene)


def test_wait_answers_at_the_end() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        waiting = asyncio.ensure_future(bench.controller.wait("1", 30))
        await turn()
        assert not waiting.done()
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now, exit_code=4))
        assert await waiting == {"over": True, "state": "FAILED", "exit_code": 4, "signal": 0}
        assert (await bench.controller.wait("1", 0))["over"]

    play(scene)


def test_the_event_stream_follows_and_resumes() -> None:
    async def scene(bench: Bench) -> None:
        stream = bench.controller.events(0, follow=True)
        await bench.submit("one hold")
        first = await anext(stream)
        assert [row.seq for row in first] == [1]
        following = asyncio.ensure_future(anext(stream))
        await turn()
        assert not following.done()
        await give_order(bench, "1", events.Release)
        assert (await following)[0].seq == 2
        resumed = [row.seq async for rows in bench.controller.events(1, follow=False) for row in rows]
        assert resumed[0] == 2

    play(scene)


def test_logs_and_streams() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold")
        with pytest.raises(NotFound, match="has not started"):
            await bench.controller.logs.read("1", LogQuery())
        await start_job(bench)
        answer = await bench.controller.logs.read("2", LogQuery(offset=-6))
        assert (answer.part.data, answer.over) == (b"world\n", False)
        streams = await bench.controller.logs.list("2")
        assert [(row["task"], row["stream"], row["size"]) for row in streams] == [("one", "output", 12)]

    play(scene)


def test_a_stream_that_cannot_be_read_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench, "a b c")
        answers, silent = bench.cluster.logs, {"a", "b"}

        async def read(request: LogRequest) -> LogPart:
            if request.task in silent:
                raise Unreachable(f"the node of {request.task} does not answer")
            return await answers(request)

        monkeypatch.setattr(bench.cluster, "logs", read)
        told = await bench.controller.logs.list("1")
        assert [(row["task"], row.get("trouble", "")) for row in told] == [
            ("a", "the node of a does not answer"),
            ("b", "the node of b does not answer"),
            ("c", ""),
        ]
        silent.add("c")
        with pytest.raises(Unreachable, match="does not answer"):
            await bench.controller.logs.list("1")

    play(scene)
