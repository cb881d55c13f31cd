"""The demo group of examples/rlhf, unchanged, on a real Slurm: its files travel, its members find each other."""

from __future__ import annotations

import importlib.util
import io
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import connect
from tests.waiting import WaitUntil

EXAMPLE = Path(__file__).parents[3] / "examples" / "rlhf"


@pytest.fixture
def numpy_there(site: Site) -> None:
    """Python's user site on the cluster has this machine's numpy."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    found = importlib.util.find_spec("numpy")
    if found is None or found.origin is None or f"Python {version}." not in site.slurm("python3", "-V"):
        pytest.skip("the demo needs numpy for the rig's Python")
    target = f".local/lib/python{version}/site-packages"
    site.slurm("mkdir", "-p", target)
    packages = Path(found.origin).parents[1]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("numpy", "numpy.libs"):
            if (packages / name).is_dir():
                archive.add(packages / name, name, filter=leave_tests_out)
    site.rig.containers["ctl"].put_archive(f"/home/researcher/{target}", packed.getvalue())


def leave_tests_out(item: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = item.name.split("/")
    return None if "tests" in parts or "__pycache__" in parts else item


@pytest.fixture
def remote(site: Site, numpy_there: None, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


def test_the_demo_group_runs_unchanged(remote: Span) -> None:
    job = int(remote.run("submit", str(EXAMPLE / "rlhf.yaml"), "-M", "rig", "--parsable", cwd=EXAMPLE).stdout)
    waited = remote.run("wait", str(job), check=False, timeout=800)
    assert waited.returncode == 0, remote.log(job)
    shown = remote.job(job)
    assert shown["state"] == "COMPLETED"
    assert {task["name"]: (task["state"], task["exit_code"]) for task in shown["tasks"]} == dict.fromkeys(
        ("data-server", "rollout-server", "reward-server", "replay-buffer", "ppo-trainer"), ("COMPLETED", 0)
    )
    ends = {task["name"]: task["ended_at"] for task in shown["tasks"]}
    assert ends["replay-buffer"] >= ends["ppo-trainer"] + 2
    assert "reward" in remote.log(job, "ppo-trainer")
