"""A disk that is full: nothing is forgotten, nothing runs twice, and what has to end ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.system.runtime.disks import fill

from overspan.bridge.model import events
from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.runtime.core import node_records

if TYPE_CHECKING:
    from tests.system.runtime.conftest import Hosts
    from tests.waiting import WaitUntil

SmallDisk = Callable[..., None]
NODES = 40
# Long enough for the ends of all nodes to need more than what is left of the journal's last page.
TASK = "trainer-with-a-name-of-fifty-letters-and-then-some"
COUNT = "echo $OVERSPAN_NODE_INDEX >> starts\n"
WAIT = f"{COUNT}while [ ! -e go ]; do sleep 0.05; done"


def _on_small_disk(hosts: Hosts, small_disk: SmallDisk, test: Callable[[Any], None]) -> None:
    kind: Any = type(hosts)
    wait_until: WaitUntil = hosts.wait_until

    def run(folder: str) -> None:
        made = kind(Path(folder), wait_until)
        try:
            test(made)
        finally:
            (made.root / "filler").unlink(missing_ok=True)
            made.clean()

    small_disk(run, "size=2m", str(hosts.root))


def test_ends_on_a_full_disk_are_known_when_there_is_space(hosts: Hosts, small_disk: SmallDisk) -> None:
    def test(hosts: Hosts) -> None:
        launched = hosts.add(TaskSpec(TASK, run=WAIT, num_nodes=NODES))
        hosts.start(launched.host)
        launched.until("NodeStarted", count=NODES)
        filler = fill(hosts.root)
        (hosts.work / "go").touch()
        folder = str(launched.path / "nodes")
        for node in range(NODES):
            hosts.wait_until(lambda key=f"{TASK}.{node}.0.0": node_records.is_closed(folder, key), 20, "the ends")  # type: ignore[misc]
        assert not launched.ended
        # A supervisor that is killed now, and another on the disk that is still full.
        hosts.kill(launched.host)
        host = hosts.start(launched.host)
        hosts.wait_until(lambda: _is_ready(host.pid), 20, "the second supervisor")
        assert host.poll() is None and not launched.ended
        filler.unlink()
        job = hosts.finish(launched)
        assert (job.state, job.late) == (State.COMPLETED, 0)
        assert sorted((hosts.work / "starts").read_text().split(), key=int) == [str(node) for node in range(NODES)]

    _on_small_disk(hosts, small_disk, test)


def _is_ready(pid: int) -> bool:
    """Whether a supervisor has its handler for SIGUSR1."""
    caught = Path(f"/proc/{pid}/status").read_text().partition("SigCgt:\t")[2].split()[0]
    return bool(int(caught, 16) >> (signal.SIGUSR1 - 1) & 1)


def test_nothing_starts_on_a_full_disk_and_once_when_there_is_space(hosts: Hosts, small_disk: SmallDisk) -> None:
    def test(hosts: Hosts) -> None:
        launched = hosts.add(TaskSpec("job", run=COUNT, num_nodes=2), isolation="namespace", group=True)
        # The lock's own page; everything else has to wait.
        (hosts.folder(launched.host) / "lock").write_text("x" * 4096)
        filler = fill(hosts.root)
        host = hosts.start(launched.host, FULL_LOCK)
        hosts.wait_until(lambda: _is_ready(host.pid), 20, "the supervisor")
        hosts.wait_until((hosts.folder(launched.host) / "looked").exists, 20, "a look at the full disk")
        assert launched.journal == [] and not (hosts.work / "starts").exists()
        filler.unlink()
        assert hosts.finish(launched).state is State.COMPLETED
        assert sorted((hosts.work / "starts").read_text().split()) == ["0", "1"]

    _on_small_disk(hosts, small_disk, test)


# Keeps the lock's content, and tells when a launch was put off.
FULL_LOCK = """
import os, sys
from overspan.bridge.runtime.local import supervisor

os.ftruncate, real = lambda fd, size: None, os.ftruncate
begin = supervisor.Supervisor._open

def look(self, name, now):
    begin(self, name, now)
    if self._postponed:
        os.close(os.open(os.path.join(self.path, "looked"), os.O_CREAT | os.O_WRONLY))

supervisor.Supervisor._open = look
sys.exit(supervisor.main(sys.argv[1:]))
"""

# A disk that is full as long as a file says so, for the journal alone; tells of each try, and of those with an end.
FULL_JOURNAL = """
import errno, os, sys
from overspan.bridge.runtime.local import supervisor

real, END = os.fdatasync, b'{{"end":true}}\\n'

def fdatasync(fd):
    if os.path.exists({full!r}):
        open({seen!r}, "w").close()
        if os.pread(fd, len(END), max(0, os.fstat(fd).st_size - len(END))) == END:
            open({end!r}, "w").close()
        raise OSError(errno.ENOSPC, "full")
    real(fd)

os.fdatasync = fdatasync
sys.exit(supervisor.main(sys.argv[1:]))
"""


def _full_journal(hosts: Hosts) -> str:
    names = {name: str(hosts.work / name) for name in ("full", "seen", "end")}
    return FULL_JOURNAL.format(**names)


def test_time_limit_holds_on_a_full_disk(hosts: Hosts) -> None:
    script = f"trap 'echo term >> terms; exit 0' TERM\n{WAIT}"
    launched = hosts.add(TaskSpec("job", run=script, time=3600, grace_period=300))
    hosts.start(launched.host, _full_journal(hosts))
    launched.until("NodeStarted")
    hosts.wait_until((hosts.work / "starts").exists, 20, "the trap")
    (hosts.work / "full").touch()
    launched.order(events.SetTime(time.time(), 1))
    hosts.wait_until(lambda: node_records.is_closed(str(launched.path / "nodes"), "job.0.0.0"), 20, "the end")
    # A line is seen for the moment between its writing and the refusal.
    hosts.wait_until(lambda: not launched.events("Terminate"), 20, "no record of it")
    (hosts.work / "full").unlink()
    assert hosts.finish(launched).state is State.TIMEOUT
    assert (hosts.work / "terms").read_text() == "term\n"


def test_launch_that_was_cancelled_before_its_record_does_not_start(hosts: Hosts) -> None:
    launched = hosts.add(TaskSpec("job", run=COUNT))
    (hosts.work / "full").touch()
    hosts.start(launched.host, _full_journal(hosts))
    hosts.wait_until((hosts.work / "seen").exists, 20, "the first try")
    launched.order(events.Cancel(time.time()))
    hosts.wait_until(lambda: _tried_again(hosts, "seen"), 20, "the order's try")
    (hosts.work / "full").unlink()
    assert hosts.finish(launched).state is State.CANCELLED
    assert not (hosts.work / "starts").exists()


def _tried_again(hosts: Hosts, what: str) -> bool:
    orders = hosts.root / "runs" / "7" / "orders.0.jsonl"
    return (hosts.work / what).stat().st_mtime_ns > orders.stat().st_mtime_ns


def test_nothing_follows_the_journals_last_line(hosts: Hosts) -> None:
    launched = hosts.add(TaskSpec("job", run=WAIT))
    hosts.start(launched.host, _full_journal(hosts))
    launched.until("NodeStarted")
    (hosts.work / "full").touch()
    (hosts.work / "go").touch()
    hosts.wait_until((hosts.work / "end").exists, 20, "the end's first try")
    launched.order(events.Requeue(time.time()))
    hosts.wait_until(lambda: _tried_again(hosts, "end"), 20, "another try")
    (hosts.work / "full").unlink()
    job = hosts.finish(launched)
    assert (job.state, job.launch) == (State.COMPLETED, 0)
    assert launched.events("Requeue") == []
