"""The demo group of examples/rlhf, unchanged, as pods of a real Kubernetes."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.system.kubernetes.conftest import KubeSpan

EXAMPLE = Path(__file__).parents[3] / "examples" / "rlhf"
LIBRARIES = ("libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1")


@pytest.fixture
def numpy_there(kube: KubeSpan, tmp_path: Path) -> None:
    """Pods have this machine's numpy, and the libraries that it wants, on a volume of the node."""
    found = importlib.util.find_spec("numpy")
    if found is None or found.origin is None or sys.version_info[:2] != (3, 11):
        pytest.skip("the demo needs numpy for the rig's Python")
    packages, site = Path(found.origin).parents[1], tmp_path / "site"
    for name in ("numpy", "numpy.libs"):
        if (packages / name).is_dir():
            shutil.copytree(packages / name, site / name, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    (site / "lib").mkdir()
    for line in listed.splitlines():
        name, _, path = line.strip().partition(" => ")
        if name.split(" ")[0] in LIBRARIES and "x86-64" in name:
            shutil.copy(path, site / "lib")
    variables = [{"name": "PYTHONPATH", "value": "/site"}, {"name": "LD_LIBRARY_PATH", "value": "/site/lib"}]
    kube.connect(
        kube.rig,
        kube.namespace,
        image="rig/python:1",
        volumes={"site": {"hostPath": {"path": str(site)}, "path": "/site", "read_only": True}},
        kubernetes={"spec": {"containers": [{"name": "main", "env": variables}]}},
    )


def test_the_demo_group_runs_unchanged(kube: KubeSpan, numpy_there: None) -> None:
    job = int(kube.run("submit", "rlhf.yaml", "-M", "kube", "--parsable", cwd=EXAMPLE).stdout)
    waited = kube.run("wait", str(job), check=False, timeout=800)
    assert waited.returncode == 0, kube.log(job)
    shown = kube.job(job)
    assert {task["name"]: (task["state"], task["exit_code"]) for task in shown["tasks"]} == dict.fromkeys(
        ("data-server", "rollout-server", "reward-server", "replay-buffer", "ppo-trainer"), ("COMPLETED", 0)
    )
    ends = {task["name"]: task["ended_at"] for task in shown["tasks"]}
    assert min(ends, key=lambda name: ends[name]) == "ppo-trainer"
    # Each auxiliary is ended after its own delay.
    told = [row["task"] for row in kube.timeline(job) if row["cause"] == "Terminate"]
    assert len(told) == 4 and told[-1] == "replay-buffer"
    assert "accuracy before" in kube.log(job, "ppo-trainer")
    kube.until_empty()
