"""Steps and allocations on a Slurm cluster, as their commands see them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from overspan.bridge.cli.slurm import native_steps
from overspan.bridge.cli.slurm.native_allocations import make_environment
from overspan.bridge.cli.slurm.native_steps import run_step, take_slot
from overspan.bridge.model.options.srun import parse_words

FACTS: dict[str, Any] = {
    "id": 7,
    "name": "interactive",
    "partition": "gpu",
    "account": "",
    "qos": "",
    "cluster": "leo",
    "tasks": [{"node_list": "n[1-2]", "nodes": 2}],
}


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Gives this process its own handlers back."""
    kept = {number: signal.getsignal(number) for number in signal.Signals}
    yield
    for number, handler in kept.items():
        if number not in (signal.SIGKILL, signal.SIGSTOP) and signal.getsignal(number) != handler:
            signal.signal(number, handler)


def test_sallocs_command_finds_the_allocation_and_what_was_asked_for() -> None:
    part = parse_words("salloc", ["-N2", "-n4", "-c", "3"])[0]
    found = make_environment({"A": "1", "SLURM_JOB_ACCOUNT": "mine"}, part, FACTS)
    told = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NNODES", "SLURM_NTASKS", "SRUN_CPUS_PER_TASK", "A")
    assert [found[name] for name in told] == ["7", "n[1-2]", "2", "4", "3", "1"]
    assert found["SLURM_JOB_PARTITION"] == "gpu" and found["SLURM_JOB_ACCOUNT"] == "mine"
    assert "SLURM_NTASKS" not in make_environment({}, parse_words("salloc", ["-N2"])[0], FACTS)


@pytest.mark.parametrize(("text", "code"), [("exit 5", 5), ("kill -TERM $$", 143)])
def test_the_exit_code_is_the_steps(text: str, code: int) -> None:
    found = {"words": ["/bin/sh", "-c", text], "guard": ["/bin/cat"]}
    assert run_step(found, {"PATH": "/usr/bin:/bin"}) == code


def test_signals_are_told_to_the_guard_and_then_nothing_more(tmp_path: Path) -> None:
    """The step signals its command, as a terminal does, and ends when the guard has heard of it."""
    heard, said = tmp_path / "heard", tmp_path / "said"
    os.mkfifo(heard)
    os.mkfifo(said)
    # Before the command handles the signal it would be the end of this process.
    ready = "until grep -q '^SigCgt:.*[2367abef]..$' /proc/$PPID/status; do :; done"
    step = f"until read -r name <{heard}; do :; done; [ $name = USR1 ] && exit 6"
    guard = f"{ready}; kill -USR1 $PPID; read -r name; echo $name >{heard}; cat >{said}"
    reader = subprocess.Popen(["cat", said], stdout=subprocess.PIPE)
    found = {"words": ["/bin/sh", "-c", step], "guard": ["/bin/sh", "-c", guard]}
    assert run_step(found, {"PATH": "/usr/bin:/bin"}) == 6
    assert reader.communicate(timeout=60)[0] == b""


def test_a_step_that_cannot_be_told_to_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_steps, "_END_SECONDS", 0.0)
    monkeypatch.setattr(native_steps, "_LOOK_SECONDS", 0.01)
    # Before the command handles the signal it would be the end of this process.
    ready = "until grep -q '^SigCgt:.*[4567cdef]...$' /proc/$PPID/status; do :; done"
    step = f"{ready}; kill -TERM $PPID; while :; do read -r x </dev/null; done"
    found = {"words": ["/bin/sh", "-c", step], "guard": ["/bin/cat"]}
    assert run_step(found, {"PATH": "/usr/bin:/bin"}) == 128 + signal.SIGKILL


def test_three_steps_share_the_daemons_connection(tmp_path: Path) -> None:
    environment = {"SPAN_RUNTIME_DIR": str(tmp_path)}
    assert [take_slot(environment) for _ in range(4)] == [True, True, True, False]
    assert take_slot({"SPAN_RUNTIME_DIR": str(tmp_path / "gone")})


def test_a_connection_that_hangs_ends_some_time_after_its_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_steps, "_END_SECONDS", 0.0)
    monkeypatch.setattr(native_steps, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(native_steps, "_GUARD_SECONDS", 0.1)
    found = {"words": ["sleep", "20"], "guard": ["sleep", "20"]}
    assert run_step(found, {"PATH": "/usr/bin:/bin"}, lambda: True) == 128 + signal.SIGKILL
