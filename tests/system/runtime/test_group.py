"""Groups and batch scripts under a real supervisor: names, environment, files and secrets."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from overspan.bridge.model.spec import Backoff, Form, RetryPolicy, Streams, TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.core.isolation import NAMESPACE, probe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.system.runtime.conftest import Hosts

ALL = "env -0 > env.$OVERSPAN_TASK.$OVERSPAN_NODE_INDEX"


def _variables(hosts: Hosts, task: str, node: int = 0) -> dict[str, str]:
    text = (hosts.work / f"env.{task}.{node}").read_text()
    return dict(entry.split("=", 1) for entry in text.split("\0") if entry)


@pytest.fixture
def named() -> None:
    """Skip where members cannot have names of their own."""
    found = probe()
    if found.method != NAMESPACE:
        pytest.skip(f"no namespaces here: {found.reason}")


@pytest.mark.usefixtures("named")
def test_members_find_each_other_by_name(hosts: Hosts) -> None:
    script = "hostname; for name in trainer-0.rl server-0.rl server-1.rl server-1; do getent hosts $name; done"
    launched = hosts.run(TaskSpec("trainer", run=script), TaskSpec("server", run=script, num_nodes=2), isolation="ns")
    assert launched.replay().state is State.COMPLETED
    lines = [
        ["127.7.0.1", "trainer-0.rl", "trainer-0"],
        ["127.7.0.2", "server-0.rl", "server-0"],
        ["127.7.0.3", "server-1.rl", "server-1"],
        ["127.7.0.3", "server-1.rl", "server-1"],
    ]
    for key, host in (("trainer.0.0.0", "trainer-0"), ("server.0.0.0", "server-0"), ("server.1.0.0", "server-1")):
        first, *rest = launched.log(key).splitlines()
        assert first == host
        assert [line.split() for line in rest] == lines


LISTEN = """
import os, socket
with socket.create_server((os.environ["HOSTNAME"], int(os.environ["PORT"]))) as server:
    open("listens." + os.environ["OVERSPAN_NODE_INDEX"], "w").close()
    connection, _ = server.accept()
    connection.sendall(os.environ["OVERSPAN_HOST"].encode())
    connection.close()
"""


@pytest.mark.usefixtures("named")
def test_nodes_of_a_task_listen_on_one_port(hosts: Hosts, port: int) -> None:
    (hosts.work / "listen.py").write_text(LISTEN)
    server = TaskSpec("server", run=f"exec {hosts.python} listen.py", num_nodes=2, env={"PORT": str(port)})
    launched = hosts.add(server, isolation="ns", group=True)
    hosts.start(launched.host)
    for node in range(2):
        ready = hosts.work / f"listens.{node}"
        hosts.wait_until(ready.exists, 20, f"node {node} listens: {launched.journal}")
        with socket.create_connection((f"127.7.0.{node + 1}", port), timeout=120) as connection:
            assert connection.recv(100).decode() == f"server-{node}.rl"
    assert hosts.finish(launched).state is State.COMPLETED


def test_environment_of_a_member(hosts: Hosts) -> None:
    hosts.run(
        TaskSpec("trainer", run=ALL, env={"MODE": "fast"}),
        TaskSpec("data-server", run=ALL, num_nodes=2),
        environment={"HOME": "/home/alice", "SLURM_JOB_ID": "1", "OVERSPAN_TASK": "none"},
    )
    variables = _variables(hosts, "data-server", 1)
    expected = {
        "HOME": "/home/alice",
        "OVERSPAN_JOB_ID": "7",
        "OVERSPAN_GROUP": "rl",
        "OVERSPAN_TASK": "data-server",
        "OVERSPAN_NODE_INDEX": "1",
        "OVERSPAN_NUM_NODES": "2",
        "OVERSPAN_ATTEMPT": "0",
        "OVERSPAN_MEMBERS": "trainer-0.rl,data-server-0.rl,data-server-1.rl",
        "OVERSPAN_DATA_SERVER_HOSTS": "data-server-0.rl,data-server-1.rl",
        "OVERSPAN_DATA_SERVER_ADDRS": "127.7.0.2,127.7.0.3",
        "OVERSPAN_TRAINER_HOSTS": "trainer-0.rl",
        "OVERSPAN_RUN_DIR": str(hosts.root / "runs" / "7"),
        "SLURM_JOB_ID": "7",
        "SLURM_PROCID": "1",
        "SLURM_NTASKS": "2",
        "SLURM_JOB_NODELIST": "data-server-[0-1]",
        "SLURM_HET_SIZE": "2",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "trainer-0",
        "SKYPILOT_NODE_RANK": "1",
        "SKYPILOT_NODE_IPS": "127.7.0.2\n127.7.0.3",
        "SKYPILOT_JOBGROUP_NAME": "rl",
    }
    assert {name: variables.get(name) for name in expected} == expected
    assert _variables(hosts, "trainer")["MODE"] == "fast" and "MODE" not in variables


def test_logs_and_their_list(hosts: Hosts) -> None:
    script = "echo out $OVERSPAN_NODE_INDEX; echo err $OVERSPAN_NODE_INDEX >&2"
    launched = hosts.run(TaskSpec("a", run=script, num_nodes=2), TaskSpec("b", run=script))
    keys = ["a.0.0.0", "a.1.0.0", "b.0.0.0"]
    for key in keys:
        assert (launched.log(key), launched.log(key, "err")) == (f"out {key[2]}\n", f"err {key[2]}\n")
    streams = [json.loads(line) for line in (launched.path / "streams.jsonl").read_text().splitlines()]
    listed = {f"{line['task']}.{line['node']}.{line['attempt']}.{line['run']}.{line['stream']}" for line in streams}
    assert listed == {f"{key}.{stream}" for key in keys for stream in ("output", "error")}
    assert all(Path(line["path"]).exists() and line["start"] == 0 for line in streams)


def _batch(hosts: Hosts, text: str, **options: object) -> TaskSpec:
    return TaskSpec("job", form=Form.BATCH, run=f"#!/bin/sh\n{text}\n", workdir=str(hosts.work), **options)  # type: ignore[arg-type]


def test_batch_script_writes_where_slurm_would(hosts: Hosts) -> None:
    hosts.run(_batch(hosts, 'echo "$0" "$@"; echo wrong >&2; pwd', args=("a b", "c")))
    name, *rest = (hosts.work / "slurm-7.out").read_text().splitlines()
    assert name.endswith("/runs/7/scripts/job/slurm_script a b c")
    assert rest == ["wrong", str(hosts.work)]


def test_batch_script_runs_once_whatever_its_nodes(hosts: Hosts) -> None:
    streams = Streams(output="%x-%j-%u.log", error="err/%5j.txt")
    (hosts.work / "err").mkdir()
    launched = hosts.run(_batch(hosts, "echo one; echo two >&2", num_nodes=2, streams=streams))
    assert launched.replay().state is State.COMPLETED
    assert (hosts.work / "rl-7-alice.log").read_text() == "one\n"
    assert (hosts.work / "err" / "00007.txt").read_text() == "two\n"


def test_batch_output_is_emptied_first_and_kept_by_later_attempts(hosts: Hosts) -> None:
    (hosts.work / "slurm-7.out").write_text("of yesterday\n")
    retry = RetryPolicy(max_restarts_on_errors=1, backoff=Backoff(first=0.05))
    launched = hosts.run(_batch(hosts, 'echo "attempt $OVERSPAN_ATTEMPT"; exit $((1 - OVERSPAN_ATTEMPT))', retry=retry))
    assert launched.replay().state is State.COMPLETED
    assert (hosts.work / "slurm-7.out").read_text() == "attempt 0\nattempt 1\n"
    starts = [json.loads(line)["start"] for line in (launched.path / "streams.jsonl").read_text().splitlines()]
    assert starts == [0, len("attempt 0\n")]


SECRET = "s3cret-of-the-test"


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        yield from (Path(place, name) for name in folders + names)


def test_secrets_are_in_the_environment_and_in_the_plan_only(hosts: Hosts) -> None:
    os.mkfifo(hosts.work / "go")
    # The shell itself waits, so no process comes or goes while the test reads them; held open, nobody waits for a peer.
    gate = os.open(hosts.work / "go", os.O_RDWR)
    task = TaskSpec("job", run='test "$TOKEN" && : > up; read -r line < go', secrets={"TOKEN": SECRET})
    launched = hosts.add(task)
    supervisor = hosts.start(launched.host)
    hosts.wait_until((hosts.work / "up").exists, 20, "the secret's arrival")
    record = launched.record("job.0.0.0")
    pids = [supervisor.pid, record.shim_pid, *(process.pid for process in kernel.list_tree(record.shim_pid))]
    assert not [pid for pid in pids if SECRET.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.write(gate, b"\n")
    hosts.finish(launched)
    os.close(gate)
    holders = [path.name for path in _files(hosts.root) if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert holders == ["plan.0.json"]
    assert stat.S_IMODE((launched.path / "plan.0.json").stat().st_mode) == 0o600


def test_nothing_of_a_run_is_open_to_others(hosts: Hosts) -> None:
    task = TaskSpec("job", run="exit 3", setup="exit 0")
    launched = hosts.run(task, TaskSpec("aux", run="exec sleep 300", primary=False, grace_period=1), isolation="ns")
    assert launched.replay().state is State.FAILED
    # What bind mounts show inside is only reached through folders that are closed.
    shown = {launched.path / "names.0" / name for name in ("hosts", "nsswitch.conf", "empty")}
    logs = set((launched.path / "logs").iterdir())
    folders = [launched.path, hosts.folder(launched.host)]
    for path in [*folders, *(path for folder in folders for path in _files(folder))]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path not in shown | logs:
            assert mode & 0o077 == 0, f"{path} {mode:o}"


def test_output_has_the_submitters_umask(hosts: Hosts) -> None:
    hosts.run(_batch(hosts, "umask"))
    output = hosts.work / "slurm-7.out"
    assert output.read_text().strip() == "0022"
    assert stat.S_IMODE(output.stat().st_mode) == 0o644


def test_group_under_python_3_9(hosts: Hosts) -> None:
    python = Path.home() / ".pyenv" / "versions"
    found = sorted(python.glob("3.9.*/bin/python3"))
    if not found:
        pytest.skip("no Python 3.9 in ~/.pyenv")
    hosts.python = str(found[0])
    launched = hosts.run(
        TaskSpec("trainer", run="echo works; exit 0", setup="exit 0"),
        TaskSpec("server", run="exec sleep 300", num_nodes=2, primary=False, grace_period=5),
        isolation="ns",
    )
    assert launched.replay().state is State.COMPLETED
    assert launched.log("trainer.0.0.0") == "works\n"
