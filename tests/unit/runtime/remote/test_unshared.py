"""The supervisor of a group without a shared folder, with its agents; a stand-in for srun runs them on this machine."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.slurm_shell import SRUN
from tests.waiting import wait_until

from overspan.bridge.model.documents import encode
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import JobSpec, Need, NeedKind, Origin, Ready, ReadyKind, TaskSpec
from overspan.bridge.runtime.slurm.bootstrap import pack_documents
from overspan.bridge.runtime.slurm.images import FOLDER, HOSTS
from overspan.bridge.runtime.slurm.relay_node import OVER, TAKEN, find_folder
from overspan.bridge.runtime.slurm.remote_shell import remote_shell_words
from overspan.bridge.runtime.slurm.shell_folder import read_native
from overspan.bridge.runtime.zip_application import build_archive

NUMBERS = itertools.count()
APPTAINER = """\
#!/bin/sh
shift
while case $1 in --*) true;; *) false;; esac; do echo "$1"; shift; done
shift
exec "$@"
"""


class Allocation:
    """One native job on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Of this test alone, on this machine: its folders are found by it.
        self.native = str((10_000_000 + os.getpid()) * 100 + next(NUMBERS))
        self.work = folder / "work"
        self.work.mkdir()
        (folder / "run").mkdir()
        for name, text in (("srun", SRUN), ("apptainer", APPTAINER)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o700)
        self._archive = build_archive(str(folder / "lib"))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *tasks: TaskSpec, images: dict[str, tuple[str, ...]] | None = None) -> None:
        """Run the supervisor of a group."""
        spec = JobSpec(name="g", group=True, tasks=tasks, origin=Origin(directory=str(self.work)))
        plan = {"format": 1, "token": "t", "job": encode(new_job(7, spec, 1.0)), "environment": {}, "cluster": "c"}
        place = {"component": 0, "members": [0], "nodes": [0], "options": []}
        steps = [{**place, "task": task.name, "image": list((images or {}).get(task.name, ()))} for task in tasks]
        placement = {"format": 1, "token": "t", "components": [{"nodes": 1}], "steps": steps}
        documents = {"plan.0.json": plan, "placement.0.json": placement}
        variables = {
            **pack_documents({name: json.dumps(document).encode() for name, document in documents.items()}),
            **self._variables(),
        }
        words = [sys.executable, "-I", "-S", self._archive, "unshared", "/home/run", "0"]
        self._process = subprocess.Popen(words, env=variables, stdin=subprocess.DEVNULL)

    def _variables(self) -> dict[str, str]:
        return {
            "SLURM_JOB_ID": self.native,
            "SLURM_JOB_NODELIST": "localhost",
            "SLURMD_NODENAME": "localhost",
            "PATH": f"{self.folder}:{os.environ['PATH']}",
        }

    def open_shell(self, task: str, *command: str, native: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command beside a member, from a machine that has the run directory."""
        words = self._shell_words(task, command, native or self.native)
        return subprocess.run(words, env=self._variables(), capture_output=True, text=True, timeout=300)

    def begin_shell(self, task: str, *command: str) -> subprocess.Popen[bytes]:
        """The same, in a session of its own and not waited for."""
        words = self._shell_words(task, command, self.native)
        return subprocess.Popen(words, env=self._variables(), stdin=subprocess.DEVNULL, start_new_session=True)

    def _shell_words(self, task: str, command: Sequence[str], native: str) -> list[str]:
        launch = (f"{self.folder}/run", "0", "", native)
        words = remote_shell_words(launch, (task, "0", sys.executable), ("srun", "--overlap", "--pty"), command)
        return [sys.executable, "-I", "-S", self._archive, *words]

    def until_journal(self, kind: str, count: int) -> Path:
        """Wait until the journal has so many events of a kind; gives its path."""
        journal = self.find() / "journal.0.jsonl"
        mark = f'"event":"{kind}"'
        wait_until(lambda: journal.exists() and journal.read_text().count(mark) >= count, 30, f"{count} {kind}")
        return journal

    def relay(self) -> None:
        """Bring what a shell needs to the run directory."""
        for path in self.find().glob("*.0.json*"):
            shutil.copy(path, self.folder / "run")

    def find(self) -> Path:
        """The supervisor's folder."""
        return Path(wait_until(lambda: find_folder(self.native, ("/tmp",)), 30, "the folder"))

    def finish(self) -> tuple[int, list[dict[str, Any]], dict[str, str]]:
        """Wait for the end; gives the exit status, the journal's events and the programs' output."""
        assert self._process is not None
        folder = self.find()
        wait_until(lambda: (folder / OVER).exists(), 60, "the last line")
        events = [json.loads(line) for line in (folder / "journal.0.jsonl").read_text().splitlines()]
        logs = {path.name: path.read_text() for path in (folder / "logs").iterdir()}
        (folder / TAKEN).touch()
        return self._process.wait(120), events, logs

    def close(self) -> None:
        """End what is left, as Slurm would."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        # It waits a little for this, unless it has removed its folder already.
        folder = find_folder(self.native, ("/tmp",))
        with contextlib.suppress(FileNotFoundError):
            if folder:
                Path(folder, TAKEN).touch()
        self._process.wait(120)


@pytest.fixture
def allocation(tmp_path: Path) -> Iterator[Allocation]:
    made = Allocation(tmp_path)
    yield made
    made.close()


def named(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event.get("event") == kind]


SERVER = TaskSpec(
    "server", run="trap 'exit 0' TERM; echo $PWD; while :; do sleep 0.05; done", primary=False, grace_period=5
)


def test_a_file_on_its_node_makes_a_task_ready(allocation: Allocation) -> None:
    # It is there only once somebody has said so: its being awaited is what keeps the client.
    come = f"while [ ! -e {allocation.folder}/go ]; do sleep 0.05; done; : >up; exec sleep 600"
    server = replace(SERVER, run=come, ready=Ready(ReadyKind.FILE, "up", 0.05))
    client = TaskSpec("client", run="[ -e up ] && echo found", needs=(Need("server", NeedKind.READY),))
    allocation.start(server, client)
    journal = allocation.until_journal("NodeStarted", 1)
    assert '"Launch"' in journal.read_text() and '"task":"client"' not in journal.read_text().replace(" ", "")
    (allocation.folder / "go").touch()
    status, events, logs = allocation.finish()
    assert status == 0 and logs["client.0.0.0.out"] == "found\n"
    (ready,) = named(events, "TaskReady")
    assert (ready["task"], ready["attempt"]) == ("server", 0)


def test_an_image_has_what_the_nodes_own_folder_holds(allocation: Allocation) -> None:
    binds = (f"--bind={FOLDER}:{FOLDER}", f"--bind={HOSTS}:/etc/hosts")
    words = (f"{allocation.folder}/apptainer", "exec", *binds, "docker://lab/torch:2")
    allocation.start(TaskSpec("a", run="echo $OVERSPAN_RUN_DIR $APPTAINERENV_OVERSPAN_TASK"), images={"a": words})
    status, _, logs = allocation.finish()
    bound, hosts, told = logs["a.0.0.0.out"].splitlines()
    folder, task = told.split()
    assert status == 0 and task == "a"
    assert folder.startswith("/tmp/") and folder != str(allocation.folder)
    assert bound == f"--bind={folder}:{folder}" and hosts.startswith(f"--bind={folder}/")


TELL = "echo $OVERSPAN_TASK $KEY; cat $OVERSPAN_RUN_DIR/mine 2>/dev/null || echo none; exit 6"


def test_a_shell_comes_beside_a_member_that_lives_and_in_the_place_of_one_that_has_ended(
    allocation: Allocation,
) -> None:
    spec = replace(SERVER, run=f"echo here >$OVERSPAN_RUN_DIR/mine; {SERVER.run}", secrets={"KEY": "s3cret"})
    go = f"while [ ! -e {allocation.folder}/go ]; do sleep 0.05; done"
    allocation.start(spec, TaskSpec("main", run=go), TaskSpec("over", run="true", env={"KEY": "own"}, primary=False))
    allocation.until_journal("NodeStarted", 3)
    allocation.until_journal("NodeEnded", 1)
    told = allocation.find() / "logs" / "server.0.0.0.out"
    wait_until(lambda: told.exists() and told.read_text() == f"{allocation.work}\n", 30, "the server's own file")
    allocation.relay()
    done = allocation.open_shell("server", "sh", "-c", TELL)
    assert (done.returncode, done.stdout) == (6, "server s3cret\nhere\n"), done.stderr
    done = allocation.open_shell("over", "sh", "-c", TELL)
    assert (done.returncode, done.stdout) == (6, "over own\nnone\n"), done.stderr
    # A member of another job is none of this one's; no other test has a job of that number.
    done = allocation.open_shell("server", "sh", "-c", TELL, native=f"{allocation.native}0")
    assert done.stdout == "server s3cret\nnone\n", done.stderr
    (allocation.folder / "go").touch()
    assert allocation.finish()[0] == 0


def test_a_shell_without_a_step_says_so(allocation: Allocation) -> None:
    assert "No such file" in allocation.open_shell("a", "true").stderr
    for name in ("plan.0.json", "placement.0.json", "journal.0.jsonl"):
        (allocation.folder / "run" / name).touch()
    (allocation.folder / "srun").write_text("#!/bin/sh\necho 'srun: error: no' >&2; exit 3\n")
    done = allocation.open_shell("a", "true")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == "srun: error: no\nspan: error: there is no way in: srun ended with 3\n"


def test_a_shell_that_is_killed_leaves_nothing(allocation: Allocation) -> None:
    allocation.start(SERVER)
    allocation.until_journal("NodeStarted", 1)
    allocation.relay()
    told = allocation.folder / "told"
    shell = allocation.begin_shell("server", "sh", "-c", f"echo up >{told}; exec sleep 600")
    wait_until(told.exists, 30, "the shell")

    def list_folders() -> list[Path]:
        found = allocation.find().parent.glob("*/native")
        return [path for path in found if read_native(str(path.parent)) == allocation.native]

    assert list_folders()
    shell.kill()
    shell.wait()
    wait_until(lambda: not list_folders(), 30, "the folder to be gone")
    # The shell itself ends with its terminal.
    os.killpg(shell.pid, signal.SIGINT)
