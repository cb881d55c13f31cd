"""An installation to measure: a state directory of its own, a daemon, and the commands."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from overspan import Client

CONFIG = "clusters:\n  local: {kind: local, cpus: 4096, memory: 4T}\n"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")


class Installation:
    """A daemon in a temporary folder; ended with everything it started at the end of the `with` block."""

    def __init__(self, config: str = CONFIG, python: str = sys.executable) -> None:
        self._config = config
        self.python = python
        """The interpreter of the environment whose `span` is measured."""
        self.abandoned = False
        """Whether its jobs are left to whoever takes their cluster away."""

    def __enter__(self) -> Installation:
        self._folder = tempfile.TemporaryDirectory(prefix="span-bench-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        (self.folder / "config.yaml").write_text(self._config)
        hidden = ("SPAN_", "SLURM_", "OVERSPAN_")
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
        # Installed programs have their bytecode beside them.
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.environment.update(SPAN_STATE_DIR=str(self.folder / "state"), SPAN_CONFIG=str(self.folder / "config.yaml"))
        self.program = str(Path(self.python).with_name("span"))
        self.run("ping")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.abandoned:
            self.run("scancel", "--me")
            until(lambda: not self.run("squeue", "--noheader").strip(), 60)
        self.run("shutdown")
        self._folder.cleanup()

    def run(self, *words: str, folder: Path | None = None) -> str:
        """Run a command, in the installation's folder unless another is given; gives its output."""
        return subprocess.run(
            [self.program, *words],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=folder or self.folder,
            env=self.environment,
        ).stdout

    def client(self) -> Client:
        """A client of the daemon."""
        return Client(environment=self.environment)

    def show(self, job: int | str) -> dict[str, Any]:
        """Everything that is known of a job."""
        shown: dict[str, Any] = json.loads(self.run("show", str(job), "--json"))
        found: dict[str, Any] = shown.get("job", shown)
        return found

    def processes(self) -> list[int]:
        """The daemon, supervisors and shims: every process of ours that belongs to the state directory."""
        mark = str(self.folder).encode()
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                comm = _read(name, "comm")
                text = _read(name, "cmdline") + _read(name, "environ")
                if mark in text and (comm.startswith(b"span-") or b"overspan" in _read(name, "cmdline")):
                    found.append(int(name))
        return found


def _read(pid: str, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def proportional_memory(pids: list[int]) -> float:
    """Megabytes of memory of the processes together, shared pages counted by share (PSS)."""
    total = 0
    for pid in pids:
        for line in _read(str(pid), "smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                total += int(line.split()[1])
    return total / 1024


def processor_seconds(pids: list[int]) -> float:
    """Processor time used so far by the processes."""
    total = 0
    for pid in pids:
        fields = _read(str(pid), "stat").rpartition(b")")[2].split()
        total += int(fields[11]) + int(fields[12]) if fields else 0
    return total / _TICK


def find_daemon(span: Installation) -> int:
    """The pid of the daemon, which is started where there is none."""
    return int(json.loads(span.run("ping", "--json"))["pid"])


def until(fact: Any, seconds: float) -> None:
    """Wait for a fact; TimeoutError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > deadline:
            raise TimeoutError("the benchmark waited too long")
        time.sleep(0.02)


def submit_held(span: Installation, count: int, hold: bool = True) -> None:
    """Submit jobs that wait, over 8 connections: held, or in their cluster's queue where it is full."""

    def submit(share: int) -> None:
        with span.client() as client:
            for _ in range(share):
                client.submit({"name": "held", "run": "true", "resources": {"cpus": 1}}, hold=hold)

    threads = [threading.Thread(target=submit, args=(count // 8,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def whole_process(words: list[str], environment: dict[str, str], runs: int = 15) -> float:
    """Median wall time in milliseconds of a command as a whole process."""
    times = []
    for _ in range(runs + 1):
        begun = time.perf_counter()
        # Without a timeout: a wait with one looks every 50 ms, and would measure its own looks.
        subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times[1:])
