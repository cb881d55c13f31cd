"""Buckets that tasks read through the store on a real Slurm: on a node with /dev/fuse, and on one without."""

from __future__ import annotations

import hashlib
import os

from tests.stores import TestStore
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.test_storage import lab, share_store, start, store
from tests.waiting import WaitUntil

__all__ = ["lab", "share_store", "store"]

RESOURCES = "resources: {cpus: 1, memory: 200M}\n"
MOUNTED = RESOURCES + "file_mounts: {./data: {source: s3://lab/run, mode: MOUNT}}\n"
READ = "sha256sum < data/large; echo $SLURMD_NODENAME > data/from-$SLURMD_NODENAME; ls data/"


def _log(span: Span, job: int, wait_until: WaitUntil, words: str) -> str:
    return wait_until(lambda: lab_log(span, job) if words in lab_log(span, job) else "", 20, "the output")


def lab_log(span: Span, job: int) -> str:
    return span.log(job)


def test_the_same_job_reads_on_a_node_with_fuse_and_on_one_without(
    lab: Span, site: Site, store: TestStore, wait_until: WaitUntil
) -> None:
    content = os.urandom(3_000_000)
    store.open("lab").put("run/large", content)
    told = {
        "node1": "is read through the store",
        "node2": "was brought here whole before the start: there is no /dev/fuse",
    }
    for node, words in told.items():
        job = start(lab, f"{MOUNTED}slurm: {{nodelist: {node}}}\nrun: {READ}\n")
        lab.until(job, "COMPLETED", timeout=90)
        said = _log(lab, job, wait_until, f"from-{node}")
        assert hashlib.sha256(content).hexdigest() in said
        assert f"s3://lab/run {words}" in said
        assert store.texts("lab")[f"run/from-{node}"] == f"{node}\n".encode()
    assert site.rig.run(["sh", "-c", "grep fuse.overspan /proc/mounts"], on="node1").rc != 0


def test_nodes_of_one_task_with_fuse_and_without_see_the_same(
    lab: Span, site: Site, store: TestStore, wait_until: WaitUntil
) -> None:
    content = os.urandom(3_000_000)
    store.open("lab").put("run/large", content)
    job = start(lab, f"num_nodes: 2\n{MOUNTED}slurm: {{nodelist: 'node1,node2'}}\nrun: {READ}\n")
    lab.until(job, "COMPLETED", timeout=90)
    said = _log(lab, job, wait_until, "another node could not mount it")
    assert said.count(hashlib.sha256(content).hexdigest()) >= 1
    assert set(store.texts("lab")) == {"run/large", "run/from-node1", "run/from-node2"}
