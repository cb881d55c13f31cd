"""How a job ended, in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from overspan.bridge.cli.jobs.exit_status import describe_end
from overspan.bridge.client import Outcome


def _task(name: str, state: str, detail: str = "", reason: str = "None", offset: int | None = None) -> dict[str, Any]:
    return {"name": name, "offset": offset, "reason": reason, "attempts": [{"state": state, "detail": detail}]}


_SINGLE = {"name": "wrap", "tasks": [_task("main", "FAILED", "cannot enter /gone", "JobLaunchFailure")]}
_GROUP = {
    "name": "g",
    "reason": "NonZeroExitCode",
    "tasks": [_task("a", "FAILED", offset=0), _task("b", "CANCELLED", offset=1), _task("c", "COMPLETED", offset=2)],
}


@pytest.mark.parametrize(
    ("ref", "job", "outcome", "words"),
    [
        (
            "7",
            _SINGLE,
            Outcome(True, "FAILED", 0, 53),
            "job 7 (wrap) is FAILED (JobLaunchFailure); cannot enter /gone",
        ),
        (
            "7",
            _GROUP,
            Outcome(True, "FAILED", 3),
            "job 7 (g) is FAILED (NonZeroExitCode) with exit code 3; a: FAILED",
        ),
        ("7+1", _GROUP, Outcome(True, "CANCELLED", 0, 15), "job 7+1 (g) is CANCELLED by SIGTERM"),
        ("7.c", _GROUP, Outcome(True, "FAILED"), "job 7.c (g) is FAILED"),
        ("7", {}, Outcome(True, "TIMEOUT"), "job 7 is TIMEOUT"),
    ],
)
def test_the_end_is_told(ref: str, job: dict[str, Any], outcome: Outcome, words: str) -> None:
    assert describe_end(ref, job, outcome) == words
