"""The Kubernetes rig does what its users count on, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.rigs.kube import PYTHON_IMAGE, KubeRig, make_pod
from tests.rigs.plugin import kube_or_skip

if TYPE_CHECKING:
    from tests.waiting import WaitUntil


GROUP = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "group"},
    "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "group"}},
}


class TestPods:
    def test_a_pod_runs_to_its_end(self, kube_rig: KubeRig, kube_namespace: str) -> None:
        kube_rig.apply(make_pod("once", "echo out; exit 3"), namespace=kube_namespace)
        kube_rig.await_field("pod", "once", ".status.phase", "Failed", kube_namespace)
        pod = kube_rig.call("GET", f"/api/v1/namespaces/{kube_namespace}/pods/once").body
        assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
        assert kube_rig.kubectl("logs", "once", namespace=kube_namespace).stdout == "out\n"

    def test_names_of_a_group_lead_to_its_pods_on_all_nodes(self, kube_rig: KubeRig, kube_namespace: str) -> None:
        # A probe that never succeeds: the address is published all the same.
        never: dict[str, Any] = {"exec": {"command": ["false"]}, "periodSeconds": 1}
        server = make_pod("task-0", "cd /tmp && echo page > page && httpd -f -p 8000", nodeName="node1")
        server["spec"]["containers"][0]["readinessProbe"] = never
        asks = "until wget -q -O - http://task-0.group:8000/page; do sleep 0.1; done; id -u"
        user = {"runAsUser": 1234, "runAsNonRoot": True}
        client = make_pod("task-1", asks, nodeName="node2", securityContext=user)
        kube_rig.apply(GROUP, server, client, namespace=kube_namespace)
        kube_rig.await_field("pod", "task-1", ".status.phase", "Succeeded", kube_namespace)
        assert kube_rig.kubectl("logs", "task-1", namespace=kube_namespace).stdout.endswith("page\n1234\n")

    def test_commands_inside_and_pods_from_outside(self, kube_rig: KubeRig, kube_namespace: str) -> None:
        script = "cd /tmp && echo page > page && exec python3 -m http.server 8000"
        kube_rig.apply(make_pod("server", script, PYTHON_IMAGE), namespace=kube_namespace)
        kube_rig.await_field("pod", "server", ".status.phase", "Running", kube_namespace)
        inside = kube_rig.kubectl("exec", "server", "--", "getent", "hosts", "server", namespace=kube_namespace).stdout
        address = inside.split()[0]
        pod = kube_rig.call("GET", f"/api/v1/namespaces/{kube_namespace}/pods/server").body
        assert address == pod["status"]["podIP"]
        curl = ["curl", "--silent", "--retry-connrefused", "--retry", "200", "--retry-delay", "1"]
        done = subprocess.run([*curl, f"http://{address}:8000/page"], capture_output=True, text=True, timeout=300)
        assert done.stdout == "page\n"

    def test_a_pod_asks_the_api_server_with_its_own_account(self, kube_rig: KubeRig, kube_namespace: str) -> None:
        script = """\
import ssl, urllib.request, urllib.error
folder = "/var/run/secrets/kubernetes.io/serviceaccount"
request = urllib.request.Request("https://kubernetes.default.svc/api/v1/nodes")
request.add_header("Authorization", "Bearer " + open(f"{folder}/token").read())
try:
    urllib.request.urlopen(request, context=ssl.create_default_context(cafile=f"{folder}/ca.crt"))
except urllib.error.HTTPError as error:
    print(error.code)
"""
        pod = make_pod("asks", "", PYTHON_IMAGE)
        pod["spec"]["containers"][0]["command"] = ["python3", "-c", script]
        kube_rig.apply(pod, namespace=kube_namespace)
        kube_rig.await_field("pod", "asks", ".status.phase", "Succeeded", kube_namespace)
        assert kube_rig.kubectl("logs", "asks", namespace=kube_namespace).stdout == "403\n"

    def test_an_image_that_is_not_there_is_refused_soon(self, kube_rig: KubeRig, kube_namespace: str) -> None:
        kube_rig.apply(make_pod("missing", "true", "rig/missing:1"), namespace=kube_namespace)
        path = ".status.containerStatuses[0].state.waiting.reason"
        kube_rig.await_field("pod", "missing", path, "ErrImagePull", kube_namespace)


class TestFaults:
    def test_a_node_dies_and_comes_back(self, kube_rig: KubeRig, kube_namespace: str) -> None:
        here: dict[str, Any] = {"nodeName": "node2", "tolerations": [{"operator": "Exists"}]}
        kube_rig.apply(make_pod("before", "sleep 600", **here), namespace=kube_namespace)
        kube_rig.await_field("pod", "before", ".status.phase", "Running", kube_namespace)
        ready = '.status.conditions[?(@.type=="Ready")].status'
        with kube_rig.without_node(2):
            kube_rig.await_field("node", "node2", ready, "Unknown")
            assert not find_processes(f"{kube_rig.network}/node2")
        kube_rig.await_field("node", "node2", ready, "True")
        kube_rig.await_field("pod", "before", ".status.phase", "Failed", kube_namespace)
        kube_rig.apply(make_pod("after", "true", **here), namespace=kube_namespace)
        kube_rig.await_field("pod", "after", ".status.phase", "Succeeded", kube_namespace)

    def test_a_kubelet_that_hangs_loses_its_node_but_not_the_work(self, kube_rig: KubeRig, kube_namespace: str) -> None:
        here: dict[str, Any] = {"nodeName": "node1", "tolerations": [{"operator": "Exists"}]}
        kube_rig.apply(make_pod("works", "sleep 600", **here), namespace=kube_namespace)
        kube_rig.await_field("pod", "works", ".status.phase", "Running", kube_namespace)
        ready = '.status.conditions[?(@.type=="Ready")].status'
        with kube_rig.frozen("node1-kubelet"):
            kube_rig.await_field("node", "node1", ready, "Unknown")
        kube_rig.await_field("node", "node1", ready, "True")
        pod = kube_rig.call("GET", f"/api/v1/namespaces/{kube_namespace}/pods/works").body
        assert "running" in pod["status"]["containerStatuses"][0]["state"]

    def test_the_api_server_is_away_for_a_while(self, kube_rig: KubeRig, kube_namespace: str) -> None:
        with kube_rig.without_api():
            done = kube_rig.kubectl("get", "nodes")
            assert (done.rc, "refused" in done.stderr) == (1, True)
        assert kube_rig.call("GET", f"/api/v1/namespaces/{kube_namespace}").status == 200

    def test_states_that_are_forgotten(self, kube_rig: KubeRig, kube_namespace: str) -> None:
        path = f"/api/v1/namespaces/{kube_namespace}/configmaps"
        for number in range(3):
            made = kube_rig.call("POST", path, {"metadata": {"name": f"m{number}"}})
            assert made.status == 201
        first = kube_rig.call("GET", f"{path}?limit=1").body["metadata"]["continue"]
        assert kube_rig.call("GET", f"{path}?limit=1&continue={first}").status == 200
        kube_rig.call("DELETE", f"{path}/m0")
        with kube_rig.without_api():
            kube_rig.compact()
        assert kube_rig.call("GET", f"{path}?limit=1&continue={first}").status == 410
        version = made.body["metadata"]["resourceVersion"]
        event = kube_rig.call("GET", f"{path}?watch=1&timeoutSeconds=1&resourceVersion={version}")
        assert (event.body["type"], event.body["object"]["code"]) == ("ERROR", 410)


class TestEnd:
    def test_nothing_is_left(self, wait_until: WaitUntil) -> None:
        with contextlib.ExitStack() as stack:
            with kube_or_skip(nodes=1) as rig, rig.open_namespace() as namespace:
                rig.apply(make_pod("works", "sleep 600"), namespace=namespace)
                rig.await_field("pod", "works", ".status.phase", "Running", namespace)
                assert find_processes(rig.network)
                assert rig.network in run("ip", "netns")
                # Whoever starts a rig at that moment takes another slot.
                slot = stack.enter_context(take_slot(rig))
            slot.join()
            # Nobody waits for the last one but the machine's first process.
            wait_until(lambda: not find_processes(rig.network), what="the end of all processes")
            assert rig.network not in run("ip", "netns")
            assert f"ospk{rig.slot} " not in run("ip", "link") + run("ip", "route")
            assert rig.network not in Path("/proc/mounts").read_text()
            assert str(rig.state) not in Path("/proc/mounts").read_text()
            # Others' groups come and go meanwhile.
            assert not [path for path, folders, _ in os.walk("/sys/fs/cgroup") if rig.network in folders]
            assert not rig.state.exists()


@contextlib.contextmanager
def take_slot(rig: KubeRig) -> Iterator[threading.Thread]:
    """Wait in line for the slot of a rig that ends, in a thread, and have it until the end of the block."""
    with open(f"{rig.state}.lock", "w") as lock:
        thread = threading.Thread(target=fcntl.flock, args=(lock, fcntl.LOCK_EX), daemon=True)
        thread.start()
        yield thread


def find_processes(group: str) -> list[str]:
    """The processes in control groups of that path: whatever a rig or one of its nodes started is in one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"/{group}" in (folder / "cgroup").read_text():
                found.append((folder / "comm").read_text())
        except OSError:
            continue
    return found


def run(*command: str) -> str:
    """What a command says."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
