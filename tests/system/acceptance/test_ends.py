"""What those who wait for a job are told of its end."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.system.conftest import Span

pytestmark = pytest.mark.shared_daemon


def test_whoever_waits_is_told_why_a_job_did_not_complete(span: Span, tmp_path: Path) -> None:
    lost = span.wrap("true", "-D", "/nonexistent")
    done = span.run("wait", str(lost), check=False)
    assert done.returncode == 1
    assert f"job {lost} (wrap) is FAILED (JobLaunchFailure); cannot enter the working directory" in done.stderr
    file = tmp_path / "killed.yaml"
    file.write_text("name: killed\nrun: kill -9 $$\n")
    done = span.run("submit", "--wait", "--parsable", str(file), check=False)
    assert done.returncode == 137
    assert done.stderr.splitlines()[-1].startswith(f"span: job {done.stdout.strip()} (killed) is FAILED")
    assert "SIGKILL" in done.stderr
    good = span.run("wait", str(span.wrap("true")))
    assert good.stderr == ""


def test_the_command_is_shown_as_it_could_be_typed(span: Span) -> None:
    job = span.wrap("echo 'a  b'; true", "-J", "two words")
    shown = span.run("show", str(job)).stdout
    (line,) = (line for line in shown.splitlines() if line.startswith("Command:"))
    assert shlex.split(line)[-4:] == ["-J", "two words", "--wrap", "echo 'a  b'; true"]
