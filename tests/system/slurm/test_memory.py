"""Programs over their memory on a real Slurm whose nodes have a memory controller (task/cgroup, ConstrainRAMSpace)."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.rigs.plugin import rig_or_skip
from tests.rigs.reach import open_access
from tests.rigs.slurm import Variant
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import SERVE, connect, group, native_of, start, until_kept
from tests.waiting import WaitUntil, wait_until

CONTROLLER = Path("/sys/fs/cgroup/memory")
LINES = {"TaskPlugin=": "TaskPlugin=task/cgroup"}
FILES = {
    "/etc/slurm/cgroup.conf": "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\n",
}
GREEDY = 'echo began; exec python3 -c "import time; kept = bytes([1]) * (300 << 20); time.sleep(60)"'


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose Slurm holds programs to their memory; the folder of the controller is removed afterwards."""
    if os.geteuid() != 0 or not (CONTROLLER / "memory.limit_in_bytes").exists():
        pytest.skip("no memory controller of cgroup v1 that this user may divide")
    folder = CONTROLLER / f"span-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        variant = Variant("memory", LINES, FILES, nodes=1, memory=str(folder))
        with rig_or_skip(variant) as rig, open_access(rig, tmp_path_factory.mktemp("ssh")) as access:
            yield Site(access)
    finally:
        wait_until(lambda: remove(folder), 10, "the controller's folder to be empty")


def remove(folder: Path) -> bool:
    """Remove a folder of the controller; one stays for as long as a process in it is being ended."""
    try:
        for path, _, _ in os.walk(folder, topdown=False):
            os.rmdir(path)
    except OSError:
        return False
    return True


@pytest.fixture
def remote(limited: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(limited, tmp_path, wait_until)
    yield span
    span.close()


def test_a_single_job_over_its_memory_ends_so(remote: Span, limited: Site) -> None:
    task = {"name": "main", "resources": {"cpus": 1, "memory": "100M"}, "run": GREEDY}
    job = start(remote, str(yaml.safe_dump(task)))
    shown = remote.until(job, "OUT_OF_MEMORY", "FAILED", "COMPLETED")
    assert (shown["state"], shown["reason"]) == ("OUT_OF_MEMORY", "OutOfMemory"), json.dumps(shown)
    assert "began" in remote.log(job)
    until_kept(remote, limited, native_of(remote, job), "State", {"OUT_OF_MEMORY"})


def test_a_groups_task_over_its_memory_ends_so_and_its_budget_of_errors_pays(remote: Span) -> None:
    budget = {"job_recovery": {"max_restarts_on_errors": 1}, "cpus": 1, "memory": "100M"}
    tasks: dict[str, dict[str, Any]] = {
        "a": {"run": GREEDY, "resources": budget, "backoff": {"first": 0.1}},
        "b": {"run": SERVE},
    }
    job = start(remote, group(tasks, primary_tasks=["a"]))
    shown = remote.until(job, "OUT_OF_MEMORY", "FAILED", "COMPLETED")
    states = {task["name"]: (task["state"], task["reason"], task["restarts"]) for task in shown["tasks"]}
    assert states["a"] == ("OUT_OF_MEMORY", "OutOfMemory", 1), json.dumps(shown)
    assert states["b"][0] == "CANCELLED"
