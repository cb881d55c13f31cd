"""What people are told of a task in pods that does not become ready."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.adapters.kubernetes.pods import TOKEN, T, running

from overspan.adapters.kubernetes.observation.failed_probes import ProbeFailure, read_failures
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.launch_summaries import LaunchSummary, TaskSummary
from overspan.adapters.kubernetes.observation.projection import (
    Cursor,
    PodSnapshot,
    Progress,
    format_cursor,
    parse_cursor,
)
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.bridge.model.events import Event, Probed

SHAPE = LaunchSummary(TOKEN, 7, 0, (TaskSummary("server", 1, 0, ready=True),))
STARTED = Cursor(True, {"server": Progress(0, (1,))})


def unhealthy(message: str, count: int = 1, uid: str = "u", **more: Any) -> dict[str, Any]:
    return {"reason": "Unhealthy", "message": message, "count": count, "involvedObject": {"uid": uid}, **more}


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ("dial tcp 10.0.0.7:80: connect: connection refused", "connection refused"),
        ('Get "http://10.0.0.7:80/x": dial tcp 10.0.0.7:80: connect: no route to host', "no route to host"),
        ("HTTP probe failed with statuscode: 503", "HTTP probe failed with statuscode: 503"),
        ("cat: can't open 'up'\nsecond line", "cat: can't open 'up' second line"),
    ],
)
def test_the_kubelets_words_are_told_without_addresses(message: str, answer: str) -> None:
    assert read_failures([unhealthy(f"Readiness probe failed: {message}", 8)]) == {"u": ProbeFailure(8, answer)}


def test_the_newest_answer_counts_with_all_tries() -> None:
    found = read_failures(
        [
            unhealthy("Readiness probe failed: new", 2, lastTimestamp="2026-01-02T00:00:00Z"),
            unhealthy("Readiness probe failed: old", 3, lastTimestamp="2026-01-01T00:00:00Z"),
            unhealthy("Liveness probe failed: other"),
            {"reason": "FailedMount", "message": "no", "involvedObject": {"uid": "u"}},
        ]
    )
    assert found == {"u": ProbeFailure(5, "new")}


def tell(watched: WatchedLaunch, record: PodRecord) -> list[Event]:
    report = watched.project(PodSnapshot({("server", 0, 0): record}, {}), format_cursor(STARTED, SHAPE), T + 100)
    return [] if report is None else [event for event in report.events if isinstance(event, Probed)]


def test_a_story_tells_an_answer_once_then_at_twice_the_tries() -> None:
    watched, record = WatchedLaunch("h", SHAPE, "anchor", "lab"), running("server")
    assert parse_cursor(format_cursor(STARTED, SHAPE), SHAPE) == STARTED
    told = []
    for tries in range(1, 65):
        watched.failures = {record.uid: ProbeFailure(tries, "connection refused")}
        told += tell(watched, record)
    assert [event.tries for event in told if isinstance(event, Probed)] == [1, 2, 4, 8, 16, 32, 64]
    watched.failures = {record.uid: ProbeFailure(65, "no route to host")}
    assert [event.answer for event in tell(watched, record) if isinstance(event, Probed)] == ["no route to host"]
    # A task that is ready is told as that.
    watched.failures = {record.uid: ProbeFailure(650, "connection refused")}
    assert tell(watched, record._replace(ready=True)) == []
