"""`span login` and `span import` against a scripted daemon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from overspan.bridge.cli import main


def _login(daemon: Any, words: list[str], check: list[str]) -> None:
    answer = {"format": 1, "message": "the connection to leo is open", "words": words, "check": check}
    daemon.routes["POST /v1/clusters/leo/login"] = lambda request: answer


def test_a_login_runs_the_command_here(daemon: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _login(daemon, ["/bin/sh", "-c", f"echo code?; touch {tmp_path}/open"], ["/bin/test", "-e", f"{tmp_path}/open"])
    assert main(["login", "leo"]) == 0
    output = capfd.readouterr()
    assert output.out == "code?\n" and output.err == "span: the connection to leo is open\n"


def test_a_login_that_fails_says_so(daemon: Any, capfd: pytest.CaptureFixture[str]) -> None:
    for words, check in ((["/bin/false"], []), (["/bin/true"], ["/bin/false"]), (["/no/such/ssh"], [])):
        _login(daemon, words, check)
        assert main(["login", "leo"]) == 3
        assert "span: error: " in capfd.readouterr().err


def test_nothing_to_log_in_to(daemon: Any, capfd: pytest.CaptureFixture[str]) -> None:
    _login(daemon, [], [])
    assert main(["login", "leo"]) == 0
    assert capfd.readouterr().err == "span: the connection to leo is open\n"


def test_imports(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"format": 1, "id": 7, "name": "train", "cluster": "leo", "state": "RUNNING"}
    daemon.routes["POST /v1/clusters/leo/import"] = lambda request: answer
    assert main(["import", "leo:42"]) == 0
    assert capsys.readouterr() == ("7\n", "span: leo:42 is job 7, RUNNING\n")
    assert daemon.requests[-1]["body"] == {"format": 1, "native": "42"}
    assert main(["import", "--json", "leo:42"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"][0]["id"] == 7
    error = {"error": {"code": "conflict", "message": "leo:43 is job 7"}}
    daemon.routes["POST /v1/clusters/leo/import"] = lambda request: (409, error, {})
    assert main(["import", "leo:43", "43"]) == 1
    assert capsys.readouterr().err.count("span: error: ") == 2
