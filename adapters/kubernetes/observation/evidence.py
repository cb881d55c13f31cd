"""Why a pod ended and why one does not run: the evidence on its record, judged in order. Pure.

Facts: KEP-3329 (DisruptionTarget), the kubelet's eviction and admission reasons (pkg/kubelet, Status.reason),
containerd's termination reasons.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.bridge.model.causes import Cause
from overspan.bridge.runtime.data.requests import PASSES

SETUP_FAILED = "setup failed"
"""What a pod's script writes into the termination log when its `setup` fails."""
NOT_STARTED = "not started: "
"""What stands there before the words for a folder or file that a batch script cannot have."""
REFUSED = "Refused"
"""The reason of a pod that the cluster refuses to make."""
NOT_BEGUN = "ended before its start"
"""What stands there while the pod waits at its start gate: no user code has run."""

_DISRUPTIONS = {
    "PreemptionByScheduler": (Cause.PREEMPTION, "preempted for a pod of higher priority"),
    "DeletionByTaintManager": (Cause.NODE, "its node was tainted (not ready, unreachable or taken out)"),
    "EvictionByEvictionAPI": (Cause.NODE, "evicted, as when a node is drained"),
    "DeletionByPodGC": (Cause.NODE, "its node is gone"),
    "TerminationByKubelet": (Cause.NODE, "ended by its node: short of resources, or shutting down"),
}
"""KEP-3329: reasons of the condition DisruptionTarget."""

_LOSSES = {
    "NodeLost": "its node is gone",
    "NodeShutdown": "its node shut down",
    "Shutdown": "its node shut down",
    "Terminated": "its node shut down",
    "NodeAffinity": "the node did not take it: its labels have changed",
    "NodePorts": "the node did not take it: a port is in use",
    "UnexpectedAdmissionError": "the node did not take it",
    "Unknown": "its node does not tell",
}
_UNSTARTED = frozenset({"StartError", "ContainerCannotRun", "RunContainerError", "CreateContainerError"})
_OWN_START = re.compile(
    r"(?<!fork/)exec:? ?[\"'/]|exec format error|executable file|chdir to cwd|memory limit too low"
    r"|unable to find (user|group)|sysctl|capabilit|apparmor|seccomp"
    r"|error mounting .*(not a directory|is a directory|read-only file system|no such file|permission denied)",
    re.IGNORECASE,
)
"""How runc and crun word a start that fails for what the pod asks for; all other words are about the node."""
_DEADLINE = re.compile(r"deadline ?exceeded|timed? ?out|context canceled", re.IGNORECASE)
"""How a runtime words that it took too long; found anywhere in its message."""
_FORGOTTEN = frozenset({"ContainerStatusUnknown", "Unknown"})
"""Reasons of a container whose end went unseen: the kubelet's, and containerd's after a reboot of the node."""
_OWN_LIMIT = re.compile(r"exceeds? the (total )?limit|exceeded its .*limit", re.IGNORECASE)
"""How the kubelet words an eviction for what the pod itself used; a DisruptionTarget is not set for those."""
_OUT_OF = re.compile(r"OutOf\S+")
_ENDED_BY_SIGNAL = frozenset({128 + 9, 128 + 15})

_IMAGE = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
    | {"ImageInspectError", "SignatureValidationFailed"}
)
_CONTAINER = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"})
_MOUNT = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})
_SANDBOX = frozenset({"FailedCreatePodSandBox", "NetworkNotReady", "FailedCreatePodContainer"})
TROUBLE = _MOUNT | _SANDBOX | {"Failed", "InspectFailed", "FailedScheduling"}
"""Reasons of warning events that say why a bound pod does not start; its status is silent about most of them."""

_LACKS = re.compile(r"\bInsufficient |\bToo many pods\b|exceed max volume count|free ports|enough free")
_AWAY = re.compile(
    r"node\(s\) were unschedulable|node\.kubernetes\.io/(not-ready|unreachable)|were? not ready|[Cc]ordoned"
)
_NEVER = re.compile(
    r"affinity|selector|untolerated taint|persistentvolumeclaim|volume node affinity|[Pp]riority ?[Cc]lass"
)


def judge_end(record: PodRecord, ordered: bool) -> tuple[Cause | None, str]:
    """The cause of a pod's end, with words for the user; None where the exit code says it all.

    `ordered` is whether Overspan itself ended this pod: its exit code is then no evidence of anything else.
    """
    succeeded = record.phase == "Succeeded" or record.exit_code == 0
    if succeeded and (ordered or not _was_deleted_before(record)):
        # The program had done its work before anything happened to the pod.
        return None, ""
    if succeeded:
        # A program that saves its state on TERM and exits with 0 has not finished its work.
        cause, detail = _judge_disruption(record, ordered)
        return (cause, detail) if cause is not None else (Cause.NODE, "the pod was deleted, and not by Overspan")
    for judge in (_judge_disruption, _judge_status, _judge_container):
        cause, detail = judge(record, ordered)
        if cause is not None:
            return cause, detail
    if ordered or record.exit_code is not None:
        return None, ""
    return Cause.NODE, _join("it ended and no end of its program is known", record.message)


def _was_deleted_before(record: PodRecord) -> bool:
    """Whether the pod's deletion was asked for before its program ended; False for pods of a lost node."""
    if record.asked_at is None or record.finished_at is None or record.disruption == "DeletionByPodGC":
        return False
    return record.asked_at <= record.finished_at


def judge_gone(record: PodRecord, ordered: bool) -> tuple[Cause | None, str]:
    """The same for a pod object that is gone. Without an end on record, the node or another client removed it."""
    if record.ended:
        return judge_end(record, ordered)
    cause, detail = _judge_disruption(record, ordered)
    if cause is None:
        cause, detail = _judge_status(record, ordered)
    if cause is None and not ordered:
        return Cause.NODE, "the pod was removed before its end was seen"
    return cause, detail


def _judge_disruption(record: PodRecord, ordered: bool) -> tuple[Cause | None, str]:
    """KEP-3329; the condition may be older than an order that came after it, and then it was first."""
    if not record.disruption:
        return None, ""
    known = _DISRUPTIONS.get(record.disruption)
    if known is None:
        # Kueue's reasons, and those of other controllers: a decision about the resources, not about this program.
        return Cause.PREEMPTION, _join(f"ended by its cluster ({record.disruption})", record.message)
    if record.status_reason in ("Preempting", "Preempted"):
        return Cause.PREEMPTION, _join(_DISRUPTIONS["PreemptionByScheduler"][1], record.message)
    if ordered and record.disruption == "DeletionByPodGC":
        return None, ""
    return known[0], _join(known[1], record.message)


def _judge_status(record: PodRecord, ordered: bool) -> tuple[Cause | None, str]:
    reason, message = record.status_reason, record.message
    if reason in ("DeadlineExceeded", "Evicted") and _is_unbegun(record):
        return (None, "") if ordered else (Cause.NODE, _join(f"ended before it started ({reason})", message))
    if reason == "DeadlineExceeded" and record.leaves_at is not None:
        # Its node has ended it after its delay, since no daemon did.
        return None, ""
    if reason == "DeadlineExceeded":
        return Cause.TIME, _join("its time limit passed", "")
    if reason == "Evicted":
        if _OWN_LIMIT.search(message) and not record.disruption:
            return Cause.EXIT, _join("evicted for using more than it asked for", message)
        return Cause.NODE, _join("evicted by its node", message)
    if reason in ("Preempting", "Preempted"):
        return Cause.PREEMPTION, _join("preempted by its node", message)
    if reason in _LOSSES or _OUT_OF.fullmatch(reason):
        return Cause.NODE, _join(_LOSSES.get(reason, "the node had no room for it"), message)
    return None, ""


class FlushEnd(NamedTuple):
    """What came of a pod's data: with an `error`, `left` bytes of it are not in the store."""

    error: str = ""
    left: int = 0


def judge_flush(record: PodRecord, lost: bool) -> FlushEnd | None:
    """What came of a pod's data; None while it is on its way. `lost` is whether the pod is beyond reach."""
    try:
        told = json.loads(record.data_end)
        return FlushEnd(str(told["error"]), int(told["left"]))
    except (ValueError, KeyError, TypeError):
        pass
    if record.phase in ("Succeeded", "Failed"):
        return FlushEnd(_join(f"what sends it has ended ({record.data_reason or 'it never started'})", record.data_end))
    return FlushEnd("the pod is gone that had it") if lost else None


def _judge_fetch(record: PodRecord) -> tuple[Cause | None, str]:
    """Data that could not be brought before the start."""
    if not record.fetch_code or record.started_at is not None:
        return None, ""
    words = _join("its data could not be brought", record.fetch_words)
    if record.fetch_code == PASSES:
        return Cause.BOOT, words
    return (Cause.NODE if record.fetch_code in _ENDED_BY_SIGNAL else Cause.SETUP), words


def _judge_container(record: PodRecord, ordered: bool) -> tuple[Cause | None, str]:
    if record.taken_port and not ordered:
        where = f"port {record.taken_port} of {record.node or 'its node'} is taken by another program there"
        return Cause.LAUNCH, f"{where}, and its pod is on the host network"
    cause, detail = (None, "") if ordered else _judge_fetch(record)
    if cause is not None:
        return cause, detail
    if _is_unbegun(record):
        # Also of the kernel, for memory: what waits there uses none to speak of.
        how = "the pod was deleted" if record.deleting_at is not None else "its container was ended"
        return (None, "") if ordered else (Cause.NODE, f"{how} before it started, and not by Overspan")
    if record.reason == "OOMKilled":
        return Cause.MEMORY, "the kernel ended it for its memory limit"
    if record.message.strip() == SETUP_FAILED:
        return Cause.SETUP, ""
    if record.message.startswith(NOT_STARTED):
        return Cause.LAUNCH, _join("the script could not start", record.message.removeprefix(NOT_STARTED))
    if record.reason == REFUSED:
        return Cause.LAUNCH, _join("its pod could not be made", record.message)
    if record.reason in _UNSTARTED:
        return _judge_start(record, ordered)
    if record.reason in _FORGOTTEN:
        return (None, "") if ordered else (Cause.NODE, "its node lost it")
    if record.deleting_at is not None and not ordered and record.exit_code in _ENDED_BY_SIGNAL:
        return Cause.NODE, "the pod was deleted, and not by Overspan"
    return None, ""


def _judge_start(record: PodRecord, ordered: bool) -> tuple[Cause | None, str]:
    """Why a container did not start: the pod asks for something impossible, or else its node failed."""
    if _OWN_START.search(record.message) and not _DEADLINE.search(record.message):
        return Cause.LAUNCH, _join("its container could not be started", record.message)
    return (None, "") if ordered else (Cause.NODE, _join("its node could not start its container", record.message))


def has_begun(record: PodRecord) -> bool:
    """Whether the task's own program may have run: its container has started, and did not end at the start gate."""
    return record.started_at is not None and not _is_unbegun(record)


def _is_unbegun(record: PodRecord) -> bool:
    return NOT_BEGUN in (record.message.strip(), record.last_word.strip())


def explain_waiting(record: PodRecord) -> tuple[str, str]:
    """Why a pod does not run yet: Slurm's reason (squeue(1), JOB REASON CODES), and the cluster's words for trouble."""
    reason, message = record.waiting_reason, " ".join(record.waiting_message.split())
    if record.scheduled:
        if reason in _IMAGE:
            return "JobLaunchFailure", _join(f"its image cannot be pulled ({reason})", message)
        if reason in _CONTAINER:
            return "JobLaunchFailure", _join(f"its container cannot be started ({reason})", message)
        return "None", ""
    if reason == "SchedulingGated":
        return "Resources", "waits for its cluster's queue to admit it"
    if not reason:
        return "None", ""
    # What might be preempted repeats the same words, and is the scheduler's own affair.
    message = message.partition(" preemption:")[0]
    return _explain_unschedulable(message), message


def _explain_unschedulable(message: str) -> str:
    """Slurm's reason for the scheduler's message: what ends by itself counts before what does not."""
    if _LACKS.search(message):
        return "Resources"
    if _AWAY.search(message):
        return "ReqNodeNotAvail"
    return "BadConstraints" if _NEVER.search(message) else "Resources"


def is_slow(record: PodRecord, now: float, seconds: float = 15.0) -> bool:
    """Whether a bound pod takes so long to start that its events should be asked for."""
    waits = record.scheduled and not record.ended and record.started_at is None
    in_trouble = record.waiting_reason in _IMAGE | _CONTAINER
    return waits and not in_trouble and now - record.created_at > seconds


def read_trouble(events: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The newest trouble of each pod (by uid) among the documents of its namespace's warning events."""
    found: dict[str, tuple[str, str]] = {}
    for event in events:
        uid = (event.get("involvedObject") or {}).get("uid") or ""
        reason = event.get("reason") or ""
        if not uid or reason not in TROUBLE:
            continue
        series = event.get("series") or {}
        when = str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")
        text = _join(_name_trouble(reason), " ".join((event.get("message") or "").split()))
        found[uid] = max(found.get(uid, ("", "")), (when, text))
    return {uid: text for uid, (_, text) in found.items()}


def _name_trouble(reason: str) -> str:
    if reason in _MOUNT:
        return f"a volume cannot be mounted ({reason})"
    return f"its network cannot be made ({reason})" if reason in _SANDBOX else reason


def _join(words: str, message: str) -> str:
    message = " ".join(message.split())
    return f"{words}: {message}" if message else words
