"""The controller over a fake store and a scripted cluster: submissions, news, orders, times and crashes."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.controller.fakes import Bench, begin, end, play, turn, until

from overspan.adapters.contract import Refusal
from overspan.bridge.controller.listing import Selection, list_queue
from overspan.bridge.controller.logs import LogQuery
from overspan.bridge.controller.orders import CancelRequest, Filters, Update
from overspan.bridge.controller.submission import Submission
from overspan.bridge.model import events
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound, Rejected, StoreFailed


async def _start(bench: Bench, text: str = "one") -> int:
    """Submit a job and let it run."""
    job_id = await bench.submit(text)
    await until(lambda: f"{job_id}.0" in bench.cluster.journals)
    bench.cluster.tell(f"{job_id}.0", *begin(bench.job(job_id), bench.clock.now))
    await until(lambda: bench.state(job_id) == "RUNNING")
    return job_id


async def _order(bench: Bench, ref: str, make: type, task: str = "") -> None:
    await bench.controller.orders.give(ref, lambda at, name: make(at), task)


# --- submission ------------------------------------------------------------------------------------------------------


def test_a_job_from_submission_to_end() -> None:
    async def scene(bench: Bench) -> None:
        job_id = await _start(bench)
        bench.clock.now += 5
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "COMPLETED")
        assert bench.ledger.jobs[job_id].cursor == "4"
        assert bench.ledger.rows == {} and len(bench.controller.recorder.outbox) == 0
        assert bench.controller.recorder.book.watched("local") == {}
        rows = await bench.controller.timeline("1")
        assert [row.end for row in rows if not row.task] == ["PENDING", "CONFIGURING", "RUNNING", "COMPLETED"]

    play(scene)


def test_the_answer_comes_after_the_commit_and_with_the_submission_owed() -> None:
    async def scene(bench: Bench) -> None:
        answer = await bench.controller.submitter.submit(Submission("script", "a b c", user="me"))
        assert (answer.id, answer.task_ids, answer.cluster) == (1, ("1+0", "1+1", "1+2"), "local")
        assert [row.kind for row in bench.ledger.rows.values()] == ["submit"]
        assert await bench.submit() == 4

    play(scene)


def test_a_full_disk_refuses_the_submission_as_a_whole() -> None:
    async def scene(bench: Bench) -> None:
        bench.ledger.broken = True
        with pytest.raises(StoreFailed):
            await bench.submit()
        assert bench.ledger.jobs == {} and len(bench.controller.recorder.book) == 0

    play(scene)


def test_what_is_refused_is_not_written() -> None:
    async def scene(bench: Bench) -> None:
        with pytest.raises(InvalidRequest, match="cannot carry out cron"):
            await bench.submit("one later")
        with pytest.raises(NotFound, match="no cluster 'moon'"):
            await bench.submit(cluster="moon")
        bench.cluster.impossible = "Requested node configuration is not available"
        with pytest.raises(Rejected, match="Requested node configuration"):
            await bench.submit()
        assert bench.ledger.transactions == 0

    play(scene)


def test_a_name_takes_the_id() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("a b", name="x-{id}")
        assert bench.job().spec.name == "x-1"
        with pytest.raises(InvalidRequest):
            await bench.submit(name="x-{what}")

    play(scene)


# --- dispatch --------------------------------------------------------------------------------------------------------


def test_refused_for_now_is_tried_again_with_the_reason_shown() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.refusals = [Refusal("", "too many jobs", transient=True, reason="QOSMaxSubmitJobPerUserLimit")]
        await bench.submit()
        await until(lambda: bench.job().reason == "QOSMaxSubmitJobPerUserLimit")
        document = await bench.controller.job("1")
        assert bench.clock.now < document["next_start"] <= bench.clock.now + 1.2
        await until(lambda: bool([row for row in bench.ledger.rows.values() if row.tries == 1]))
        await turn()
        assert bench.cluster.submits == 1
        bench.clock.advance(2)
        await until(lambda: bench.controller.recorder.book.watched("local") != {})
        assert (await bench.controller.job("1"))["next_start"] is None

    play(scene)


def test_a_final_refusal_ends_the_job_in_the_clusters_words() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.refusals = [Refusal("", "Invalid account")]
        await bench.submit()
        await until(lambda: bench.state() == "FAILED")
        assert "Invalid account" in [row.text for row in await bench.controller.timeline("1")]
        assert bench.ledger.rows == {}

    play(scene)


def test_an_unreachable_cluster_is_stale_and_nothing_fails() -> None:
    async def scene(bench: Bench) -> None:
        await _start(bench)
        bench.cluster.fail(True)
        await bench.submit("two")
        cluster = bench.controller.clusters.get("local")
        await until(lambda: cluster.stale_since is not None)
        bench.clock.advance(600)
        await turn()
        assert (bench.state(1), bench.state(2)) == ("RUNNING", "PENDING")
        assert b'"stale": [{"cluster": "local"' in bench.controller.queue(Selection())
        assert (await bench.controller.job("1"))["stale_since"] is not None
        bench.cluster.fail(False)
        bench.clock.advance(600)
        await until(lambda: len(bench.cluster.launched) == 2)
        await until(lambda: cluster.stale_since is None)

    play(scene)


def test_new_submissions_do_not_hammer_a_cluster_that_does_not_answer() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.fail(True)
        await bench.submit()
        await until(lambda: bench.cluster.submits == 1)
        for _ in range(20):
            await bench.submit()
        await turn()
        assert bench.cluster.submits == 1

    play(scene)


# --- orders ----------------------------------------------------------------------------------------------------------


def test_a_held_job_goes_when_it_is_released() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold")
        await turn()
        assert bench.cluster.submits == 0 and bench.job().reason == "JobHeldUser"
        await _order(bench, "1", events.Release)
        await until(lambda: bool(bench.cluster.launched))
        assert not bench.cluster.launched[0].held

    play(scene)


def test_cancel_before_the_launch_needs_no_cluster() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold")
        outcome = await bench.controller.orders.cancel(CancelRequest(("1", "9", "x"), by="me"))
        assert outcome.done == ["1"]
        assert [(ref, error.code) for ref, error in outcome.errors] == [("9", "not_found"), ("x", "invalid")]
        assert bench.state() == "CANCELLED" and bench.cluster.submits == 0

    play(scene)


def test_a_thousand_waiting_jobs_are_cancelled_in_one_transaction() -> None:
    async def scene(bench: Bench) -> None:
        await asyncio.gather(*(bench.submit("one hold") for _ in range(1000)))
        before = bench.ledger.transactions
        outcome = await bench.controller.orders.cancel(CancelRequest(filters=Filters(users=frozenset({"me"}))))
        assert len(outcome.done) == 1000 and bench.ledger.transactions == before + 1
        assert all(stored.job.over for stored in bench.ledger.jobs.values())

    play(scene)


def test_a_cancel_during_a_submission_reaches_the_launch() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.gate = asyncio.Event()
        await bench.submit()
        await until(lambda: bench.cluster.submits == 1)
        outcome = await bench.controller.orders.cancel(CancelRequest(("1",), by="me"))
        assert outcome.done == ["1"]
        await turn()
        assert bench.state() == "PENDING" and bench.cluster.orders == []
        bench.cluster.gate.set()
        await until(lambda: bool(bench.cluster.orders))
        order = bench.cluster.orders[0]
        assert order.handle == "1.0" and isinstance(order.event, events.Cancel)
        bench.cluster.tell("1.0", order.event)
        await until(lambda: bench.state() == "CANCELLED")
        assert bench.ledger.rows == {}

    play(scene)


def test_a_cancel_during_a_submission_that_is_refused_for_now_counts_too() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.gate = asyncio.Event()
        bench.cluster.refusals = [Refusal("", "busy", transient=True, reason="Resources")]
        await bench.submit()
        await until(lambda: bench.cluster.submits == 1)
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        bench.cluster.gate.set()
        await until(lambda: bench.state() == "CANCELLED")
        assert bench.ledger.rows == {} and bench.cluster.launched == []

    play(scene)


def test_a_delivered_cancel_survives_the_loss_of_its_launch() -> None:
    async def scene(bench: Bench) -> None:
        await _start(bench)
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        await until(lambda: bool(bench.cluster.orders))
        # The launch is lost before its supervisor has read the order: without the order it would start again.
        bench.cluster.lose("1.0")
        await until(lambda: bench.state() == "CANCELLED")
        await turn()
        assert len(bench.cluster.launched) == 1 and bench.ledger.rows == {}

    play(scene)


def test_a_repeated_cancel_is_one_order() -> None:
    async def scene(bench: Bench) -> None:
        await _start(bench)
        for _ in range(3):
            assert (await bench.controller.orders.cancel(CancelRequest(("1",)))).done == ["1"]
        await turn()
        assert len(bench.cluster.orders) == 1

    play(scene)


def test_orders_that_do_not_fit_are_conflicts() -> None:
    async def scene(bench: Bench) -> None:
        await _start(bench)
        await bench.submit("one hold")
        with pytest.raises(Conflict, match="no longer pending"):
            await _order(bench, "1", events.Hold)
        with pytest.raises(Conflict, match="pending execution"):
            await _order(bench, "2", events.Requeue)
        with pytest.raises(NotFound):
            await _order(bench, "7", events.Hold)
        with pytest.raises(InvalidRequest, match="no task 'x'"):
            await bench.controller.orders.give("1", lambda at, task: events.Restart(at, task), "x")
        outcome = await bench.controller.orders.cancel(CancelRequest(("2",), signal="USR1"))
        assert [error.code for _, error in outcome.errors] == ["conflict"]
        outcome = await bench.controller.orders.cancel(CancelRequest(("2",), signal="9"))
        assert outcome.done == ["2"] and bench.state(2) == "CANCELLED"

    play(scene)


def test_signals_go_to_the_task_that_is_meant() -> None:
    async def scene(bench: Bench) -> None:
        await _start(bench, "a b")
        await bench.controller.orders.cancel(CancelRequest(("1+1",), signal="SIGUSR1", batch_only=True))
        await until(lambda: bool(bench.cluster.orders))
        event = bench.cluster.orders[0].event
        assert isinstance(event, events.Signal) and (event.signal, event.task, event.batch_only) == (10, "b", True)
        await until(lambda: bench.ledger.rows == {})

    play(scene)


def test_updates_before_and_after_the_launch() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold")
        values = {"time_limit": 120, "priority": 7, "comment": "hi", "begin": bench.clock.now + 60}
        await bench.controller.orders.update("1", Update(values, "me"))
        job = bench.job()
        assert (job.tasks[0].time, job.priority, job.labels["comment"]) == (120, 7, "hi")
        with pytest.raises(InvalidRequest):
            await bench.controller.orders.update("1", Update({"priority": 9, "partition": "x"}))
        assert bench.job().priority == 7
        await _order(bench, "1", events.Release)
        assert bench.job().reason == "BeginTime"
        bench.clock.advance(61)
        await until(lambda: bool(bench.cluster.launched))
        await until(lambda: bench.controller.recorder.book.watched("local") != {})
        await bench.controller.orders.update("1", Update({"time_limit": None}))
        await until(lambda: bool(bench.cluster.orders))

    play(scene)


# --- launches that come back -----------------------------------------------------------------------------------------


def test_a_requeued_job_is_submitted_again_by_itself() -> None:
    async def scene(bench: Bench) -> None:
        await _start(bench)
        await _order(bench, "1", events.Requeue)
        await until(lambda: bool(bench.cluster.orders))
        job = bench.job()
        bench.cluster.tell("1.0", bench.cluster.orders[0].event, *end(job, bench.clock.now + 1, exit_code=1))
        await until(lambda: "1.1" in bench.cluster.journals)
        assert bench.job().launch == 1
        # What the old launch still says is of no interest.
        bench.cluster.tell("1.0", events.LaunchLost(bench.clock.now, 0, "node"))
        bench.cluster.tell("1.1", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        assert len(bench.job().tasks[0].attempts) == 2

    play(scene)


def test_a_lost_launch_comes_back_after_its_backoff() -> None:
    async def scene(bench: Bench) -> None:
        await _start(bench)
        bench.cluster.lose("1.0")
        await until(lambda: bench.state() == "PENDING")
        assert bench.job().reason == "BeginTime"
        await turn()
        assert len(bench.cluster.launched) == 1
        bench.clock.advance(5)
        await until(lambda: "1.1" in bench.cluster.journals)
        assert bench.job().tasks[0].recoveries == 1

    play(scene)


def test_a_finished_job_can_be_requeued() -> None:
    async def scene(bench: Bench) -> None:
        await _start(bench)
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "COMPLETED")
        bench.clock.now += 10_000
        bench.controller.queue(Selection())
        assert bench.controller.recorder.book.get(1) is None
        await _order(bench, "1", events.Requeue)
        await until(lambda: "1.1" in bench.cluster.journals)

    play(scene)


# --- times -----------------------------------------------------------------------------------------------------------


def test_begin_times_and_deadlines() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one begin=100")
        await bench.submit("one hold deadline=50")
        assert bench.job(1).reason == "BeginTime"
        assert set(bench.clock.due()) == {"job:1", "job:2"}
        bench.clock.advance(60)
        await until(lambda: bench.state(2) == "DEADLINE")
        assert bench.cluster.submits == 0
        bench.clock.advance(60)
        await until(lambda: bool(bench.cluster.launched))
        assert bench.cluster.launched[0].reason == "None"

    play(scene)


# --- crashes ---------------------------------------------------------------------------------------------------------


def test_a_restart_takes_up_where_the_other_stopped() -> None:
    async def scene(bench: Bench) -> None:
        await _start(bench)
        await bench.submit("one begin=100")
        await bench.kill()
        # News while nobody is there.
        bench.cluster.tell("1.0", *end(bench.ledger.jobs[1].job, bench.clock.now, exit_code=3))
        await bench.start()
        await until(lambda: bench.state(1) == "FAILED")
        assert bench.job(1).exit_code == 3 and bench.job(1).late == 0
        bench.clock.advance(101)
        await until(lambda: "2.0" in bench.cluster.journals)

    play(scene)


@pytest.mark.parametrize("steps", range(0, 40, 3))
def test_killed_anywhere_a_job_runs_exactly_once(steps: int) -> None:
    async def scene(bench: Bench) -> None:
        asking = asyncio.ensure_future(bench.submit())
        for _ in range(steps):
            await asyncio.sleep(0)
        asking.cancel()
        await bench.kill()
        await bench.start()
        if not bench.ledger.jobs:
            return
        await until(lambda: bench.controller.recorder.book.watched("local") != {})
        assert len(bench.cluster.launched) == 1
        if len(bench.cluster.journals["1.0"]) == 0:
            bench.cluster.tell("1.0", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        assert bench.ledger.rows == {}

    play(scene)


def test_an_owed_cancel_is_delivered_by_the_next_daemon() -> None:
    async def scene(bench: Bench) -> None:
        await _start(bench)
        bench.cluster.fail(True)
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        await bench.kill()
        bench.cluster.fail(False)
        await bench.start()
        await until(lambda: bool(bench.cluster.orders))

    play(scene)


def test_a_failed_write_of_news_is_made_up_for() -> None:
    async def scene(bench: Bench) -> None:
        await _start(bench)
        bench.ledger.broken = True
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        asked = bench.cluster.asked
        await until(lambda: bench.cluster.asked > asked or bool(bench.clock.due()))
        assert bench.state() == "RUNNING"
        assert bench.controller.clusters.get("local").stale_since is None
        bench.ledger.broken = False
        bench.clock.advance(10)
        await until(lambda: bench.state() == "COMPLETED")

    play(scene)


# --- looking ---------------------------------------------------------------------------------------------------------


def test_the_queue_and_its_filters() -> None:
    async def scene(bench: Bench) -> None:
        await _start(bench, "a b")
        await bench.submit("solo hold")
        book = bench.controller.recorder.book

        def count(selection: Selection) -> int:
            return len(list_queue(book, selection, bench.clock.now))

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
        assert (await bench.controller.history(Selection(ids=("1",), tasks=True))).count(b'"COMPLETED"') == 2

    play(scene)


def test_references_by_number_task_and_name() -> None:
    async def scene(bench: Bench) -> None:
        await _start(bench, "a b-c")
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
        await _start(bench)
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
        await _order(bench, "1", events.Release)
        assert (await following)[0].seq == 2
        resumed = [row.seq async for rows in bench.controller.events(1, follow=False) for row in rows]
        assert resumed[0] == 2

    play(scene)


def test_logs_and_streams() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one hold")
        with pytest.raises(NotFound, match="has not started"):
            await bench.controller.logs.read("1", LogQuery())
        await _start(bench)
        answer = await bench.controller.logs.read("2", LogQuery(offset=-6))
        assert (answer.part.data, answer.over) == (b"world\n", False)
        streams = await bench.controller.logs.list("2")
        assert [(row["task"], row["stream"], row["size"]) for row in streams] == [("one", "output", 12)]

    play(scene)
