"""The bars of groups over a Slurm and a Kubernetes cluster: their start, and the end of one side after the other's.

Needs both rigs of tests/rigs; where those cannot run there is nothing to measure.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

import yaml
from tests.rigs.engine import RigMissing
from tests.rigs.kube import PYTHON_IMAGE, open_kube
from tests.rigs.reach import open_access
from tests.rigs.slurm import open_rig

from benchmarks.installation import Installation
from benchmarks.rows import Bar, Row

TICK = 1.0
"""Of the Slurm cluster, seconds."""
GROUPS = 12

GROUP = """
name: g{number}
execution: parallel
primary_tasks: [{primary}]
---
name: leo
cluster: leo
resources: {{cpus: 1, memory: 50M}}
run: |
  {leo}
---
name: kube
cluster: kube
resources: {{cpus: 0.1}}
run: |
  {kube}
"""
_SAID = re.compile(r"\b(first|done|term) ([0-9.]+)$", re.MULTILINE)
PRIMARY = """echo first $EPOCHREALTIME
  sleep 2
  echo done $EPOCHREALTIME"""
AUXILIARY = """echo first $EPOCHREALTIME
  trap 'echo term $EPOCHREALTIME; exit 0' TERM
  while :; do sleep 0.01; done"""


def across() -> list[Row]:
    """All bars of groups over both rigs, which are on one machine and have one clock."""
    try:
        with (
            open_rig() as slurm,
            open_kube() as kube,
            kube.open_namespace() as namespace,
            tempfile.TemporaryDirectory() as folder,
            open_access(slurm, Path(folder)) as access,
        ):
            leo = {"kind": "slurm", "tick": TICK, **access.settings}
            pods = {
                "kind": "kubernetes",
                "kubeconfig": str(kube.kubeconfig),
                "namespace": namespace,
                "image": PYTHON_IMAGE,
            }
            with Installation(yaml.safe_dump({"clusters": {"leo": leo, "kube": pods}})) as span:
                return _measure(span)
    except RigMissing as missing:
        print(f"no clusters to measure: {missing}", file=sys.stderr)
        return []


def _measure(span: Installation) -> list[Row]:
    firsts: list[float] = []
    terms: dict[str, list[float]] = {"leo": [], "kube": []}
    with span.client() as client:
        for number in range(GROUPS):
            primary = ("leo", "kube")[number % 2]
            runs = {name: PRIMARY if name == primary else AUXILIARY for name in terms}
            begun = time.time()
            job = client.submit(GROUP.format(number=number, primary=primary, **runs))
            job.wait(120)
            said = [(word, float(at)) for word, at in _SAID.findall(span.run("logs", str(job.id)))]
            firsts.append(max(at for word, at in said if word == "first") - begun)
            terms[primary].append((dict(said)["term"] - dict(said)["done"]) * 1000)
    starts = [
        Row(
            "a group over Slurm and Kubernetes: submission to the later side's first line, tick 1 s",
            statistics.median(firsts),
            Bar(beside=TICK, starts=300),
            "s",
        )
    ]
    ends = {"leo": "trainer on Slurm ends to the pod's TERM", "kube": "trainer in a pod ends to TERM on Slurm"}
    for name, what in ends.items():
        starts.append(Row(f"across: {what}", statistics.median(terms[name]), Bar(starts=100), "ms"))
        starts.append(Row(f"across: {what}, the longest", max(terms[name]), Bar(starts=250), "ms"))
    return starts
