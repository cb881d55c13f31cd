"""Wall time, warnings before it, and deadlines."""

from __future__ import annotations

import pytest
from tests.unit.lifecycle.world import World, auxiliary, causes, group, kinds, primary

from overspan.bridge.model import events
from overspan.bridge.model.events import Warn
from overspan.bridge.model.spec import RetryPolicy, SignalBefore
from overspan.bridge.model.states import State


def test_the_time_limit_is_final() -> None:
    world = World(group(primary(time=100, retry=RetryPolicy(max_restarts_on_errors=9)), auxiliary())).run()
    assert world.advance(99) == [Warn(1040.0, "trainer", 0, 1100.0)]
    assert world.advance(1) == [events.Terminate(1100.0, "trainer", 0, "time", 1130.0)]
    world.stop_all()
    world.stop_all()
    assert world.states() == "TIMEOUT/TimeLimit trainer=TIMEOUT/TimeLimit server=CANCELLED/PrimaryFailed"


def test_a_program_that_ends_well_on_term_has_still_timed_out() -> None:
    world = World(group(primary(time=100))).run()
    world.advance(101)
    world.end("trainer")
    assert world.job.state is State.TIMEOUT


def test_a_hard_program_is_killed_after_its_grace() -> None:
    world = World(group(primary(time=30, grace_period=5))).run()
    assert kinds(world.advance(34)) == ["Terminate trainer"]
    assert kinds(world.advance(1)) == ["Kill trainer"]


def test_each_attempt_has_the_whole_time() -> None:
    world = World(group(primary(time=100, retry=RetryPolicy(max_restarts_on_errors=1)))).run()
    world.advance(90)
    world.end("trainer", 1)
    world.advance(10)
    world.begin()
    assert world.wake_at == 1100 + 40
    assert kinds(world.advance(80)) == ["Warn trainer"]


def test_an_attempt_that_waits_for_its_place_spends_nothing() -> None:
    world = World(group(primary(time=100, num_nodes=2)))
    world.grant()
    assert world.advance(1000) == []
    assert world.apply(events.NodeStarted(world.now, "trainer", 0, 1, 0))
    assert world.decide() == []
    assert world.wake_at == 2000 + 40
    world.advance(20)
    world.begin()
    assert kinds(world.advance(99)) == ["Warn trainer"]
    assert kinds(world.advance(1)) == ["Terminate trainer"]


@pytest.mark.parametrize(
    ("signal", "time", "at", "name", "batch"),
    [
        (None, 600, 540, "", False),
        (None, 61, 1, "", False),
        (SignalBefore("USR1", 120), 600, 480, "USR1", False),
        (SignalBefore("USR1", 120, batch_only=True), 600, 480, "USR1", True),
        (SignalBefore("USR1", 60), 60, 0, "USR1", False),
        (SignalBefore("USR1", 600), 60, 0, "USR1", False),
    ],
)
def test_the_warning(signal: SignalBefore | None, time: int, at: int, name: str, batch: bool) -> None:
    world = World(group(primary(time=time, signal=signal)))
    world.grant()
    made = [*world.begin(), *world.advance(time - 1)]
    told = [event for event in made if isinstance(event, Warn)]
    assert told == [Warn(1000.0 + at, "trainer", 0, 1000.0 + time, name, batch)]


@pytest.mark.parametrize("time", [1, 30, 60])
def test_short_limits_have_no_warning_unless_asked_for(time: int) -> None:
    world = World(group(primary(time=time))).run()
    assert kinds(world.advance(time)) == ["Terminate trainer"]


def test_without_a_limit_nothing_is_due() -> None:
    world = World(group(primary())).run()
    assert world.advance(10**9) == []
    assert world.wake_at is None


def test_an_auxiliary_s_limit_holds_in_its_delay() -> None:
    world = World(group(primary(), auxiliary(time=50, termination_delay=100))).run()
    world.end("trainer")
    assert causes(world.advance(60)) == {"server": "time"}
    world.stop_all()
    assert world.states() == "COMPLETED/None trainer=COMPLETED/None server=TIMEOUT/TimeLimit"


# --- changing the limit ----------------------------------------------------------------------------------------------


def test_a_longer_limit_moves_the_end_and_tells_it_again() -> None:
    world = World(group(primary(time=100))).run()
    assert kinds(world.advance(50)) == ["Warn trainer"]
    assert world.order(events.SetTime(world.now, 1000)) == []
    assert world.wake_at == 1940.0
    assert world.advance(900) == [Warn(1940.0, "trainer", 0, 2000.0)]
    assert kinds(world.advance(50)) == ["Terminate trainer"]


def test_the_same_limit_again_tells_nothing() -> None:
    world = World(group(primary(time=100))).run()
    world.advance(50)
    assert world.order(events.SetTime(world.now, 100)) == []


def test_a_shorter_limit_may_end_it_now() -> None:
    world = World(group(primary(time=1000))).run()
    world.advance(500)
    assert kinds(world.order(events.SetTime(world.now, 400))) == ["Terminate trainer"]


def test_no_limit_and_a_limit_where_there_was_none() -> None:
    world = World(group(primary(time=100), auxiliary())).run()
    world.order(events.SetTime(world.now, None))
    assert world.advance(10**6) == []
    world.order(events.SetTime(world.now, 10**6 + 100, "server"))
    assert kinds(world.advance(200)) == ["Warn server", "Terminate server", "Kill server"]
    assert world.task("trainer").time == 0


def test_a_limit_of_an_unknown_task_or_an_ended_job_is_late() -> None:
    world = World(group(primary())).run()
    assert not world.apply(events.SetTime(world.now, 5, "nobody"))
    world.end("trainer")
    assert not world.apply(events.SetTime(world.now, 5))


def test_a_changed_limit_survives_a_requeue() -> None:
    world = World(group(primary(time=1000))).run()
    world.order(events.SetTime(world.now, 30))
    world.order(events.Requeue(world.now))
    world.stop_all()
    world.run()
    assert causes(world.advance(30)) == {"trainer": "time"}


# --- deadline --------------------------------------------------------------------------------------------------------


def test_a_waiting_job_ends_at_its_deadline() -> None:
    world = World(group(primary(), deadline=1500.0))
    assert world.decide() == []
    assert world.wake_at == 1500.0
    assert kinds(world.advance(500)) == ["Expire"]
    assert world.states() == "DEADLINE/DeadLine trainer=DEADLINE/DeadLine"


def test_a_waiting_job_ends_when_its_limit_leaves_no_time_before_its_deadline() -> None:
    world = World(group(primary(time=300), auxiliary(time=100), deadline=1500.0))
    assert world.decide() == [] and world.wake_at == 1200.0
    assert kinds(world.advance(200)) == ["Expire"]
    assert world.states().startswith("DEADLINE/DeadLine")
    # A lower limit that would do counts, as --time-min.
    shorter = World(group(primary(time=300, native={"slurm": {"time-min": "2"}}), deadline=1500.0))
    assert shorter.decide() == [] and shorter.wake_at == 1380.0
    # What is held waits on, as in Slurm, and what runs has until the deadline.
    held = World(group(primary(time=300), deadline=1500.0, hold=True))
    assert held.decide() == [] and held.wake_at == 1500.0
    running = World(group(primary(time=300), deadline=1250.0)).run()
    assert running.decide() == [] and running.wake_at is not None and running.wake_at <= 1250.0


def test_a_running_job_is_ended_at_its_deadline() -> None:
    world = World(group(primary(), auxiliary(termination_delay=99), deadline=1500.0)).run()
    assert causes(world.advance(500)) == {"trainer": "deadline", "server": "deadline"}
    world.stop_all()
    assert world.states() == "DEADLINE/DeadLine trainer=DEADLINE/DeadLine server=DEADLINE/DeadLine"


def test_a_job_between_attempts_ends_at_its_deadline() -> None:
    retry = RetryPolicy(max_restarts_on_errors=1)
    world = World(group(primary(retry=retry), deadline=1000.1)).run()
    world.end("trainer", 1)
    world.advance(1)
    assert world.job.state is State.DEADLINE


def test_a_start_timeout_fails_the_job() -> None:
    world = World(group(primary()))
    world.order(events.Expire(world.now, "never_started"))
    assert world.states() == "FAILED/StartTimeout trainer=FAILED/StartTimeout"


@pytest.mark.parametrize("cause", ["success", "requeue", "cancel", "nonsense", ""])
def test_a_senseless_expiry_changes_nothing(cause: str) -> None:
    world = World(group(primary()))
    assert not world.apply(events.Expire(world.now, cause))


def test_a_group_across_that_gave_back_at_its_start_gate_asks_again_and_spends_nothing() -> None:
    tasks = [primary(cluster="leo"), auxiliary(cluster="kube")]
    world = World(group(*tasks))
    pauses = []
    for launch in range(1, 8):
        assert world.apply(events.LaunchLost(world.now, launch - 1, "never_started"))
        job = world.job
        assert (job.state, job.launch, job.restarts, job.backs_off) == (State.PENDING, launch, 0, True)
        assert all(task.restarts == task.recoveries == 0 for task in job.tasks)
        pauses.append((job.begin or 0.0) - world.now)
    # A part that never fits does not have the other's nodes held nearly all the time.
    assert pauses == [60, 120, 240, 480, 960, 1800, 1800]
    # A launch that is lost otherwise is paid for, and one cluster's group still pays for what never started.
    assert world.apply(events.LaunchLost(world.now, 7, "node"))
    assert [task.recoveries for task in world.job.tasks] == [1, 0]
    alone = World(group(primary(), auxiliary()))
    assert alone.apply(events.LaunchLost(alone.now, 0, "never_started"))
    assert [task.recoveries for task in alone.job.tasks] == [1, 0]


def test_a_grant_ends_the_row_of_launches_that_gave_up_at_the_gate() -> None:
    world = World(group(primary(cluster="leo"), auxiliary(cluster="kube")))
    for launch in (0, 1):
        assert world.apply(events.LaunchLost(world.now, launch, "never_started"))
    assert world.job.gate_timeouts == 2
    assert world.apply(events.Granted(world.now, ()))
    assert world.job.gate_timeouts == 0 and world.job.unstarted == 2
