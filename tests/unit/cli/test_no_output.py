"""Why a job has no output, in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from overspan.bridge.cli.jobs.no_output import explain_silence

_FAR = {"name": "far", "since": 0.0, "message": "ssh: no route to host"}
_LAUNCH = {"detail": "cannot enter /nonexistent", "started_at": None}


def _job(state: str, reason: str = "None", **task: Any) -> dict[str, Any]:
    whole = {"name": "main", "state": state, "reason": reason, "stdout": "/o", "stderr": "/o", "attempts": [], **task}
    return {"state": state, "reason": reason, "cluster": "far", "tasks": [whole]}


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (_job("FAILED", "JobLaunchFailure", attempts=[_LAUNCH]), "job 7 did not start: cannot enter /nonexistent"),
        (_job("CANCELLED", "Dependency"), "job 7 did not start: CANCELLED (Dependency)"),
        (
            _job("PENDING", "Dependency", waits="main waits for s: tcp s-0:1, 8 tries"),
            "job 7 has not started: PENDING (Dependency); main waits for s: tcp s-0:1, 8 tries",
        ),
        (
            _job("COMPLETED", started_at=1.0, stdout="/dev/null", stderr="/dev/null"),
            "job 7 has no output: it goes to /dev/null",
        ),
        (_job("COMPLETED", started_at=1.0), "job 7 has no such log"),
    ],
)
def test_the_reason_is_told(job: dict[str, Any], words: str) -> None:
    assert explain_silence("7", job, "", [{"name": "far", "since": None}]).message == words


def test_one_task_of_a_group_is_named() -> None:
    job = _job("RUNNING")
    job["tasks"].append({"name": "b", "state": "PENDING", "reason": "Dependency", "attempts": []})
    assert explain_silence("7", job, "b", []).message == "task b of job 7 has not started: PENDING (Dependency)"


def test_a_cluster_that_does_not_answer_comes_first() -> None:
    error = explain_silence("7", _job("PENDING"), "", [_FAR])
    assert error.message.startswith("job 7 has no output yet: far has not answered since ")
    assert error.message.endswith(": ssh: no route to host") and error.remedy == "`span check far` says what is wrong"
