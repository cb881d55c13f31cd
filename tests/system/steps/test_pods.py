"""The program that pods run, as two pods on this machine: srun in one, the step daemon in the other."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.waiting import WaitUntil

from overspan.adapters.kubernetes.manifests.commands import pack_program
from overspan.bridge.runtime.srun.channel import VERSION
from overspan.bridge.runtime.srun.pod_commands import Mounted

# The second's address is this process's alone: nobody else takes the port that was free there.
FIRST, SECOND = "127.0.0.1", f"127.{os.getpid() >> 16 & 63 | 64}.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
TRAP = 'trap "echo $SLURM_PROCID had TERM; exit 0" TERM; echo up; while :; do sleep 0.05; done'


class Pair(NamedTuple):
    """Two pods: the words and variables of the first, and the port and process of the other's step daemon."""

    words: tuple[str, ...]
    environment: dict[str, str]
    port: int
    daemon: subprocess.Popen[str]

    def srun(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a step from the first."""
        return subprocess.run(
            [*self.words, "srun", *words],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture
def pair(tmp_path: Path, wait_until: WaitUntil) -> Iterator[Pair]:
    """Two nodes of a batch script."""
    with socket.create_server((SECOND, 0)) as probe:
        port = probe.getsockname()[1]
    folder = tmp_path / "pod"
    folder.mkdir()
    row = {"task": "batch", "gpus": []}
    nodes = [
        {**row, "index": 0, "name": "batch-0", "address": FIRST, "served": False},
        {**row, "index": 1, "name": "batch-1", "address": SECOND, "served": True, "port": port},
    ]
    document = {
        "format": 1,
        "job": 7,
        "launch": 0,
        "name": "one",
        "user": "ada",
        "array": None,
        "batch": True,
        "components": [{"nodes": nodes, "ntasks": 0, "ntasks_per_node": 0, "cpus": 0}],
        "environment": {},
        "pods": True,
        "port": port,
    }
    (folder / "allocation.json").write_text(json.dumps(document))
    (folder / "key").write_text(os.urandom(32).hex())
    program = folder / "commands.pyz"
    program.write_bytes(pack_program(Mounted(str(folder / "run"), str(folder / "allocation.json"), str(folder))))
    words = (sys.executable, "-I", "-S", str(program))
    base = {"PATH": os.environ["PATH"], "OVERSPAN_JOB_ID": "7", "OVERSPAN_TASK": "batch", "OVERSPAN_NODE_INDEX": "0"}
    other = {**base, "OVERSPAN_NODE_INDEX": "1", "OVERSPAN_ADDR": SECOND, "NVIDIA_VISIBLE_DEVICES": "GPU-second"}
    daemon = subprocess.Popen([*words, "stepd"], env=other, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: _listens(port), 20, "the step daemon to listen")
    yield Pair(words, {**base, "OVERSPAN_ADDR": FIRST, "NVIDIA_VISIBLE_DEVICES": "GPU-first"}, port, daemon)
    daemon.terminate()
    assert daemon.wait(200) == 0
    assert daemon.stderr is not None
    daemon.stderr.close()


def _listens(port: int) -> bool:
    try:
        socket.create_connection((SECOND, port), 10).close()
    except OSError:
        return False
    return True


def test_ranks_run_in_both_with_what_each_was_given(pair: Pair) -> None:
    text = "echo $SLURM_PROCID $SLURM_NODEID $SLURMD_NODENAME $OVERSPAN_ADDR $NVIDIA_VISIBLE_DEVICES"
    done = pair.srun("-n", "3", "sh", "-c", text)
    assert done.returncode == 0 and done.stderr == ""
    assert sorted(done.stdout.splitlines()) == [
        f"0 0 batch-0 {FIRST} GPU-first",
        f"1 0 batch-0 {FIRST} GPU-first",
        f"2 1 batch-1 {SECOND} GPU-second",
    ]


def test_input_reaches_all_and_the_highest_code_counts(pair: Pair) -> None:
    done = pair.srun("-l", "sh", "-c", "cat; exit $((SLURM_PROCID + 3))", stdin="hello\n")
    assert done.returncode == 4
    assert sorted(done.stdout.splitlines()) == ["0: hello", "1: hello"]


def test_who_does_not_know_the_key_is_turned_away(pair: Pair) -> None:
    with socket.create_connection((SECOND, pair.port), 100) as stranger, stranger.makefile("rb") as answers:
        stranger.sendall(VERSION + os.urandom(32))
        # A number of its own, and its proof.
        assert len(answers.read(64)) == 64
        stranger.sendall(os.urandom(32))
        assert answers.read() == b""
    assert pair.srun("true").returncode == 0


def test_a_term_to_the_daemon_waits_for_its_ranks(pair: Pair, wait_until: WaitUntil) -> None:
    step = subprocess.Popen(
        [*pair.words, "srun", "-w", "batch-1", "sh", "-c", TRAP],
        env=pair.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert step.stdout is not None and step.stdout.readline() == "up\n"
    pair.daemon.terminate()
    rank = int(_find(pair.daemon.pid))
    assert pair.daemon.poll() is None
    os.kill(rank, signal.SIGTERM)
    assert step.stdout.readline() == "0 had TERM\n"
    assert step.wait(200) == 0
    step.stdout.close()
    assert pair.daemon.wait(200) == 0


def _find(daemon: int) -> str:
    """The rank below the only runner of a daemon."""
    (runner,) = Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
    (rank,) = Path(f"/proc/{runner}/task/{runner}/children").read_text().split()
    return rank


def test_a_step_ends_with_its_srun(pair: Pair, wait_until: WaitUntil) -> None:
    step = subprocess.Popen(
        [*pair.words, "srun", "-l", "sh", "-c", "echo up; exec sleep 600"],
        env=pair.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert step.stdout is not None
    assert {step.stdout.readline(), step.stdout.readline()} == {"0: up\n", "1: up\n"}
    rank = _find(pair.daemon.pid)
    step.kill()
    step.wait()
    step.stdout.close()
    wait_until(lambda: not os.path.exists(f"/proc/{rank}"), 20, "the rank on the other node to end")
