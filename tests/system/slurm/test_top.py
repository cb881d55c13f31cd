"""`span top` on a real Slurm over ssh: the queue, logs that follow, earlier attempts, details, a shell, a cancel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import connect, group, start, until_said
from tests.system.top.top_stories import play_day, play_missing_program, play_shell
from tests.waiting import WaitUntil


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


def test_a_day_with_a_group(remote: Span) -> None:
    """TU03, TU04, UX04: over ssh."""
    play_day(remote, lambda text: start(remote, text), "#SBATCH --job-name=rl")


def test_a_shell_beside_the_work(remote: Span, tmp_path: Path) -> None:
    """TU05: what `span shell` runs has the terminal, on the node; without ssh a note names it."""
    job = start(remote, group({"a": {"run": "echo up; sleep 600"}}))
    until_said(remote, job, "a", "up")
    node = remote.task(job, "a")["node_list"]
    play_shell(remote, job, "echo told=$SLURMD_NODENAME.$OVERSPAN_TASK", f"told={node}.a", {})
    play_missing_program(remote, job, "ssh", str(tmp_path))
