"""A list of Kubernetes clusters: a full one is left in time, one whose API server is down at once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from tests.rigs.kube import KubeRig
from tests.rigs.plugin import kube_or_skip
from tests.system.kubernetes.conftest import KubeSpan
from tests.waiting import WaitUntil

SINGLE = "name: moved\ncluster: [one, two]\nresources: {cpus: 0.1}\nrun: echo ran once\n"
GROUP = (
    "name: moved\nexecution: parallel\ncluster: [one, two]\n"
    "---\nname: a\nresources: {cpus: 0.1}\nrun: echo ran once; sleep 1\n"
    "---\nname: b\nnum_nodes: 2\nresources: {cpus: 0.1}\nrun: sleep 1\n"
)
NOWHERE = {"overspan-test/none": "yes"}
LATE_SECONDS = 30
"""Long enough to kill a daemon before they are over."""


class Contexts(KubeSpan):
    """The commands, with the contexts `one` and `two`: namespaces of the rig. What is left is looked for in `one`."""

    second: str

    def connect_both(
        self, rig: KubeRig, first: str, second: str, other: KubeRig | None = None, **settings: Any
    ) -> None:
        """Write the configuration; settings of `one` as the file has them. `two` may be on a rig of its own."""
        self.rig, self.namespace, self.second = rig, first, second
        given = {"kind": "kubernetes", "kubeconfig": str(rig.kubeconfig), "image": "rig/sh:1"}
        clusters = {
            "one": {**given, "namespace": first, **settings},
            "two": {**given, "namespace": second, "kubeconfig": str((other or rig).kubeconfig)},
        }
        self.config.write_text(json.dumps({"default_cluster": "one", "clusters": clusters}))


@pytest.fixture
def contexts(kube_rig: KubeRig, kube_namespace: str, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Contexts]:
    """Two clusters, of which the first has no node for anybody; nothing is left in either."""
    with kube_rig.open_namespace() as second:
        span = Contexts(tmp_path, wait_until)
        span.connect_both(kube_rig, kube_namespace, second, node_selector=NOWHERE)
        yield span
        span.namespace = second
        span.close()


@pytest.mark.parametrize(("text", "task", "pods"), [(SINGLE, "", 1), (GROUP, "a", 3)])
def test_a_full_context_is_left_for_the_next_in_time(contexts: Contexts, text: str, task: str, pods: int) -> None:
    job = contexts.submit(text)
    shown = contexts.until(job, "COMPLETED", timeout=90)
    assert (shown["cluster"], shown["restarts"]) == ("two", 0)
    assert contexts.log(job, task) == "ran once\n"
    # What the first said of its pods, then 10 s and 0.2 s for each of them since the offer.
    # Of several reasons to wait each has its row.
    causes = [cause for cause, _ in groupby(row["cause"] for row in contexts.timeline(job))]
    assert causes[:4] == ["Submitted", "Offer", "Queued", "Expire"]
    seconds = contexts.time_of(job, "Expire") - contexts.time_of(job, "Offer")
    assert 10 + 0.2 * pods - 0.1 <= seconds < 60 + 0.2 * pods
    contexts.until_empty()


def test_the_clusters_own_time_counts(contexts: Contexts) -> None:
    contexts.connect_both(
        contexts.rig, contexts.namespace, contexts.second, node_selector=NOWHERE, failover_after="2s", autoscaler=True
    )
    job = contexts.submit(SINGLE)
    assert contexts.until(job, "COMPLETED", timeout=60)["cluster"] == "two"
    assert 1.9 <= contexts.time_of(job, "Expire") - contexts.time_of(job, "Offer") < 60
    contexts.until_empty()


def test_a_daemon_that_was_dead_at_the_time_goes_on(contexts: Contexts) -> None:
    contexts.connect_both(
        contexts.rig, contexts.namespace, contexts.second, node_selector=NOWHERE, failover_after=f"{LATE_SECONDS}s"
    )
    job = contexts.submit(GROUP)
    contexts.wait_until(lambda: contexts.job(job)["native_id"], 20, "the first to have it")
    due = contexts.time_of(job, "Offer") + LATE_SECONDS
    contexts.kill_daemon()
    contexts.wait_until(lambda: time.time() > due, LATE_SECONDS, "the time to be over")
    assert len(contexts.pods()) == 3
    shown = contexts.until(job, "COMPLETED", timeout=90)
    assert shown["cluster"] == "two"
    assert contexts.log(job, "a") == "ran once\n"
    contexts.until_empty()


def test_a_context_that_is_down_is_passed_over_at_once(contexts: Contexts) -> None:
    dead = contexts.folder / "dead.kubeconfig"
    text = contexts.rig.kubeconfig.read_text()
    server = next(line for line in text.splitlines() if "server:" in line)
    dead.write_text(text.replace(server.strip(), "server: https://127.0.0.1:9"))
    contexts.connect_both(contexts.rig, contexts.namespace, contexts.second, kubeconfig=str(dead))
    job = contexts.submit(SINGLE)
    shown = contexts.until(job, "COMPLETED", timeout=60)
    assert shown["cluster"] == "two"
    assert [(each["cluster"], each["refused"]) for each in shown["passed"]] == [("one", False)]
    contexts.until_empty()


def test_two_contexts_race(contexts: Contexts) -> None:
    """The one that has no node keeps the job until the other has started it."""
    job = contexts.submit(GROUP.replace("cluster: [one, two]", "cluster: [one, two]\nrace: true"))
    shown = contexts.until(job, "COMPLETED", timeout=90)
    assert (shown["cluster"], shown["restarts"]) == ("two", 0)
    told = [row["cause"] for row in contexts.timeline(job)]
    assert told.index("Enter") < told.index("Promote") < told.index("Granted")
    assert contexts.log(job, "a") == "ran once\n"
    contexts.until_empty()


def test_a_cluster_that_is_full_or_down_is_left_for_another_one(contexts: Contexts) -> None:
    """Two control planes with nodes, addresses and names of their own."""
    first, namespace, spare = contexts.rig, contexts.namespace, contexts.second
    with kube_or_skip(1) as other, other.open_namespace() as second:
        contexts.connect_both(first, namespace, second, other, node_selector=NOWHERE, failover_after="2s")
        full = contexts.submit(GROUP)
        shown = contexts.until(full, "COMPLETED", timeout=90)
        assert (shown["cluster"], shown["restarts"]) == ("two", 0)
        assert contexts.log(full, "a") == "ran once\n"
        contexts.until_empty()
        with first.without_api():
            down = contexts.submit(GROUP)
            assert contexts.until(down, "COMPLETED", timeout=90)["cluster"] == "two"
            assert contexts.log(down, "a") == "ran once\n"
        contexts.until_empty()
        contexts.rig, contexts.namespace = other, second
        contexts.until_empty()
        contexts.run("shutdown")
    contexts.connect_both(first, namespace, spare)
