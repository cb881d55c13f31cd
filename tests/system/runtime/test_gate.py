"""A shim that is killed while its child stands at the gate: no program of the user's has run, and none has failed."""

from __future__ import annotations

import os
import signal

import pytest
from tests.system.runtime.conftest import Hosts, Nodes

from overspan.bridge.model.causes import Cause
from overspan.bridge.model.spec import Backoff, RetryPolicy, TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.runtime.core import shim, shim_control
from overspan.bridge.runtime.core.node_records import NodeRecord, read_record

CODE = """
import os, signal, sys, time
from overspan.bridge.runtime.core import gated_child, shim
from overspan.bridge.runtime.local import supervisor

def killed(known, now):
    def first(*arguments):
        if os.path.exists({mark!r}):
            return known(*arguments)
        open({mark!r}, "w").close()
        return now(known, *arguments)
    return first

def before_the_record_is_told(begin, launch, record):
    begun = begin(launch, record)
    os.kill(record.shim_pid, signal.SIGKILL)
    while os.getppid() == record.shim_pid:
        time.sleep(0.001)
    return begun

def before_the_release(watch, *arguments):
    os.kill(os.getpid(), signal.SIGKILL)

{patch}
sys.exit(supervisor.main(sys.argv[1:]))
"""
BEFORE_TOLD = "gated_child._begin_record = killed(gated_child._begin_record, before_the_record_is_told)"
BEFORE_RELEASE = "shim._watch = killed(shim._watch, before_the_release)"


@pytest.mark.parametrize("patch", [BEFORE_TOLD, BEFORE_RELEASE], ids=["before told", "before release"])
def test_a_shim_killed_at_the_gate_is_a_lost_node(hosts: Hosts, patch: str) -> None:
    retry = RetryPolicy(max_recoveries=1, max_restarts=1, backoff=Backoff(first=0.05))
    launched = hosts.add(TaskSpec("a", run="echo ran >> runs", retry=retry))
    hosts.start(launched.host, CODE.format(mark=str(hosts.root / "mark"), patch=patch))
    job = hosts.finish(launched)
    lost, done = job.task("a").attempts
    assert (job.state, done.cause) == (State.COMPLETED, Cause.SUCCESS)
    # The supervisor may have settled it before the child could say more.
    assert lost.cause is Cause.NODE and "the process that watched over this was killed" in lost.detail
    assert (hosts.work / "runs").read_text() == "ran\n"


def test_what_stood_at_the_gate_says_so_itself(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim, "_watch", lambda *arguments: os.kill(os.getpid(), signal.SIGKILL))
    node = nodes.leave(nodes.shell("a.0.0.0", "touch ran"))
    assert node.state in (shim_control.LOST, shim_control.ENDED)
    nodes.wait_until(lambda: _read(nodes).ended, what="the child has left")
    record = nodes.settle("a.0.0.0")
    assert (record.failed_at, record.exit_code, record.signal) == ("gate", None, None)
    assert "before the program was started" in record.error
    assert not (nodes.folder / "ran").exists()


def _read(nodes: Nodes) -> NodeRecord:
    record = read_record(nodes.directory, "a.0.0.0")
    assert record is not None
    return record
