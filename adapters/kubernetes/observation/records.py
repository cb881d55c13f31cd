"""A pod as Overspan keeps it: the few fields it reads, and nothing of the document."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from overspan.bridge.model.elastic import SCALED_NOTICE

DOMAIN = "overspan.io/"
LAUNCH = DOMAIN + "launch"
MEMBER = DOMAIN + "member"
TASK = DOMAIN + "task"
INDEX = DOMAIN + "index"
ATTEMPT = DOMAIN + "attempt"
RUN = DOMAIN + "run"
GO = DOMAIN + "go"
MEMBERS = DOMAIN + "members"
"""Annotation of pods of groups whose members come and go: which there are now (members_file.py)."""
MAIN = "main"
FETCHER, MOVER = "fetch", "data"
"""The containers that move the data of object stores."""
PORT_CHECK = "ports"
"""The container that looks, before the task's, whether ports of the node are taken."""

NOTICE = DOMAIN + "notice"
PRIMARIES_DONE = "primaries_done"
"""The kind of notice that tells an auxiliary when it is to end."""
_LEAVING = (PRIMARIES_DONE, SCALED_NOTICE)
_STARTING = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons of a waiting container that mean no trouble."""
_DISRUPTIONS = ("DisruptionTarget", "TerminationTarget")
"""Conditions that say who ends a pod: Kubernetes' own (KEP-3329), and the one Kueue sets on plain pods."""


class PodRecord(NamedTuple):
    """One pod. Times are seconds since the epoch, None where the thing has not happened."""

    name: str
    uid: str
    namespace: str
    token: str
    task: str
    index: int  # type: ignore[assignment]  # a tuple's method of this name is not needed
    attempt: int
    run: int
    phase: str
    """Pending, Running, Succeeded, Failed, Unknown."""
    node: str
    """The node it is bound to, or ''."""
    address: str
    go: str
    """The annotation that lets the user's program start; '' while it may not."""
    deleting_at: float | None
    """When its grace is over, for a pod that is being deleted (deletionTimestamp)."""
    created_at: float
    started_at: float | None
    """Start of the container `main`, which first waits at the start gate if its pod has one."""
    finished_at: float | None
    """End of the container `main`."""
    exit_code: int | None
    signal: int
    reason: str
    """Why `main` ended, in the runtime's word (Completed, Error, OOMKilled...)."""
    message: str
    """What `main` left in its termination log; the pod's own message where it has a reason, or `main` left none."""
    disruption: str
    """The reason of a true DisruptionTarget (or Kueue's TerminationTarget), '' without one."""
    status_reason: str
    """The pod's own reason (Evicted, DeadlineExceeded, NodeLost...)."""
    waiting_reason: str
    """Why it does not run yet: Unschedulable, SchedulingGated, ErrImagePull...; '' if no reason is given."""
    waiting_message: str
    scheduled: bool
    ready: bool
    member: str
    """The token while the group's Service may select it, '' after the label was taken away."""
    begun: bool = False
    """Whether a container before `main` runs or has run: it has its node, its address and its volumes."""
    asked_at: float | None = None
    """When its deletion was asked for (deletionTimestamp less the grace); of one that had ended, after its end."""
    owner: str = ""
    """The uid of the anchor that owns it; tries of one submission have an anchor each."""
    last_word: str = ""
    """What `main` left in its termination log, also where the pod has a message of its own."""
    limited_since: float | None = None
    """Since when its deadline (`activeDeadlineSeconds`) counts: its node has known it since then."""
    fetch_code: int | None = None
    """The exit code of the container that brings data before the start."""
    fetch_words: str = ""
    """What it has left in its termination log."""
    data_end: str = ""
    """What the container that sends data has left in its termination log; '' until then."""
    data_reason: str = ""
    """Why it ended, in the runtime's word."""
    taken_port: str = ""
    """The port of its node that the container which looked found taken."""
    leaves_at: float | None = None
    """When it is to end although its program goes on, as its notice says: the primaries of its group are done."""

    @property
    def ended(self) -> bool:
        """Whether nothing of the user's runs in it any more, nor ever will."""
        return self.finished_at is not None or self.phase in ("Succeeded", "Failed")


def read_time(text: Any) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None for none."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except (TypeError, ValueError):
        return None


def read_pod(document: Mapping[str, Any]) -> PodRecord:
    """The record of a pod's JSON object; fields that are missing or of another type are at their empty value."""
    metadata = _mapping(document.get("metadata"))
    spec, status = _mapping(document.get("spec")), _mapping(document.get("status"))
    labels, notes = _mapping(metadata.get("labels")), _mapping(metadata.get("annotations"))
    containers = _statuses(status.get("containerStatuses"))
    before = _statuses(status.get("initContainerStatuses"))
    conditions = {str(item.get("type")): item for item in _mappings(status.get("conditions"))}
    ended = _state(containers.get(MAIN), "terminated")
    fetched, sent = _state(before.get(FETCHER), "terminated"), _state(before.get(MOVER), "terminated")
    waiting_reason, waiting_message = _read_waiting(conditions, [*before.values(), *containers.values()])
    started = ended.get("startedAt") or _state(containers.get(MAIN), "running").get("startedAt")
    node = spec.get("nodeName") or ""
    return PodRecord(
        name=metadata.get("name") or "",
        uid=metadata.get("uid") or "",
        namespace=sys.intern(metadata.get("namespace") or ""),
        token=sys.intern(labels.get(LAUNCH) or ""),
        task=sys.intern(notes.get(TASK) or ""),
        index=_number(notes.get(INDEX)),
        attempt=_number(notes.get(ATTEMPT)),
        run=_number(notes.get(RUN)),
        phase=sys.intern(status.get("phase") or "Pending"),
        node=sys.intern(node),
        address=status.get("podIP") or "",
        go=sys.intern(notes.get(GO) or ""),
        deleting_at=read_time(metadata.get("deletionTimestamp")),
        created_at=read_time(metadata.get("creationTimestamp")) or 0.0,
        # Runtimes report 1970 as the start of a container that could not be started.
        started_at=read_time(started) or None,
        # A kubelet that has lost a container reports its end without a time; then the pod's phase shows the end.
        finished_at=read_time(ended.get("finishedAt")),
        exit_code=_number(ended.get("exitCode")) if ended else None,
        signal=_number(ended.get("signal")),
        reason=sys.intern(ended.get("reason") or ""),
        message=(status.get("reason") and status.get("message")) or ended.get("message") or status.get("message") or "",
        disruption=_read_disruption(conditions),
        status_reason=sys.intern(status.get("reason") or ""),
        waiting_reason=sys.intern(waiting_reason),
        waiting_message=sys.intern(waiting_message),
        scheduled=bool(node) or _is_true(conditions, "PodScheduled"),
        ready=_is_true(conditions, "Ready"),
        member=sys.intern(labels.get(MEMBER) or ""),
        begun=any(_state(status, "running") or _state(status, "terminated") for status in before.values()),
        asked_at=_read_asked(metadata),
        last_word=ended.get("message") or "",
        limited_since=read_time(status.get("startTime")),
        fetch_code=_number(fetched.get("exitCode")) if fetched else None,
        fetch_words=fetched.get("message") or "",
        data_end=sent.get("message") or "",
        data_reason=sys.intern(sent.get("reason") or ""),
        taken_port=(_state(before.get(PORT_CHECK), "terminated").get("message") or "").strip(),
        leaves_at=_read_leave(notes.get(NOTICE)),
        owner=_read_owner(metadata),
    )


LONGEST_MESSAGE = 1024
"""Letters of a message in a record that is kept."""


def write_record(record: PodRecord) -> str:
    """A record as a text: what is at its empty value is left out, and long messages are cut."""
    short = record._replace(message=record.message[:LONGEST_MESSAGE], last_word=record.last_word[:LONGEST_MESSAGE])
    fields = {name: value for name, value in short._asdict().items() if value != getattr(_EMPTY, name)}
    return json.dumps(fields, separators=(",", ":"))


def read_record(text: str) -> PodRecord | None:
    """The record that `write_record` wrote; None for another text. Fields of a later version are dropped."""
    try:
        fields = json.loads(text)
        return _EMPTY._replace(**{name: value for name, value in fields.items() if name in PodRecord._fields})
    except (ValueError, AttributeError):
        return None


def _read_waiting(
    conditions: Mapping[Any, Mapping[str, Any]], statuses: Iterable[Mapping[str, Any]]
) -> tuple[str, str]:
    """Why a pod does not run: the scheduler's reason, else the first container that is in trouble, else any."""
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return scheduled.get("reason") or "Unschedulable", scheduled.get("message") or ""
    waits = [wait for wait in (_state(status, "waiting") for status in statuses) if wait.get("reason")]
    troubled = [wait for wait in waits if wait["reason"] not in _STARTING]
    for wait in troubled or waits[:1]:
        return wait["reason"], wait.get("message") or ""
    return "", ""


def _read_owner(metadata: Mapping[str, Any]) -> str:
    owners = [one for one in _mappings(metadata.get("ownerReferences")) if one.get("kind") == "ConfigMap"]
    return sys.intern(str(owners[0].get("uid") or "")) if owners else ""


def _read_leave(notice: Any) -> float | None:
    """The deadline in a notice that the primaries are done; None for any other one."""
    try:
        notice_document = json.loads(notice or "{}")
        return float(notice_document["deadline"]) if notice_document.get("kind") in _LEAVING else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _read_asked(metadata: Mapping[str, Any]) -> float | None:
    ends_at = read_time(metadata.get("deletionTimestamp"))
    return None if ends_at is None else ends_at - _number(metadata.get("deletionGracePeriodSeconds"))


def _read_disruption(conditions: Mapping[Any, Mapping[str, Any]]) -> str:
    for kind in _DISRUPTIONS:
        if _is_true(conditions, kind):
            return sys.intern(conditions[kind].get("reason") or kind)
    return ""


def _is_true(conditions: Mapping[Any, Mapping[str, Any]], kind: str) -> bool:
    return conditions.get(kind, {}).get("status") == "True"


def _statuses(value: Any) -> dict[str, Mapping[str, Any]]:
    return {str(item.get("name")): item for item in _mappings(value)}


def _state(status: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    return _mapping(_mapping(status.get("state")).get(name)) if status else {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _number(value: Any) -> int:
    try:
        return int(value or 0)
    except (TypeError, ValueError):
        return 0


_EMPTY = read_pod({})
