"""A launch that a worker cannot go on with is told as lost when nothing of it runs, and others may begin it anew."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from overspan.adapters.local.files.journals import parse_lines, read_events
from overspan.bridge.model.events import LaunchLost
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.pool.connection import DaemonAddress
from overspan.bridge.runtime.pool.exchanges import END_LINE
from overspan.bridge.runtime.pool.worker import GIVE_UP_SECONDS, Worker

ANSWER: dict[str, Any] = {"root": "", "leases": {}, "orders": {}, "places": {}, "drop": []}
LEASE = {"leases": {"7.0": {"token": "t", "job": {}, "environment": {}}}}


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    """A worker whose daemon is away, and which takes launch 7.0, whose plan is damaged."""

    def make(handle: str) -> str:
        folder = tmp_path / handle
        (folder / "nodes").mkdir(parents=True)
        return str(folder)

    slots: Any = SimpleNamespace(take_back=lambda shims: None, spawn=None)
    private: Any = SimpleNamespace(make=make)
    found = Worker(DaemonAddress("socket", str(tmp_path / "none")), 1, slots, private)
    (tmp_path / "mark").write_text("m")
    found._carry_out({**ANSWER, **LEASE, "root": str(tmp_path)}, 0.0)
    return found


def read_told(worker: Worker) -> bytes:
    """What the daemon would be told of the launch now."""
    worker._tell()
    return worker._exchanges._journals.get("7.0", (0, b""))[1]


def test_it_is_told_as_lost_when_its_processes_have_ended(worker: Worker, tmp_path: Path) -> None:
    mark = {"OVERSPAN_NODE_KEY": str(tmp_path.resolve() / "7.0" / "nodes" / "t.0.0.0")}
    with subprocess.Popen(["sleep", "600"], env={**os.environ, **mark}) as left:
        try:
            for now in (0.0, 30.0, GIVE_UP_SECONDS):
                worker._advance([], now)
                assert read_told(worker) == b"" and left.poll() is None
            worker._advance([], GIVE_UP_SECONDS + 2)
            assert left.wait(10) == -9
            assert read_told(worker) == b""
        finally:
            left.kill()
    worker._advance([], GIVE_UP_SECONDS + 4)
    told = read_told(worker)
    assert told.endswith(END_LINE)
    (event,) = read_events(parse_lines(told))
    assert isinstance(event, LaunchLost) and event.launch == 0 and "holds no plan" in str(event), event
    # Told once; and again to a daemon that has not stored it.
    assert read_told(worker) == told
    worker._carry_out({**ANSWER, "places": {"7.0": 0}}, 0.0)
    assert worker._held["7.0"].read_journal() == told
    worker._carry_out({**ANSWER, "drop": ["7.0"]}, 0.0)
    assert worker._held == {} and not (tmp_path / "7.0").exists()


def test_what_is_short_for_a_while_is_waited_for(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*words: Any) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(RunDirectory, "read_plan", fail)
    for now in (0.0, GIVE_UP_SECONDS + 1, 2 * GIVE_UP_SECONDS + 3):
        worker._advance([], now)
        assert read_told(worker) == b""
