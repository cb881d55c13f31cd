"""What `span check` finds, and what it says to do."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fakes.kubernetes_api import KubernetesApi
from tests.fakes.kubernetes_exec import Run
from tests.fakes.kubernetes_objects import Key
from tests.unit.adapters.kubernetes.kubernetes_pods import ended, make_record, waiting

from overspan.adapters.abilities import Finding
from overspan.adapters.contract import ClusterConfig
from overspan.adapters.kubernetes.api.connection import Connection, open_connection
from overspan.adapters.kubernetes.api.discovery import find_backend
from overspan.adapters.kubernetes.api.refusals import AS_SOMEBODY
from overspan.adapters.kubernetes.api.rights import (
    EXTRAS,
    NEEDED,
    judge_rights,
    list_extras,
    list_rights,
    name_rights,
    write_grants,
)
from overspan.adapters.kubernetes.diagnosis.checking import (
    check_cluster,
    judge_clock,
    judge_mounts,
    judge_quota,
    judge_version,
)
from overspan.adapters.kubernetes.diagnosis.trial import (
    NO_TOOL,
    SIGNAL,
    TrialTimes,
    judge_trial,
    render_trial,
    try_names,
)
from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.settings import Settings, read_settings

PODGROUPS = ("podgroups", "workloads")


def check(connection: Connection, settings: Settings | None = None) -> dict[str, Finding]:
    """The findings by what was tried; each thing is told once."""
    findings = check_cluster(connection, settings or Settings())
    found = {finding.what: finding for finding in findings}
    assert len(found) == len(findings) or [finding.what for finding in findings].count("quota") > 1
    return found


def test_a_cluster_where_all_works(api: KubernetesApi, connection: Connection) -> None:
    found = check(connection)
    assert [finding for finding in found.values() if not finding.works] == []
    assert list(found) == [
        "reach",
        "Kubernetes",
        "login",
        "namespace",
        "rights",
        "other rights",
        "gang",
        "submit",
        "clock",
        "quota",
        "nodes",
        "names",
    ]
    assert api.url in found["reach"].seen and "tester" in found["login"].seen
    assert api.objects.select(Key("", "pods", ""), lambda pod: True)[0] == []


def test_a_cluster_that_does_not_answer(api: KubernetesApi, connection: Connection) -> None:
    api.stop()
    found = check(connection)
    assert list(found) == ["reach"] and not found["reach"].works
    assert "kubectl" in found["reach"].remedy


def test_a_login_that_is_refused(api: KubernetesApi, connection: Connection) -> None:
    api.tokens = {"other"}
    found = check(connection)
    assert list(found) == ["reach"] and "login" in found["reach"].seen


def test_a_kubeconfig_that_is_not_there(tmp_path: Any) -> None:
    connection = open_connection(Settings(kubeconfig=str(tmp_path / "none")))
    found = check(connection)
    assert not found["reach"].works and "KUBECONFIG" in found["reach"].remedy
    connection.close()


@pytest.mark.parametrize(
    ("version", "works"), [("v1.25.9", False), ("v1.26.0", True), ("v1.36.3+k3s1", True), ("x", False)]
)
def test_versions(version: str, works: bool) -> None:
    assert judge_version({"gitVersion": version}).works is works


def test_rights_that_are_missing_are_named_with_the_commands_that_grant_them(
    api: KubernetesApi, connection: Connection
) -> None:
    api.denied = {
        ("create", "pods"),
        ("delete", "pods"),
        ("get", "pods/log"),
        ("create", "pods/exec"),
        ("list", "nodes"),
    }
    found = check(connection)
    rights = found["rights"]
    assert not rights.works and rights.seen.endswith("create, delete pods; get pods/log")
    assert "role overspan-pods --verb=create,delete --resource=pods" in rights.remedy
    assert "rolebinding overspan-pods-log --role=overspan-pods-log --user=tester" in rights.remedy
    assert not found["signals"].works and "pods/exec" in found["signals"].remedy
    assert found["node list"].works and "sinfo" in found["node list"].seen
    # Nothing is run where it could not be.
    assert "names" not in found


def test_a_service_account_is_bound_as_such() -> None:
    grants = write_grants(NEEDED[:1], "training", "system:serviceaccount:jobs:runner")
    assert "--serviceaccount=jobs:runner" in grants
    assert "--user='a b'" in write_grants(NEEDED[:1], "training", "a b")


def test_native_groups_need_rights_of_their_own() -> None:
    held = dict.fromkeys(list_rights(GangBackend.V1BETA1), True) | {
        right: True for extra in EXTRAS for right in extra.rights
    }
    held |= {right: right.resource != "podgroups" for right in held}
    [rights, _] = judge_rights(held, GangBackend.V1BETA1, "training", "me")
    assert not rights.works and "podgroups.scheduling.k8s.io" in rights.seen
    assert judge_rights(held, GangBackend.SOFT, "training", "me")[0].works
    assert name_rights(list_rights(GangBackend.V1BETA1)[-3:]) == "create, get, delete podgroups.scheduling.k8s.io"


def test_the_manifest_grants_exactly_what_is_asked_for() -> None:
    manifest = Path(__file__).parents[4] / "docs" / "kubernetes-rbac.yaml"
    granted = set()
    for document in yaml.safe_load_all(manifest.read_text()):
        for rule in document.get("rules", []):
            for group, resource, verb in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"]):
                granted.add((document["kind"] == "ClusterRole", group, resource, verb))
    wanted = [
        *list_rights(GangBackend.V1BETA1),
        *(right for extra in list_extras(GangBackend.KUEUE) for right in extra.rights),
    ]
    assert granted == {(right.everywhere, right.group, right.name, right.verb) for right in wanted}


def test_a_namespace_that_is_not_there(api: KubernetesApi, connection: Connection) -> None:
    api.objects.delete(Key("", "namespaces", "", "default"), {})
    found = check(connection)
    assert not found["namespace"].works and "create namespace default" in found["namespace"].remedy


def test_a_pod_that_would_be_refused(api: KubernetesApi, connection: Connection) -> None:
    api.refuse("POST", "pods$", 403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest"')
    found = check(connection)
    assert not found["submit"].works
    # What stands between backquotes is pasted as it is.
    pasted = [yaml.safe_load(text) for text in found["submit"].remedy.split("`")[1::2]]
    fixed = read_settings(ClusterConfig("lab", "kubernetes", {key: each[key] for each in pasted for key in each}))
    pod = render_trial("t", fixed.model_copy(update={"image": "i"}))[1]["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "fsGroup": 1000,
    }
    api.refuse("POST", "pods$", 403, 'pods "x" is forbidden: exceeded quota: few')
    assert "quota" in check(connection)["submit"].remedy


@pytest.mark.parametrize(
    ("wanted", "groups", "backend", "words", "meant"),
    [
        (Settings(), {}, GangBackend.SOFT, "soft gang", True),
        (Settings(), {"v1beta1": PODGROUPS, "v1alpha2": PODGROUPS}, GangBackend.V1BETA1, "v1beta1", True),
        (Settings(), {"v1alpha3": PODGROUPS}, GangBackend.V1ALPHA3, "v1alpha3", True),
        (Settings(), {"v1beta1": ("workloads",), "v1alpha2": PODGROUPS}, GangBackend.V1ALPHA2, "v1alpha2", True),
        (Settings(), {"v1alpha1": PODGROUPS}, GangBackend.SOFT, "soft gang", True),
        (Settings(gang="soft"), {"v1beta1": PODGROUPS}, GangBackend.SOFT, "as the settings say", True),
        (Settings(gang="native"), {}, GangBackend.SOFT, "native", False),
        (Settings(queue="team"), {"v1beta1": PODGROUPS, "kueue": ()}, GangBackend.KUEUE, "team", True),
        (
            Settings(queue="team", gang="native"),
            {"v1beta1": PODGROUPS, "kueue": ()},
            GangBackend.V1BETA1,
            "v1beta1",
            True,
        ),
        (Settings(queue="none"), {"kueue": ()}, GangBackend.SOFT, "'none' is not there", False),
        (Settings(queue="team", gang="kueue"), {"v1beta1": PODGROUPS}, GangBackend.SOFT, "'team' is not there", False),
    ],
)
def test_how_groups_start_as_one(
    api: KubernetesApi,
    connection: Connection,
    wanted: Settings,
    groups: dict[str, tuple[str, ...]],
    backend: GangBackend,
    words: str,
    meant: bool,
) -> None:
    for version, resources in groups.items():
        if version == "kueue":
            api.groups["kueue.x-k8s.io/v1beta1"] = ("localqueues",)
            queue = Key("kueue.x-k8s.io", "localqueues", "default")
            api.objects.create(queue, {"metadata": {"name": "team"}})
        else:
            api.groups[f"scheduling.k8s.io/{version}"] = resources
    found = find_backend(connection, wanted, "default")
    assert (found.backend, found.as_configured) == (backend, meant)
    assert words in found.seen
    gang = check(connection, wanted)["gang"]
    assert gang.works is meant and (meant or gang.remedy)


def test_native_groups_that_may_not_be_made_are_not_used(api: KubernetesApi, connection: Connection) -> None:
    api.groups["scheduling.k8s.io/v1beta1"] = PODGROUPS
    api.denied = {("create", "podgroups")}
    assert find_backend(connection, Settings(), "default").backend is GangBackend.SOFT


def test_a_quota() -> None:
    quota = {
        "metadata": {"name": "few"},
        "status": {"hard": {"pods": "4", "services": "1"}, "used": {"pods": "3", "services": "1"}},
    }
    assert judge_quota(quota) == Finding("quota", True, "few: 3 of 4 pods, 1 of 1 services")
    quota["status"] = {"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": "2000m"}}
    assert not judge_quota(quota).works and "requests.cpu" in judge_quota(quota).remedy


def test_nodes_that_give_their_pods_the_device_of_mounts_are_counted() -> None:
    nodes = [{"status": {"allocatable": {"example.com/fuse": amount}}} for amount in ("8", "0")]
    found = judge_mounts([*nodes, {}], "example.com/fuse")
    assert found.works and found.seen.startswith("1 of 3 nodes have example.com/fuse")
    found = judge_mounts(nodes[1:], "example.com/fuse")
    assert not found.works and "device plugin" in found.remedy and "`data_fuse`" in found.remedy


def test_clocks() -> None:
    # The server's time has whole seconds: half a second off is not known.
    assert judge_clock(100.0, 100.4, 100.6) == Finding("clock", True, "+0.0 s against this machine")
    assert judge_clock(110.0, 100.0, 100.5).seen.startswith("+9.5 s") and not judge_clock(110.0, 100.0, 100.5).works
    assert judge_clock(90.0, 100.0, 100.5).seen.startswith("-9.0 s") and not judge_clock(90.0, 100.0, 100.5).works


def test_a_pod_tries_images_and_names_and_is_removed(api: KubernetesApi, connection: Connection) -> None:
    made = threading.Event()

    def be_a_node() -> None:
        with api.objects.changed:
            while not api.objects.select(Key("", "pods", "default"), lambda pod: True)[0]:
                api.objects.changed.wait(30)
            [pod] = api.objects.select(Key("", "pods", "default"), lambda pod: True)[0]
        name = pod["metadata"]["name"]
        assert api.objects.get(Key("", "services", "default", name))["spec"]["publishNotReadyAddresses"]
        api.pods.bind(name, "node-3")

        def hear(run: Run) -> tuple[int, str]:
            assert (run.pod, run.words) == (name, SIGNAL)
            api.pods.finish(name)
            return 0, ""

        api.exec.reply = hear
        api.pods.run(name)
        made.set()

    node = threading.Thread(target=be_a_node)
    node.start()
    findings = try_names(connection, Settings(image="some/image"), TrialTimes(pause=0.01))
    node.join(30)
    assert made.is_set()
    assert [(finding.what, finding.works) for finding in findings] == [
        ("pod", True),
        ("names", True),
        ("deadlines", True),
        ("exec", True),
    ]
    assert "node-3" in findings[0].seen
    for resource in ("pods", "services"):
        assert api.objects.select(Key("", resource, "default"), lambda one: True)[0] == []


@pytest.mark.parametrize("verb", ["create", "get"])
def test_a_signal_that_cannot_be_sent_to_the_trial_is_found(
    api: KubernetesApi, connection: Connection, verb: str
) -> None:
    api.denied = {(verb, "pods/exec")}
    policy = "the policy forbids changes of pods"
    api.refuse("PATCH", "/pods/span-check", 403, f'admission webhook "site" denied the request: {policy}')

    def go_on(seconds: float) -> None:
        [pod] = api.objects.select(Key("", "pods", "default"), lambda pod: True)[0]
        api.pods.bind(pod["metadata"]["name"], "node-3")
        if pod["status"].get("phase") == "Running":
            api.pods.finish(pod["metadata"]["name"])
        else:
            api.pods.run(pod["metadata"]["name"])

    findings = try_names(connection, Settings(image="some/image"), TrialTimes(), go_on)
    assert [(finding.what, finding.works) for finding in findings] == [
        ("pod", True),
        ("names", True),
        ("deadlines", False),
        ("exec", False),
    ]
    assert policy in findings[2].seen and "administrators" in findings[2].remedy
    assert "forbidden" in findings[-1].seen and "kubernetes-rbac.yaml" in findings[-1].remedy


def test_a_pod_that_does_not_run_is_removed_too(api: KubernetesApi, connection: Connection) -> None:
    [finding] = try_names(connection, Settings(image="some/image"), TrialTimes(limit=0.05, pause=0.01))
    assert not finding.works and "some/image" in finding.seen
    assert api.objects.select(Key("", "pods", "default"), lambda pod: True)[0] == []
    assert try_names(connection, Settings())[0].seen.startswith("not tried")


def test_what_a_trial_says() -> None:
    missing = make_record(waiting("ErrImagePull", "no such image"))
    root = "container has runAsNonRoot and image will run as root (pod: x, container: main)"
    refused = judge_trial(make_record(waiting("CreateContainerConfigError", root)), "x")
    assert AS_SOMEBODY in refused[0].remedy and AS_SOMEBODY not in judge_trial(missing, "x")[0].remedy
    assert "no such image" in judge_trial(missing, "x")[0].seen
    assert [one.works for one in judge_trial(make_record(ended(1), phase="Failed"), "x")] == [True, False]
    unknown = judge_trial(make_record(ended(NO_TOOL), phase="Failed"), "x")
    assert [one.works for one in unknown] == [True, True] and "not known" in unknown[1].seen


def test_the_trials_pod_goes_where_jobs_go() -> None:
    settings = Settings(image="i", node_selector={"pool": "a"}, service_account="runner", scheduler="own")
    pod = render_trial("t", settings)[1]["spec"]
    assert (pod["nodeSelector"], pod["serviceAccountName"], pod["schedulerName"]) == ({"pool": "a"}, "runner", "own")
