"""Visits of pods: an image without python3 has its worker's job say so and end."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from overspan.adapters.kubernetes.launches import mailboxes
from overspan.adapters.kubernetes.manifests.scripts import RUN_DIR
from overspan.adapters.mailboxes import LOADER, WORKER_START


def visit(folder: Path, path: Path) -> int:
    """Run what a visit runs in a pod, whose run directory is a folder here and whose programs are on that path."""
    words = ["/bin/sh", "-c", mailboxes._SHELL.replace(RUN_DIR, str(folder)), "overspan", LOADER]
    return subprocess.run(words, env={"PATH": str(path)}, input=b"\n", capture_output=True).returncode


def run_worker(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run what a worker's job runs."""
    environment = {"PATH": os.environ["PATH"], "OVERSPAN_RUN_DIR": str(folder)}
    return subprocess.run(["/bin/sh", "-c", WORKER_START], env=environment, capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize("old", [False, True])
def test_a_worker_without_python_says_so_and_ends(tmp_path: Path, old: bool) -> None:
    programs, folder = tmp_path / "bin", tmp_path / "run"
    programs.mkdir()
    (folder / "mailbox").mkdir(parents=True)
    if old:
        (programs / "python3").write_text("#!/bin/sh\necho it is Python 3.6 >&2\nexit 127\n")
        (programs / "python3").chmod(0o755)
    assert visit(folder, programs) == 127
    ended = run_worker(folder)
    assert ended.returncode == 127 and "no python3 (3.9 or newer)" in ended.stderr


def test_a_visit_that_fails_otherwise_leaves_the_job_waiting(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "mailbox").mkdir()
    (tmp_path / "bin" / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "python3").chmod(0o755)
    assert visit(tmp_path, tmp_path / "bin") == 1
    assert not (tmp_path / "mailbox" / "start").exists()


def test_what_an_earlier_process_left_is_removed_before_the_worker_begins(tmp_path: Path) -> None:
    folder = tmp_path / "mailbox"
    folder.mkdir()
    for name in ("ask.request", "tell.request", "ask.answer"):
        (folder / name).write_text("old")
    (folder / "start").write_text('ls "$1"\n')
    ended = run_worker(tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "start\n")
