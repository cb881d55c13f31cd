"""API servers for one suite: the fake, and a real one whose kubelets do what the fake's test says."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import yaml
from tests.fakes.kubernetes_api import KubernetesApi
from tests.rigs.kube import SMALL_IMAGE, KubeRig
from tests.waiting import wait_until

from overspan.adapters.kubernetes.api.answers import ApiAnswer
from overspan.adapters.kubernetes.api.connection import Connection, open_connection
from overspan.adapters.kubernetes.observation.records import PodRecord, read_pod
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import OverspanError

Document = dict[str, Any]
LAUNCH = "suite-1-0"
SELECTOR = f"overspan.io/launch={LAUNCH}"
SAYS = "echo begun"
"""What a program does once it has its traps: the first process of a container has no other way to hear a signal."""
WAITING = f"trap 'echo ended; exit 3' TERM; {SAYS}; sleep 300 & wait"


class Server(Protocol):
    """One API server with a namespace for the test."""

    connection: Connection
    namespace: str

    def start_pod(self, name: str) -> None:
        """Let nodes start a pod; on a real cluster they do so by themselves."""

    def hang_pod(self, name: str) -> None:
        """Let a node have a pod that cannot start."""

    def forget_history(self) -> None:
        """Let nothing be known of the past; what is there stays."""

    def end_pod(self, name: str, code: int) -> None:
        """Let nodes end a pod that was deleted, or whose program ends."""

    def limit_pods(self, most: int) -> None:
        """A quota on the namespace's pods."""

    def open_stranger(self, folder: Path) -> contextlib.AbstractContextManager[Connection]:
        """A login that may do nothing."""

    def away(self) -> contextlib.AbstractContextManager[None]:
        """The server is not there for a while."""


class Namespace:
    """Requests of a test in its namespace, and waits for what they lead to."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection = server.connection
        self.base = f"/api/v1/namespaces/{server.namespace}"

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> ApiAnswer:
        """One request below the namespace."""
        form = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return self.connection.request(method, f"{self.base}/{path}", query=query, body=body, content_type=form)

    def make_pod(self, name: str, command: str = WAITING, **changes: Any) -> Document:
        """Create a pod; what was made."""
        answer = self.ask("POST", "pods", make_pod(name, command, **changes))
        assert answer.status == 201, answer
        return answer.document

    def await_pod(self, name: str, what: str, accept: Any, timeout: float = 20.0) -> PodRecord:
        """The pod's record once it is accepted."""

        def look() -> PodRecord | None:
            answer = self.ask("GET", f"pods/{name}")
            record = read_pod(answer.document) if answer.works else None
            return record if record is not None and accept(record) else None

        found = wait_until(look, timeout, what)
        assert found is not None
        return found

    def await_gone(self, path: str) -> None:
        """Wait until an object is no longer there."""
        wait_until(lambda: self.ask("GET", path).status == 404, 20.0, f"{path} goes")

    def run_pod(self, name: str, command: str = WAITING, **changes: Any) -> PodRecord:
        """Create a pod and have it run."""
        self.make_pod(name, command, **changes)
        self.server.start_pod(name)
        record = self.await_pod(name, "runs", lambda record: record.started_at is not None)
        if SAYS in command:
            self.await_word(name)
        return record

    def await_word(self, name: str) -> None:
        """Wait until a pod's program has said that it has begun, and has its traps."""

        def look() -> bool:
            with contextlib.suppress(OverspanError):
                return b"begun\n" in self.connection.read(f"{self.base}/pods/{name}/log", {"container": "main"})
            return False

        wait_until(look, 20.0, f"{name} has begun")


def make_pod(name: str, command: str = WAITING, **changes: Any) -> Document:
    """A pod as small as it can be; `metadata` and `spec` are merged in."""
    container = {"name": "main", "image": SMALL_IMAGE, "command": ["/bin/sh", "-c", command]}
    metadata = {"name": name, "labels": {"overspan.io/launch": LAUNCH, "overspan.io/member": LAUNCH}}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 20, "containers": [container]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | changes.get("metadata", {}),
        "spec": spec | changes.get("spec", {}),
    }


class FakeServer:
    """The fake, in the namespace `default`."""

    namespace = "default"

    def __init__(self, api: KubernetesApi, folder: Path) -> None:
        self.api = api
        config = api.write_kubeconfig(folder / "kubeconfig", token="good")
        api.tokens = {"good"}
        self.connection = open_connection(Settings(kubeconfig=config))

    def start_pod(self, name: str) -> None:
        """Bind it and run it."""
        self.api.pods.bind(name)
        self.api.pods.run(name)
        self.api.streams.write_log(name, "begun")

    def hang_pod(self, name: str) -> None:
        """Bind it."""
        self.api.pods.bind(name)

    def forget_history(self) -> None:
        """The fake forgets at once."""
        self.api.objects.compact()

    def end_pod(self, name: str, code: int) -> None:
        """End its program."""
        self.api.streams.write_log(name, "ended")
        self.api.pods.finish(name, code)

    def limit_pods(self, most: int) -> None:
        """The fake's own quota."""
        self.api.objects.quotas["default"] = most

    @contextlib.contextmanager
    def open_stranger(self, folder: Path) -> Iterator[Connection]:
        """All that the test asks for is denied while it lasts."""
        self.api.denied |= {("create", "pods"), ("list", "pods"), ("watch", "pods")}
        try:
            yield self.connection
        finally:
            self.api.denied.clear()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """The fake does not listen."""
        self.api.stop()
        try:
            yield
        finally:
            self.api.start()


class RealServer:
    """The rig, in a namespace of its own."""

    def __init__(self, rig: KubeRig, namespace: str) -> None:
        self.rig = rig
        self.namespace = namespace
        self.connection = open_connection(Settings(kubeconfig=str(rig.kubeconfig), namespace=namespace))

    def start_pod(self, name: str) -> None:
        """The kubelet does."""

    def hang_pod(self, name: str) -> None:
        """The kubelet does, once it knows of the pod."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        wait_until(
            lambda: (self.rig.call("GET", path).body.get("status") or {}).get("containerStatuses"),
            20.0,
            "the kubelet to know of it",
        )

    def forget_history(self) -> None:
        """Compacted, and the API server started anew: it keeps recent events in memory."""
        self.rig.compact()
        with self.rig.without_api():
            pass

    def end_pod(self, name: str, code: int) -> None:
        """The kubelet does."""

    def limit_pods(self, most: int) -> None:
        """A ResourceQuota, once it is counted."""
        path = f"/api/v1/namespaces/{self.namespace}/resourcequotas"
        self.rig.call("POST", path, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": str(most)}}})
        wait_until(
            lambda: "used" in (self.rig.call("GET", f"{path}/few").body.get("status") or {}),
            20.0,
            "the quota is counted",
        )

    @contextlib.contextmanager
    def open_stranger(self, folder: Path) -> Iterator[Connection]:
        """The namespace's service account, which nobody gave a right."""
        with open_account(self.rig, self.namespace, "default", folder) as stranger:
            yield stranger

    def away(self) -> contextlib.AbstractContextManager[None]:
        """The API server is killed, and started again."""
        return self.rig.without_api()


@contextlib.contextmanager
def open_account(rig: KubeRig, namespace: str, account: str, folder: Path) -> Iterator[Connection]:
    """A login as a service account."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    token = rig.call("POST", path, {"spec": {"expirationSeconds": 600}}).body["status"]["token"]
    config = yaml.safe_load(rig.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    (folder / account).write_text(json.dumps(config))
    connection = open_connection(Settings(kubeconfig=str(folder / account), namespace=namespace))
    try:
        yield connection
    finally:
        connection.close()
