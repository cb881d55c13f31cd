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


@pytest.fixture
def quick(path: str) -> str:
    """The same path, with a `sleep` that does not."""
    os.unlink(f"{path}/sleep")
    Path(f"{path}/sleep").write_text("#!/bin/sh\n")
    Path(f"{path}/sleep").chmod(0o755)
    return path


def test_a_pod_whose_set_up_goes_on_is_not_judged(tmp_path: Path, quick: str) -> None:
    """It makes no folder before its set-up has ended."""
    write_python(Path(quick), f"echo $2 >{tmp_path}/used")
    assert visit(tmp_path, quick) == mailboxes._NOT_YET
    assert not (tmp_path / "used").exists()


@pytest.mark.parametrize("full", [False, True])
def test_a_worker_that_names_no_python_is_visited_by_that_of_the_image(tmp_path: Path, quick: str, full: bool) -> None:
    """The words of an older version do not; on a full disk the name may be cut."""
    (tmp_path / "mailbox").mkdir()
    if full:
        (tmp_path / "mailbox" / "python").touch()
    assert visit(tmp_path, quick) == 127
    assert not (tmp_path / "mailbox" / "start").exists(), "nobody has said that there is none"
    write_python(Path(quick), f"echo $2 >{tmp_path}/used")
    assert visit(tmp_path, quick) == 0
    assert (tmp_path / "used").read_text() == "-S\n"


def test_on_a_full_disk_a_worker_names_its_python_when_there_is_room(
    tmp_path: Path, path: str, wait_until: WaitUntil
) -> None:
    """Nor is an empty name left there, which would say nothing."""
    write_python(Path(path), "exit 0")
    folder = tmp_path / "mailbox"
    folder.mkdir()
    (folder / "python.new").symlink_to("/dev/full")
    # It sleeps after it has tried.
    os.unlink(f"{path}/sleep")
    Path(f"{path}/sleep").write_text(f"#!/bin/sh\n: >{folder}/tried\nexec {shutil.which('sleep')} 0.05\n")
    Path(f"{path}/sleep").chmod(0o755)
    with start_worker(tmp_path, path) as worker:
        wait_until(lambda: (folder / "tried").exists())
        assert worker.poll() is None and not (folder / "python").exists()
        (folder / "python.new").unlink()
        wait_until(lambda: (folder / "python").exists())
        assert (folder / "python").read_text() == f"{path}/python3\n"


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
