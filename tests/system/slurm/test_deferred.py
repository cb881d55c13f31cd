"""Deferred tasks of a set on a real Slurm: their native jobs come at their turn, and names lead both ways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.fillers import fill
from tests.system.slurm.gates import Gate
from tests.system.slurm.groups import SERVE, connect, start, until_said
from tests.system.slurm.sets import make_set, natives, until_nothing_left
from tests.waiting import WaitUntil


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


def test_a_task_beside_a_server_gets_its_nodes_at_its_turn(remote: Span, site: Site) -> None:
    """The daemon dies while the trainer runs, and is not there when it ends."""
    gate, more = Gate(site), Gate(site)
    find = "until getent hosts judge-0.g; do sleep 0.2; done; echo found"
    job = start(
        remote,
        make_set(
            {
                "server": {"run": f"{find}; {SERVE}"},
                "train": {"run": f"getent hosts server-0.g; {gate.wait}"},
                "judge": {"needs": ["ok:train"], "run": f"getent hosts server-0.g || exit 9; {more.wait}"},
            },
            primary_tasks=["train", "judge"],
        ),
    )
    remote.until(job, "RUNNING", task="train")
    remote.until(job, "RUNNING", task="server")
    first = natives(remote, site, job)
    assert {task: len(numbers) for task, numbers in first.items()} == {"server": 1, "train": 1}
    rows = remote.run("squeue", "-h", "-j", str(job), "-o", "%i %T %r").stdout.splitlines()
    assert f"{job}+2 PENDING Dependency" in rows
    remote.kill_daemon()
    gate.open()
    remote.until(job, "RUNNING", task="judge")
    until_said(remote, job, "server", "found")
    more.open()
    shown = remote.until(job, "COMPLETED")
    assert [len(task["attempts"]) for task in shown["tasks"]] == [1, 1, 1]
    assert {task: len(numbers) for task, numbers in natives(remote, site, job).items()} == {
        "server": 1,
        "train": 1,
        "judge": 1,
    }
    until_nothing_left(remote, site, job)


def test_what_waits_too_long_gives_back_what_the_server_holds(remote: Span, site: Site, wait_until: WaitUntil) -> None:
    gate = Gate(site)
    job = start(
        remote,
        make_set(
            {
                "server": {"run": SERVE, "slurm": {"nodelist": "node1"}},
                "train": {"run": gate.wait, "slurm": {"nodelist": "node1"}},
                "judge": {"needs": ["ok:train"], "run": "echo judged", "slurm": {"nodelist": "node2"}},
            },
            primary_tasks=["train", "judge"],
            start_timeout="5s",
        ),
    )
    remote.until(job, "RUNNING", task="train")
    with fill(site, wait_until, "-w", "node2", "--exclusive"):
        gate.open()
        remote.until(job, "PENDING")
        assert remote.task(job, "train")["state"] == "COMPLETED"
    shown = remote.until(job, "COMPLETED")
    assert [len(task["attempts"]) for task in shown["tasks"]] == [2, 1, 2]
    until_nothing_left(remote, site, job)


def test_where_nothing_is_shared_files_and_names_reach_it_too(unshared: Span, unshared_site: Site) -> None:
    source = unshared.folder / "data"
    source.mkdir()
    (source / "name").write_text("mine\n")
    find = "until getent hosts judge-0.g; do sleep 0.2; done; echo found"
    stop = "until rm /tmp/go 2>/dev/null; do sleep 0.1; done"
    job = start(
        unshared,
        make_set(
            {
                "judge": {
                    "needs": ["ok:train"],
                    "run": f"getent hosts server-0.g || exit 9; cat data/name; {stop}",
                    "file_mounts": {"data": str(source)},
                },
                "server": {"run": f"{find}; {SERVE}"},
                "train": {"run": "sleep 1"},
            },
            primary_tasks=["train", "judge"],
        ),
    )
    unshared.until(job, "RUNNING", task="judge")
    until_said(unshared, job, "server", "found")
    node = unshared.task(job, "judge")["node_list"]
    assert unshared_site.rig.run(["touch", "/tmp/go"], on=node).rc == 0
    shown = unshared.until(job, "COMPLETED")
    assert [len(task["attempts"]) for task in shown["tasks"]] == [1, 1, 1]
    assert "mine" in unshared.log(job, "judge")
    until_nothing_left(unshared, unshared_site, job)
