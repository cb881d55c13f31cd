"""Workers of a pool that cannot connect to the daemon: how soon they start a job, on a Slurm and in a pod.

Needs both rigs of tests/rigs; where those cannot run there is nothing to measure.
"""

from __future__ import annotations

import json
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
from benchmarks.rows import Row

ALONE, QUEUED = 6, 30
PAUSE_SECONDS = 5.0
"""How long the worker is idle before each job that comes alone: longer than its mailbox is left alone then."""
POOL = "pool: {{workers: 1}}\ncluster: {cluster}\nresources: {{cpus: 1, memory: 50M}}\n"
JOB = "pool: {pool}\nresources: {{cpus: 1}}\nrun: echo first $EPOCHREALTIME\n"
_FIRST = re.compile(r"\bfirst ([0-9.]+)$", re.MULTILINE)


def pool_mailboxes() -> list[Row]:
    """The two kinds of clusters, on one machine with one clock."""
    try:
        with (
            open_rig() as slurm,
            open_kube() as kube,
            kube.open_namespace() as namespace,
            tempfile.TemporaryDirectory() as folder,
            open_access(slurm, Path(folder)) as access,
        ):
            leo = {"kind": "slurm", **access.settings}
            pods = {
                "kind": "kubernetes",
                "kubeconfig": str(kube.kubeconfig),
                "namespace": namespace,
                "image": PYTHON_IMAGE,
            }
            with Installation(yaml.safe_dump({"clusters": {"leo": leo, "kube": pods}})) as span:
                return [*_measure(span, "leo", "on Slurm, over ssh"), *_measure(span, "kube", "in a pod")]
    except RigMissing as missing:
        print(f"no clusters to measure: {missing}", file=sys.stderr)
        return []


def _measure(span: Installation, cluster: str, where: str) -> list[Row]:
    pool = f"{cluster}-pool"
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(POOL.format(cluster=cluster))
        file.flush()
        span.run("pool", "apply", "-p", pool, file.name)
    _await_worker(span, pool)
    starts: list[float] = []
    with span.client() as client:
        for _ in range(ALONE):
            time.sleep(PAUSE_SECONDS)
            begun = time.time()
            job = client.submit(JOB.format(pool=pool))
            job.wait(60)
            starts.append(_read_first(span, job.id) - begun)
        jobs = [client.submit(JOB.format(pool=pool)) for _ in range(QUEUED)]
        for job in jobs:
            job.wait(180)
    firsts = [_read_first(span, job.id) for job in jobs]
    each = (max(firsts) - min(firsts)) / (QUEUED - 1)
    span.run("pool", "delete", pool, "--cancel")
    start, longest = statistics.median(starts), max(starts)
    return [
        Row(f"mailboxes: an idle worker {where} starts a job, from its submission", start, None, "s"),
        Row(f"mailboxes: an idle worker {where} starts a job, the longest of {ALONE}", longest, None, "s"),
        Row(f"mailboxes: a worker {where}, from the start of a job to that of the next", each, None, "s"),
    ]


def _await_worker(span: Installation, pool: str, seconds: float = 120.0) -> None:
    """Wait until the worker is ready. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while True:
        (found,) = json.loads(span.run("pool", "show", pool, "--json"))["pools"]
        if any(worker["state"] == "READY" for worker in found["workers"]):
            return
        if time.monotonic() > end:
            raise TimeoutError(f"the worker of {pool} is not ready")
        time.sleep(0.2)


def _read_first(span: Installation, job: int) -> float:
    said = span.run("logs", str(job))
    found = _FIRST.search(said)
    if found is None:
        raise RuntimeError(f"job {job} is {span.show(job)['state']} and has printed {said!r}")
    return float(found[1])
