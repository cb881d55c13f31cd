"""What a node executes."""

from __future__ import annotations

import os
from pathlib import Path

from overspan.bridge.model.spec import Form, TaskSpec
from overspan.bridge.runtime.core.task_scripts import TaskCommand, find_shell, prepare_command


def test_shell_text_runs_in_the_shell(tmp_path: Path) -> None:
    command = prepare_command(TaskSpec("job", run="echo 1", args=("a b",)), str(tmp_path), "/marker")
    program = tmp_path / "job.run"
    assert command == TaskCommand((find_shell(), str(program), "a b"))
    assert program.read_text() == "echo 1"


def test_script_with_an_interpreter_runs_itself(tmp_path: Path) -> None:
    for form, name in ((Form.BATCH, "job/slurm_script"), (Form.RUN, "job.run")):
        spec = TaskSpec("job", form=form, run="#!/usr/bin/env python3\nprint(1)\n", args=("x",))
        command = prepare_command(spec, str(tmp_path), "/marker")
        assert command == TaskCommand((str(tmp_path / name), "x"))
        assert os.stat(tmp_path / name).st_mode & 0o777 == 0o700


def test_set_up_is_a_script_of_its_own(tmp_path: Path) -> None:
    command = prepare_command(TaskSpec("job", run="echo 1", setup="echo 0"), str(tmp_path), "/marker")
    assert command.setup_marker == "/marker"
    assert (tmp_path / "job.setup").read_text() == "echo 0"
    assert command.argv[-2:] == (find_shell(), str(tmp_path / "job.run"))
    assert prepare_command(TaskSpec("job", run="x", setup=" \n"), str(tmp_path), "/marker").setup_marker == ""


def test_script_that_was_cut_is_written_again(tmp_path: Path) -> None:
    spec = TaskSpec("job", run="echo whole")
    prepare_command(spec, str(tmp_path), "/marker")
    inode = (tmp_path / "job.run").stat().st_ino
    prepare_command(spec, str(tmp_path), "/marker")
    assert (tmp_path / "job.run").stat().st_ino == inode
    (tmp_path / "job.run").write_text("")
    prepare_command(spec, str(tmp_path), "/marker")
    assert (tmp_path / "job.run").read_text() == "echo whole"


def test_script_keeps_its_bytes(tmp_path: Path) -> None:
    data = b"#!/bin/sh\r\necho \xff\xc3\xa9\n"
    prepare_command(TaskSpec("job", run=data.decode("utf-8", "surrogateescape")), str(tmp_path), "/marker")
    assert (tmp_path / "job.run").read_bytes() == data
