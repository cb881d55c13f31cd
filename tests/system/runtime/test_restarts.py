"""Ends and new beginnings on real processes: delays, notices, grace, limits, retries, exit codes."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.system.runtime.clock import HOUR, SLACK, Clock

from overspan.bridge.model.causes import Cause
from overspan.bridge.model.spec import (
    Backoff,
    Form,
    OnFailure,
    RestartScope,
    RetryPolicy,
    SignalBefore,
    Streams,
    TaskSpec,
)
from overspan.bridge.model.states import State

if TYPE_CHECKING:
    from tests.system.runtime.conftest import Hosts

SOON = Backoff(first=0.05)
FOREVER = "exec sleep 300"
GRACE = 300
SERVICE = TaskSpec("aux", run=FOREVER, primary=False, grace_period=GRACE)


def _time(seconds: float) -> Any:
    """A time as it is in a journal."""
    return pytest.approx(seconds, rel=0, abs=0.001)


def test_auxiliary_is_noticed_lives_its_delay_and_is_terminated(hosts: Hosts) -> None:
    script = """
    trap 'cp "$OVERSPAN_RUN_DIR/notice" seen; echo noticed' USR1
    trap 'echo saved; exit 0' TERM
    : > up
    while :; do sleep 0.02; done"""
    clock = Clock(hosts.work)
    trainer = TaskSpec("trainer", run="while [ ! -e up ]; do sleep 0.02; done")
    aux = replace(SERVICE, run=script, termination_delay=HOUR, notice_signal="USR1")
    launched = hosts.add(trainer, aux)
    hosts.start(launched.host, clock.code)
    launched.until("Notice")
    hosts.wait_until(lambda: launched.log("aux.0.0.0") == "noticed\n", 20, "the notice")
    assert not launched.events("Terminate")
    clock.move(HOUR)
    job = hosts.finish(launched)
    assert (job.state, job.task("aux").state) == (State.COMPLETED, State.COMPLETED)
    assert launched.log("aux.0.0.0") == "noticed\nsaved\n"
    line = json.loads((hosts.work / "seen").read_text())
    notice, terminate = launched.events("Notice")[0], launched.events("Terminate")[0]
    assert line == {"kind": "primaries_done", "task": "aux", "at": notice["at"], "deadline": notice["deadline"]}
    assert notice["deadline"] == _time(launched.events("NodeEnded", "trainer")[0]["at"] + HOUR)
    assert 0 <= terminate["at"] - notice["deadline"] < SLACK
    assert terminate["kill_at"] == _time(terminate["at"] + GRACE)


def test_what_ignores_term_is_killed_with_its_children(hosts: Hosts) -> None:
    stubborn = "trap '' TERM; (setsid sleep 300 &); : > up; while :; do sleep 0.02; done"
    trainer = TaskSpec("trainer", run="while [ ! -e up ]; do sleep 0.02; done")
    clock = Clock(hosts.work)
    launched = hosts.add(trainer, replace(SERVICE, run=stubborn, grace_period=HOUR))
    hosts.start(launched.host, clock.code)
    launched.until("Terminate")
    clock.move(HOUR)
    attempt = hosts.finish(launched).task("aux").attempts[0]
    assert (attempt.cause, attempt.signal) == (Cause.PRIMARIES_DONE, signal.SIGKILL)
    terminate, kill = launched.events("Terminate")[0], launched.events("Kill")[0]
    assert HOUR <= kill["at"] - terminate["at"] < HOUR + SLACK
    assert launched.record("aux.0.0.0").strays_left == 0


# Its first KILL reaches nobody, as when a program was just being started.
MISSES = """
import signal, sys
from overspan.bridge.runtime.local import supervisor
from overspan.bridge.runtime.core import shim_control

real, missed = shim_control.send, []

def send(shim, signum, scope="tree"):
    if signum == signal.SIGKILL and not missed:
        missed.append(shim)
        return False
    return real(shim, signum, scope)

shim_control.send = send
sys.exit(supervisor.main(sys.argv[1:]))
"""


def test_kill_is_sent_again_to_what_it_missed(hosts: Hosts) -> None:
    trainer = TaskSpec("trainer", run="until [ -e up ]; do sleep 0.02; done")
    stubborn = replace(SERVICE, run="trap '' TERM; : > up; while :; do sleep 0.02; done", grace_period=0)
    launched = hosts.add(trainer, stubborn)
    hosts.start(launched.host, MISSES)
    assert hosts.finish(launched).task("aux").attempts[0].signal == signal.SIGKILL
    kill, ended = launched.events("Kill")[0]["at"], launched.events("NodeEnded", "aux")[0]["at"]
    assert 1 <= ended - kill < SLACK


def test_failing_primary_ends_all_at_once(hosts: Hosts) -> None:
    other = TaskSpec("other", run=FOREVER)
    launched = hosts.run(TaskSpec("trainer", run="exit 3"), other, replace(SERVICE, termination_delay=HOUR))
    job = launched.replay()
    assert (job.state, job.reason, job.exit_code) == (State.FAILED, "NonZeroExitCode", 3)
    assert [job.task(name).state for name in ("other", "aux")] == [State.CANCELLED] * 2
    failed = launched.events("NodeEnded", "trainer")[0]["at"]
    assert all(line["at"] - failed < SLACK for line in launched.events("Terminate"))


def test_time_limit_warns_then_ends(hosts: Hosts) -> None:
    script = "trap 'echo warned' USR2; : > up; while :; do sleep 0.02; done"
    clock = Clock(hosts.work)
    before = SignalBefore("USR2", seconds=HOUR, batch_only=True)
    launched = hosts.add(TaskSpec("job", run=script, time=2 * HOUR, signal=before, grace_period=GRACE))
    hosts.start(launched.host, clock.code)
    hosts.wait_until((hosts.work / "up").exists, 20, "the trap")
    assert not launched.events("Warn")
    clock.move(HOUR)
    hosts.wait_until(lambda: launched.log("job.0.0.0") == "warned\n", 20, "the warning")
    assert not launched.events("Terminate")
    clock.move(2 * HOUR)
    job = hosts.finish(launched)
    assert (job.state, job.reason) == (State.TIMEOUT, "TimeLimit")
    assert launched.log("job.0.0.0") == "warned\n"
    begun, ended = launched.events("NodeStarted")[0]["at"], launched.events("Terminate")[0]["at"]
    assert 2 * HOUR <= ended - begun < 2 * HOUR + SLACK
    line = json.loads((launched.path / "notice").read_text())
    assert (line["kind"], line["deadline"]) == ("time_limit", _time(begun + 2 * HOUR))


@pytest.mark.parametrize(
    ("script", "state", "code", "number"),
    [
        ("exit 0", State.COMPLETED, 0, 0),
        ("exit 143", State.FAILED, 143, 0),
        ("exit 255", State.FAILED, 255, 0),
        ("kill -TERM $$", State.FAILED, 0, signal.SIGTERM),
        ("kill -SEGV $$", State.FAILED, 0, signal.SIGSEGV),
        ("no-such-program-here", State.FAILED, 127, 0),
    ],
)
def test_exit_codes(hosts: Hosts, script: str, state: State, code: int, number: int) -> None:
    job = hosts.run(TaskSpec("job", run=f"ulimit -c 0\n{script}")).replay()
    assert (job.state, job.exit_code, job.signal) == (state, code, number)


def test_failed_set_up_is_told_apart(hosts: Hosts) -> None:
    launched = hosts.run(TaskSpec("job", setup="echo preparing; exit 4", run="echo never"))
    job = launched.replay()
    assert (job.state, job.reason, job.exit_code) == (State.FAILED, "SetupFailed", 4)
    assert launched.log("job.0.0.0") == "preparing\n"


def test_set_up_precedes_the_run_and_leaves_its_code_alone(hosts: Hosts) -> None:
    launched = hosts.run(TaskSpec("job", setup="echo preparing", run="echo running $1; exit 5", args=("fast",)))
    job = launched.replay()
    assert (job.reason, job.exit_code) == ("NonZeroExitCode", 5)
    assert launched.log("job.0.0.0") == "preparing\nrunning fast\n"


@pytest.mark.parametrize(
    ("task", "detail"),
    [
        (TaskSpec("job", run="echo ran", workdir="/nonexistent/place"), "/nonexistent/place"),
        (TaskSpec("job", form=Form.BATCH, run="#!/bin/sh\n", streams=Streams(output="missing/out")), "missing/out"),
        (TaskSpec("job", form=Form.BATCH, run="#!/bin/sh\n", streams=Streams(input="missing-in")), "missing-in"),
    ],
)
def test_what_cannot_be_launched(hosts: Hosts, task: TaskSpec, detail: str) -> None:
    launched = hosts.run(task)
    job = launched.replay()
    assert (job.state, job.reason, job.exit_code, job.signal) == (State.FAILED, "JobLaunchFailure", 0, 53)
    assert detail in launched.events("NodeEnded")[0]["detail"]
    # Nothing of the user's ran, so nothing that waits for a start may go on.
    assert launched.events("NodeStarted") == []


def test_missing_interpreter_is_a_launch_failure(hosts: Hosts) -> None:
    launched = hosts.run(TaskSpec("job", form=Form.BATCH, run="#!/nonexistent/sh\n"))
    job = launched.replay()
    assert (job.reason, job.signal) == ("JobLaunchFailure", 53)
    assert "span: error: cannot execute" in (hosts.work / "slurm-7.out").read_text()


def test_restart_in_place_keeps_the_run_directory(hosts: Hosts) -> None:
    script = (
        'cat "$OVERSPAN_RUN_DIR/kept"; echo "$OVERSPAN_ATTEMPT" >> "$OVERSPAN_RUN_DIR/kept"; test $OVERSPAN_ATTEMPT = 2'
    )
    retry = RetryPolicy(max_restarts_on_errors=2, backoff=SOON)
    launched = hosts.run(TaskSpec("job", run=script, retry=retry))
    job = launched.replay()
    assert (job.state, len(job.tasks[0].attempts), job.tasks[0].errors) == (State.COMPLETED, 3, 2)
    assert launched.log("job.0.2.0") == "0\n1\n"
    assert [launched.log(f"job.0.{attempt}.0") for attempt in range(2)] == ["", "0\n"]


def test_failing_node_ends_its_attempt_and_all_nodes_start_again(hosts: Hosts) -> None:
    script = """
    echo $OVERSPAN_NODE_INDEX.$OVERSPAN_ATTEMPT >> starts
    test $OVERSPAN_ATTEMPT = 1 && exit 0
    test $OVERSPAN_NODE_INDEX = 0 && exec sleep 300
    until grep -q 0.0 starts; do sleep 0.02; done
    exit 9"""
    retry = RetryPolicy(recover_on_exit_codes=(9,), backoff=SOON)
    launched = hosts.run(TaskSpec("job", run=script, num_nodes=2, retry=retry))
    job = launched.replay()
    assert job.state is State.COMPLETED
    first = job.tasks[0].attempts[0]
    assert (first.cause, first.exit_code) == (Cause.EXIT, 9)
    assert sorted((hosts.work / "starts").read_text().split()) == ["0.0", "0.1", "1.0", "1.1"]


def test_single_node_starts_again_where_nodes_are_independent(hosts: Hosts) -> None:
    script = """
    echo $$ >> pids.$OVERSPAN_NODE_INDEX
    test $OVERSPAN_NODE_INDEX = 0 || test $(wc -l < pids.1) = 2 || exit 9
    while [ ! -e go ]; do sleep 0.02; done"""
    retry = RetryPolicy(max_restarts_on_errors=1, backoff=SOON)
    launched = hosts.add(TaskSpec("job", run=script, num_nodes=2, retry=retry, restart=RestartScope.NODE))
    hosts.start(launched.host)
    launched.until("NodeStarted", count=3)
    (hosts.work / "go").touch()
    job = hosts.finish(launched)
    assert (job.state, len(job.tasks[0].attempts)) == (State.COMPLETED, 1)
    assert [len((hosts.work / f"pids.{node}").read_text().split()) for node in range(2)] == [1, 2]
    assert (launched.path / "logs" / "job.1.0.1.out").exists()


def test_auxiliary_that_keeps_failing_is_restarted_or_ignored(hosts: Hosts) -> None:
    trainer = TaskSpec("trainer", run="while ! test -e twice; do sleep 0.02; done")
    once = TaskSpec("once", run="exit 1", primary=False)
    again = TaskSpec(
        "again",
        run="test $OVERSPAN_ATTEMPT -lt 2 && exit 1; : > twice; exec sleep 300",
        primary=False,
        on_failure=OnFailure.RESTART,
        retry=RetryPolicy(backoff=SOON),
    )
    job = hosts.run(trainer, once, again).replay()
    assert (job.state, job.task("once").state) == (State.COMPLETED, State.FAILED)
    assert len(job.task("again").attempts) == 3


def test_killed_shim_restarts_its_task_alone(hosts: Hosts) -> None:
    script = 'echo "$$" >> pids.$OVERSPAN_TASK; while [ ! -e go ]; do sleep 0.02; done'
    retry = RetryPolicy(backoff=SOON)
    launched = hosts.add(TaskSpec("lost", run=script, retry=retry), TaskSpec("kept", run=script, num_nodes=2))
    hosts.start(launched.host)
    launched.until("NodeStarted", count=3)
    first = hosts.work / "pids.lost"
    # A start is on record before the program's first line.
    hosts.wait_until(lambda: first.exists() and first.read_text().endswith("\n"), 20, "its first line")
    os.kill(launched.record("lost.0.0.0").shim_pid, signal.SIGKILL)
    launched.until("NodeStarted", "lost", 2)
    (hosts.work / "go").touch()
    job = hosts.finish(launched)
    assert (job.state, job.task("lost").recoveries, job.task("lost").errors) == (State.COMPLETED, 1, 0)
    assert (job.task("lost").attempts[0].state, len(job.task("kept").attempts)) == (State.NODE_FAIL, 1)
    assert len((hosts.work / "pids.lost").read_text().split()) == 2
    assert len((hosts.work / "pids.kept").read_text().split()) == 2
