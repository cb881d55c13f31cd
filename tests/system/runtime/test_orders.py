"""Orders to a running supervisor: carried out once, whenever they were written."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.model.states import State

if TYPE_CHECKING:
    from tests.system.runtime.conftest import Hosts, Launched

FOREVER = "exec sleep 300"
# Counts its starts, and says when its traps are set.
COUNTED = "echo $OVERSPAN_TASK >> starts; trap 'echo usr1' USR1; : > up.$OVERSPAN_TASK; while :; do sleep 0.02; done"


def _begin(hosts: Hosts, *tasks: TaskSpec) -> Launched:
    launched = hosts.add(*tasks)
    hosts.start(launched.host)
    launched.until("NodeStarted", count=sum(task.num_nodes for task in tasks))
    return launched


def _up(hosts: Hosts, *tasks: str) -> None:
    for task in tasks:
        hosts.wait_until((hosts.work / f"up.{task}").exists, 20, f"{task} is up")


def _starts(hosts: Hosts) -> list[str]:
    return sorted((hosts.work / "starts").read_text().split())


def test_cancel_job(hosts: Hosts) -> None:
    launched = _begin(
        hosts, TaskSpec("a", run=FOREVER), TaskSpec("b", run=FOREVER, primary=False, termination_delay=300)
    )
    launched.order(events.Cancel(time.time(), by="alice"))
    job = hosts.finish(launched)
    assert (job.state, job.task("a").state, job.task("b").state) == (State.CANCELLED,) * 3
    assert job.task("a").attempts[0].signal == signal.SIGTERM


def test_cancel_one_task(hosts: Hosts) -> None:
    waits = TaskSpec("a", run="while [ ! -e go ]; do sleep 0.02; done")
    launched = _begin(hosts, waits, TaskSpec("b", run=FOREVER, primary=False))
    launched.order(events.Cancel(time.time(), "b"))
    launched.until("NodeEnded", "b")
    assert not launched.events("NodeEnded", "a")
    (hosts.work / "go").touch()
    job = hosts.finish(launched)
    assert (job.state, job.task("a").state, job.task("b").state) == (
        State.COMPLETED,
        State.COMPLETED,
        State.CANCELLED,
    )


def test_restart_of_one_task_leaves_its_siblings_alone(hosts: Hosts) -> None:
    launched = _begin(hosts, TaskSpec("a", run=COUNTED), TaskSpec("b", run=COUNTED, num_nodes=2))
    before = [launched.record(f"b.{node}.0.0") for node in range(2)]
    launched.order(events.Restart(time.time(), "a"))
    launched.until("NodeStarted", "a", 2)
    _up(hosts, "a", "b")
    job = launched.replay()
    assert (job.task("a").attempts[0].cause, job.task("a").errors) == (Cause.RESTART, 0)
    assert [launched.record(f"b.{node}.0.0") for node in range(2)] == before
    assert [os.path.exists(f"/proc/{record.pid}") for record in before] == [True, True]
    launched.order(events.Cancel(time.time()))
    assert len(hosts.finish(launched).task("b").attempts) == 1


def test_signal_to_one_task(hosts: Hosts) -> None:
    launched = _begin(hosts, TaskSpec("a", run=COUNTED), TaskSpec("b", run=COUNTED))
    _up(hosts, "a", "b")
    launched.order(events.Signal(time.time(), signal.SIGUSR1, "b", batch_only=True))
    hosts.wait_until(lambda: launched.log("b.0.0.0") == "usr1\n", 20, "the signal")
    launched.order(events.Cancel(time.time()))
    hosts.finish(launched)
    assert launched.log("a.0.0.0") == ""


def test_set_time_shortens_a_limit(hosts: Hosts) -> None:
    launched = _begin(hosts, TaskSpec("a", run=FOREVER, time=3600))
    launched.order(events.SetTime(time.time(), 1))
    job = hosts.finish(launched)
    assert (job.state, job.tasks[0].time) == (State.TIMEOUT, 1)


def test_requeue_ends_this_launch_and_the_next_continues_the_count(hosts: Hosts) -> None:
    launched = _begin(
        hosts,
        TaskSpec(
            "a",
            run="echo $SLURM_RESTART_COUNT:$OVERSPAN_ATTEMPT; : > up.a; test $OVERSPAN_ATTEMPT = 1 || exec sleep 300",
        ),
    )
    _up(hosts, "a")
    launched.order(events.Requeue(time.time()))
    job = hosts.finish(launched)
    assert (job.state, job.launch, job.granted_at) == (State.PENDING, 1, None)
    assert launched.ended
    again = hosts.submit(job, "7.1")
    hosts.start("7.1")
    job = hosts.finish(again)
    assert (job.state, len(job.tasks[0].attempts)) == (State.COMPLETED, 2)
    assert [again.log(f"a.0.{attempt}.0") for attempt in range(2)] == [":0\n", "1:1\n"]


def test_line_without_its_newline_is_no_order_yet(hosts: Hosts) -> None:
    launched = _begin(hosts, TaskSpec("a", run=FOREVER))
    launched.order(events.Cancel(time.time()), ending="")
    # What shows that the supervisor looked: orders are read before the inbox's next launch is opened.
    other = hosts.add(TaskSpec("b", run="exit 0"), job_id=8, host=launched.host)
    hosts.wake(launched.host)
    other.until_ended()
    assert not launched.events("Cancel")
    with (launched.path / "orders.0.jsonl").open("a") as file:
        file.write("\n")
    hosts.wake(launched.host)
    assert hosts.finish(launched).state is State.CANCELLED


def test_line_that_is_no_order_is_passed_over(hosts: Hosts) -> None:
    launched = _begin(hosts, TaskSpec("a", run=FOREVER))
    with (launched.path / "orders.0.jsonl").open("a") as file:
        file.write('nonsense\n{"seq": 1, "event": {"event": "Later"}}\n{"seq": 2, "event": {"event": "NodeEnded"}}\n')
    launched.order(events.Cancel(time.time()))
    assert hosts.finish(launched).state is State.CANCELLED


def test_orders_to_a_dead_supervisor_are_carried_out_once(hosts: Hosts) -> None:
    launched = _begin(hosts, TaskSpec("a", run=COUNTED), TaskSpec("b", run=COUNTED))
    _up(hosts, "a", "b")
    launched.order(events.Restart(time.time(), "b"))
    launched.until("NodeStarted", "b", 2)
    hosts.kill(launched.host)
    launched.order(events.Restart(time.time(), "a"))
    for _ in range(2):
        hosts.start(launched.host)
        launched.until("NodeStarted", "a", 2)
        hosts.kill(launched.host)
    hosts.start(launched.host)
    launched.order(events.Cancel(time.time()))
    hosts.finish(launched)
    assert [line["order"] for line in launched.journal if "order" in line] == [1, 2, 3]
    assert [len(launched.events("Launch", task)) for task in "ab"] == [2, 2]


# Without the look of every second, a wake-up that is lost is an order that is never read.
BLIND = """
import sys
from overspan.bridge.runtime.local import supervisor
supervisor.LOOK_SECONDS = 1000
sys.exit(supervisor.main(sys.argv[1:]))
"""


def test_no_wake_up_is_lost(hosts: Hosts) -> None:
    launched = hosts.add(TaskSpec("a", run=FOREVER))
    hosts.start(launched.host, BLIND)
    launched.until("NodeStarted")
    limits = [3600 + number for number in range(300)]
    for number, limit in enumerate(limits, 1):
        launched.order(events.SetTime(time.time(), limit))
        if number % 3 == 0:
            launched.until("SetTime", count=number)
    assert [line["time"] for line in launched.events("SetTime")] == limits
    launched.order(events.Cancel(time.time()))
    hosts.finish(launched)


def test_burst_of_wake_ups_before_the_handler(hosts: Hosts) -> None:
    launched = hosts.add(TaskSpec("a", run=FOREVER))
    process = hosts.start(launched.host)
    for _ in range(300):
        process.send_signal(signal.SIGUSR1)
    launched.until("NodeStarted")
    launched.order(events.Cancel(time.time()))
    assert hosts.finish(launched).state is State.CANCELLED
