"""`span login`, `span shell` and `span import` against a scripted daemon."""

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


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    found: list[tuple[list[str], dict[str, str]]] = []

    def become(name: str, words: list[str], environment: dict[str, str]) -> None:
        found.append((words, environment))
        raise SystemExit(7)

    monkeypatch.setattr("os.execvpe", become)
    return found


@pytest.mark.parametrize(
    ("words", "route", "task", "node", "command"),
    [
        (["42"], "42", "", 0, []),
        (["42+1", "--node", "2"], "42+1", "", 2, []),
        (["42.b", "--", "ls", "--", "-l"], "42", "b", 0, ["ls", "--", "-l"]),
        (["--node=1", "42", "a", "--"], "42", "a", 1, []),
    ],
)
def test_a_shell_takes_the_place_of_the_command(
    daemon: Any, started: list[Any], words: list[str], route: str, task: str, node: int, command: list[str]
) -> None:
    answer = {"format": 1, "place": "a-0 of job 42 on n1", "words": ["ssh", "n1", "x"], "environment": {"OURS": "1"}}
    daemon.routes[f"POST /v1/jobs/{route}/shell"] = lambda request: answer
    assert main(["shell", *words]) == 7
    expected = {"format": 1, "task": task, "node": node, "command": command, "terminal": False}
    assert daemon.requests[-1]["body"] == expected
    ((found, environment),) = started
    assert found == ["ssh", "n1", "x"] and environment["OURS"] == "1" and "PATH" in environment


def test_a_shell_that_cannot_be_had_says_so(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    error = {"error": {"code": "conflict", "message": "job 42 has ended: FAILED"}}
    daemon.routes["POST /v1/jobs/42/shell"] = lambda request: (409, error, {})
    assert main(["shell", "42"]) == 1
    assert "job 42 has ended" in capsys.readouterr().err
    daemon.routes["POST /v1/jobs/43/shell"] = lambda request: {"place": "", "words": ["/no/ssh"], "environment": {}}
    assert main(["shell", "43"]) == 3
    for words in ([], ["42", "--node", "-1"], ["42", "--node", "x"], ["42", "a", "b"]):
        assert main(["shell", *words]) == 2
