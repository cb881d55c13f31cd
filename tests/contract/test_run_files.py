"""The file port of a run, over both of its implementations: what one side writes is what the other reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from overspan.bridge.model.job import Job, Placement, new_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.runtime.core.orders import OrderFile
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.core.streams import NodeKey
from overspan.bridge.runtime.slurm.channel import RemoteLaunch, decode_launch, encode_launch
from overspan.bridge.runtime.slurm.file_links import FileLink
from overspan.bridge.runtime.slurm.file_parts import encode_part, write_part
from overspan.bridge.runtime.slurm.member_locations import (
    append_locations,
    locations_path,
    read_locations,
    render_locations,
)
from overspan.bridge.runtime.slurm.node_staging import NOTICE, stage_launch
from overspan.bridge.runtime.slurm.output_tails import FileWait, OutputTails, tail_streams
from overspan.bridge.runtime.slurm.relay_login import close_orders, conclude, note_written
from overspan.bridge.runtime.slurm.relay_node import CLOSING, OVER, TAKEN
from overspan.bridge.runtime.slurm.run_files import RunFiles, SharedFiles
from overspan.bridge.runtime.slurm.streamed_files import WAIT_SECONDS, StreamedFiles

PART = "members/a/0"
KEY = NodeKey("a", 0, 0, 0)
SHOW = "echo said; echo wrong >&2; cat $OVERSPAN_RUN_DIR/notice"


class Run(Protocol):
    """A run: the port as the supervisor has it, and the run directory as the login node has it."""

    files: RunFiles
    login: RunDirectory

    def execute(self, launch: RemoteLaunch, notices: bytes) -> None:
        """Run a node run's program with these notices, as its agent does."""

    def settle(self) -> None:
        """Let everything come to where it is read."""


class SharedRun:
    """All see one folder."""

    def __init__(self, folder: Path) -> None:
        self.login = RunDirectory(str(folder / "run"), 0, PART)
        os.makedirs(self.login.own)
        self.files = SharedFiles(self.login)

    def execute(self, launch: RemoteLaunch, notices: bytes) -> None:
        run_program(launch)

    def settle(self) -> None:
        """It is there."""


class StreamedRun:
    """Supervisor, agent and login node have a folder each."""

    def __init__(self, folder: Path) -> None:
        self._agent = folder / "agent"
        node = RunDirectory(str(folder / "node"), 0, PART)
        self.login = RunDirectory(str(folder / "run"), 0, PART)
        for path in (node.own, self.login.own, str(self._agent)):
            os.makedirs(path)
        self.files = StreamedFiles(node, self.login.path)
        self._sent: list[dict[str, Any]] = []
        self._up = FileLink(node, True, self._sent.append)
        self._down = FileLink(self.login, False, self._sent.append)
        self._pass_on(self._up.greet, self._down)
        self._pass_on(self._down.greet, self._up)

    def execute(self, launch: RemoteLaunch, notices: bytes) -> None:
        assert launch.streamed
        staged = stage_launch(decode_launch(json.loads(encode_launch(launch))["launch"]), str(self._agent))
        write_part(str(self._agent), encode_part(NOTICE, notices)["part"])
        run_program(staged)
        tails = OutputTails(tail_streams(staged), FileWait("", 0.0))
        while messages := tails.finish():
            for message in messages:
                self.files.keep(message["part"])

    def settle(self) -> None:
        folder = Path(self.files.directory.path)
        self._pass_on(self._up.send_news, self._down)
        if (folder / CLOSING).exists():
            close_orders(self.login, int((folder / CLOSING).read_text()))
        self._pass_on(self._down.send_news, self._up)
        if (folder / OVER).exists():
            conclude(self.login)
            (folder / TAKEN).touch()

    def _pass_on(self, say: Callable[[], None], to: FileLink) -> None:
        say()
        for message in self._sent:
            note_written(self.login, to.take(message))
        self._sent.clear()


def run_program(launch: RemoteLaunch) -> None:
    with open(launch.stdout, "ab") as out, open(launch.stderr, "ab") as error:
        environment = {**os.environ, **launch.environment}
        subprocess.run(launch.argv, stdout=out, stderr=error, cwd=launch.cwd, env=environment, check=True, timeout=60)


@pytest.fixture(params=[SharedRun, StreamedRun])
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    # What runs here is a test runner and no application; agents would be sent it.
    monkeypatch.setattr(sys, "argv", [__file__])
    made: Run = request.param(tmp_path)
    return made


def make_job(folder: Path) -> Job:
    task = TaskSpec("a", run=SHOW)
    return new_job(
        7, JobSpec("g", (task, TaskSpec("b", run="x")), group=True, origin=Origin(directory=str(folder))), 1.0
    )


def write_order(run: Run, number: int) -> None:
    with open(run.login.file("orders.jsonl"), "a") as file:
        file.write(json.dumps({"seq": number, "event": {"event": "Cancel", "at": 1.0}}) + "\n")


def test_what_programs_write_is_where_the_list_of_streams_says(run: Run, tmp_path: Path) -> None:
    notice = os.path.join(run.files.directory.path, "notice")
    Path(notice).write_text("ends soon\n")
    work = run.files.prepare(make_job(tmp_path), KEY, "n1", (), {})
    launch = RemoteLaunch(str(KEY), environment={"OVERSPAN_RUN_DIR": work.run_dir}, **work.fields)
    run.execute(launch, run.files.take_notices())
    run.settle()
    listed = [json.loads(line) for line in Path(run.login.streams).read_text().splitlines()]
    found = {line["stream"]: Path(line["path"]).read_text() for line in listed}
    assert found == {"output": "said\nends soon\n", "error": "wrong\n"}
    assert all(line["path"].startswith(f"{run.login.path}/logs/") for line in listed)
    # What was told once is not told again.
    assert run.files.take_notices() == b""


def test_orders_and_journal_go_their_ways(run: Run) -> None:
    orders = OrderFile(run.files.directory.file("orders.jsonl"))
    for number in (1, 2):
        write_order(run, number)
        run.settle()
        assert [order.seq for order in orders.read()] == [number]
    journal = Path(run.files.directory.file("journal.jsonl"))
    for text in ("one\n", "one\ntwo\n"):
        journal.write_text(text)
        run.settle()
        assert Path(run.login.file("journal.jsonl")).read_text() == text


def test_tasks_find_each_other(run: Run) -> None:
    own, other = Placement("a", 0, "n1", "10.0.0.1"), Placement("b", 0, "n2", "10.0.0.2")
    before = Placement("a", 0, "n0", "10.0.0.9")
    # It takes the place of a native job that is gone, and has told as much.
    append_locations(locations_path(run.login.path, "a", 0), render_locations([before], "0"))
    run.files.tell_locations("a", render_locations([own], "1"))
    append_locations(locations_path(run.login.path, "b", 0), render_locations([other], "2"))
    run.settle()
    assert read_locations(locations_path(run.login.path, "a", 0)) == (own,)
    assert read_locations(locations_path(run.files.directory.path, "b", 0)) == (other,)


def test_no_order_is_lost_where_a_supervisor_leaves(run: Run) -> None:
    """It leaves when no more orders are taken; one that came before that is read, and it stays."""
    orders, taken = OrderFile(run.files.directory.file("orders.jsonl")), list[int]()

    def settle() -> bool:
        new = [order.seq for order in orders.read()]
        taken.extend(new)
        return not new

    closed = Path(run.login.file("closed"))
    write_order(run, 1)
    if run.files.seen:
        assert not run.files.close_orders(settle) and taken == [1]
    else:
        # The order is on its way while the supervisor asks.
        assert not run.files.close_orders(settle) and taken == []
        run.settle()
        assert not run.files.close_orders(settle) and taken == [1]
    assert not closed.exists()
    for _ in range(2):
        done = run.files.close_orders(settle)
        run.settle()
    assert done and closed.exists() and taken == [1]


def test_the_end_is_where_it_is_read(run: Run) -> None:
    Path(run.files.directory.file("journal.jsonl")).write_text('{"end":true}\n')
    (Path(run.files.directory.path) / OVER).touch()
    run.settle()
    run.files.finish(False)
    assert Path(run.login.file("journal.jsonl")).read_text() == '{"end":true}\n'


def test_without_a_relay_a_supervisor_leaves_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [__file__])
    files, clock = StreamedRun(tmp_path).files, [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    assert not files.close_orders(lambda: True)
    clock[0] += WAIT_SECONDS - 1
    assert not files.close_orders(lambda: True)
    clock[0] += 2
    assert files.close_orders(lambda: True)
