"""Host processes: one at a time, shared or not, leaving without losing what is written meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.model.states import State

if TYPE_CHECKING:
    from tests.system.runtime.conftest import Hosts

WAIT = "while [ ! -e go ]; do sleep 0.02; done"
# Idle for as long as it takes, until a file says that it was long enough.
IDLE = """
import os, sys
from overspan.bridge.runtime.local import supervisor

may_leave = supervisor.Supervisor._may_leave

def leave(self, now):
    supervisor.IDLE_SECONDS = 0.3 if os.path.exists(os.path.join(self.path, "enough")) else 3600
    return may_leave(self, now)

supervisor.Supervisor._may_leave = leave
sys.exit(supervisor.main(sys.argv[1:]))
"""


def test_second_process_leaves_the_host_to_the_first(hosts: Hosts) -> None:
    launched = hosts.add(TaskSpec("job", run=f"echo ran >> runs; {WAIT}"))
    first = hosts.start(launched.host)
    launched.until("NodeStarted")
    holder = json.loads((hosts.folder(launched.host) / "lock").read_text())
    assert holder["pid"] == first.pid
    second = hosts.start(launched.host)
    assert second.wait(120) == 1
    hosts.processes[launched.host] = first
    assert json.loads((hosts.folder(launched.host) / "lock").read_text()) == holder
    (hosts.work / "go").touch()
    hosts.finish(launched)
    assert (hosts.work / "runs").read_text() == "ran\n"


def test_single_jobs_share_a_host(hosts: Hosts) -> None:
    hosts.folder("shared-0").mkdir(parents=True)
    (hosts.folder("shared-0") / "shared").touch()
    launches = [hosts.add(TaskSpec("job", run=f"exit {number}"), job_id=number, host="shared-0") for number in (1, 2)]
    hosts.start("shared-0", IDLE)
    assert [launched.until_ended().exit_code for launched in launches] == [1, 2]
    # It is idle now, and still takes what comes.
    late = hosts.add(TaskSpec("job", run="exit 3"), job_id=3, host="shared-0")
    hosts.wake("shared-0")
    assert late.until_ended().exit_code == 3
    (hosts.folder("shared-0") / "enough").touch()
    assert hosts.leave("shared-0") == 0
    assert (hosts.folder("shared-0") / "ended").exists()


def test_host_takes_another_launch_while_one_runs(hosts: Hosts) -> None:
    first = hosts.add(TaskSpec("job", run=WAIT), job_id=1, host="h")
    hosts.start("h")
    first.until("NodeStarted")
    second = hosts.add(TaskSpec("job", run="exit 4"), job_id=2, host="h")
    hosts.wake("h")
    assert second.until_ended().exit_code == 4
    assert not first.ended
    (hosts.work / "go").touch()
    assert hosts.finish(first).state is State.COMPLETED


def test_launch_written_while_the_host_leaves_is_not_lost(hosts: Hosts) -> None:
    first = hosts.add(TaskSpec("job", run="exit 0"), job_id=1, host="h")
    second = hosts.add(TaskSpec("job", run="exit 5"), job_id=2, host="other")
    inbox = hosts.folder("h") / "inbox.jsonl"
    with inbox.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        host = hosts.start("h")
        first.until_ended()
        # The host wants to leave and waits for the lock.
        hosts.wait_until(lambda: _waits_for_lock(host.pid, inbox), 20, "the host at the lock")
        file.write(json.dumps({"run": str(second.path), "launch": 0}) + "\n")
        file.flush()
    assert second.until_ended().exit_code == 5
    assert hosts.leave("h") == 0
    assert (hosts.folder("h") / "ended").exists()


def _waits_for_lock(pid: int, path: Path) -> bool:
    inode = path.stat().st_ino
    lines = Path("/proc/locks").read_text().splitlines()
    waiting = [line.split() for line in lines if "->" in line]
    return any(words[5] == str(pid) and words[6].endswith(f":{inode}") for words in waiting)


def test_launch_that_cannot_be_read_is_told_in_the_log(hosts: Hosts) -> None:
    hosts.tell("h", "nonsense\n")
    hosts.tell("h", json.dumps({"run": str(hosts.root / "runs" / "9"), "launch": 0}) + "\n")
    launched = hosts.add(TaskSpec("job", run="exit 0"), host="h")
    hosts.start("h")
    assert launched.until_ended().state is State.COMPLETED
    assert hosts.leave("h") == 0
    log = hosts.log("h")
    assert "nonsense" in log and "cannot look after" in log and "runs/9" in log


def test_plan_of_another_format_is_refused(hosts: Hosts) -> None:
    launched = hosts.add(TaskSpec("job", run="echo ran > ran"))
    plan = launched.path / "plan.0.json"
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "format": 99}))
    hosts.start(launched.host)
    assert hosts.leave(launched.host) == 0
    assert "has format 99; this version reads 1" in hosts.log(launched.host)
    assert not (hosts.work / "ran").exists()


def test_run_directory_may_be_named_with_slashes_to_spare(hosts: Hosts) -> None:
    launched = hosts.add(TaskSpec("job", run="exit 0"), host="other")
    hosts.tell("h", json.dumps({"run": f"{launched.path}//", "launch": 0}) + "\n")
    hosts.start("h")
    assert launched.until_ended().state is State.COMPLETED


def test_daemon_is_woken_by_what_is_durable(hosts: Hosts) -> None:
    os.mkfifo(hosts.root / "wake")
    reading = os.open(hosts.root / "wake", os.O_RDONLY | os.O_NONBLOCK)
    told: list[str] = []

    def is_told() -> bool:
        with contextlib.suppress(BlockingIOError):
            told.extend(os.read(reading, 65536).decode().split())
        return bool(told)

    try:
        launched = hosts.add(TaskSpec("job", run=WAIT))
        hosts.start(launched.host)
        launched.until("NodeStarted")
        hosts.wait_until(is_told, 20, "a word of the start")
        assert set(told) == {"7.0"}
        told.clear()
        (hosts.work / "go").touch()
        hosts.wait_until(is_told, 20, "a word of the end")
        assert set(told) == {"7.0"}
        launched.until_ended()
    finally:
        os.close(reading)
