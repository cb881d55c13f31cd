"""A pod that looks itself up by the name a member has: images, scheduling and DNS tried at once. It leaves nothing."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from overspan.adapters.abilities import Finding
from overspan.adapters.kubernetes.api.answers import to_error
from overspan.adapters.kubernetes.api.connection import MERGE_PATCH, Connection
from overspan.adapters.kubernetes.api.refusals import AS_SOMEBODY, find_remedy
from overspan.adapters.kubernetes.manifests.names import MANAGED_BY, MANAGER
from overspan.adapters.kubernetes.manifests.small_pods import SmallPod, render_small_pod
from overspan.adapters.kubernetes.observation.evidence import explain_waiting
from overspan.adapters.kubernetes.observation.records import DOMAIN, MAIN, PodRecord, read_pod
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import OverspanError

HOST = "task-0"
LABEL = DOMAIN + "trial"
NO_TOOL = 3
"""Exit code of a pod whose image has nothing that looks names up."""
_SCRIPT = """\
told=
trap 'told=1' USR1
look() {
  if command -v getent >/dev/null; then getent hosts "$1"
  elif command -v python3 >/dev/null; then python3 -c 'import socket, sys; socket.getaddrinfo(sys.argv[1], 9)' "$1"
  elif command -v curl >/dev/null; then curl -s -m 1 "http://$1:9/"; [ $? -ne 6 ]
  elif command -v wget >/dev/null; then
    case $(wget -T 1 -O - "http://$1:9/" 2>&1) in *"bad address"*|*"resolve"*) return 1 ;; esac
  else exit 3
  fi
}
find() {
  for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do look "$1" && return 0; sleep 1; done
  return 1
}
(find "$1")
code=$?
for i in 1 2 3 4 5 6 7 8 9 10; do [ -n "$told" ] && break; sleep 1; done
exit $code
"""
"""Looks its own name up, and waits a moment for a signal, which comes by exec as those of jobs do."""
DEADLINE = 60
SIGNAL = ("/bin/sh", "-c", "kill -s USR1 1")


class TrialTimes(NamedTuple):
    """How long the pod may take, and how often it is asked for. Seconds."""

    limit: float = 45.0
    pause: float = 0.25


def render_trial(name: str, settings: Settings) -> list[dict[str, Any]]:
    """The headless Service and the pod that looks its name up."""
    selector = {LABEL: name}
    words = ["/bin/sh", "-c", _SCRIPT, "trial", f"{HOST}.{name}"]
    pod = render_small_pod(name, settings, SmallPod(words, DEADLINE, selector, hostname=HOST, subdomain=name))
    port = {"name": "none", "port": 9, "protocol": "TCP"}
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector, "ports": [port]}
    metadata = {"name": name, "labels": {MANAGED_BY: MANAGER, **selector}}
    return [{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service}, pod]


def try_names(
    connection: Connection,
    settings: Settings,
    times: TrialTimes | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> list[Finding]:
    """Run the pod and judge it. Blocking. Raises Unreachable and other refusals."""
    if not settings.image:
        return [Finding("names", True, "not tried: it takes a pod; set `image` of this cluster to one with sh")]
    base = f"/api/v1/namespaces/{connection.namespace}"
    name = f"span-check-{secrets.token_hex(4)}"
    service, pod = render_trial(name, settings)
    try:
        for path, document in ((f"{base}/services", service), (f"{base}/pods", pod)):
            answer = connection.request("POST", path, body=document)
            if not answer.works:
                raise to_error(answer, f"create {path.rpartition('/')[2]}")
        waiting = _Waiting(connection, f"{base}/pods/{name}", times or TrialTimes(), pause)
        running = waiting.until(lambda record: record.ended or record.started_at is not None)
        tried: list[Finding] = []
        if not running.ended and running.started_at is not None:
            tried = [_try_deadline(connection, waiting.path), _try_signal(connection, running)]
        return [*judge_trial(waiting.until(lambda record: record.ended), settings.image), *tried]
    finally:
        connection.request("DELETE", f"{base}/pods/{name}", body={"gracePeriodSeconds": 1})
        connection.request("DELETE", f"{base}/services/{name}")


class _Waiting(NamedTuple):
    """A pod that is asked for until it is as it should be, or the patience ends."""

    connection: Connection
    path: str
    times: TrialTimes
    pause: Callable[[float], None]

    def until(self, fact: Callable[[PodRecord], bool]) -> PodRecord:
        """The pod's last record. Raises Unreachable and other refusals."""
        deadline = time.monotonic() + self.times.limit
        while True:
            answer = self.connection.request("GET", self.path)
            if not answer.works:
                raise to_error(answer, "read a pod")
            record = read_pod(answer.document)
            if fact(record) or time.monotonic() > deadline or explain_waiting(record)[0] == "JobLaunchFailure":
                return record
            self.pause(self.times.pause)


def _try_signal(connection: Connection, pod: PodRecord) -> Finding:
    """Send a signal as jobs get theirs. The rights alone do not tell: a proxy may let no websocket through."""
    lost = "scancel --signal, --signal of jobs, on_preemption and `span shell` do not work"
    try:
        code, output = connection.exec(pod.namespace, pod.name, MAIN, SIGNAL)
    except OverspanError as error:
        remedy = "grant what docs/kubernetes-rbac.yaml says, and see that proxies let websockets through"
        return Finding("exec", False, f"no command can be run in a pod: {error.message}: {lost}", remedy)
    if code:
        return Finding("exec", False, f"a signal was not sent in a pod ({code}): {' '.join(output.split())}: {lost}")
    return Finding("exec", True, "a signal was sent in a pod")


def _try_deadline(connection: Connection, path: str) -> Finding:
    """Lower the pod's deadline as those of auxiliaries are, without effect: policies may forbid it to who may patch."""
    body, query = {"spec": {"activeDeadlineSeconds": DEADLINE - 1}}, {"dryRun": "All"}
    answer = connection.request("PATCH", path, query=query, body=body, content_type=MERGE_PATCH)
    if answer.works:
        return Finding("deadlines", True, "a pod's deadline may be lowered")
    seen = f"a pod's deadline may not be lowered: {answer.message}: without a daemon auxiliaries outlive their delay"
    return Finding("deadlines", False, seen, find_remedy(answer) or "see the message")


def judge_trial(record: PodRecord, image: str) -> list[Finding]:
    """What the pod says about running pods there, and about names."""
    if record.exit_code is None:
        reason, detail = explain_waiting(record)
        seen = f"a pod of {image} did not run: {detail or record.message or reason}"
        remedy = "see `kubectl describe` of a pod of that image, and `image` of this cluster"
        if "runAsNonRoot" in detail:
            remedy = f"write `{AS_SOMEBODY}` for this cluster, or set `image` to one whose user is a number and not 0"
        return [Finding("pod", False, seen, remedy)]
    ran = Finding("pod", True, f"{image} runs on {record.node}")
    if record.exit_code == 0:
        return [ran, Finding("names", True, f"{HOST} and its group's name were found by DNS in a pod")]
    if record.exit_code == NO_TOOL:
        return [ran, Finding("names", True, f"not known: {image} has no getent, python3, curl or wget to ask with")]
    remedy = "members find each other by the cluster's DNS: see that CoreDNS runs and that policies let pods reach it"
    return [ran, Finding("names", False, "a pod did not find its own name by DNS", remedy)]
