"""Ended pods that wait for a daemon which is gone: any other daemon of the namespace lets them go.

Such a pod was deleted, by a drain or with its namespace, and its finalizer alone keeps it. Its log went with its
containers, so nothing is left to read but its end, which is kept in the launch's anchor for its own daemon.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from overspan.adapters.kubernetes.api.answers import to_error
from overspan.adapters.kubernetes.api.calls import Calls, finish_all
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.launches.relabelled_pods import find_token
from overspan.adapters.kubernetes.manifests.names import (
    FINALIZER,
    FREE,
    INSTALLATION,
    MANAGED_BY,
    MANAGER,
    name_anchor,
    name_end,
)
from overspan.adapters.kubernetes.observation.records import PodRecord, read_pod, read_record, write_record
from overspan.bridge.model.errors import OverspanError

_log = logging.getLogger(__name__)

ABANDONED_SECONDS = 600.0
"""How long an ended pod waits for its own daemon after its deletion; one that lives takes seconds, at most a minute."""
_OVER = "status.phase!=Running,status.phase!=Pending"


async def free_abandoned(calls: Calls, installation: str, now: float) -> None:
    """Let the abandoned pods of all other installations go. What fails is tried again with the next look."""
    try:
        selector = f"{MANAGED_BY}={MANAGER},{INSTALLATION}!={installation}"
        found = [pod for pod in await calls.list("Pod", selector, _OVER) if is_abandoned(pod, now)]
    except OverspanError as error:
        _log.info("abandoned pods are looked for later: %s", error)
        return
    launches: dict[tuple[str, str], list[PodRecord]] = {}
    for document in found:
        pod = read_pod(document)
        launches.setdefault((find_token(document), pod.owner), []).append(pod)
    for (token, owner), pods in launches.items():
        try:
            if await _keep_ends(calls, token, owner, pods):
                await finish_all(calls.strip_pod(pod) for pod in pods)
        except OverspanError as error:
            _log.info("pods of launch %s are let go later: %s", token, error)


async def _keep_ends(calls: Calls, token: str, owner: str, pods: Sequence[PodRecord]) -> bool:
    """Keep the ends of a launch's pods in its anchor; whether the pods may go."""
    anchor = await calls.get("ConfigMap", name_anchor(token)) if token and owner else None
    if anchor is None or anchor["metadata"].get("uid") != owner or anchor["metadata"].get("deletionTimestamp"):
        # The launch goes as a whole, as with its namespace.
        return True
    if FREE not in (anchor["metadata"].get("annotations") or {}):
        # Made by a version that does not read ends: to its daemon the pods would be lost.
        return False
    await calls.add_data(name_anchor(token), owner, {name_end(pod.name): write_record(pod) for pod in pods})
    _log.warning("%d ended pods of launch %s are let go: its daemon is not there", len(pods), token)
    return True


def is_abandoned(document: Mapping[str, Any], now: float) -> bool:
    """Whether a pod has ended, was deleted long ago, and is there for Overspan's finalizer alone."""
    pod: PodRecord = read_pod(document)
    kept = FINALIZER in (document["metadata"].get("finalizers") or ())
    return kept and pod.ended and pod.deleting_at is not None and now - pod.deleting_at >= ABANDONED_SECONDS


def read_end(connection: Connection, path: str, known: PodRecord) -> PodRecord | None:
    """The end of a pod that has vanished, as another daemon kept it; None for none. `path` is that of the pods.

    Blocking. Raises Unreachable and the like: what became of the pod is unknown then.
    """
    place = f"{path.rpartition('/')[0]}/configmaps/{name_anchor(known.token)}"
    answer = connection.request("GET", place)
    if answer.status in (403, 404, 410):
        return None
    if not answer.works:
        raise to_error(answer, f"read {name_anchor(known.token)}")
    kept = read_record(str((answer.document.get("data") or {}).get(name_end(known.name), "")))
    return kept if kept is not None and kept.uid == known.uid else None
