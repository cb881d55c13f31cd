"""`span top` on a real Slurm over ssh: the queue, logs that follow, earlier attempts, details, a shell, a cancel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import connect, group, start, until_said
from tests.system.top.terminal import open_terminal
from tests.system.top.top_stories import play_day
from tests.waiting import WaitUntil


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


def test_a_day_with_a_group(remote: Span) -> None:
    """TU03, TU04, UX04: over ssh."""
    play_day(remote, lambda text: start(remote, text), "#SBATCH --job-name=rl")


def test_a_shell_beside_the_work(remote: Span) -> None:
    """TU05: what `span shell` runs has the terminal, on the node; its end is not the work's."""
    job = start(remote, group({"a": {"run": "echo up; sleep 600"}}))
    until_said(remote, job, "a", "up")
    with open_terminal(["top", "-j", str(job)], {**remote.environment, "TERM": "xterm"}) as terminal:
        terminal.wait_for(str(job), "rig")
        terminal.press("!")
        terminal.wait_for("the job goes on", seconds=60)
        terminal.press("echo node=$SLURMD_NODENAME task=$OVERSPAN_TASK; exit 0\n")
        terminal.wait_for(f"node={remote.task(job, 'a')['node_list']} task=a", seconds=60)
        terminal.wait_for("JOBID", seconds=60)
        terminal.press("q")
        assert terminal.wait_end() == 0 and terminal.screen.clean
    assert remote.job(job)["state"] == "RUNNING"
