"""A Kubernetes API server for tests: real HTTP on a free port, and misbehaviour by script.

It does what the real one cannot be made to do: 410 inside a stream, answers lost after the commit, watches cut or
silent, tokens that expire. What it does well is held to the real server's behaviour by the tests that run on both.
It has no kubelet: `pods` moves the pods as nodes would.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.fakes.kubernetes_exec import Exec
from tests.fakes.kubernetes_faults import Fault, Faults, Kind
from tests.fakes.kubernetes_http import Reply, Request, Server
from tests.fakes.kubernetes_objects import (
    Document,
    Key,
    Objects,
    Refused,
    match_fields,
    match_labels,
    merge,
    to_rfc3339,
)
from tests.fakes.kubernetes_pods import Pods
from tests.fakes.kubernetes_streams import Streams, Target, add_type, name_kind

GROUPS: Mapping[str, tuple[str, ...]] = {
    "authorization.k8s.io/v1": ("selfsubjectaccessreviews",),
    "authentication.k8s.io/v1": ("selfsubjectreviews",),
    "apps/v1": ("deployments",),
    "discovery.k8s.io/v1": ("endpointslices",),
    "scheduling.k8s.io/v1": ("priorityclasses",),
    "storage.k8s.io/v1": ("storageclasses",),
}
CORE = (
    *("pods", "services", "configmaps", "secrets", "events", "nodes", "resourcequotas", "namespaces"),
    "persistentvolumeclaims",
)
GLOBAL = ("nodes", "namespaces", "priorityclasses", "storageclasses")
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


class KubernetesApi:
    """The server. A context manager; `url` is where it listens."""

    def __init__(self, clock: Callable[[], float] = time.time, version: str = "v1.36.3") -> None:
        self.objects = Objects(clock)
        self.faults = Faults()
        self.requests: list[Request] = []
        self.groups: dict[str, tuple[str, ...]] = dict(GROUPS)
        self.version = version
        self.user = "tester"
        self.tokens: set[str] = set()
        """The tokens that are accepted; none: nobody is asked for one."""
        self.denied: set[tuple[str, str]] = set()
        """Pairs (verb, resource) that are forbidden; a subresource is `pods/log`."""
        self.exec = Exec()
        self.streams = Streams(self.objects)
        self.pods = Pods(self.objects)
        self.objects.create_simple("namespaces", "default", status={"phase": "Active"})
        self._server = Server(self.answer)

    # --- its life ---

    def __enter__(self) -> KubernetesApi:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.faults.clear()
        self.stop()
        self._server.close()

    @property
    def url(self) -> str:
        """Where it listens; the same after `stop` and `start`."""
        return self._server.url

    def stop(self) -> None:
        """Be down: connections are reset, new ones refused. What is kept is kept."""
        self._server.stop(self.streams.cut)

    def start(self) -> None:
        """Be back, at the same address."""
        self._server.start()

    def write_kubeconfig(self, path: Path, token: str = "", namespace: str = "default", name: str = "fake") -> str:
        """A kubeconfig for this server; its path."""
        user: Document = {"token": token} if token else {}
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": name,
                    "clusters": [{"name": name, "cluster": {"server": self.url}}],
                    "users": [{"name": name, "user": user}],
                    "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
                }
            )
        )
        return str(path)

    # --- misbehaviour ---

    def refuse(self, method: str, path: str, status: int, message: str = "", times: int = 1, reason: str = "") -> Fault:
        """Answer matching requests with a status."""
        return self.faults.add(Fault(Kind.REFUSE, method, path, times, status, reason, message or f"scripted {status}"))

    def drop(self, method: str, path: str, times: int = 1) -> Fault:
        """Close the connection of matching requests before anything is done."""
        return self.faults.add(Fault(Kind.DROP, method, path, times))

    def lose_reply(self, method: str, path: str, times: int = 1) -> Fault:
        """Carry matching requests out, and close the connection before the answer."""
        return self.faults.add(Fault(Kind.LOSE, method, path, times))

    def hold(self, method: str, path: str, times: int = 1) -> Fault:
        """Let matching requests wait until the fault's `free` is set."""
        return self.faults.add(Fault(Kind.HOLD, method, path, times))

    def count(self, method: str, path: str) -> int:
        """How many requests matched."""
        return sum(1 for one in list(self.requests) if one.method == method and re.search(path, one.path))

    # --- answering ---

    def answer(self, request: Request) -> Reply | None:
        """The reply; None closes the connection without one."""
        self.requests.append(request)
        fault = self.faults.take(request.method, request.path)
        try:
            if fault is not None:
                if fault.kind is Kind.DROP:
                    return None
                if fault.kind is Kind.REFUSE:
                    raise Refused(fault.status, fault.reason, fault.message)
                if fault.kind is Kind.HOLD:
                    fault.free.wait(600)
            reply = self._route(request)
            return None if fault is not None and fault.kind is Kind.LOSE else reply
        except Refused as refused:
            return Reply(refused.status, refused.document)

    def _route(self, request: Request) -> Reply:
        if self.tokens and request.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            raise Refused(401, "Unauthorized", "Unauthorized")
        if request.path in ("/version", "/api", "/apis") or request.path.count("/") <= 3:
            found = self._discover(request.path)
            if found is not None:
                return Reply(document=found)
        target = self._read_path(request.path)
        if target.key.resource.startswith("selfsubject"):
            return Reply(201, self._review(target, request.document))
        self._check_right(request, target)
        if target.part == "log":
            return self.streams.read_log(target.key, request.query)
        if target.part == "exec":
            return Reply(101, lines=self.exec.open(target.key, request.query, request.words, self.objects))
        if request.method == "GET":
            return self._read(target, request.query)
        reply = self._write(target, request)
        if "as=PartialObjectMetadata" in request.headers.get("accept", "") and reply.status < 300:
            metadata = (reply.document or {}).get("metadata")
            whole = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
            return Reply(reply.status, whole)
        return reply

    def _read_path(self, path: str) -> Target:
        core = re.fullmatch(r"/api/v1(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?", path)
        other = re.fullmatch(r"/apis/([^/]+)/([^/]+)(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?", path)
        if core and core[2] in CORE:
            return Target("v1", Key("", core[2], core[1] or "", core[3] or ""), core[4] or "")
        if other and other[4] in self.groups.get(f"{other[1]}/{other[2]}", ()):
            key = Key(other[1], other[4], other[3] or "", other[5] or "")
            return Target(f"{other[1]}/{other[2]}", key, other[6] or "")
        raise Refused(404, "NotFound", "the server could not find the requested resource")

    def _discover(self, path: str) -> Document | None:
        if path == "/version":
            major, minor = self.version.lstrip("v").split(".")[:2]
            return {"major": major, "minor": minor, "gitVersion": self.version}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            return {"kind": "APIGroupList", "groups": self._list_groups()}
        name = path.removeprefix("/apis/").removeprefix("/api/")
        held = CORE if path == "/api/v1" else self.groups.get(name)
        if held is None:
            return None
        resources = [{"name": one, "namespaced": one not in GLOBAL, "kind": name_kind(one)} for one in held]
        return {"kind": "APIResourceList", "groupVersion": name, "resources": resources}

    def _list_groups(self) -> list[Document]:
        found: dict[str, list[Document]] = {}
        for name in self.groups:
            group, _, version = name.partition("/")
            found.setdefault(group, []).append({"groupVersion": name, "version": version})
        return [
            {"name": group, "versions": versions, "preferredVersion": versions[0]} for group, versions in found.items()
        ]

    def _review(self, target: Target, document: Document) -> Document:
        if target.key.resource == "selfsubjectreviews":
            return {**document, "status": {"userInfo": {"username": self.user, "groups": ["system:authenticated"]}}}
        asked = document["spec"]["resourceAttributes"]
        name = asked["resource"] + (f"/{asked['subresource']}" if asked.get("subresource") else "")
        return {**document, "status": {"allowed": (asked["verb"], name) not in self.denied}}

    def _check_right(self, request: Request, target: Target) -> None:
        verb = _VERBS.get(request.method, "get" if target.key.name else "list")
        if request.query.get("watch") in ("1", "true"):
            verb = "watch"
        name = target.key.resource + (f"/{target.part}" if target.part else "")
        # A websocket is opened by GET, and since 1.35 `create` is asked for as well (KEP-5633).
        verbs = ("get", "create") if target.part == "exec" else (verb,)
        verb = next((one for one in verbs if (one, name) in self.denied), "")
        if verb:
            text = (
                f'{name} is forbidden: User "{self.user}" cannot {verb} resource "{name}" in API group '
                f'"{target.key.group}" in the namespace "{target.key.namespace}"'
            )
            raise Refused(403, "Forbidden", text)

    def _read(self, target: Target, query: Mapping[str, str]) -> Reply:
        if target.key.name:
            return Reply(document=add_type(self.objects.get(target.key), target))
        accept = _accept(query)
        if query.get("watch") in ("1", "true"):
            return Reply(lines=self.streams.watch(target, query, accept))
        return Reply(document=self._list(target, query, accept))

    def _list(self, target: Target, query: Mapping[str, str], accept: Callable[[Document], bool]) -> Document:
        limit = int(query.get("limit") or 0)
        found, version = self.objects.select(target.key, accept)
        if query.get("continue"):
            version, after = json.loads(base64.b64decode(query["continue"]))
            if version < self.objects.compacted:
                raise Refused(410, "Expired", "The provided continue parameter is too old to display a consistent list")
            found = [one for one in found if [one["metadata"]["namespace"], one["metadata"]["name"]] > after]
        metadata: Document = {"resourceVersion": str(version)}
        if limit and len(found) > limit:
            last = found[limit - 1]["metadata"]
            token = json.dumps([version, [last["namespace"], last["name"]]])
            metadata |= {
                "continue": base64.b64encode(token.encode()).decode(),
                "remainingItemCount": len(found) - limit,
            }
            found = found[:limit]
        return {
            "kind": name_kind(target.key.resource) + "List",
            "apiVersion": target.api,
            "metadata": metadata,
            "items": found,
        }

    def _write(self, target: Target, request: Request) -> Reply:
        body, key = request.document, target.key
        if request.method == "POST":
            if "dryRun" in request.query:
                made = {**body.get("metadata", {}), "creationTimestamp": to_rfc3339(self.objects.clock())}
                return Reply(201, {**body, "metadata": made})
            return Reply(201, add_type(self.objects.create(key, body), target))
        if request.method == "DELETE" and not key.name:
            for one in self.objects.select(key, _accept(request.query))[0]:
                with contextlib.suppress(Refused):
                    metadata = one["metadata"]
                    self.objects.delete(key._replace(namespace=metadata["namespace"], name=metadata["name"]), body)
            return Reply(document={"kind": "Status", "status": "Success"})
        if request.method == "DELETE":
            return Reply(document=add_type(self.objects.delete(key, body), target))
        if request.method == "PUT":
            return Reply(document=add_type(self.objects.replace(key, lambda _: body), target))
        form = request.headers.get("content-type", "")
        if "merge-patch" not in form:
            raise Refused(415, "UnsupportedMediaType", f"the fake takes merge patches only, not {form}")
        return Reply(
            document=add_type(self.objects.replace(key, lambda now: merge(now, body), not target.part), target)
        )


def _accept(query: Mapping[str, str]) -> Callable[[Document], bool]:
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    return lambda one: match_labels(labels, one["metadata"].get("labels") or {}) and match_fields(fields, one)
