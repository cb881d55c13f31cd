"""Which ends are reported at once, and which wait for a word of Slurm's; sruns are made up, and so is the time."""

from __future__ import annotations

import select
from pathlib import Path
from typing import Any, cast

import pytest

from overspan.bridge.model.events import NodeEnded
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.runtime.core.node_data import NoData
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.core.streams import NodeKey
from overspan.bridge.runtime.slurm.nodes import HELD_SECONDS, LOST_SECONDS, LaunchContext, RemoteNodes, _Live
from overspan.bridge.runtime.slurm.run_files import SharedFiles
from overspan.bridge.runtime.slurm.srun import Srun

KEY = NodeKey("main", 0, 0, 0)
TERM, USR1 = 15, 10


class FakeSrun:
    """An srun whose agent has said something; it has ended where there is a status."""

    def __init__(self, status: int | None, *messages: dict[str, Any]) -> None:
        self.status = status
        self.messages = list(messages)
        self.said: list[str] = []

    def release(self) -> None:
        """Nothing is open."""


def make_nodes(folder: Path, srun: FakeSrun, sent: set[int]) -> RemoteNodes:
    """One node run that has started."""
    directory = RunDirectory(str(folder), 0)
    files = SharedFiles(directory)
    nodes = RemoteNodes(LaunchContext(files, NoData(), "c", {}, {}, (), {}, select.poll(), lambda line: None))
    live = nodes._live[KEY] = _Live(new_job(1, JobSpec("j", (TaskSpec("a"),)), 1.0), KEY, cast(Srun, srun))
    live.started, live.sent = True, sent
    return nodes


@pytest.mark.parametrize(
    ("ended", "sent", "held"),
    [
        ({}, set(), 0.0),
        ({"exit_code": 3}, set(), 0.0),
        ({"signal": USR1}, set(), 0.0),
        ({"signal": TERM}, {TERM}, 0.0),
        ({"signal": TERM}, set(), HELD_SECONDS),
        ({"exit_code": 128 + TERM}, set(), HELD_SECONDS),
        ({"told": True}, set(), HELD_SECONDS),
        (None, {TERM}, 0.0),
        (None, set(), LOST_SECONDS),
    ],
)
def test_only_an_end_that_may_be_slurms_is_held(
    tmp_path: Path, ended: dict[str, Any] | None, sent: set[int], held: float
) -> None:
    srun = FakeSrun(1) if ended is None else FakeSrun(None, {"ended": ended})
    nodes = make_nodes(tmp_path, srun, sent)
    if held:
        assert nodes.collect((), 100.0) == []
        assert nodes.wake_at == 100.0 + held
        assert nodes.collect((), 99.9 + held) == []
    (report,) = nodes.collect((), 100.0 + held)
    assert isinstance(report, NodeEnded) and report.at == 100.0
    assert nodes.wake_at is None
