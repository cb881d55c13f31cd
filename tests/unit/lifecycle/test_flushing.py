"""An attempt with data on its way is COMPLETING until all of it is in the store, however its programs ended."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.lifecycle.strategies import CACHED
from tests.unit.lifecycle.world import World, auxiliary, group, kinds, primary

from overspan.bridge.lifecycle.flushing import has_sent_all
from overspan.bridge.model import events
from overspan.bridge.model.spec import RetryPolicy, TaskSpec
from overspan.bridge.model.storage import FlushPolicy, OnFlushFailure

WARN = FlushPolicy(on_failure=OnFlushFailure.WARN)


def writer(**fields: Any) -> TaskSpec:
    """A task that writes into a store."""
    return primary(storage=(CACHED,), **fields)


def flush(world: World, name: str = "trainer", error: str = "", left: int = 0) -> None:
    """Report that the data of the newest attempt is there, or is not."""
    assert world.apply(events.Flushed(world.now, name, world.attempt(name).number, error, left))
    world.decide()


class TestOrder:
    def test_programs_end_then_data_then_the_job(self) -> None:
        world = World(group(writer())).run()
        world.end("trainer")
        assert world.states() == "COMPLETING/Flushing trainer=COMPLETING/Flushing"
        world.apply(events.Flushing(world.now, "trainer", 0, 4096))
        assert (world.attempt("trainer").flush or pytest.fail()).left == 4096
        world.now += 5
        flush(world)
        assert world.states() == "COMPLETED/None trainer=COMPLETED/None"
        assert world.job.ended_at == world.now
        assert world.replayed() == world.job

    def test_a_task_without_such_folders_has_nothing_to_wait_for(self) -> None:
        world = World(group(primary())).run()
        world.end("trainer")
        assert world.states() == "COMPLETED/None trainer=COMPLETED/None"

    def test_what_never_started_has_nothing_to_send(self) -> None:
        world = World(group(writer()))
        world.grant()
        world.end("trainer", cause="launch")
        assert world.states() == "FAILED/JobLaunchFailure trainer=FAILED/JobLaunchFailure"

    def test_others_run_on_meanwhile(self) -> None:
        world = World(group(writer(), primary("other"))).run()
        world.end("trainer")
        assert world.states() == "RUNNING/None trainer=COMPLETING/Flushing other=RUNNING/None"
        world.end("other")
        assert world.states() == "COMPLETING/Flushing trainer=COMPLETING/Flushing other=COMPLETED/None"

    def test_what_needs_its_success_waits_for_its_data(self) -> None:
        reader = auxiliary("reader", storage=(CACHED,))
        world = World(group(writer(), reader)).run()
        world.end("trainer")
        assert world.states().endswith("reader=RUNNING/None")
        flush(world)
        assert kinds(world.taken[-2:]) == ["Notice reader", "Terminate reader"]

    def test_a_failure_is_tried_again_when_its_data_is_there(self) -> None:
        world = World(group(writer(retry=RetryPolicy(max_restarts_on_errors=1)))).run()
        world.end("trainer", 1)
        assert world.states() == "COMPLETING/Flushing trainer=COMPLETING/Flushing"
        flush(world)
        assert world.job.state.value == "PENDING"
        world.advance(10)
        assert world.task("trainer").state.value == "CONFIGURING"


class TestEnds:
    def test_a_cancel_waits_for_the_data(self) -> None:
        world = World(group(writer())).run()
        world.order(events.Cancel(world.now, by="ana"))
        world.stop_all()
        assert world.states() == "COMPLETING/Flushing trainer=COMPLETING/Flushing"
        flush(world)
        assert world.states() == "CANCELLED/None trainer=CANCELLED/None"

    def test_the_wall_time_too(self) -> None:
        world = World(group(writer(time=100))).run()
        world.advance(100)
        world.stop_all()
        flush(world)
        assert world.states() == "TIMEOUT/TimeLimit trainer=TIMEOUT/TimeLimit"

    def test_an_auxiliary_that_ends_with_its_group(self) -> None:
        world = World(group(primary(), auxiliary(storage=(CACHED,)))).run()
        world.end("trainer")
        world.stop_all()
        assert world.states() == "COMPLETING/Flushing trainer=COMPLETED/None server=COMPLETING/Flushing"
        flush(world, "server")
        assert world.states() == "COMPLETED/None trainer=COMPLETED/None server=COMPLETED/PrimariesDone"

    def test_a_cancel_without_the_data(self) -> None:
        world = World(group(writer())).run()
        world.end("trainer")
        assert kinds(world.order(events.Cancel(world.now, by="ana", flush=False))) == ["AbandonFlush trainer"]
        assert world.states() == "CANCELLED/None trainer=CANCELLED/None"
        assert world.attempt("trainer").detail == "some data is not in the store: cancelled without it"

    def test_a_cancel_without_the_data_ends_programs_first(self) -> None:
        world = World(group(writer())).run()
        world.order(events.Cancel(world.now, flush=False))
        assert kinds(world.stop_all()) == ["AbandonFlush trainer"]
        assert world.job.state.value == "CANCELLED"

    def test_a_second_cancel_may_give_the_data_up(self) -> None:
        world = World(group(writer())).run()
        world.order(events.Cancel(world.now))
        world.stop_all()
        world.order(events.Cancel(world.now, flush=False))
        assert world.job.state.value == "CANCELLED"

    def test_no_program_is_ended_while_only_data_is_on_its_way(self) -> None:
        world = World(group(writer())).run()
        world.end("trainer")
        assert world.order(events.Cancel(world.now)) == []
        flush(world)
        assert world.states() == "CANCELLED/None trainer=COMPLETED/None"


class TestFailures:
    @pytest.mark.parametrize(("policy", "state"), [(FlushPolicy(), "FAILED/FlushFailed"), (WARN, "COMPLETED/None")])
    def test_what_it_means_is_the_files_choice(self, policy: FlushPolicy, state: str) -> None:
        world = World(group(writer(flush=policy))).run()
        world.end("trainer")
        flush(world, error="the store lab does not answer", left=2 << 20)
        assert world.states() == f"{state} trainer={state}"
        assert world.attempt("trainer").detail == "2.0 MiB are not in the store: the store lab does not answer"

    def test_the_time_out_ends_it_whatever_those_do_that_send(self) -> None:
        world = World(group(writer(flush=FlushPolicy(timeout=60)))).run()
        world.end("trainer")
        world.apply(events.Flushing(world.now, "trainer", 0, 100))
        assert kinds(world.advance(59)) == []
        assert kinds(world.advance(1)) == ["AbandonFlush trainer"]
        assert world.states() == "FAILED/FlushFailed trainer=FAILED/FlushFailed"
        assert world.attempt("trainer").detail == "100 bytes are not in the store: flush.timeout (1:00) is over"
        told = [row.text for row in world.rows if row.cause == "AbandonFlush"]
        assert set(told) == {"no more data is sent: 100 bytes are not in the store: flush.timeout (1:00) is over"}

    def test_what_failed_by_itself_keeps_its_cause_and_code(self) -> None:
        world = World(group(writer())).run()
        world.end("trainer", 3)
        flush(world, error="no answer", left=5)
        assert world.states() == "FAILED/NonZeroExitCode trainer=FAILED/NonZeroExitCode"
        assert world.job.exit_code == 3
        assert "5 bytes are not in the store" in world.attempt("trainer").detail

    def test_missing_data_of_an_auxiliary_fails_the_job(self) -> None:
        world = World(group(primary(), auxiliary(storage=(CACHED,)))).run()
        world.end("trainer")
        world.stop_all()
        flush(world, "server", "no answer", 5)
        assert world.states() == "FAILED/FlushFailed trainer=COMPLETED/None server=FAILED/FlushFailed"

    def test_a_launch_that_is_lost_meanwhile_is_a_loss(self) -> None:
        world = World(group(writer())).run()
        world.end("trainer")
        world.apply(events.LaunchLost(world.now, 0, "node"))
        assert world.task("trainer").recoveries == 1

    def test_reports_of_other_attempts_are_late(self) -> None:
        world = World(group(writer())).run()
        assert not world.apply(events.Flushed(world.now, "trainer", 0))
        world.end("trainer")
        assert not world.apply(events.Flushed(world.now, "trainer", 1))
        assert not world.apply(events.Flushed(world.now, "nobody", 0))
        flush(world)
        assert not world.apply(events.Flushed(world.now, "trainer", 0))
        assert not world.apply(events.Flushing(world.now, "trainer", 0, 9))


@pytest.mark.parametrize(
    ("error", "left", "expected"), [("", 0, True), ("the store is away", 9, False), ("the store is away", 0, False)]
)
def test_whether_an_attempt_has_sent_all(error: str, left: int, expected: bool) -> None:
    """An empty file that could not be sent, such as a marker, is 0 bytes."""
    world = World(group(writer())).run()
    world.end("trainer")
    assert not has_sent_all(world.attempt("trainer"))
    flush(world, error=error, left=left)
    assert has_sent_all(world.attempt("trainer")) is expected


def test_progress_that_says_that_nothing_is_left_confirms_nothing() -> None:
    """A program that ends late may still write, and a node may die before it sends that."""
    world = World(group(writer())).run()
    world.end("trainer")
    assert world.apply(events.Flushing(world.now, "trainer", 0, 0))
    world.apply(events.LaunchLost(world.now, 0, "node"))
    assert not has_sent_all(world.task("trainer").attempts[0])


def test_a_clock_that_is_set_moves_the_time_out() -> None:
    world = World(group(writer(flush=FlushPolicy(timeout=60)))).run()
    world.end("trainer")
    world.now += 1000
    world.apply(events.ClockSet(world.now, 1000.0))
    assert world.advance(59) == []
    assert kinds(world.advance(1)) == ["AbandonFlush trainer"]
