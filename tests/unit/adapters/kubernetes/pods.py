"""Pods and launches as the tests of the Kubernetes adapter want them."""

from __future__ import annotations

from typing import Any

from overspan.adapters.kubernetes.observation.launch_summaries import LaunchSummary, TaskSummary
from overspan.adapters.kubernetes.observation.projection import write_go
from overspan.adapters.kubernetes.observation.records import PodRecord

TOKEN = "inst-7-0"
T = 1_700_000_000.0
GO = write_go(T + 10)

_BLANK = PodRecord(
    name="",
    uid="",
    namespace="lab",
    token=TOKEN,
    task="trainer",
    index=0,
    attempt=0,
    run=0,
    phase="Pending",
    node="",
    address="",
    go="",
    deleting_at=None,
    created_at=T,
    started_at=None,
    finished_at=None,
    exit_code=None,
    signal=0,
    reason="",
    message="",
    disruption="",
    status_reason="",
    waiting_reason="",
    waiting_message="",
    scheduled=False,
    ready=False,
    member=TOKEN,
)


def pod(task: str = "trainer", index: int = 0, attempt: int = 0, run: int = 0, **fields: Any) -> PodRecord:
    """A pod that was made and nothing else."""
    name = f"demo-{task}-{index}-a{attempt}" + (f"-r{run}" if run else "")
    own = {"name": name, "uid": f"uid-{name}", "task": task, "index": index, "attempt": attempt, "run": run}
    return _BLANK._replace(**{**own, **fields})


def placed(task: str = "trainer", index: int = 0, **fields: Any) -> PodRecord:
    """A pod that waits at its start gate on a node, since T+5."""
    own = {"node": "node-1", "address": f"10.0.0.{index + 1}", "scheduled": True, "phase": "Running"}
    own["started_at"] = T + 5
    return pod(task, index, **{**own, **fields})


def running(task: str = "trainer", index: int = 0, **fields: Any) -> PodRecord:
    """A pod whose program runs, since T+12."""
    own = {"go": GO, "started_at": T + 12}
    return placed(task, index, **{**own, **fields})


def ended(task: str = "trainer", index: int = 0, code: int = 0, **fields: Any) -> PodRecord:
    """A pod whose program ended at T+20."""
    own = {
        "phase": "Failed" if code else "Succeeded",
        "exit_code": code,
        "finished_at": T + 20,
        "reason": "Error" if code else "Completed",
    }
    return running(task, index, **{**own, **fields})


def group(*tasks: TaskSummary, together: bool = True) -> LaunchSummary:
    """A launch of these tasks; of a trainer and two rollouts."""
    usual = (TaskSummary("trainer", 1, 0), TaskSummary("rollout", 2, 0))
    return LaunchSummary(TOKEN, 7, 0, tasks or usual, together)
