"""The bars of groups over a Slurm and a Kubernetes cluster: their start, and the end of one side after the other's.

Needs both rigs of tests/rigs; where those cannot run there is nothing to measure.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
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
MOST_GROUPS = 3 * GROUPS
"""On a loaded machine a primary may be over before the other side's program is up: such a group says nothing."""

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


MEMBERS = 6
ALONE = """
name: alone
cluster: {cluster}
resources: {{cpus: {cpus}, memory: 50M}}
run: echo first $EPOCHREALTIME
"""
ELASTIC = """
name: elastic
execution: parallel
primary_tasks: [trainer]
---
name: trainer
cluster: {other}
resources: {{cpus: {other_cpus}, memory: 50M}}
run: sleep 600
---
name: rollout
cluster: {cluster}
elastic: {{min: 1, max: 2, scale_up_after: never}}
grace_period: 1
resources: {{cpus: {cpus}, memory: 50M}}
run: |
  echo first $EPOCHREALTIME
  exec sleep 600
"""
CPUS = {"leo": 1, "kube": 0.1}


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
        for number in range(MOST_GROUPS):
            if len(firsts) == GROUPS:
                break
            primary = ("leo", "kube")[len(firsts) % 2]
            runs = {name: PRIMARY if name == primary else AUXILIARY for name in terms}
            begun = time.time()
            job = client.submit(GROUP.format(number=number, primary=primary, **runs))
            job.wait(120)
            said = [(word, float(at)) for word, at in _SAID.findall(span.run("logs", str(job.id)))]
            begins = [at for word, at in said if word == "first"]
            if len(begins) < len(terms) or max(begins) + 1 > dict(said)["done"]:
                continue
            firsts.append(max(begins) - begun)
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
    for cluster, other, what in (("leo", "kube", "on Slurm, tick 1 s"), ("kube", "leo", "in a pod")):
        alone, scaled = _measure_members(span, cluster, other)
        name = f"across: span scale to the new member's first line {what}, beside a single job's {alone:.1f} s"
        starts.append(Row(name, scaled, Bar(beside=alone + TICK * (cluster == "leo"), starts=50), "s"))
    return starts


def _measure_members(span: Installation, cluster: str, other: str) -> tuple[float, float]:
    """Medians of the seconds to the first line: a single job's, and a further member's of a group across."""
    alone: list[float] = []
    scaled: list[float] = []
    words = {"cluster": cluster, "cpus": CPUS[cluster], "other": other, "other_cpus": CPUS[other]}
    with span.client() as client:
        for _ in range(MEMBERS):
            begun = time.time()
            job = client.submit(ALONE.format(**words))
            job.wait(120)
            alone.append(_read_first(span, job.id) - begun)
        group = client.submit(ELASTIC.format(**words))
        _await(lambda: "first" in span.run("logs", f"{group.id}.rollout"))
        for _ in range(MEMBERS):
            before = set(client.show(str(group.id))["joined"])
            begun = time.time()
            span.run("scale", str(group.id), "rollout=2")
            _await(lambda before=before: set(client.show(str(group.id))["joined"]) - before)  # type: ignore[misc]
            (member,) = set(client.show(str(group.id))["joined"]) - before
            _await(lambda member=member: "first" in span.run("logs", str(member)))  # type: ignore[misc]
            scaled.append(_read_first(span, member) - begun)
            span.run("scale", str(group.id), "rollout=1")
            _await(lambda member=member: client.show(str(member))["ended_at"])  # type: ignore[misc]
        span.run("scancel", str(group.id))
        group.wait(120)
    return statistics.median(alone), statistics.median(scaled)


def _read_first(span: Installation, job: int) -> float:
    return next(float(at) for word, at in _SAID.findall(span.run("logs", str(job))) if word == "first")


def _await(fact: Callable[[], object], seconds: float = 60) -> None:
    """Wait until a fact is true. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > end:
            raise TimeoutError("a member did not come or go")
        time.sleep(0.05)
