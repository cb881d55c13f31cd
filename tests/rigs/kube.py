"""A real Kubernetes on this machine: the rig of containers/kube-test, one for each process that asks."""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from tests.rigs.engine import RigMissing, is_required
from tests.waiting import PATIENCE, wait_until

SCRIPT = Path(__file__).parents[2] / "containers" / "kube-test" / "rig.sh"
SMALL_IMAGE = "rig/sh:1"
PYTHON_IMAGE = "rig/python:1"
START_SECONDS = 180
CALL_SECONDS = 180
WAIT = f"--timeout={CALL_SECONDS - 5}s"
"""How long kubectl waits: a little less than its caller."""


class Done(NamedTuple):
    """What one command left."""

    rc: int
    stdout: str
    stderr: str


class Answer(NamedTuple):
    """The API server's answer: its status, and its body as it is in JSON."""

    status: int
    body: dict[str, Any]


@dataclass(frozen=True)
class KubeRig:
    """A running cluster of two nodes, `node1` and `node2`; `kubeconfig` is its administrator's."""

    slot: int
    kubeconfig: Path
    programs: Path

    @property
    def state(self) -> Path:
        """The folder with everything of this rig: kubeconfigs, logs, the nodes' files."""
        return self.kubeconfig.parent

    @property
    def network(self) -> str:
        """The name of its network namespace, and of its control groups."""
        return f"overspan-kube-{self.slot}"

    @property
    def networks(self) -> tuple[str, str]:
        """Where its nodes and its pods have their addresses."""
        return f"10.213.{self.slot}.0/24", f"10.214.{16 * self.slot}.0/20"

    def kubectl(self, *arguments: str, stdin: str = "", namespace: str = "") -> Done:
        """Run kubectl as the administrator and wait for it."""
        command = [str(self.programs / "kubectl"), "--kubeconfig", str(self.kubeconfig)]
        command += ["--namespace", namespace] if namespace else []
        done = subprocess.run(
            [*command, *arguments], input=stdin, capture_output=True, text=True, timeout=CALL_SECONDS, check=False
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def call(
        self, method: str, path: str, body: Any = None, media: str = "application/json", token: str = ""
    ) -> Answer:
        """One request to the API server, as the administrator or as who has `token`."""
        address, context, own = self._credentials()
        connection = http.client.HTTPSConnection(address, context=context, timeout=CALL_SECONDS)
        headers = {"Authorization": f"Bearer {token or own}", "Content-Type": media, "Accept": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            with connection.getresponse() as response:
                text = response.read()
                try:
                    return Answer(response.status, json.loads(text))
                except ValueError:
                    return Answer(response.status, {"text": text.decode(errors="replace")})
        finally:
            connection.close()

    def _credentials(self) -> tuple[str, ssl.SSLContext, str]:
        config = yaml.safe_load(self.kubeconfig.read_text())
        context = ssl.create_default_context(cafile=str(self.state / "certs" / "ca.crt"))
        token: str = config["users"][0]["user"]["token"]
        return config["clusters"][0]["cluster"]["server"].removeprefix("https://"), context, token

    def apply(self, *objects: Mapping[str, Any], namespace: str) -> None:
        """Create objects, or change those that are there."""
        done = self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects), namespace=namespace)
        assert done.rc == 0, done.stderr

    def await_field(self, kind: str, name: str, path: str, value: str, namespace: str = "") -> None:
        """Wait until a field, as a JSON path, has a value; AssertionError after three minutes."""
        condition = f"--for=jsonpath={{{path}}}={value}"
        done = self.kubectl("wait", condition, WAIT, f"{kind}/{name}", namespace=namespace or "default")
        assert done.rc == 0, f"{done.stderr}\n{self.kubectl('describe', kind, name, namespace=namespace).stdout}"

    def await_nodes(self) -> None:
        """Wait until all nodes take pods: one that was away is told apart for a moment after it is back."""
        wait_until(lambda: all(map(_takes_pods, self._list_nodes())), CALL_SECONDS / PATIENCE, "nodes for pods")

    def _list_nodes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("GET", "/api/v1/nodes").body["items"]
        return found

    @contextlib.contextmanager
    def open_namespace(self) -> Iterator[str]:
        """A new namespace with its service account; afterwards its pods are gone, and it goes away by itself."""
        self.await_nodes()
        name = f"span-{secrets.token_hex(4)}"
        done = self.kubectl("create", "namespace", name)
        assert done.rc == 0, done.stderr
        try:
            made = self.kubectl("wait", "--for=create", WAIT, "serviceaccount/default", namespace=name)
            assert made.rc == 0, made.stderr
            yield name
        finally:
            self.kubectl("delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false", namespace=name)
            self.kubectl("delete", "namespace", name, "--wait=false")

    def control(self, command: str, *arguments: str | int) -> None:
        """One command of rig.sh for this rig: `kill-node`, `start-node`, `stop`, `start`, `freeze`, `thaw`."""
        words = [str(SCRIPT), command, str(self.slot), *(str(word) for word in arguments)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=START_SECONDS, check=False)
        assert done.returncode == 0, done.stderr

    def kill_node(self, number: int) -> None:
        """Take a node's power away: kubelet, containerd and containers are gone at once."""
        self.control("kill-node", number)

    def restore_node(self, number: int) -> None:
        """Start a killed node again, or a further one, and wait until it is ready."""
        self.control("start-node", number)

    def find_node_address(self, number: int) -> str:
        """The address of a node."""
        node = self.call("GET", f"/api/v1/nodes/node{number}").body
        return next(str(one["address"]) for one in node["status"]["addresses"] if one["type"] == "InternalIP")

    @contextlib.contextmanager
    def without_node(self, number: int) -> Iterator[None]:
        """A node is without power for a while."""
        self.kill_node(number)
        try:
            yield
        finally:
            self.restore_node(number)

    @contextlib.contextmanager
    def frozen(self, part: str) -> Iterator[None]:
        """A part does nothing for a while, with its connections open: `apiserver`, `node1-kubelet`."""
        self.control("freeze", part)
        try:
            yield
        finally:
            self.control("thaw", part)

    def stop_api(self) -> None:
        """Kill the API server; connections end, and new ones are refused."""
        self.control("stop", "apiserver")

    def start_api(self) -> None:
        """Start the API server again and wait until it answers."""
        self.control("start", "apiserver")
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert time.monotonic() < deadline, "the API server does not come back"
            time.sleep(0.1)

    def _answers(self) -> bool:
        # By a program: where a connection is reset before its handshake, Python 3.11 leaves a socket unclosed.
        return self.kubectl("get", "--raw", "/readyz").rc == 0

    @contextlib.contextmanager
    def without_api(self) -> Iterator[None]:
        """The API server is away for a while."""
        self.stop_api()
        try:
            yield
        finally:
            self.start_api()

    def compact(self) -> None:
        """Have the API server's store forget all earlier states.

        A list or a watch that continues from one answers 410 after the next start of the API server, which keeps
        recent states in memory.
        """
        self.control("compact")

    def log(self) -> str:
        """The last lines of all parts."""
        done = subprocess.run([str(SCRIPT), "logs", str(self.slot)], capture_output=True, text=True, check=False)
        return done.stdout


def _takes_pods(node: dict[str, Any]) -> bool:
    ready = {one["type"]: one["status"] for one in node["status"].get("conditions") or ()}.get("Ready")
    return ready == "True" and not node["spec"].get("taints") and not node["spec"].get("unschedulable")


def make_pod(name: str, script: str, image: str = SMALL_IMAGE, **spec: Any) -> dict[str, Any]:
    """A pod of the group `group` that runs a shell's script once."""
    container = {"name": "main", "image": image, "command": ["sh", "-c", script]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "group"}},
        "spec": {
            "hostname": name,
            "subdomain": "group",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **spec,
        },
    }


@contextlib.contextmanager
def open_kube(nodes: int = 2) -> Iterator[KubeRig]:
    """Bring a cluster up and take everything of it down again, also when this process is killed.

    Raises RigMissing where it cannot run.
    """
    _check_machine()
    with contextlib.ExitStack() as undo:
        talk = undo.enter_context(tempfile.TemporaryFile("w+"))
        # The rig ends when its input does: by the end of this process, however that comes.
        process = undo.enter_context(
            subprocess.Popen(
                [str(SCRIPT), "attend", str(nodes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=talk,
                text=True,
                start_new_session=True,
            )
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        if not lines[-1]:
            talk.seek(0)
            raise RigMissing(" ".join(talk.read().strip().splitlines()[-2:]) or "rig.sh ended without a word")
        kubeconfig, path = (line.partition("=")[2].strip() for line in lines[:2])
        folder = Path(kubeconfig)
        yield KubeRig(int(folder.parent.name), folder, Path(path.partition(":")[0]))


def _check_machine() -> None:
    """A rig that is not compiled yet is made by who requires it; for others that takes too long."""
    if is_required("kube"):
        return
    done = subprocess.run([str(SCRIPT), "check"], capture_output=True, text=True, timeout=CALL_SECONDS, check=False)
    if done.returncode != 0:
        raise RigMissing(done.stderr.strip().removeprefix("rig.sh: "))
