"""The forker: shims that are forked from it, what it refuses, and what happens without it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import overspan
from overspan.bridge.runtime.core import forker as forker_module
from overspan.bridge.runtime.core import kernel, shim_control
from overspan.bridge.runtime.core.forker import Forker
from overspan.bridge.runtime.core.shim_control import adopt, send

if TYPE_CHECKING:
    from tests.system.runtime.conftest import Nodes

KEY = "trainer.0.0.0"
# Kilobytes. Measured: 500 with CPython 3.11; a shim that reads itself what it starts has 1200.
LIMIT = 700
SOURCE = str(Path(overspan.__file__).parent.parent)


@pytest.fixture
def forker() -> Iterator[Forker]:
    """A forker of its own, ended after the test."""
    made = Forker()
    yield made
    made.close()
    os.waitpid(made.pid, 0)


def test_node_of_a_forker_ends_as_any(nodes: Nodes, forker: Forker) -> None:
    nodes.adopt_keys([KEY])
    text = "x" * 200_000
    shim = forker.spawn(
        nodes.launch(
            KEY,
            "sh",
            "-c",
            'until [ -e go ]; do sleep 0.02; done; echo "$1" | wc -c; exit 3',
            "sh",
            text[:100_000],
            env={"A": text[:100_000], "PATH": os.environ["PATH"]},
        )
    )
    assert kernel.read_process(shim.pid) is not None
    (nodes.folder / "go").touch()
    assert nodes.end(shim).exit_code == 3
    assert nodes.text() == "100001\n"


def test_key_starts_once(nodes: Nodes, forker: Forker) -> None:
    nodes.adopt_keys([KEY])
    shim = forker.spawn(nodes.launch(KEY, "true"))
    with pytest.raises(FileExistsError):
        forker.spawn(nodes.launch(KEY, "true"))
    nodes.end(shim)
    with pytest.raises(FileExistsError):
        forker.spawn(nodes.launch(KEY, "true"))


def test_claim_that_fails_is_told(nodes: Nodes, forker: Forker) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        forker.spawn(nodes.launch(KEY, "true")._replace(directory=str(nodes.folder / "missing")))
    assert caught.value.errno == errno.ENOENT
    # It answers all the same.
    nodes.adopt_keys([KEY])
    assert nodes.end(forker.spawn(nodes.launch(KEY, "true"))).exit_code == 0


def test_shims_outlive_the_forker_and_are_forked_without_it(nodes: Nodes, forker: Forker) -> None:
    nodes.adopt_keys([KEY, "later"])
    script = "until [ -e go ]; do sleep 0.02; done; exit 4"
    first = forker.spawn(nodes.launch(KEY, "sh", "-c", script))
    os.kill(forker.pid, signal.SIGKILL)
    later = forker.spawn(nodes.launch("later", "sh", "-c", script))
    assert adopt(nodes.directory, KEY).state in (shim_control.STARTING, shim_control.RUNNING)
    (nodes.folder / "go").touch()
    assert [nodes.end(shim).exit_code for shim in (first, later)] == [4, 4]


def test_a_forker_that_was_stopped_is_done_without(
    nodes: Nodes, forker: Forker, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.adopt_keys([KEY, "later"])
    monkeypatch.setattr(forker_module, "ANSWER_SECONDS", 0.1)
    os.kill(forker.pid, signal.SIGSTOP)
    shims = [forker.spawn(nodes.launch(key, "sh", "-c", "exit 4")) for key in (KEY, "later")]
    assert [nodes.end(shim).exit_code for shim in shims] == [4, 4]


def test_shim_leaves_everything_of_the_forker(nodes: Nodes, forker: Forker) -> None:
    nodes.adopt_keys([KEY])
    shim = forker.spawn(nodes.launch(KEY, "sleep", "300"))
    nodes.running(KEY)
    kept = ["/dev/null"] * 3 + [f"{nodes.directory}/{KEY}.claim", "pipe"]
    # The pipe that lets the program go is closed just after that.
    nodes.wait_until(lambda: nodes.descriptors(shim.pid) == kept, what="the shim to have nothing else")
    send(shim, signal.SIGTERM)
    nodes.end(shim)


SUPERVISOR = """
import os, sys
sys.path.insert(0, sys.argv[1])
from overspan.bridge.runtime.core.forker import Forker
from overspan.bridge.runtime.core.shim import NodeLaunch
forker = Forker()
environment = {"NAME%d" % number: "x" * 500 for number in range(200)}
for key in sys.argv[3:]:
    forker.spawn(NodeLaunch(sys.argv[2], key, ("/bin/sleep", "300"), environment, "/"))
print("ready", flush=True)
sys.stdin.read()
"""


def test_shim_is_small(nodes: Nodes) -> None:
    keys = [f"n.{number}.0.0" for number in range(4)]
    nodes.adopt_keys(keys)
    # Without what this process has imported, some of which acts at each fork.
    command = [sys.executable, "-I", "-S", "-c", SUPERVISOR, SOURCE, nodes.directory, *keys]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "ready\n"
        records = [nodes.running(key) for key in keys]
        # Not the last: what it shares with the forker for now is not counted.
        assert _private_memory(records[1].shim_pid) < LIMIT
        supervisor.communicate()


def _private_memory(pid: int) -> int:
    """Kilobytes that a process shares with no other (proc(5), smaps_rollup)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty:", "Private_Clean:")))
