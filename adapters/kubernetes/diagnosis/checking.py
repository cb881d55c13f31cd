"""What `span check` tries on a Kubernetes cluster."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from overspan.adapters.abilities import Finding
from overspan.adapters.kubernetes.api.answers import ApiAnswer, to_error
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.api.discovery import Right, find_backend, may, read_version
from overspan.adapters.kubernetes.api.quantities import read_amounts
from overspan.adapters.kubernetes.api.refusals import find_remedy
from overspan.adapters.kubernetes.api.rights import judge_rights, list_extras, list_rights
from overspan.adapters.kubernetes.diagnosis.trial import DEADLINE, LABEL, try_names
from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.manifests.small_pods import SmallPod, render_small_pod
from overspan.adapters.kubernetes.observation.nodes import ask_nodes, list_parts
from overspan.adapters.kubernetes.observation.records import read_time
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import OverspanError

OLDEST = (1, 26)
"""The first release whose pods say by default why they are disrupted (KEP-3329)."""
MAX_SKEW = 5.0
_SEE = "see the message; `kubernetes:` of this cluster is merged into every pod"
_LOGIN = "try the same with `kubectl cluster-info`"


def check_cluster(connection: Connection, settings: Settings) -> list[Finding]:
    """Try each thing that jobs need there. Blocking, up to a minute: a pod is run."""
    try:
        namespace = connection.namespace
        answer = connection.request("GET", "/version")
        if not answer.works:
            raise to_error(answer, "tell its version")
        # Once more: the first request logs in and opens the connection.
        began = time.monotonic()
        connection.request("GET", "/version")
        taken = (time.monotonic() - began) * 1000
    except OverspanError as error:
        return [Finding("reach", False, error.message, error.remedy or _LOGIN)]
    findings = [
        Finding("reach", True, f"{connection.place}; a request takes {taken:.0f} ms"),
        judge_version(answer.document),
    ]
    user = _ask_user(connection)
    findings.append(Finding("login", True, f"as {user}" if user else "the cluster does not tell as whom"))
    findings += _try("namespace", lambda: [_check_namespace(connection, namespace)])
    backend, gang = _check_gang(connection, settings, namespace)
    findings += _try("rights", lambda: _check_rights(connection, backend, namespace, user))
    findings.append(gang)
    findings += _try("submit", lambda: _check_submit(connection, settings, namespace))
    findings += _try("quota", lambda: _check_quota(connection, namespace))
    findings += _try("nodes", lambda: [_check_nodes(connection, settings)])
    if settings.data_fuse:
        findings += _try("mounts", lambda: [_check_mounts(connection, settings.data_fuse)])
    if all(finding.works for finding in findings if finding.what in ("namespace", "rights", "submit")):
        findings += _try("names", lambda: try_names(connection, settings))
    return findings


def _try(what: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    """Checks whose failure is a finding."""
    try:
        return check()
    except OverspanError as error:
        return [Finding(what, False, error.message, error.remedy or _LOGIN)]


def judge_version(document: Mapping[str, Any]) -> Finding:
    """Whether Kubernetes is new enough."""
    seen, version = str(document.get("gitVersion") or "not told"), read_version(document)
    works = version is not None and version >= OLDEST
    return Finding("Kubernetes", works, seen, "" if works else "Kubernetes 1.26 or newer is needed")


def _ask_user(connection: Connection) -> str:
    """As whom the login acts; '' where the cluster cannot tell (before 1.28)."""
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = connection.request("POST", path, body=body)
    except OverspanError:
        return ""
    status = answer.document.get("status") if answer.works else None
    return str(((status or {}).get("userInfo") or {}).get("username") or "")


def _check_namespace(connection: Connection, namespace: str) -> Finding:
    answer = connection.request("GET", f"/api/v1/namespaces/{namespace}")
    if answer.status == 404:
        remedy = f"kubectl create namespace {namespace}, or set `namespace` of this cluster"
        return Finding("namespace", False, f"{namespace} does not exist", remedy)
    if answer.works and (answer.document.get("status") or {}).get("phase") == "Terminating":
        return Finding(
            "namespace", False, f"{namespace} is being deleted", "set `namespace` of this cluster to another"
        )
    return Finding("namespace", True, namespace)


def _check_gang(connection: Connection, settings: Settings, namespace: str) -> tuple[GangBackend, Finding]:
    try:
        found = find_backend(connection, settings, namespace)
    except OverspanError as error:
        return GangBackend.SOFT, Finding("gang", False, error.message, error.remedy or _LOGIN)
    remedy = (
        ""
        if found.as_configured
        else "set `gang: auto`, or have the administrator provide it; groups start all the same"
    )
    return found.backend, Finding("gang", found.as_configured, found.seen, remedy)


def _check_rights(connection: Connection, backend: GangBackend, namespace: str, user: str) -> list[Finding]:
    wanted = [*list_rights(backend), *(right for extra in list_extras(backend) for right in extra.rights)]
    held: dict[Right, bool] = {right: may(connection, right, namespace) for right in wanted}
    return judge_rights(held, backend, namespace, user)


def _check_submit(connection: Connection, settings: Settings, namespace: str) -> list[Finding]:
    """A pod that is judged and not made: admission rules, limits and quotas; its time is the server's clock."""
    name = f"span-check-{secrets.token_hex(4)}"
    body = render_small_pod(name, settings, SmallPod(["/bin/sh", "-c", ":"], DEADLINE, {LABEL: name}))
    before = time.time()
    answer = connection.request("POST", f"/api/v1/namespaces/{namespace}/pods", query={"dryRun": "All"}, body=body)
    after = time.time()
    if not answer.works:
        return [Finding("submit", False, answer.message, find_remedy(answer, settings.security) or _SEE)]
    findings = [Finding("submit", True, "the cluster takes a plain pod (dry run)")]
    server_time = read_time((answer.document.get("metadata") or {}).get("creationTimestamp"))
    return findings + ([judge_clock(server_time, before, after)] if server_time is not None else [])


def judge_clock(server_time: float, before: float, after: float) -> Finding:
    """Whether the server's clock, in whole seconds, agrees with this machine's between two moments."""
    skew = min(0.0, server_time + 1 - before) + max(0.0, server_time - after)
    works = abs(skew) <= MAX_SKEW
    remedy = "times that are shown are the cluster's; let both machines set their clocks by NTP"
    return Finding("clock", works, f"{skew:+.1f} s against this machine", "" if works else remedy)


def _check_quota(connection: Connection, namespace: str) -> list[Finding]:
    answer = connection.request("GET", f"/api/v1/namespaces/{namespace}/resourcequotas")
    if answer.status == 403:
        return []
    if not answer.works:
        raise to_error(answer, "list quotas")
    quotas = answer.document.get("items") or []
    return [judge_quota(quota) for quota in quotas] or [Finding("quota", True, f"none in {namespace}")]


def judge_quota(document: Mapping[str, Any]) -> Finding:
    """What is left of one quota."""
    status = document.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    amounts, spent = read_amounts(hard), read_amounts(used)
    name = (document.get("metadata") or {}).get("name")
    seen = ", ".join(f"{used.get(key, 0)} of {value} {key}" for key, value in hard.items())
    full = [key for key, value in amounts.items() if spent.get(key, 0.0) >= value and _concerns_pods(key)]
    remedy = f"jobs wait until others give back {', '.join(full)}" if full else ""
    return Finding("quota", not full, f"{name}: {seen}", remedy)


def _concerns_pods(key: str) -> bool:
    return key in ("pods", "cpu", "memory", "count/pods") or key.startswith(("requests.", "limits."))


def _check_nodes(connection: Connection, settings: Settings) -> Finding:
    # A node may be in several partitions.
    nodes = list({node.name: node for node in ask_nodes(connection, settings)}.values())
    if not nodes:
        remedy = "" if not settings.node_selector else "see `node_selector` of this cluster"
        return Finding("nodes", not remedy, "none can be listed" if not remedy else "none has the labels", remedy)
    up = sum(1 for node in nodes if node.state in ("idle", "mixed", "allocated"))
    gpus = sum(node.gpus for node in nodes)
    seen = f"{up} of {len(nodes)} take pods; {sum(node.cpus for node in nodes):g} CPUs, {gpus} GPUs"
    return Finding("nodes", up > 0, seen, "" if up else "no node takes pods: see `sinfo` for the reasons")


def _check_mounts(connection: Connection, resource: str) -> Finding:
    nodes: list[Mapping[str, Any]] = []
    for part in list_parts(connection, "/api/v1/nodes", {}):
        if isinstance(part, ApiAnswer):
            return Finding("mounts", True, f"not told: nodes cannot be listed, which have {resource}")
        nodes += part
    return judge_mounts(nodes, resource)


def judge_mounts(nodes: Sequence[Mapping[str, Any]], resource: str) -> Finding:
    """Whether nodes give their pods the device by which MOUNT is read through the store."""
    given = [read_amounts((node.get("status") or {}).get("allocatable") or {}).get(resource, 0.0) for node in nodes]
    count = sum(amount > 0 for amount in given)
    seen = f"{count} of {len(nodes)} nodes have {resource}: pods with MOUNT run on these alone"
    remedy = "have a device plugin give pods /dev/fuse by that name, or leave `data_fuse` of this cluster out"
    return Finding("mounts", count > 0, seen, "" if count else remedy)
