"""One state folder as users of a version see it: its commands, its daemon, and stand-ins for its clusters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.upgrade.old_version import OldVersion
from tests.waiting import wait_until

NEW = Path(sys.executable).with_name("span")
"""The commands of this tree."""


def configure(root: Path, clusters: Mapping[str, Any] | None = None) -> None:
    """Write a configuration file; without clusters those of the corpus.

    These are this machine, the stand-ins below `root`, and one that nobody answers for.
    """
    slurm = {"kind": "slurm", "path": str(root / "clusters/bin"), "tick": 0.5, "root": str(root / "slurm")}
    pods = {"kind": "kubernetes", "kubeconfig": str(root / "clusters/kubeconfig"), "image": "any/sh:1"}
    away = {"kind": "slurm", "path": str(root / "nowhere"), "root": str(root / "away")}
    local = {"kind": "local", "cpus": 16, "memory": "16G", "gpus": 0}
    recorded = {"local": local, "slurm": slurm, "pods": pods, "away": away}
    text = json.dumps({"default_cluster": "local", "clusters": {"local": local, **(clusters or recorded)}}, indent=1)
    (root / "config.yaml").write_text(f"{text}\n")


class Installation:
    """The folder below `root`; `program` is the `span` of whichever version has it now."""

    def __init__(self, root: Path, program: Path = NEW) -> None:
        self.root, self.program = root, program
        self.state, self.work, self.clusters = root / "state", root / "work", root / "clusters"
        for folder in (self.work, root / "home"):
            folder.mkdir(exist_ok=True)
        self.environment = {
            "HOME": str(root / "home"),
            "LANG": "C.UTF-8",
            "PATH": "/usr/bin:/bin",
            "SHELL": "/bin/bash",
            "SPAN_CONFIG": str(root / "config.yaml"),
            "SPAN_SITE_CONFIG": str(root / "site.yaml"),
            "SPAN_STATE_DIR": str(self.state),
        }

    def configure(self, clusters: Mapping[str, Any] | None = None) -> None:
        """Write the configuration: these clusters, or those of the corpus."""
        configure(self.root, clusters)

    @contextmanager
    def stand_in(self, old: OldVersion) -> Iterator[None]:
        """A Slurm and a Kubernetes, which outlive daemons."""
        self.clusters.mkdir()
        environment = {**self.environment, "PYTHONPATH": str(old.stand_ins), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [str(old.python), "-P", str(Path(__file__).with_name("stand_ins.py")), str(self.clusters)]
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield
            process.stdin.close()

    def run(self, *words: str, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run `span WORDS`, which starts the daemon where there is none."""
        command = [str(self.program), *words]
        done = subprocess.run(
            command, env=self.environment, cwd=self.work, input=stdin, capture_output=True, text=True, timeout=120
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert not check or done.returncode == 0, f"span {' '.join(words)}: {done.stdout}{done.stderr}"
        return done

    def batch(self, script: str, *words: str) -> int:
        """Submit a batch script; gives the job's id."""
        text = f"#!/bin/bash\n{script}\n"
        return int(self.run("sbatch", "--parsable", *words, stdin=text).stdout.partition(";")[0])

    def submit(self, name: str, text: str, *words: str) -> int:
        """Submit a job file, which stays beside; gives the job's id."""
        (self.work / f"{name}.yaml").write_text(text)
        return int(self.run("submit", "--parsable", *words, f"{name}.yaml").stdout.partition(";")[0])

    def show(self, job: int | str) -> dict[str, Any]:
        """Everything that is known of a job."""
        shown: dict[str, Any] = json.loads(self.run("show", str(job), "--json").stdout)
        found: dict[str, Any] = shown.get("job", shown)
        return found

    def until(self, job: int | str, *states: str, timeout: float = 30) -> dict[str, Any]:
        """Wait until a job is in one of the states."""

        def look() -> dict[str, Any] | None:
            found = self.show(job)
            return found if found["state"] in states else None

        found = wait_until(look, timeout, f"job {job} to be {' or '.join(states)}")
        assert found is not None
        return found

    def log(self, job: int | str, *words: str) -> str:
        """What a job has written."""
        return self.run("logs", str(job), *words, check=False).stdout

    def end(self) -> None:
        """Cancel what lives, and end the daemon."""
        if self.state.exists():
            self.run("scancel", "--me", check=False)
            self.run("shutdown", check=False)


def end_processes(state: Path) -> None:
    """End the daemons, supervisors and programs of a state folder: its path is in their words or variables."""
    marks = f"{state}/".encode(), f"SPAN_STATE_DIR={state}\0".encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with suppress(OSError):
                text = Path("/proc", name, "cmdline").read_bytes() + Path("/proc", name, "environ").read_bytes()
                if any(mark in text for mark in marks):
                    os.kill(int(name), signal.SIGKILL)
