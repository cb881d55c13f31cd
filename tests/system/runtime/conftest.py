"""Fixtures that run real nodes and real supervisors, and leave none behind."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.waiting import PATIENCE

import overspan
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model.documents import encode
from overspan.bridge.model.events import Event, event_from_document, event_to_document
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.runtime.core import kernel, shim_control
from overspan.bridge.runtime.core.node_records import NodeRecord, read_record, shim_alive
from overspan.bridge.runtime.core.shim import NodeLaunch, spawn
from overspan.bridge.runtime.core.shim_control import NodeStatus, Shim

if TYPE_CHECKING:
    from tests.waiting import WaitUntil

DEADLINE = 20.0
PATIENT = DEADLINE * PATIENCE
"""Seconds for a wait that is none of `wait_until`."""
NOBODY = 65534
SOURCE = str(Path(overspan.__file__).parent.parent)


class Nodes:
    """Starts nodes in one folder, waits for their ends, and ends what is left."""

    def __init__(self, folder: Path, wait_until: WaitUntil) -> None:
        self.folder = folder
        self.directory = str(folder)
        self.wait_until = wait_until
        self._keys: list[str] = []

    def launch(self, key: str, *argv: str, **options: Any) -> NodeLaunch:
        values: dict[str, Any] = {
            "env": {"PATH": os.environ["PATH"]},
            "cwd": self.directory,
            "stdout": "out",
            "stderr": "err",
        }
        values.update(options)
        return NodeLaunch(self.directory, key, argv, **values)

    def start(self, key: str, *argv: str, **options: Any) -> Shim:
        self._keys.append(key)
        return spawn(self.launch(key, *argv, **options))

    def shell(self, key: str, script: str, **options: Any) -> Shim:
        return self.start(key, "sh", "-c", script, **options)

    def run(self, key: str, script: str, **options: Any) -> NodeRecord:
        return self.end(self.shell(key, script, **options))

    def end(self, shim: Shim) -> NodeRecord:
        """Wait for a shim's end and give the record."""
        node = self.leave(shim)
        assert node.state == shim_control.ENDED, node
        assert node.record is not None
        assert self.marked(shim.key) == []
        return node.record

    def leave(self, shim: Shim) -> NodeStatus:
        """Wait for a shim's end, in whatever state it leaves the node."""
        if shim.pidfd is None:
            # A forker reaps its shims: one that ended before it could be held has no pidfd.
            self.wait_until(lambda: not shim_alive(shim.directory, shim.key), DEADLINE, f"{shim} to end")
            return shim_control.release(shim)
        poller = select.poll()
        poller.register(shim.pidfd, select.POLLIN)
        assert poller.poll(PATIENT * 1000), f"{shim} did not end"
        return shim_control.release(shim)

    def running(self, key: str) -> NodeRecord:
        """Wait until a node's program has taken over from the gated child."""

        def find() -> NodeRecord | None:
            record = read_record(self.directory, key)
            if record is None or not record.pid:
                return None
            comm = Path(f"/proc/{record.pid}/comm").read_text().strip()
            return record if comm != "span-shim" else None

        record = self.wait_until(find, what=f"{key} runs")
        assert record is not None
        return record

    def marked(self, key: str) -> list[kernel.Process]:
        return shim_control.find_marked(shim_control.name_node(self.directory, key))

    def sleepers(self, key: str) -> list[kernel.Process]:
        """The node's `sleep`s that run: what its shells fork on the way there does not count."""
        return [process for process in self.marked(key) if kernel.read_comm(process.pid) == "sleep"]

    def descriptors(self, pid: int) -> list[str]:
        """What a process has open, by name or kind, sorted; it may be closing some."""
        found = []
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.append(os.readlink(entry).partition(":[")[0])
        return sorted(found)

    def text(self, name: str = "out") -> str:
        return (self.folder / name).read_text()

    def settle(self, key: str) -> NodeRecord:
        """Complete a lost node's record."""
        record = self.wait_until(lambda: shim_control.settle_lost(self.directory, key, {}), what=f"{key} is settled")
        assert record is not None
        return record

    def adopt_keys(self, keys: list[str]) -> None:
        """Look after nodes that another process starts."""
        self._keys.extend(keys)

    def clean(self) -> None:
        for key in self._keys:
            self.wait_until(lambda key=key: self._end_all(key), what=f"{key} is gone")  # type: ignore[misc]

    def _end_all(self, key: str) -> bool:
        """Kill what is there now, which may have started since the last look; tells whether nothing is left."""
        shim_control.reap_all()
        node = shim_control.adopt(self.directory, key)
        if node.shim is not None:
            shim_control.send(node.shim, signal.SIGKILL)
            if node.shim.pidfd is not None:
                os.close(node.shim.pidfd)
        left = self.marked(key)
        for process in left:
            kernel.signal_process(process, signal.SIGKILL)
        return node.shim is None and not left


@pytest.fixture
def nodes(tmp_path: Path, wait_until: WaitUntil) -> Iterator[Nodes]:
    """Real nodes in the test's own folder."""
    made = Nodes(tmp_path, wait_until)
    yield made
    made.clean()


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nobody else is given; whoever listens on it has SO_REUSEADDR, as Python's servers have."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        yield held.getsockname()[1]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may write; pytest's own are closed to all but its user."""
    folder = Path(tempfile.mkdtemp(prefix="overspan-test-", dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


Forked = Callable[[Callable[[], None]], None]


@pytest.fixture
def forked() -> Forked:
    """Run a function in a forked child: namespaces, mounts and changes of user die with it."""

    def run(function: Callable[[], None]) -> None:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(reading)
                # A child that hangs ends by itself.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(600)
                function()
                status = 0
            except BaseException:
                os.write(writing, traceback.format_exc().encode()[-60000:])
            finally:
                os._exit(status)
        os.close(writing)
        with open(reading, encoding="utf-8") as report:
            text = report.read()
        _, status = os.waitpid(pid, 0)
        assert status == 0, text or f"the child ended with wait status {status}"

    return run


def become_nobody() -> None:
    """Give root up for good."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


@pytest.fixture
def as_nobody(forked: Forked) -> Forked:
    """Run a function in a forked child as the user nobody."""
    if os.getuid() != 0:
        pytest.skip("only root can become nobody")

    def run(function: Callable[[], None]) -> None:
        def change() -> None:
            become_nobody()
            function()

        forked(change)

    return run


@pytest.fixture
def small_disk(forked: Forked) -> Callable[..., None]:
    """Run a function in a forked child; the folder that it is given, by default the temporary one, is a small tmpfs."""

    def probe() -> None:
        enter()

    def enter() -> None:
        if os.getuid() == 0:
            kernel.unshare(kernel.CLONE_NEWNS)
        else:
            uid, gid = os.getuid(), os.getgid()
            kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWUSER)
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        kernel.detach_mounts()

    try:
        forked(probe)
    except AssertionError as error:
        pytest.skip(f"no private mounts here: {str(error).strip().splitlines()[-1]}")

    def run(function: Callable[[str], None], options: str, folder: str = "") -> None:
        def inside() -> None:
            enter()
            place = folder or tempfile.gettempdir()
            kernel.mount("tmpfs", place, 0, "tmpfs", options)
            function(place)

        forked(inside)

    return run


class Launched:
    """One launch in a run directory: its files as the daemon leaves and reads them."""

    def __init__(self, hosts: Hosts, job: Job, host: str) -> None:
        self.hosts = hosts
        self.job = job
        self.host = host
        self.path = hosts.root / "runs" / str(job.id)
        self._orders = 0

    @property
    def journal(self) -> list[dict[str, Any]]:
        """The journal's whole lines."""
        try:
            data = (self.path / f"journal.{self.job.launch}.jsonl").read_bytes()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]

    @property
    def ended(self) -> bool:
        """Whether the journal has its last line."""
        lines = self.journal
        return bool(lines) and bool(lines[-1].get("end"))

    def events(self, kind: str, task: str = "") -> list[dict[str, Any]]:
        """The journal's events of one kind."""
        return [line for line in self.journal if line.get("event") == kind and task in ("", line.get("task"))]

    def replay(self) -> Job:
        """The job as the daemon makes it from the journal."""
        job = self.job
        for line in self.journal:
            if "event" in line:
                job = reduce(job, event_from_document(line))
        return job

    def until(self, kind: str, task: str = "", count: int = 1) -> list[dict[str, Any]]:
        """Wait until the journal has that many events of a kind."""
        what = f"{count} {kind} {task} in {self.journal}"
        self.hosts.wait_until(lambda: len(self.events(kind, task)) >= count, DEADLINE, what)
        return self.events(kind, task)

    def until_ended(self) -> Job:
        """Wait for the journal's end; gives the job."""
        self.hosts.wait_until(lambda: self.ended, DEADLINE, f"the end of {self.path}")
        return self.replay()

    def order(self, event: Event, ending: str = "\n") -> None:
        """Append an order and wake the host, if it lives."""
        self._orders += 1
        line = json.dumps({"seq": self._orders, "event": event_to_document(event)}) + ending
        file = self.path / f"orders.{self.job.launch}.jsonl"
        file.touch(0o600)
        with file.open("a") as orders:
            orders.write(line)
        self.hosts.wake(self.host)

    def log(self, key: str, stream: str = "out") -> str:
        """What a node run wrote, by its key."""
        return (self.path / "logs" / f"{key}.{stream}").read_text()

    def record(self, key: str) -> NodeRecord:
        """The record of a node run that has begun."""
        record = self.hosts.wait_until(lambda: read_record(str(self.path / "nodes"), key), DEADLINE, f"start of {key}")
        assert record is not None
        return record


class Hosts:
    """Real supervisors in the test's own folder, and the launches that they look after."""

    def __init__(self, folder: Path, wait_until: WaitUntil) -> None:
        self.root = folder / "root"
        self.work = folder / "work"
        self.wait_until = wait_until
        self.python = sys.executable
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.root.mkdir(mode=0o700)
        self.work.mkdir()

    def add(
        self, *tasks: TaskSpec, job_id: int = 7, host: str = "", isolation: str = "env", **options: Any
    ) -> Launched:
        """Leave the plan and the grant of a job, and name it in its host's inbox."""
        origin = Origin(user="alice", uid=1000, host="login", directory=str(self.work))
        spec = JobSpec(options.pop("name", "rl"), tasks, **{"group": len(tasks) > 1, "origin": origin, **options})
        return self.submit(new_job(job_id, spec, time.time()), host or f"{job_id}.0", isolation)

    def submit(self, job: Job, host: str, isolation: str = "env") -> Launched:
        """Leave the plan and the grant of a job's present launch, and name it in an inbox."""
        launched = Launched(self, job, host)
        launched.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        places = [(task.name, node) for task in job.spec.tasks for node in range(task.num_nodes)]
        members = [[name, node, "box", f"127.7.0.{place + 1}", []] for place, (name, node) in enumerate(places)]
        plan = {"format": 1, "token": "t", "job": encode(job)}
        grant = {"format": 1, "at": time.time(), "members": members, "isolation": isolation}
        for name, document in (("plan", plan), ("grant", grant)):
            path = launched.path / f"{name}.{job.launch}.json"
            path.touch(0o600)
            path.write_text(json.dumps(document))
        self.tell(host, json.dumps({"run": str(launched.path), "launch": job.launch}) + "\n")
        return launched

    def folder(self, host: str) -> Path:
        return self.root / "hosts" / host

    def tell(self, host: str, text: str) -> None:
        """Append to a host's inbox as the daemon does: under the lock."""
        self.folder(host).mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.folder(host) / "inbox.jsonl").touch(0o600)
        with (self.folder(host) / "inbox.jsonl").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(text)

    def start(self, host: str, code: str = "") -> subprocess.Popen[bytes]:
        """Start a supervisor, as the daemon does: with SIGUSR1 held back, in a session of its own."""
        how = ["-c", code] if code else ["-m", "overspan.bridge.runtime"]
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        try:
            process = subprocess.Popen(
                [self.python, "-S", *how, str(self.folder(host))],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": SOURCE},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self.processes[host] = process
        return process

    def wake(self, host: str) -> None:
        process = self.processes.get(host)
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGUSR1)

    def kill(self, host: str) -> None:
        """End a supervisor as a crash would."""
        self.processes[host].kill()
        self.processes[host].wait()

    def leave(self, host: str) -> int:
        """Wait until a supervisor leaves by itself; gives its exit code."""
        return self.processes[host].wait(PATIENT)

    def finish(self, launched: Launched) -> Job:
        """Wait for a launch's end and its host's; gives the job."""
        job = launched.until_ended()
        assert self.leave(launched.host) == 0, self.log(launched.host)
        assert self.log(launched.host) == ""
        return job

    def run(self, *tasks: TaskSpec, **options: Any) -> Launched:
        """Run a job to its end."""
        launched = self.add(*tasks, **options)
        self.start(launched.host)
        self.finish(launched)
        return launched

    def log(self, host: str) -> str:
        try:
            return (self.folder(host) / "log").read_text()
        except FileNotFoundError:
            return ""

    def clean(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        for claim in self.root.glob("runs/*/nodes/*.claim"):
            self.wait_until(lambda claim=claim: _end_node(str(claim.parent), claim.stem), DEADLINE, f"{claim} to end")  # type: ignore[misc]


def _end_node(directory: str, key: str) -> bool:
    node = shim_control.adopt(directory, key)
    if node.shim is not None:
        shim_control.send(node.shim, signal.SIGKILL)
        if node.shim.pidfd is not None:
            os.close(node.shim.pidfd)
        return False
    if node.state == shim_control.LOST:
        shim_control.settle_lost(directory, key, {})
    return not shim_control.find_marked(shim_control.name_node(directory, key))


@pytest.fixture
def hosts(tmp_path: Path, wait_until: WaitUntil) -> Iterator[Hosts]:
    """Real supervisors, of which nothing is left afterwards."""
    made = Hosts(tmp_path, wait_until)
    yield made
    made.clean()
