"""`span fsck` against a scripted daemon: what it asks, prints, advises, and its exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from overspan.bridge.cli import main

LAUNCH = {
    "token": "me-7-0", "handle": "lab/me-7-0", "installation": "me", "job": 7, "launch": 0,
    "objects": ["Pod a", "Pod b"], "running": 1, "stuck": [], "standing": "live", "removed": False,
}  # fmt: skip


def _answer(daemon: Any, *launches: dict[str, Any], **more: Any) -> None:
    answer = {"format": 1, "installation": "me", "looked": True, "launches": launches, "missing": [], **more}
    daemon.routes["POST /v1/clusters/lab/fsck"] = lambda request: answer


def test_looking_changes_nothing_and_tells_what_is_left(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _answer(daemon, LAUNCH)
    assert main(["fsck", "lab"]) == 0
    body = {"format": 1, "release": False, "installations": [], "all_installations": False}
    assert daemon.requests[-1]["body"] == body
    output = capsys.readouterr()
    assert [line.split() for line in output.out.splitlines()] == [
        ["JOB", "LAUNCH", "INSTALLATION", "STANDING", "RUNNING", "OBJECTS"],
        ["7", "0", "me", "live", "1", "Pod", "a,", "Pod", "b"],
    ]
    assert output.err == ""
    stuck = {**LAUNCH, "standing": "left", "stuck": ["Pod a: its node n1 does not answer"]}
    _answer(daemon, stuck, {**LAUNCH, "installation": "you", "standing": "other"})
    assert main(["fsck", "lab"]) == 1
    output = capsys.readouterr()
    assert "left over" in output.out and "not known here" in output.out
    assert "job 7: Pod a: its node n1 does not answer" in output.err
    assert "`span fsck lab --release` removes" in output.err and "--installation ID" in output.err


def test_removing(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _answer(daemon, {**LAUNCH, "standing": "left", "removed": True})
    assert main(["fsck", "lab", "--release", "--installation", "you", "--installation", "she"]) == 0
    assert daemon.requests[-1]["body"]["installations"] == ["you", "she"]
    output = capsys.readouterr()
    assert "removed" in output.out and output.err == ""
    assert main(["fsck", "lab", "--release", "--all-installations"]) == 0
    assert daemon.requests[-1]["body"]["all_installations"] is True


def test_a_job_that_has_nothing_there(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _answer(daemon, missing=[9])
    assert main(["fsck", "lab"]) == 1
    assert "job 9: the cluster has nothing of it" in capsys.readouterr().err
    assert main(["fsck", "lab", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["missing"] == [9]


def test_clusters_without_anything_to_list_and_wrong_words(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _answer(daemon, looked=False)
    assert main(["fsck", "lab", "--release"]) == 0
    assert "nothing there that could be listed" in capsys.readouterr().err
    for words in ([], ["lab", "--all-installations"], ["lab", "--installation", "x"]):
        assert main(["fsck", *words]) == 2
