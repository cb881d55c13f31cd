"""What a real cluster leaves on pods that end or do not start, and what Overspan makes of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.kubernetes_servers import SAYS, Namespace, RealServer, open_account
from tests.leaks import nothing_is_dropped
from tests.rigs.kube import SMALL_IMAGE, KubeRig
from tests.rigs.plugin import kube_namespace, kube_rig
from tests.waiting import wait_until

from overspan.adapters.kubernetes.api.discovery import may
from overspan.adapters.kubernetes.api.rights import EXTRAS, list_rights
from overspan.adapters.kubernetes.diagnosis.checking import check_cluster
from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.observation.evidence import (
    explain_waiting,
    is_slow,
    judge_end,
    judge_gone,
    read_trouble,
)
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.causes import Cause

__all__ = ["kube_namespace", "kube_rig", "nothing_is_dropped"]

KEPT = {"finalizers": ["overspan.io/outcome"]}
LOOP = f"trap 'exit 143' TERM; {SAYS}; while :; do sleep 0.1; done"


@pytest.fixture
def space(kube_rig: KubeRig, kube_namespace: str) -> Iterator[Namespace]:
    server = RealServer(kube_rig, kube_namespace)
    with contextlib.closing(server.connection):
        made = Namespace(server)
        yield made
        for pod in made.ask("GET", "pods").document["items"]:
            made.ask("PATCH", f"pods/{pod['metadata']['name']}", {"metadata": {"finalizers": None}})


def has_ended(record: PodRecord) -> bool:
    return record.ended


def run(space: Namespace, name: str, command: str = LOOP, **spec: Any) -> PodRecord:
    """A running pod that stays for its record."""
    return space.run_pod(name, command, metadata={"name": name, **KEPT}, spec=spec)


def container(command: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": "main", "image": SMALL_IMAGE, "command": ["/bin/sh", "-c", command], **more}]


def test_the_programs_own_ends(space: Namespace) -> None:
    # Kubernetes makes one dollar of two.
    for name, command in {
        "fine": "true",
        "seven": "exit 7",
        "killed": "sh -c 'kill -9 $$$$'; exit $?",
        "setup": "exit 1",
    }.items():
        text = f"printf 'setup failed\\n' > /dev/termination-log; {command}" if name == "setup" else command
        space.make_pod(name, text)
    ends = {name: space.await_pod(name, "ends", has_ended) for name in ("fine", "seven", "killed", "setup")}
    assert {name: judge_end(record, False)[0] for name, record in ends.items()} == {
        "fine": None,
        "seven": None,
        "killed": None,
        "setup": Cause.SETUP,
    }
    assert [ends[name].exit_code for name in ("fine", "seven", "killed")] == [0, 7, 137]


def test_the_limits(space: Namespace) -> None:
    hog = "x=0123456789abcdef; while :; do x=$x$x; done"
    limits = {"resources": {"limits": {"memory": "24Mi"}}}
    space.make_pod("late", LOOP, spec={"activeDeadlineSeconds": 2})
    space.make_pod("hungry", hog, spec={"containers": container(hog, **limits)})
    assert judge_end(space.await_pod("late", "ends", has_ended), False)[0] is Cause.TIME
    assert judge_end(space.await_pod("hungry", "ends", has_ended), False)[0] is Cause.MEMORY


def test_a_pod_that_somebody_deletes_is_lost_and_one_that_we_end_is_not(space: Namespace) -> None:
    run(space, "deleted")
    space.ask("DELETE", "pods/deleted", {"gracePeriodSeconds": 5})
    record = space.await_pod("deleted", "ends", has_ended)
    assert record.exit_code == 143
    assert judge_end(record, False)[0] is Cause.NODE
    assert judge_end(record, True) == (None, "")


def test_an_eviction_is_a_loss(space: Namespace) -> None:
    run(space, "drained")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "drained"}}
    assert space.ask("POST", "pods/drained/eviction", body).status == 201
    record = space.await_pod("drained", "ends", has_ended)
    assert record.disruption == "EvictionByEvictionAPI"
    assert judge_end(record, False)[0] is Cause.NODE


def test_a_preemption(space: Namespace, kube_rig: KubeRig) -> None:
    high = f"high-{space.server.namespace}"
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    made = kube_rig.call("POST", path, {"metadata": {"name": high}, "value": 1000})
    assert made.status == 201, made
    try:
        wants = {"resources": {"requests": {"cpu": "1500m"}}}
        for number in (1, 2):
            run(space, f"low-{number}", containers=container(LOOP, **wants))
        spec = {"priorityClassName": high, "containers": container(LOOP, **wants)}
        space.make_pod("high", spec=spec)

        def find_victim() -> PodRecord | None:
            records = [space.await_pod(f"low-{number}", "is there", lambda record: True) for number in (1, 2)]
            return next((record for record in records if record.ended), None)

        victim = wait_until(find_victim, 30.0, "one is preempted")
        assert victim is not None and victim.disruption == "PreemptionByScheduler"
        assert judge_end(victim, False)[0] is Cause.PREEMPTION
    finally:
        kube_rig.call("DELETE", f"{path}/{high}")


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"containers": container("true", resources={"requests": {"cpu": "100"}})}, "Resources", "Insufficient cpu"),
        ({"nodeSelector": {"none": "such"}}, "BadConstraints", "affinity/selector"),
        ({"schedulingGates": [{"name": "example.com/gate"}]}, "Resources", "queue"),
        ({"containers": [{"name": "main", "image": "none.invalid/such:1"}]}, "JobLaunchFailure", "image"),
        ({"containers": [{"name": "main", "image": "Not a name"}]}, "JobLaunchFailure", "InvalidImageName"),
        (
            {"containers": container("true", envFrom=[{"secretRef": {"name": "none"}}])},
            "JobLaunchFailure",
            'secret "none" not found',
        ),
    ],
)
def test_why_a_pod_does_not_run(space: Namespace, spec: dict[str, Any], reason: str, words: str) -> None:
    space.make_pod("waits", spec=spec)
    # A cluster that has just been away may have no node for anybody at first.
    record = space.await_pod("waits", f"tells {reason}", lambda one: explain_waiting(one)[0] == reason)
    assert words in explain_waiting(record)[1]


def test_a_cordoned_cluster(space: Namespace, kube_rig: KubeRig) -> None:
    assert kube_rig.kubectl("cordon", "node1", "node2").rc == 0
    try:
        space.make_pod("waits")
        space.await_pod("waits", "tells why", lambda one: explain_waiting(one)[0] == "ReqNodeNotAvail")
    finally:
        assert kube_rig.kubectl("uncordon", "node1", "node2").rc == 0


def test_a_volume_that_is_missing_is_told_by_events(space: Namespace) -> None:
    volumes = [{"name": "data", "configMap": {"name": "none"}}]
    mounts = [{"name": "data", "mountPath": "/data"}]
    space.make_pod("waits", spec={"volumes": volumes, "containers": container("true", volumeMounts=mounts)})
    record = space.await_pod("waits", "is bound", lambda one: one.scheduled)

    def ask() -> str:
        events = space.ask("GET", "events", fieldSelector="type=Warning").document["items"]
        return read_trouble(events).get(record.uid, "")

    assert 'configmap "none" not found' in wait_until(ask, 60.0, "an event")
    waiting = space.await_pod("waits", "still waits", lambda one: one.waiting_reason)
    assert is_slow(waiting, waiting.created_at + 20)


def test_a_pod_that_is_torn_away(space: Namespace) -> None:
    record = space.run_pod("torn", LOOP)
    space.ask("DELETE", "pods/torn", {"gracePeriodSeconds": 0})
    space.await_gone("pods/torn")
    assert judge_gone(record, False)[0] is Cause.NODE


def test_the_manifest_of_rights_is_enough(space: Namespace, kube_rig: KubeRig, tmp_path: Path) -> None:
    namespace = space.server.namespace
    manifest = Path(__file__).parents[2] / "docs" / "kubernetes-rbac.yaml"
    granted = manifest.read_text().replace("research", namespace).replace("overspan-nodes", f"nodes-{namespace}")
    assert kube_rig.kubectl("create", "serviceaccount", "overspan", namespace=namespace).rc == 0
    assert kube_rig.kubectl("apply", "-f", "-", stdin=granted).rc == 0
    try:
        with open_account(kube_rig, namespace, "overspan", tmp_path) as connection:
            rights = [*list_rights(GangBackend.V1BETA1), *(right for extra in EXTRAS for right in extra.rights)]
            # The API server hears of roles and bindings a moment later.
            wait_until(lambda: all(may(connection, right, namespace) for right in rights), 20.0, "the rights")
            found = check_cluster(connection, Settings(namespace=namespace, image=SMALL_IMAGE))
            assert [finding for finding in found if not finding.works] == []
            login = next(finding for finding in found if finding.what == "login")
            assert f"system:serviceaccount:{namespace}:overspan" in login.seen
            assert connection.request("GET", "/api/v1/namespaces/kube-system/pods").works is True
            assert connection.request("GET", "/api/v1/namespaces/kube-system/secrets").status == 403
            assert connection.request("GET", f"/api/v1/namespaces/{namespace}/secrets").status == 403
    finally:
        kube_rig.kubectl("delete", "-f", "-", "--wait=false", stdin=granted)
