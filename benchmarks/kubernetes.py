"""The bars of a Kubernetes cluster: groups, ends, a group of a thousand pods, ten thousand pods that are watched.

Needs the cluster of tests/rigs; where that cannot run there is nothing to measure. Pods of large groups name a
scheduler that is not there, so that they are real objects of the API server and nobody else works on them.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import yaml
from tests.rigs.engine import RigMissing
from tests.rigs.kube import PYTHON_IMAGE, KubeRig, open_kube

from benchmarks.installation import Installation, processor_seconds, proportional_memory, until
from benchmarks.rows import Bar, Row
from overspan.adapters.contract import ClusterConfig
from overspan.adapters.kubernetes.api.connection import open_connection
from overspan.adapters.kubernetes.settings import read_settings

WIDE = 1000
SINGLES = 300
WAVE = 20
"""So many of them at a time: what two nodes start together is no measure of the daemon."""
TRIALS = 5
REST_SECONDS = 5
GROUPS = 10
SECONDS = 20
LOOK_SECONDS = 0.03

GROUP = """
name: g{number}
cluster: kube
execution: parallel
primary_tasks: [trainer]
---
name: trainer
run: |
  echo first $EPOCHREALTIME
  sleep 2
  echo done $EPOCHREALTIME
---
name: server
run: |
  trap 'echo term $EPOCHREALTIME; exit 0' TERM
  while :; do sleep 0.01; done
"""
SINGLE = {"name": "one", "run": "sleep 2", "cluster": "kube"}


def kubernetes() -> list[Row]:
    """Latencies of groups on idle nodes, and the making of a large group."""
    try:
        with open_kube() as rig:
            with rig.open_namespace() as namespace, _install(rig, namespace) as span:
                rows = [*_groups(span, rig, namespace), *_singles(span)]
            with rig.open_namespace() as namespace, _install(rig, namespace) as span:
                return [*rows, *_make_wide(span, rig, namespace)]
    except RigMissing as missing:
        print(f"no Kubernetes to measure: {missing}", file=sys.stderr)
        return []


def kubernetes_scale() -> list[Row]:
    """What the daemon needs for pods that wait; they go with their cluster."""
    try:
        with open_kube() as rig, _install(rig, "default") as span, _counting(rig, "default") as count:
            span.abandoned = True
            for number in range(GROUPS):
                _submit_wide(span, number)
                until(lambda number=number: count() >= (number + 1) * WIDE, 300)
            pids = span.processes()
            time.sleep(SECONDS)
            before, begun = processor_seconds(pids), time.monotonic()
            time.sleep(SECONDS)
            share = (processor_seconds(pids) - before) / (time.monotonic() - begun)
            title = f"Kubernetes: {count():,} pods"
            return [
                Row(f"{title}: memory of the daemon (PSS)", proportional_memory(pids), Bar(size=300), "MB"),
                Row(f"{title}: the daemon's processor", share * 100, Bar(starts=20), "% of a core"),
            ]
    except RigMissing as missing:
        print(f"no Kubernetes to measure: {missing}", file=sys.stderr)
        return []


def _install(rig: KubeRig, namespace: str) -> Installation:
    settings = {
        "kind": "kubernetes",
        "kubeconfig": str(rig.kubeconfig),
        "namespace": namespace,
        "image": PYTHON_IMAGE,
        "gang_timeout": 3600,
    }
    return Installation(yaml.safe_dump({"clusters": {"kube": settings, "wide": {**settings, "scheduler": "nobody"}}}))


def _groups(span: Installation, rig: KubeRig, namespace: str) -> list[Row]:
    firsts, terms, stores = [], [], []
    with span.client() as client:
        for number in range(7):
            begun = time.time()
            job = client.submit(GROUP.format(number=number))
            job.wait(60)
            said = dict(line.split()[-2:] for line in span.run("logs", str(job.id)).splitlines())
            firsts.append(float(said["first"]) - begun)
            terms.append((float(said["term"]) - float(said["done"])) * 1000)
        for _ in range(5):
            job = client.submit(SINGLE)
            ended = _await_end(rig, namespace)
            job.wait(60)
            stores.append((time.time() - ended) * 1000)
    # The first one opens the watch.
    return [
        Row(
            "Kubernetes: a group on idle nodes, submission to the trainer's first line",
            statistics.median(firsts),
            Bar(starts=150),
            "s",
        ),
        Row("Kubernetes: the trainer's end to the auxiliary's TERM", statistics.median(terms), Bar(starts=50), "ms"),
        Row(
            "Kubernetes: a pod's end in the API to its state at a client",
            statistics.median(stores),
            Bar(starts=20),
            "ms",
        ),
    ]


def _singles(span: Installation) -> list[Row]:
    """What the daemon spends on a single job from its submission to its end, and has in memory after many."""
    pids = span.processes()
    before = processor_seconds(pids)
    with span.client() as client:
        for _ in range(SINGLES // WAVE):
            jobs = [client.submit({**SINGLE, "run": "true"}) for _ in range(WAVE)]
            for job in jobs:
                job.wait(600)
    used = processor_seconds(pids) - before
    return [
        Row("Kubernetes: the daemon's processor for a single job", used / SINGLES * 1000, Bar(starts=3), "ms"),
        Row(
            f"Kubernetes: the daemon's memory after {SINGLES} jobs (PSS)",
            proportional_memory(pids),
            Bar(size=100),
            "MB",
        ),
    ]


def _await_end(rig: KubeRig, namespace: str) -> float:
    """When the API server first shows the only live pod as ended (epoch seconds)."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    known = {item["metadata"]["uid"] for item in rig.call("GET", path).body["items"] if _has_ended(item)}
    while True:
        pods = rig.call("GET", path).body["items"]
        if any(_has_ended(pod) and pod["metadata"]["uid"] not in known for pod in pods):
            return time.time()
        time.sleep(0.005)


def _has_ended(pod: dict[str, object]) -> bool:
    return '"terminated"' in json.dumps(pod.get("status"))


def _make_wide(span: Installation, rig: KubeRig, namespace: str) -> list[Row]:
    """The first of the groups has the daemon log in as well."""
    makings, seconds = [], []
    with _counting(rig, namespace) as count:
        for number in range(TRIALS):
            time.sleep(REST_SECONDS)
            begun = time.perf_counter()
            _submit_wide(span, number)
            until(lambda: count() > 0, 60)
            first = time.perf_counter()
            until(lambda: count() >= WIDE, 120)
            last = time.perf_counter()
            makings.append(last - first)
            seconds.append(last - begun)
            _end_all(span, count)
    print(f"{WIDE:,} pods: {', '.join(f'{each:.2f}' for each in seconds)} s", file=sys.stderr)
    title = f"Kubernetes: a group of {WIDE:,} pods"
    return [
        Row(f"{title}, its first pod's object to its last one's", statistics.median(makings), Bar(starts=300), "s"),
        Row(f"{title}, submission to the last pod's object", statistics.median(seconds), Bar(starts=300), "s"),
    ]


def _submit_wide(span: Installation, number: int) -> None:
    with span.client() as client:
        client.submit({"name": f"wide{number}", "run": "true", "num_nodes": WIDE, "cluster": "wide"})


def _end_all(span: Installation, count: Callable[[], int]) -> None:
    span.run("scancel", "--me")
    until(lambda: not count(), 600)


@contextlib.contextmanager
def _counting(rig: KubeRig, namespace: str) -> Iterator[Callable[[], int]]:
    """What counts the pods of the namespace: by one connection that stays, and without having them all sent.

    A connection for each look would cost the machine a good part of a core, and so would looking all the time.
    """
    settings = read_settings(ClusterConfig("count", "kubernetes", {"kubeconfig": str(rig.kubeconfig)}))
    connection = open_connection(settings)

    def count() -> int:
        time.sleep(LOOK_SECONDS)
        body = connection.request("GET", f"/api/v1/namespaces/{namespace}/pods", query={"limit": 1}).document
        return len(body["items"]) + int(body["metadata"].get("remainingItemCount") or 0)

    try:
        count()
        yield count
    finally:
        connection.close()
