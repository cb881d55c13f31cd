"""What a shell beside a member is given where nothing of the member lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import overspan
from overspan.bridge.model import events
from overspan.bridge.model.documents import encode
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.runtime import shell
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.core.task_scripts import find_shell

SOURCE = str(Path(overspan.__file__).parent.parent)
MEMBERS = (("a", 0, "n1", "192.0.2.1", ()), ("b", 0, "n2", "192.0.2.2", ()))
STORY = (
    events.Granted(1.0, MEMBERS),
    events.Launch(1.0, "a", 0),
    events.NodeStarted(1.0, "a", 0, 0),
    events.NodeEnded(2.0, "a", 0, 0, exit_code=3),
)


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """A group of which `a` has failed and is kept."""
    tasks = (TaskSpec("a", run="x", env={"GREETING": "hi"}), TaskSpec("b", run="x"))
    origin = Origin(directory=str(tmp_path))
    job = new_job(7, JobSpec("g", tasks, group=True, origin=origin, hold_on_failure=60), 0.0)
    head = {"format": 1, "token": "t"}
    grant = {"at": 1.0, "members": [list(member) for member in MEMBERS], "isolation": "env"}
    (tmp_path / "plan.0.json").write_text(json.dumps({**head, "job": encode(job), "environment": {"OURS": "1"}}))
    (tmp_path / "grant.0.json").write_text(json.dumps({**head, **grant}))
    lines = [json.dumps({"format": 1}), *(json.dumps(events.event_to_document(event)) for event in STORY)]
    (tmp_path / "journal.0.jsonl").write_text("\n".join([*lines, '{"event": "NodeEn']))
    return RunDirectory(str(tmp_path), 0)


def test_the_facts_are_those_of_the_journals_whole_lines(directory: RunDirectory) -> None:
    job = shell.replay(directory, directory.read_plan())
    assert job.task("a").attempts[0].exit_code == 3 and job.reason == "HeldOnFailure"


def test_a_part_of_a_version_before_is_one_that_the_daemon_decides(directory: RunDirectory, tmp_path: Path) -> None:
    os.makedirs(tmp_path / "members/a/0")
    for name in ("plan.0.json", "journal.0.jsonl"):
        os.rename(tmp_path / name, tmp_path / "members/a/0" / name)
    part = RunDirectory(str(tmp_path), 0, "members/a/0")
    job = shell.replay(part, part.read_plan())
    # The end of its task ends nothing else.
    assert not job.task("a").live and job.ending is None


def test_environment_and_directory_are_made_again(directory: RunDirectory, tmp_path: Path) -> None:
    plan = directory.read_plan()
    plan = plan._replace(job=shell.replay(directory, plan))
    seat, argv = shell.prepare(directory, plan, ("a", 0), str(tmp_path), ("ls", "-l"))
    assert (seat.pid, seat.directory, argv) == (0, str(tmp_path), ("ls", "-l"))
    expected = {"GREETING": "hi", "OURS": "1", "OVERSPAN_TASK": "a", "OVERSPAN_ATTEMPT": "0", shell.MARK: "1"}
    assert expected.items() <= seat.environment.items()
    assert seat.environment["OVERSPAN_B_ADDRS"] == "192.0.2.2"


@pytest.mark.parametrize(
    ("program", "chosen"),
    [("/bin/sh", "/bin/sh"), ("/usr/sbin/nologin", ""), ("/bin/false", ""), ("/no/zsh", ""), ("sh", ""), ("", "")],
)
def test_the_users_shell_where_it_is_one(program: str, chosen: str) -> None:
    assert shell.choose_shell({"SHELL": program}, False) == (chosen or find_shell())


def run(directory: RunDirectory, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-m", "overspan.bridge.runtime", "shell", directory.path, "0", "", *words]
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": SOURCE}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        (("a", "0", "sh", "-c", "echo $GREETING; exit 6"), 6, "hi\n", ""),
        (("a", "0", "sh", "-c", "kill -KILL $$"), 137, "", ""),
        (("a", "0", "no-such"), 127, "", "no-such: No such file or directory"),
        (("c", "0", "true"), 1, "", "there is no way in"),
        (("a", "x", "true"), 1, "", "there is no way in"),
    ],
)
def test_the_exit_code_is_the_commands(
    directory: RunDirectory, words: tuple[str, ...], code: int, out: str, err: str
) -> None:
    done = run(directory, *words)
    assert (done.returncode, done.stdout) == (code, out) and err in done.stderr and "Traceback" not in done.stderr
