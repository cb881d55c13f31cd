"""Fixtures that run real nodes, and leave none behind."""

from __future__ import annotations

import os
import select
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from overspan.bridge.supervisor import kernel, processes
from overspan.bridge.supervisor.processes import Node, Shim
from overspan.bridge.supervisor.records import NodeRecord, read_record
from overspan.bridge.supervisor.shim import NodeLaunch, spawn

if TYPE_CHECKING:
    from tests.waiting import WaitUntil

DEADLINE = 20.0
NOBODY = 65534


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
        assert node.state == processes.ENDED, node
        assert node.record is not None
        assert self.marked(shim.key) == []
        return node.record

    def leave(self, shim: Shim) -> Node:
        """Wait for a shim's end, in whatever state it leaves the node."""
        assert shim.pidfd is not None
        poller = select.poll()
        poller.register(shim.pidfd, select.POLLIN)
        assert poller.poll(DEADLINE * 1000), f"{shim} did not end"
        return processes.release(shim)

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
        return processes.find_marked(processes.name_node(self.directory, key))

    def text(self, name: str = "out") -> str:
        return (self.folder / name).read_text()

    def settle(self, key: str) -> NodeRecord:
        """Complete a lost node's record."""
        record = self.wait_until(lambda: processes.settle_lost(self.directory, key, {}), what=f"{key} is settled")
        assert record is not None
        return record

    def adopt_keys(self, keys: list[str]) -> None:
        """Look after nodes that another process starts."""
        self._keys.extend(keys)

    def clean(self) -> None:
        for key in self._keys:
            node = processes.adopt(self.directory, key)
            if node.shim is not None:
                processes.send(node.shim, signal.SIGKILL)
                if node.shim.pidfd is not None:
                    os.close(node.shim.pidfd)
            for process in self.marked(key):
                kernel.signal_process(process, signal.SIGKILL)
            self.wait_until(lambda key=key: self._gone(key), what=f"{key} is gone")  # type: ignore[misc]

    def _gone(self, key: str) -> bool:
        processes.reap_all()
        return not self.marked(key) and processes.adopt(self.directory, key).shim is None


@pytest.fixture
def nodes(tmp_path: Path, wait_until: WaitUntil) -> Iterator[Nodes]:
    """Real nodes in the test's own folder."""
    made = Nodes(tmp_path, wait_until)
    yield made
    made.clean()


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
                signal.alarm(60)
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
def small_disk(forked: Forked) -> Callable[[Callable[[str], None], str], None]:
    """Run a function in a forked child, in which the folder that it is given is a small tmpfs."""

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

    def run(function: Callable[[str], None], options: str) -> None:
        def inside() -> None:
            enter()
            folder = tempfile.gettempdir()
            kernel.mount("tmpfs", folder, 0, "tmpfs", options)
            function(folder)

        forked(inside)

    return run
