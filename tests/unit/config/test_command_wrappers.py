"""Slurm's names as executables: written once, whole, and never over what is not ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from overspan.bridge.cli.invocation import SLURM_VERBS, Invocation
from overspan.bridge.cli.service import alias
from overspan.bridge.config import command_wrappers
from overspan.bridge.config.command_wrappers import VERBS, ensure_wrappers, find_span, make_wrapper, write_wrappers
from overspan.bridge.model.errors import Conflict, InvalidRequest


def test_the_verbs_are_those_of_the_commands() -> None:
    assert set(VERBS) == SLURM_VERBS


def test_wrappers_are_written_once(tmp_path: Path) -> None:
    folder = Path(ensure_wrappers(str(tmp_path)))
    assert sorted(path.name for path in folder.iterdir()) == sorted(VERBS)
    assert all(os.access(folder / verb, os.X_OK) for verb in VERBS)
    stamp = (folder / "sbatch").stat().st_ino
    assert ensure_wrappers(str(tmp_path)) == str(folder)
    assert (folder / "sbatch").stat().st_ino == stamp


def test_another_installation_replaces_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(ensure_wrappers(str(tmp_path)))
    monkeypatch.setattr(command_wrappers, "find_span", lambda: ("/opt/a b/span",))
    ensure_wrappers(str(tmp_path))
    assert "exec '/opt/a b/span' sbatch \"$@\"\n" in (folder / "sbatch").read_text()


def test_slurms_own_are_never_replaced(tmp_path: Path) -> None:
    theirs = tmp_path / "sinfo"
    theirs.write_text("#!/bin/sh\n")
    with pytest.raises(Conflict, match="has a sinfo that is not Overspan's"):
        write_wrappers(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["sinfo"]


def test_a_wrapper_hands_on_every_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    show = "import sys; print(sys.argv[1:])"
    monkeypatch.setattr(command_wrappers, "find_span", lambda: (sys.executable, "-c", show))
    wrapper = tmp_path / "sbatch"
    wrapper.write_bytes(make_wrapper("sbatch"))
    wrapper.chmod(0o755)
    done = subprocess.run([str(wrapper), "a b", "", "$x"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "['sbatch', 'a b', '', '$x']\n"


def test_the_command_is_found_by_its_whole_path() -> None:
    assert os.path.isabs(find_span()[0])


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", 'sbatch() { span sbatch "$@"; }'),
        ("zsh", 'squeue() { span squeue "$@"; }'),
        ("fish", "function sinfo; span sinfo $argv; end"),
    ],
)
def test_functions(shell: str, line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_wrappers(str(tmp_path))
    assert alias.run(Invocation("alias", ("--shell", shell), {"PATH": str(tmp_path)})) == 0
    shown = capsys.readouterr()
    assert line in shown.out.splitlines()
    assert len(shown.out.splitlines()) == len(VERBS)
    assert shown.err == ""


@pytest.mark.parametrize(
    ("shell", "line"), [("bash", "export SBATCH_POOL='a b'"), ("fish", "set -gx SBATCH_POOL 'a b'")]
)
def test_a_pool_is_set_before_the_functions(
    shell: str, line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert alias.run(Invocation("alias", ("--shell", shell, "--pool", "a b"), {"PATH": str(tmp_path)})) == 0
    assert capsys.readouterr().out.splitlines()[0] == line
    with pytest.raises(InvalidRequest, match="the same for all pools"):
        alias.run(Invocation("alias", ("--folder", "--pool", "p"), {"PATH": str(tmp_path)}))


def test_functions_leave_slurms_own_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    theirs = tmp_path / "squeue"
    theirs.write_text("#!/bin/sh\n")
    theirs.chmod(0o755)
    assert alias.run(Invocation("alias", (), {"PATH": str(tmp_path), "SHELL": "/bin/zsh"})) == 0
    shown = capsys.readouterr()
    assert "squeue()" not in shown.out
    assert "squeue" in shown.err


def test_the_folder_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    environment = {"SPAN_STATE_DIR": str(tmp_path / "state"), "HOME": str(tmp_path)}
    assert alias.run(Invocation("alias", ("--folder",), environment)) == 0
    assert capsys.readouterr().out == f"{tmp_path}/state/shims\n"
    assert alias.run(Invocation("alias", ("--folder", str(tmp_path / "bin")), environment)) == 0
    assert (tmp_path / "bin" / "srun").exists()
