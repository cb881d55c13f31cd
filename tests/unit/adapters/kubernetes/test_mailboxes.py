"""Visits of pods: an image without python3 has its worker's job say so and end."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.waiting import WaitUntil

from overspan.adapters.kubernetes.launches import mailboxes
from overspan.adapters.kubernetes.manifests.scripts import RUN_DIR
from overspan.adapters.mailboxes import LOADER, WORKER_START


def visit(folder: Path, path: str) -> int:
    """Run what a visit runs in a pod, whose run directory is a folder here and whose programs are on that path."""
    words = ["/bin/sh", "-c", mailboxes._SHELL.replace(RUN_DIR, str(folder)), "overspan", LOADER]
    return subprocess.run(words, env={"PATH": path}, input=b"\n", capture_output=True, timeout=60).returncode


@contextmanager
def start_worker(folder: Path, path: str) -> Iterator[subprocess.Popen[str]]:
    """Run what a worker's job runs, until it ends or is looked at no more."""
    environment = {"PATH": path, "OVERSPAN_RUN_DIR": str(folder)}
    words = ["/bin/sh", "-c", WORKER_START]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        try:
            yield worker
        finally:
            worker.kill()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH without python3."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("ls", "mkdir", "mv", "rm", "sleep"):
        (folder / name).symlink_to(str(shutil.which(name)))
    return str(folder)


def write_python(folder: Path, text: str) -> None:
    """Install a python3 that is a shell script."""
    folder.mkdir(exist_ok=True)
    (folder / "python3").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "python3").chmod(0o755)


@pytest.mark.parametrize("old", [False, True])
def test_a_worker_without_python_says_so_and_ends(tmp_path: Path, path: str, old: bool) -> None:
    if old:
        write_python(Path(path), "echo it is Python 3.6 >&2; exit 127")
    with start_worker(tmp_path, path) as worker:
        assert visit(tmp_path, path) == 127
        assert "no python3 (3.9 or newer)" in worker.communicate(timeout=30)[1]
        assert worker.returncode == 127


def test_a_python_that_the_set_up_brings_is_used_where_the_worker_finds_it(tmp_path: Path, path: str) -> None:
    """It is on the path of the worker's job alone, and comes while a visit waits."""
    brought = tmp_path / "env"
    with ThreadPoolExecutor(1) as pool:
        visiting = pool.submit(visit, tmp_path, path)
        write_python(brought, f"echo $2 >{tmp_path}/used")
        with start_worker(tmp_path, f"{brought}:{path}"):
            assert visiting.result(60) == 0
    assert (tmp_path / "used").read_text() == "-S\n"
    assert not (tmp_path / "mailbox" / "start").exists()


def test_a_pod_whose_set_up_goes_on_is_not_judged(tmp_path: Path, path: str) -> None:
    for name in ("sleep", "mailbox"):
        (tmp_path / name).mkdir()
    os.unlink(f"{path}/sleep")
    write_python(tmp_path / "sleep", "")
    (tmp_path / "sleep" / "python3").rename(f"{path}/sleep")
    assert visit(tmp_path, path) == mailboxes._NOT_YET
    assert not (tmp_path / "mailbox" / "start").exists()


def test_a_visit_that_fails_otherwise_leaves_the_job_waiting(tmp_path: Path, path: str) -> None:
    write_python(Path(path), "exit 1")
    with start_worker(tmp_path, path):
        assert visit(tmp_path, path) == 1
        assert not (tmp_path / "mailbox" / "start").exists()


def test_what_an_earlier_process_left_is_removed_before_the_worker_begins(
    tmp_path: Path, wait_until: WaitUntil
) -> None:
    """Its command too: that may say that there is no python3, which this process's set-up may have brought."""
    folder = tmp_path / "mailbox"
    folder.mkdir()
    for name in ("ask.request", "tell.request", "ask.answer", "start", "python"):
        (folder / name).write_text("exit 5\n")
    with start_worker(tmp_path, os.environ["PATH"]) as worker:
        wait_until(lambda: (folder / "python").exists() and "exit" not in (folder / "python").read_text())
        assert os.listdir(folder) == ["python"]
        (folder / "start.new").write_text('echo "$1"\n')
        (folder / "start.new").rename(folder / "start")
        assert worker.communicate(timeout=30)[0] == f"{folder}\n"
