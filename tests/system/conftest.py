"""A real daemon for each test that asks for one, reached as users reach it: by the commands."""

from __future__ import annotations

import atexit
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.command_server import Execute, open_server
from tests.differential.player import execute_process

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.program import run_command
from overspan.bridge.client import Client
from overspan.bridge.client.autostart import connect
from overspan.bridge.config.paths import find_paths
from overspan.bridge.model.errors import ExitCode

Wait = Callable[..., Any]
LOG_LINES = 40
"""Of a daemon's log that a failure shows."""
LOCAL = "clusters:\n  local: {kind: local, cpus: 64, memory: 64G, gpus: 4}\n"


class Look(Invocation):
    """A command of this process: no interpreter is started for it, and no daemon either."""

    def client(self) -> Client:
        return Client(environment=self.environment, autostart=False)


def _find_mounts() -> str:
    """Which mounts this process sees; those of the command server stay as they were."""
    return os.readlink("/proc/self/ns/mnt")


MOUNTS = _find_mounts()


@cache
def _find_server() -> Execute:
    """The command server of this process, which ends with it."""
    folder = ExitStack()
    atexit.register(folder.close)
    path = Path(folder.enter_context(tempfile.TemporaryDirectory(prefix="span-")), "commands")
    return folder.enter_context(open_server(path))


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
        """Run `span WORDS`; fails the test on a non-zero exit unless told not to.

        It is a forked child of the command server, or a process of its own where it has an environment of its own, or
        this process has mounts of its own.
        """
        folder, timeout = extra.pop("cwd", self.folder), extra.pop("timeout", 300)
        own: dict[str, str] = extra.pop("environment", {})
        alone = bool(own) or _find_mounts() != MOUNTS
        execute = execute_process if alone else _find_server()
        command = [str(Path(sys.executable).with_name("span")), *words] if alone else [*words]
        ended = execute(command, stdin.encode(), Path(folder), {**self.environment, **own}, timeout)
        output, errors = ended.stdout.decode(), ended.stderr.decode()
        done = subprocess.CompletedProcess(ended.args, ended.returncode, output, errors)
        assert "Traceback" not in done.stderr, done.stderr
        if check:
            assert done.returncode == 0, f"span {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def look(self, *words: str, check: bool = True) -> str:
        """What `span WORDS` prints, for commands that only ask: run in this process, so that a wait may ask often.

        Where no daemon runs, the command is run as users run it, and starts one.
        """
        if not self._is_served():
            return self.run(*words, check=check).stdout
        data, talk = io.BytesIO(), io.StringIO()
        with io.TextIOWrapper(data, "utf-8", write_through=True) as said, redirect_stdout(said), redirect_stderr(talk):
            code = run_command(Look(words[0], words[1:], self.environment))
            text = data.getvalue().decode()
        if code == ExitCode.UNREACHABLE:
            # It ended meanwhile.
            return self.run(*words, check=check).stdout
        assert "internal error" not in talk.getvalue(), talk.getvalue()
        assert not check or code == 0, f"span {' '.join(words)}: {code}\n{text}{talk.getvalue()}"
        return text

    def _is_served(self) -> bool:
        connection = connect(find_paths(self.environment), 5.0)
        if connection is not None:
            connection.close()
        return connection is not None

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
        shown: dict[str, Any] = json.loads(self.look("show", str(ref), "--json"))
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
        return self.look("logs", str(ref), *([task] if task else []), *words, check=False)

    def list_evaluations(self, job: int) -> list[dict[str, Any]]:
        """The evaluations of a job's only watch, as `span evals --json` has them."""
        (watch,) = json.loads(self.look("evals", str(job), "--json"))["watches"]
        found: list[dict[str, Any]] = watch["evaluations"]
        return found

    def timeline(self, ref: int | str) -> list[dict[str, Any]]:
        """The rows of a job's timeline."""
        rows: list[dict[str, Any]] = json.loads(self.look("timeline", str(ref), "--json"))["rows"]
        return rows

    @property
    def daemon(self) -> int:
        """The daemon's pid; a daemon that tells of problems has one too."""
        return int(json.loads(self.look("ping", "--json", check=False))["pid"])

    def kill_daemon(self) -> None:
        """End the daemon as a crash would."""
        pid = self.daemon
        os.kill(pid, signal.SIGKILL)
        self.wait_until(lambda: not _lives(pid), 10, "the daemon's end")

    def end_jobs(self) -> None:
        """Cancel what lives and wait for its end."""
        self.look("ping", check=False)
        for pool in json.loads(self.look("pool", "ls", "--json", check=False) or "{}").get("pools", ()):
            self.look("pool", "delete", pool["name"], "--cancel", check=False)
        self.look("scancel", "--me", check=False)
        self.wait_until(lambda: not self.look("squeue", "--noheader").strip(), 40, "all jobs to end")

    def close(self) -> None:
        """End everything that belongs to the state directory."""
        if self.state.exists():
            self.end_jobs()
            self.look("shutdown", check=False)
        self.wait_until(self._kill_what_is_ours, 10, "nothing to be left running")

    def _kill_what_is_ours(self) -> bool:
        """Kill supervisors and commands; whether nothing is left; what they have just started is seen next time."""
        living = list(filter(_lives, _processes(str(self.state))))
        for pid in living:
            if b"span-supervisor" in _read(f"/proc/{pid}/comm") or b"overspan" in _read(f"/proc/{pid}/cmdline"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return not living


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of a daemon's log with a failure: a machine that is gone tells nothing more."""
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            log = value.state / "daemon.log" if isinstance(value, Span) else None
            if log is not None and log.exists():
                lines = log.read_text("utf-8", "replace").splitlines()[-LOG_LINES:]
                report.sections.append((f"daemon.log of {name}", "\n".join(lines)))
    return report


@pytest.fixture(scope="module")
def shared_span(tmp_path_factory: pytest.TempPathFactory, wait_until: Wait) -> Iterator[Span]:
    """The commands with a daemon that all tests of a module share."""
    installation = Span(tmp_path_factory.mktemp("shared"), wait_until)
    yield installation
    installation.close()


@pytest.fixture
def span(request: pytest.FixtureRequest, tmp_path: Path, wait_until: Wait) -> Iterator[Span]:
    """The commands with a daemon of their own; nothing of it is left afterwards.

    In a module marked `shared_daemon` it is that of the module, but for tests marked `own_daemon`: no job of an
    earlier test lives, and ids go on.
    """
    marked = request.node.get_closest_marker
    if marked("shared_daemon") and not marked("own_daemon"):
        shared: Span = request.getfixturevalue("shared_span")
        shared.folder = tmp_path
        yield shared
        shared.end_jobs()
        return
    installation = Span(tmp_path, wait_until)
    yield installation
    installation.close()
