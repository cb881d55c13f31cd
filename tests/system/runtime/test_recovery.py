"""Supervisors killed anywhere and started again: nothing runs twice, codes are right, timers end on time."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.system.runtime.clock import HOUR, SLACK, Clock

from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.spec import Backoff, RetryPolicy, TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.runtime.core import node_records

if TYPE_CHECKING:
    from tests.system.runtime.conftest import Hosts, Launched

RETRY = RetryPolicy(backoff=Backoff(first=0.05))
COUNT = "echo $OVERSPAN_TASK.$OVERSPAN_NODE_INDEX.$OVERSPAN_ATTEMPT >> starts\n"
WAIT = f"{COUNT}while [ ! -e go ]; do sleep 0.02; done\n"

# Dies at the n-th write of its journal, or start of a node, before or after it; its shims go on.
CRASH = """
import os, signal, sys
from overspan.bridge.runtime.local import supervisor

place, left, own = {place}, [{number}], os.getpid()
real = place.{function}

def step(*words):
    if os.getpid() != own:
        return real(*words)
    left[0] -= 1
    if {before} and left[0] == 0:
        os.kill(own, signal.SIGKILL)
    result = real(*words)
    if left[0] == 0:
        os.kill(own, signal.SIGKILL)
    return result

place.{function} = step
sys.exit(supervisor.main(sys.argv[1:]))
"""

SERVER = """
trap 'exit $((20 + OVERSPAN_NODE_INDEX))' TERM
: > up.$OVERSPAN_ATTEMPT.$OVERSPAN_NODE_INDEX
while :; do sleep 0.02; done"""


def _starts(hosts: Hosts) -> list[str]:
    return sorted((hosts.work / "starts").read_text().split())


def _until_starts(hosts: Hosts, count: int) -> None:
    """Wait until so many programs have said that they run: a start is on record before their first line."""
    hosts.wait_until(lambda: (hosts.work / "starts").exists() and len(_starts(hosts)) >= count, 20, f"{count} starts")


def _start_again(hosts: Hosts, launched: Launched, code: str = "") -> None:
    hosts.kill(launched.host)
    hosts.start(launched.host, code)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(
    ("point", "number"),
    [
        *(("os.fdatasync", number) for number in range(1, 7)),
        *(("supervisor.Forker.spawn", number) for number in (1, 4, 10)),
    ],
)
def test_killed_at_any_point(hosts: Hosts, point: str, number: int, before: bool) -> None:
    trainer = TaskSpec("trainer", run=f"{COUNT}until [ -e go ]; do sleep 0.02; done", num_nodes=3, retry=RETRY)
    server = TaskSpec("server", run=COUNT + SERVER, num_nodes=7, primary=False, grace_period=300, retry=RETRY)
    launched = hosts.add(trainer, server)
    place, _, function = point.rpartition(".")
    hosts.start(launched.host, CRASH.format(place=place, function=function, number=number, before=before))
    # The trainer ends when the servers that were begun are ready for their end, whether or not a supervisor lives.
    hosts.wait_until(lambda: _over(hosts, launched.host) or _servers_up(hosts, launched), 20, "crash or all up")
    if _over(hosts, launched.host):
        hosts.start(launched.host)
        hosts.wait_until(lambda: _servers_up(hosts, launched), 20, f"all up again: {launched.journal}")
    (hosts.work / "go").touch()
    # The last line can be read before the crash that keeps it from being synced.
    if hosts.leave(launched.host) != 0:
        hosts.start(launched.host)
    job = hosts.finish(launched)
    assert job.state is State.COMPLETED
    starts = _starts(hosts)
    assert sorted(set(starts)) == starts
    last = job.task("server").attempts[-1]
    assert [node.exit_code for node in last.nodes] == list(range(20, 27)) and last.cause is Cause.PRIMARIES_DONE
    assert [node.exit_code for node in job.task("trainer").attempts[-1].nodes] == [0, 0, 0]


def _over(hosts: Hosts, host: str) -> bool:
    return hosts.processes[host].poll() is not None


def _servers_up(hosts: Hosts, launched: Launched) -> bool:
    attempts = launched.replay().task("server").attempts
    if not attempts or launched.replay().task("server").next_start is not None:
        return False
    return len(list(hosts.work.glob(f"up.{attempts[-1].number}.*"))) == 7


def test_ends_while_the_supervisor_was_dead(hosts: Hosts) -> None:
    launched = hosts.add(TaskSpec("a", run=f"{WAIT}exit 3"), TaskSpec("b", run=f"{WAIT}kill -KILL $$", primary=False))
    hosts.start(launched.host)
    launched.until("NodeStarted", count=2)
    hosts.kill(launched.host)
    (hosts.work / "go").touch()
    folder = str(launched.path / "nodes")
    hosts.wait_until(lambda: all(node_records.is_closed(folder, f"{task}.0.0.0") for task in "ab"), 20, "both ends")
    hosts.start(launched.host)
    job = hosts.finish(launched)
    assert (job.state, job.exit_code, job.task("b").attempts[0].signal) == (State.FAILED, 3, signal.SIGKILL)
    assert _starts(hosts) == ["a.0.0", "b.0.0"]
    # Their ends have the times at which they ended, not those at which somebody looked.
    assert job.task("a").attempts[0].ended_at == node_records.read_record(folder, "a.0.0.0").ended_at  # type: ignore[union-attr]


def test_delay_goes_on_from_where_it_was(hosts: Hosts) -> None:
    clock = Clock(hosts.work)
    aux = TaskSpec("aux", run=WAIT, primary=False, termination_delay=4 * HOUR, grace_period=300)
    launched = hosts.add(TaskSpec("trainer", run=COUNT), aux)
    hosts.start(launched.host, clock.code)
    notice = launched.until("Notice")[0]
    for hours in range(1, 4):
        clock.move(hours * HOUR)
        _start_again(hosts, launched, clock.code)
    assert not launched.events("Terminate")
    clock.move(4 * HOUR)
    hosts.finish(launched)
    assert 0 <= launched.events("Terminate")[0]["at"] - notice["deadline"] < SLACK
    assert len(launched.events("Notice")) == 1
    assert len((launched.path / "notice").read_text().splitlines()) == 1


def test_deadline_that_passed_meanwhile_is_kept_at_once(hosts: Hosts) -> None:
    clock = Clock(hosts.work)
    launched = hosts.add(TaskSpec("job", run=WAIT, time=HOUR, grace_period=300))
    hosts.start(launched.host, clock.code)
    launched.until("NodeStarted")
    hosts.kill(launched.host)
    clock.move(2 * HOUR)
    begun = time.time() + 2 * HOUR
    hosts.start(launched.host, clock.code)
    assert hosts.finish(launched).state is State.TIMEOUT
    assert 0 <= launched.events("Terminate")[0]["at"] - begun < SLACK


def test_grace_period_goes_on_from_where_it_was(hosts: Hosts) -> None:
    clock = Clock(hosts.work)
    launched = hosts.add(TaskSpec("job", run=f"trap '' TERM\n: > up\n{WAIT}", grace_period=2 * HOUR))
    hosts.start(launched.host, clock.code)
    hosts.wait_until((hosts.work / "up").exists, 20, "the trap")
    launched.order(events.Cancel(time.time()))
    kill_at = launched.until("Terminate")[0]["kill_at"]
    clock.move(HOUR)
    _start_again(hosts, launched, clock.code)
    assert not launched.events("Kill")
    clock.move(2 * HOUR)
    job = hosts.finish(launched)
    assert (job.state, job.task("job").attempts[0].signal) == (State.CANCELLED, signal.SIGKILL)
    assert 0 <= launched.events("Kill")[0]["at"] - kill_at < SLACK


# Dies when it is about to send its first signal.
DIES_SENDING = """
import os, signal, sys
from overspan.bridge.runtime.local import supervisor
from overspan.bridge.runtime.core import shim_control
shim_control.send = lambda *words: os.kill(os.getpid(), signal.SIGKILL)
sys.exit(supervisor.main(sys.argv[1:]))
"""


def test_term_that_was_decided_and_not_sent_is_sent_again(hosts: Hosts) -> None:
    launched = hosts.add(TaskSpec("job", run=f"trap 'echo term; exit 0' TERM\n: > up\n{WAIT}"))
    hosts.start(launched.host, DIES_SENDING)
    hosts.wait_until((hosts.work / "up").exists, 20, "the trap")
    launched.order(events.Cancel(time.time()))
    hosts.wait_until(lambda: _over(hosts, launched.host), 20, "the crash")
    assert launched.events("Terminate") and launched.log("job.0.0.0") == ""
    hosts.start(launched.host)
    job = hosts.finish(launched)
    assert (job.state, launched.log("job.0.0.0")) == (State.CANCELLED, "term\n")
    assert len(launched.events("Terminate")) == 1


# Dies when it is about to give a notice.
DIES_NOTIFYING = """
import os, signal, sys
from overspan.bridge.runtime.local import supervisor
from overspan.bridge.runtime.core import supervised_launch
supervised_launch.SupervisedLaunch._notify = lambda *words: os.kill(os.getpid(), signal.SIGKILL)
sys.exit(supervisor.main(sys.argv[1:]))
"""


def test_notice_that_was_decided_and_not_given_is_given(hosts: Hosts) -> None:
    script = "trap 'cat $OVERSPAN_RUN_DIR/notice; exit 0' USR1\n: > up\nwhile :; do sleep 0.02; done"
    aux = TaskSpec("aux", run=script, primary=False, termination_delay=HOUR, notice_signal="USR1")
    launched = hosts.add(TaskSpec("trainer", run="until [ -e up ]; do sleep 0.02; done"), aux)
    hosts.start(launched.host, DIES_NOTIFYING)
    hosts.wait_until(lambda: _over(hosts, launched.host), 20, "the crash")
    hosts.start(launched.host)
    assert hosts.finish(launched).state is State.COMPLETED
    assert "primaries_done" in launched.log("aux.0.0.0")


def test_torn_last_line_of_the_journal(hosts: Hosts) -> None:
    launched = hosts.add(TaskSpec("job", run=WAIT))
    hosts.start(launched.host)
    launched.until("NodeStarted")
    hosts.kill(launched.host)
    whole = launched.journal
    with (launched.path / "journal.0.jsonl").open("a") as file:
        file.write('{"event":"NodeEnded","at":1,"ta')
    (hosts.work / "go").touch()
    hosts.start(launched.host)
    assert hosts.finish(launched).state is State.COMPLETED
    assert launched.journal[: len(whole)] == whole and b'"ta{' not in (launched.path / "journal.0.jsonl").read_bytes()
    assert _starts(hosts) == ["job.0.0"]


def test_empty_journal_of_a_launch_that_had_not_begun(hosts: Hosts) -> None:
    launched = hosts.add(TaskSpec("job", run=COUNT))
    (launched.path / "journal.0.jsonl").write_text('{"format":1,"jo')
    hosts.start(launched.host)
    assert hosts.finish(launched).state is State.COMPLETED
    assert launched.journal[0] == {"format": 1, "job": 7, "launch": 0}


def test_shim_killed_while_the_supervisor_was_dead(hosts: Hosts) -> None:
    kept = TaskSpec("kept", run=WAIT, num_nodes=2, retry=RETRY)
    launched = hosts.add(TaskSpec("lost", run=WAIT, retry=RETRY), kept)
    hosts.start(launched.host)
    launched.until("NodeStarted", count=3)
    _until_starts(hosts, 3)
    before = [launched.record(f"kept.{node}.0.0") for node in range(2)]
    hosts.kill(launched.host)
    os.kill(launched.record("lost.0.0.0").shim_pid, signal.SIGKILL)
    hosts.start(launched.host)
    launched.until("NodeStarted", "lost", 2)
    assert [launched.record(f"kept.{node}.0.0") for node in range(2)] == before
    (hosts.work / "go").touch()
    job = hosts.finish(launched)
    assert (job.state, job.task("lost").recoveries) == (State.COMPLETED, 1)
    assert job.task("lost").attempts[0].state is State.NODE_FAIL
    assert _starts(hosts) == ["kept.0.0", "kept.1.0", "lost.0.0", "lost.0.1"]


def test_adoption_reports_no_start_twice(hosts: Hosts) -> None:
    launched = hosts.add(TaskSpec("job", run=WAIT, num_nodes=3))
    hosts.start(launched.host)
    launched.until("NodeStarted", count=3)
    for _ in range(3):
        _start_again(hosts, launched)
    # Answered orders show that the supervisor has looked at its nodes in between.
    for number in range(1, 6):
        launched.order(events.SetTime(time.time(), 3600))
        launched.until("SetTime", count=number)
    (hosts.work / "go").touch()
    job = hosts.finish(launched)
    assert (job.late, len(launched.events("NodeStarted"))) == (0, 3)


def test_no_budget_for_recoveries_ends_in_node_fail(hosts: Hosts) -> None:
    launched = hosts.add(replace(TaskSpec("job", run=WAIT), retry=RetryPolicy(max_recoveries=0)))
    hosts.start(launched.host)
    _until_starts(hosts, 1)
    os.kill(launched.record("job.0.0.0").shim_pid, signal.SIGKILL)
    assert hosts.finish(launched).state is State.NODE_FAIL
    # Nothing of the work outlives the shim that was killed.
    assert _starts(hosts) == ["job.0.0"]
