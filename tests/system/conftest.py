"""A real daemon for each test that asks for one, reached as users reach it: by the commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

Wait = Callable[..., Any]
LOCAL = "clusters:\n  local: {kind: local, cpus: 64, memory: 64G, gpus: 4}\n"


class Span:
    """The commands of one installation: a state directory of its own, and a daemon that the commands start."""

    def __init__(self, folder: Path, wait_until: Wait) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.config = folder / "config.yaml"
        self.config.write_text(LOCAL)
        self.wait_until = wait_until
        hidden = ("SPAN_", "SLURM_", "OVERSPAN_", "SBATCH_", "SQUEUE_", "SKYPILOT_", "PYTHONDONTWRITEBYTECODE")
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
        self.environment.update(
            SPAN_STATE_DIR=str(self.state),
            SPAN_CONFIG=str(self.config),
            SPAN_SITE_CONFIG=str(folder / "site.yaml"),
            PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            PYTHON=sys.executable,
        )

    def run(self, *words: str, check: bool = True, stdin: str = "", **extra: Any) -> subprocess.CompletedProcess[str]:
        """Run `span WORDS`; fails the test on a non-zero exit unless told not to."""
        environment = {**self.environment, **extra.pop("environment", {})}
        done = subprocess.run(
            [str(Path(sys.executable).with_name("span")), *words],
            input=stdin,
            text=True,
            capture_output=True,
            timeout=extra.pop("timeout", 300),
            cwd=extra.pop("cwd", self.folder),
            env=environment,
        )
        assert "Traceback" not in done.stderr, done.stderr
        if check:
            assert done.returncode == 0, f"span {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def submit(self, text: str, *words: str) -> int:
        """Submit a job file; gives the job's id."""
        file = self.folder / f"job{len(list(self.folder.glob('job*.yaml')))}.yaml"
        file.write_text(text)
        return int(self.run("submit", str(file), "--parsable", *words).stdout)

    def wrap(self, command: str, *words: str) -> int:
        """Submit a single command as a batch job; gives the job's id."""
        return int(self.run("sbatch", "--parsable", *words, "--wrap", command).stdout)

    def job(self, ref: int | str) -> dict[str, Any]:
        """Everything that is known of a job."""
        shown: dict[str, Any] = json.loads(self.run("show", str(ref), "--json").stdout)
        found: dict[str, Any] = shown.get("job", shown)
        return found

    def task(self, ref: int | str, name: str) -> dict[str, Any]:
        """One task of a job."""
        found: dict[str, Any] = next(task for task in self.job(ref)["tasks"] if task["name"] == name)
        return found

    def until(self, ref: int | str, *states: str, task: str = "", timeout: float = 30) -> dict[str, Any]:
        """Wait until the job, or a task of it, is in one of the states."""

        def look() -> dict[str, Any] | None:
            found = self.task(ref, task) if task else self.job(ref)
            return found if found["state"] in states else None

        result: dict[str, Any] = self.wait_until(look, timeout, f"job {ref} {task} to be {' or '.join(states)}")
        return result

    def log(self, ref: int | str, task: str = "", *words: str) -> str:
        """What a task has written."""
        return self.run("logs", str(ref), *([task] if task else []), *words, check=False).stdout

    def timeline(self, ref: int | str) -> list[dict[str, Any]]:
        """The rows of a job's timeline."""
        rows: list[dict[str, Any]] = json.loads(self.run("timeline", str(ref), "--json").stdout)["rows"]
        return rows

    @property
    def daemon(self) -> int:
        """The daemon's pid."""
        return int(json.loads(self.run("ping", "--json").stdout)["pid"])

    def kill_daemon(self) -> None:
        """End the daemon as a crash would."""
        pid = self.daemon
        os.kill(pid, signal.SIGKILL)
        self.wait_until(lambda: not _lives(pid), 10, "the daemon's end")

    def close(self) -> None:
        """End everything that belongs to the state directory."""
        if self.state.exists():
            self.run("scancel", "--me", check=False)
            self.wait_until(lambda: not self.run("squeue", "--noheader").stdout.strip(), 40, "all jobs to end")
            self.run("shutdown", check=False)
        mark = str(self.state)
        for pid in _processes(mark):
            if b"span-supervisor" in _read(f"/proc/{pid}/comm") or b"overspan" in _read(f"/proc/{pid}/cmdline"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.wait_until(lambda: not any(map(_lives, _processes(mark))), 10, "nothing to be left running")


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _lives(pid: int) -> bool:
    state = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return bool(state) and state[0] not in (b"Z", b"X")


def _processes(mark: str) -> list[int]:
    """Processes, but for this one, whose command line or environment speaks of the state directory."""
    word = mark.encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            text = _read(f"/proc/{name}/cmdline") + _read(f"/proc/{name}/environ")
            if word in text:
                found.append(int(name))
    return found


@pytest.fixture
def span(tmp_path: Path, wait_until: Wait) -> Iterator[Span]:
    """The commands with a daemon of their own; nothing of it is left afterwards."""
    installation = Span(tmp_path, wait_until)
    yield installation
    installation.close()
