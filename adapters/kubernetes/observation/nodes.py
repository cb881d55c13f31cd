"""Nodes of a cluster as sinfo shows them: what they can give, less what pods asked for; or the namespace's quota.

Reading needs the right to list nodes, and for use by others the right to list pods of all namespaces; without the
first the quota stands for the nodes, without the second the namespace's own pods are what is known of use.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from overspan.adapters.contract import Node
from overspan.adapters.kubernetes.api.answers import ApiAnswer, to_error
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.api.quantities import MIB, Amounts, add_amounts, read_amounts, sum_requests
from overspan.adapters.kubernetes.manifests.partitions import list_partitions, settle_partition
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.job import Job

Document = Mapping[str, Any]
_PAGE = 500
LIVE = "status.phase!=Succeeded,status.phase!=Failed"
_SLACK = 0.1
"""CPUs below which a node counts as full: nothing that computes asks for less."""


class NodeUse:
    """What the pods of each node asked for; `busy` nodes have more than their own services."""

    def __init__(self) -> None:
        self.amounts: dict[str, Amounts] = {}
        self.busy: set[str] = set()

    def add(self, pod: Document) -> None:
        """Count one pod that has not ended."""
        spec, metadata = pod.get("spec") or {}, pod.get("metadata") or {}
        node = spec.get("nodeName")
        if not node:
            return
        self.amounts[node] = add_amounts((self.amounts.get(node, {}), sum_requests(spec)))
        owners = {owner.get("kind") for owner in metadata.get("ownerReferences") or []}
        if not owners & {"DaemonSet", "Node"}:
            self.busy.add(node)


def ask_sizes(connection: Connection, settings: Settings) -> list[Node]:
    """The nodes without their use: no pod is asked for. Blocking. Raises as `ask_nodes`."""
    return ask_nodes(connection, settings, used=False)


def ask_nodes(connection: Connection, settings: Settings, *, used: bool = True) -> list[Node]:
    """All nodes that jobs can run on, by partition and name. Blocking.

    Raises Unreachable, TimedOut and other refusals.
    """
    namespace = connection.namespace
    default, *others = list_partitions(settings)
    listed = list_parts(connection, "/api/v1/nodes", {})
    nodes = next(listed)
    if isinstance(nodes, ApiAnswer):
        return [read_quota(item, default.name, settings) for item in _ask_quotas(connection, namespace)]
    found: list[Document] = list(nodes)
    for part in listed:
        found += read_part(part, "list nodes")
    use = _ask_use(connection, namespace) if used else NodeUse()
    return [
        replace(read_node(item, use, one.name, own), default=one is default, time_limit=one.time_limit)
        for one in (default, *others)
        for own in (settle_partition(settings, one.name),)
        for item in sorted(found, key=lambda item: str((item.get("metadata") or {}).get("name")))
        if is_wanted(item, own)
    ]


def _ask_use(connection: Connection, namespace: str) -> NodeUse:
    """What pods ask for: of all namespaces, without the right to that of the own one."""
    use = NodeUse()
    for path in ("/api/v1/pods", f"/api/v1/namespaces/{namespace}/pods"):
        parts = list_parts(connection, path, {"fieldSelector": LIVE})
        first = next(parts)
        if isinstance(first, ApiAnswer):
            continue
        # Part by part: ten thousand pods are not kept as documents.
        for pod in first:
            use.add(pod)
        for part in parts:
            for pod in read_part(part, "list pods"):
                use.add(pod)
        break
    return use


def list_parts(connection: Connection, path: str, query: Mapping[str, Any]) -> Iterator[list[Document] | ApiAnswer]:
    """The parts of a list; the answer itself, alone, where the right is missing."""
    asked = {**query, "limit": _PAGE}
    while True:
        answer = connection.request("GET", path, query=asked)
        if answer.status == 403:
            yield answer
            return
        if not answer.works:
            raise to_error(answer, f"list {path.rpartition('/')[2]}")
        yield list(answer.document.get("items") or [])
        following = (answer.document.get("metadata") or {}).get("continue")
        if not following:
            return
        asked["continue"] = following


def read_part(part: list[Document] | ApiAnswer, doing: str) -> list[Document]:
    if isinstance(part, ApiAnswer):
        raise to_error(part, doing)
    return part


def _ask_quotas(connection: Connection, namespace: str) -> list[Document]:
    """The quotas of a namespace; none where they cannot be read."""
    first = next(list_parts(connection, f"/api/v1/namespaces/{namespace}/resourcequotas", {}))
    return [] if isinstance(first, ApiAnswer) else first


def is_wanted(document: Document, settings: Settings) -> bool:
    labels = (document.get("metadata") or {}).get("labels") or {}
    return all(labels.get(name) == value for name, value in settings.node_selector.items())


def read_node(document: Document, use: NodeUse, partition: str, settings: Settings) -> Node:
    """One node as sinfo shows it."""
    metadata, status = document.get("metadata") or {}, document.get("status") or {}
    name = str(metadata.get("name") or "")
    total = read_amounts(status.get("allocatable") or status.get("capacity"))
    used = use.amounts.get(name, {})
    kind, resources = _find_gpus(total, metadata.get("labels") or {}, settings)
    gpus, gpus_used = (sum(amounts.get(one, 0.0) for one in resources) for amounts in (total, used))
    cpus, cpus_used = total.get("cpu", 0.0), used.get("cpu", 0.0)
    away = judge_away(document, settings)
    state, reason = away or ("idle", "")
    if not away and name in use.busy:
        full = cpus_used > cpus - _SLACK or (gpus > 0 and gpus_used >= gpus)
        state = "allocated" if full else "mixed"
    elif state == "drained" and name in use.busy:
        state = "draining"
    return Node(
        name=name,
        partition=partition,
        state=state,
        cpus=_round(cpus),
        cpus_used=_round(min(cpus_used, cpus)),
        memory=int(total.get("memory", 0.0) // MIB),
        memory_used=int(used.get("memory", 0.0) // MIB),
        gpus=int(gpus),
        gpus_used=_round(gpus_used),
        gpu_kind=kind,
        reason=reason,
    )


def read_quota(document: Document, partition: str, settings: Settings) -> Node:
    """A quota in the place of nodes that cannot be listed."""
    status = document.get("status") or {}
    total, used = read_amounts(status.get("hard")), read_amounts(status.get("used"))
    resources = [f"requests.{name}" for name in _gpu_resources(settings)]

    def pick(amounts: Amounts, name: str) -> float:
        return amounts.get(f"requests.{name}", amounts.get(name, 0.0))

    cpus, cpus_used = pick(total, "cpu"), pick(used, "cpu")
    gpus, gpus_used = (sum(amounts.get(one, 0.0) for one in resources) for amounts in (total, used))
    spent = any(used.get(name, 0.0) >= value for name, value in total.items() if value)
    state = "allocated" if spent else "mixed" if any(used.values()) else "idle"
    return Node(
        name=str((document.get("metadata") or {}).get("name") or ""),
        partition=partition,
        state=state,
        cpus=_round(cpus),
        cpus_used=_round(cpus_used),
        memory=int(pick(total, "memory") // MIB),
        memory_used=int(pick(used, "memory") // MIB),
        gpus=int(gpus),
        gpus_used=_round(gpus_used),
        reason="a quota: nodes cannot be listed",
    )


def judge_away(document: Document, settings: Settings, tolerations: Iterable[Document] = ()) -> tuple[str, str] | None:
    """The state and reason of a node that takes no pods of jobs."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    ready: Document = next((one for one in status.get("conditions") or [] if one.get("type") == "Ready"), {})
    if ready.get("status") != "True":
        return "down", " ".join(str(ready.get("message") or ready.get("reason") or "not ready").split())
    if spec.get("unschedulable"):
        return "drained", "cordoned"
    for taint in spec.get("taints") or []:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not is_tolerated(
            taint, (*settings.tolerations, *tolerations)
        ):
            return "drained", f"taint {taint.get('key')}"
    return None


def is_tolerated(taint: Document, tolerations: Iterable[Document]) -> bool:
    """The scheduler's rule (Toleration.ToleratesTaint)."""
    for one in tolerations:
        if one.get("effect") and one["effect"] != taint.get("effect"):
            continue
        if not one.get("key"):
            if one.get("operator") == "Exists":
                return True
            continue
        same = one.get("operator") == "Exists" or (one.get("value") or "") == (taint.get("value") or "")
        if one["key"] == taint.get("key") and same:
            return True
    return False


def _gpu_resources(settings: Settings) -> list[str]:
    given = [kind.resource for kind in settings.gpus.types.values() if kind.resource]
    return list(dict.fromkeys([settings.gpus.resource, *given]))


def _find_gpus(total: Amounts, labels: Mapping[str, str], settings: Settings) -> tuple[str, list[str]]:
    """The kind of a node's GPUs by its label or their resource, and all resources that count as GPUs."""
    resources = _gpu_resources(settings)
    if not any(total.get(one) for one in resources):
        return "", resources
    for name, kind in settings.gpus.types.items():
        if not total.get(kind.resource or settings.gpus.resource):
            continue
        if not kind.values or labels.get(kind.label or settings.gpus.label) in kind.values:
            return name, resources
    return labels.get(settings.gpus.label, "").lower(), resources


def _round(value: float) -> float:
    """Whole thousandths, as Kubernetes counts; without the dust of adding fractions."""
    return round(value, 3)


_log = logging.getLogger(__name__)

KEEP_SECONDS = 60.0
PORTION = 0.9
"""Of a node that tasks may have without asking: its own pods (DaemonSets) have the rest."""


class NodeCache:
    """A cache of the nodes: asked for when a job needs them, at most once a minute."""

    def __init__(self, ask: Callable[[], list[Node]]) -> None:
        self._ask = ask
        self._asked_at: float | None = None
        self._looking: asyncio.Task[None] | None = None
        self.known: Sequence[Node] = ()

    def note(self, nodes: Sequence[Node]) -> None:
        """Store nodes that another caller has fetched."""
        self.known, self._asked_at = nodes, time.monotonic()

    def look(self) -> None:
        """Refresh the nodes in the background if they are old."""
        if self._fresh() or (self._looking is not None and not self._looking.done()):
            return
        self._looking = asyncio.create_task(self._look())

    async def look_first(self, seconds: float) -> None:
        """Refresh as `look` does; the very first answer is waited for, for `seconds` at most."""
        first = self._looking is None
        self.look()
        if first and self._looking is not None:
            await asyncio.wait([self._looking], timeout=seconds)

    async def close(self) -> None:
        """Stop the refresh that is under way."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self) -> None:
        try:
            self.note(await asyncio.to_thread(self._ask))
        except OverspanError as error:
            _log.info("the nodes are not known: %s", error)

    def _fresh(self) -> bool:
        return self._asked_at is not None and time.monotonic() - self._asked_at <= KEEP_SECONDS

    async def ask(self, jobs: Iterable[Job]) -> Sequence[Node]:
        """The nodes; none where no job has defaults to bound. Raises what asking raises."""
        if not any(task.resources.gpu_defaults and task.resources.gpus for job in jobs for task in job.spec.tasks):
            return ()
        if not self._fresh():
            self.note(await asyncio.to_thread(self._ask))
        return self.known
