"""Pods whose labels another client has changed: identified by their owner, and labelled again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from overspan.adapters.kubernetes.api.answers import ApiAnswer, to_error
from overspan.adapters.kubernetes.api.calls import Calls
from overspan.adapters.kubernetes.api.connection import MERGE_PATCH, Connection
from overspan.adapters.kubernetes.manifests.names import (
    ANCHOR_PREFIX,
    FINALIZER,
    MANAGED_BY,
    MANAGER,
    label_launch,
    parse_token,
)
from overspan.adapters.kubernetes.observation.records import LAUNCH, MEMBER, PodRecord, read_pod

_log = logging.getLogger(__name__)

_GONE = (404, 409, 410, 422)
"""Answers that a pod of that uid is not there (a change that names another uid is a conflict, or not valid)."""


def find_token(document: Mapping[str, Any]) -> str:
    """The token of an object's launch: by its owner reference, which is certain, else by its labels; '' for none."""
    label = str((document["metadata"].get("labels") or {}).get(LAUNCH) or "")
    return next(filter(None, map(_check_token, (*_list_owners(document), label))), "")


def is_ours(document: Mapping[str, Any]) -> bool:
    """Whether Overspan has made a pod: one of its marks is left, or its owner is."""
    metadata = document["metadata"]
    labels, finalizers = metadata.get("labels") or {}, metadata.get("finalizers") or ()
    if FINALIZER in finalizers or labels.get(MANAGED_BY) == MANAGER:
        return True
    return any(map(_check_token, _list_owners(document)))


def is_astray(document: Mapping[str, Any], token: str) -> bool:
    """Whether a pod lacks a label by which Overspan finds it."""
    labels = document["metadata"].get("labels") or {}
    return any(labels.get(name) != value for name, value in label_launch(token).items())


def keep(connection: Connection, path: str, known: PodRecord) -> PodRecord | None:
    """Read a pod that its selector no longer finds, and restore its labels; None where it has gone.

    Blocking. Raises Unreachable, Denied and the like: whether the pod is there is unknown then.
    """
    place = f"{path}/{known.name}"
    answer = connection.request("GET", place)
    if answer.status in (404, 410):
        return None
    document = _read(answer, f"read pod {known.name}")
    if document["metadata"].get("uid") != known.uid:
        return None
    if is_astray(document, known.token):
        body = _relabel(known.uid, known.token, known.member)
        answer = connection.request("PATCH", place, body=body, content_type=MERGE_PATCH)
        if answer.status in _GONE:
            return None
        document = _read(answer, f"label pod {known.name}")
        _log.warning("another client has changed the labels of pod %s; they are as they were", known.name)
    return read_pod(document)


async def reclaim(calls: Calls, owners: Mapping[str, str]) -> int:
    """Label again the pods of launches, which are given by the uids of their anchors; how many there were."""
    mine = [(pod, owners.get(read_pod(pod).owner, "")) for pod in await calls.list("Pod", "")]
    return await label_again(calls, ((pod, token) for pod, token in mine if token))


async def label_again(calls: Calls, found: Iterable[tuple[Mapping[str, Any], str]]) -> int:
    """Label those pods again that have other labels than their launch's; how many there were."""
    astray = [(document["metadata"], token) for document, token in found if is_astray(document, token)]
    for metadata, token in astray:
        member = "" if metadata.get("deletionTimestamp") else token
        await calls.patch("Pod", metadata["name"], _relabel(metadata["uid"], token, member)["metadata"])
        _log.warning("another client has changed the labels of pod %s; they are as they were", metadata["name"])
    return len(astray)


def _relabel(uid: str, token: str, member: str) -> dict[str, Any]:
    labels = {**label_launch(token), **({MEMBER: member} if member else {})}
    return {"metadata": {"uid": uid, "labels": labels}}


def _read(answer: ApiAnswer, doing: str) -> Mapping[str, Any]:
    if not answer.works:
        raise to_error(answer, doing)
    return answer.document


def _list_owners(document: Mapping[str, Any]) -> list[str]:
    """What may be the tokens of the launches that own an object."""
    owners = document["metadata"].get("ownerReferences") or ()
    names = [str(one.get("name") or "") for one in owners if one.get("kind") == "ConfigMap"]
    return [name.removeprefix(ANCHOR_PREFIX) for name in names if name.startswith(ANCHOR_PREFIX)]


def _check_token(text: str) -> str:
    try:
        parse_token(text)
    except ValueError:
        return ""
    return text
