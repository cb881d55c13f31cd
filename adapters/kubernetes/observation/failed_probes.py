"""What a kubelet's events say of readiness probes that fail. Pure.

Facts: the kubelet counts equal failures in one event of the reason Unhealthy (pkg/kubelet/prober).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_REASON = "Unhealthy"
_BEGINNING = "Readiness probe failed: "
_CONNECT = "connect: "


class ProbeFailure(NamedTuple):
    """How often the probe of a pod has failed, and what it met last."""

    tries: int
    answer: str


def read_failures(events: Iterable[Mapping[str, Any]]) -> dict[str, ProbeFailure]:
    """The failures of each pod (by uid) among the documents of its namespace's warning events."""
    newest: dict[str, tuple[str, str]] = {}
    tries: dict[str, int] = {}
    for event in events:
        uid, message = (event.get("involvedObject") or {}).get("uid") or "", event.get("message") or ""
        if not uid or event.get("reason") != _REASON or not message.startswith(_BEGINNING):
            continue
        series = event.get("series") or {}
        when = str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")
        tries[uid] = tries.get(uid, 0) + int(series.get("count") or event.get("count") or 1)
        newest[uid] = max(newest.get(uid, ("", "")), (when, _shorten(message)))
    return {uid: ProbeFailure(tries[uid], answer) for uid, (_, answer) in newest.items()}


def _shorten(message: str) -> str:
    """The answer without the addresses that are tried: `dial tcp 10.0.0.1:80: connect: connection refused`."""
    words = " ".join(message.removeprefix(_BEGINNING).split())
    return words.rpartition(_CONNECT)[2] or words
