"""`span resubmit`: its options are sbatch's, and what they ask the daemon for."""

from __future__ import annotations

from typing import Any

import pytest

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.jobs import resubmit
from overspan.bridge.client import Accepted
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.resubmit import RESUBMIT_OPTIONS
from overspan.bridge.model.options.sbatch import BY_NAME, Argument


class AskedClient:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def __enter__(self) -> AskedClient:
        return self

    def __exit__(self, *_: object) -> None: ...

    def resubmit(self, *words: Any) -> Accepted:
        """As the client."""
        self.asked.append(words)
        return Accepted(8, name="fit", cluster="leo", notes=("noted",))


def ask(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Any, ...]:
    """What the daemon is asked for."""
    client = AskedClient()
    monkeypatch.setattr(Invocation, "client", lambda call: client)
    assert resubmit.run(Invocation("resubmit", words, {})) == 0
    return client.asked[0]


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ((), {}),
        (("--time", "2h", "--mem=32G"), {"time": "2h", "mem": "32G"}),
        (
            ("-t", "90", "-c8", "-p", "gpu", "-A", "lab", "-N2"),
            {"time": "90", "partition": "gpu", "account": "lab", "nodes": "2", "cpus-per-task": "8"},
        ),
        (("-J", "other", "-M", "leo", "--hold"), {"job-name": "other", "clusters": "leo", "hold": ""}),
        (("--name", "other", "--cluster", "leo"), {"job-name": "other", "clusters": "leo"}),
        (
            ("--task", "trainer", "--mem", "1G", "--time=1h", "--qos", "high"),
            {"trainer.mem": "1G", "trainer.time": "1h", "qos": "high"},
        ),
    ],
)
def test_options_are_changes(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], changes: dict[str, str]) -> None:
    assert ask(monkeypatch, "7", *words) == ("7", False, changes)


def test_failed_elements_take_changes_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(monkeypatch, "83_[1-3]", "--failed", "-t", "2h") == ("83_[1-3]", True, {"time": "2h"})
    said = capsys.readouterr()
    assert said.out == "Submitted job 8 (fit) to leo\n" and "noted" in said.err


def test_an_unknown_option_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="unrecognized arguments: --wrap"):
        ask(monkeypatch, "7", "--wrap", "ls")


def test_letters_and_values_are_those_of_sbatch() -> None:
    names = [name for option in RESUBMIT_OPTIONS for name in (option.name, option.alias) if name]
    assert len(names) == len(set(names))
    for option in RESUBMIT_OPTIONS:
        assert bool(option.value) == (BY_NAME[option.name].argument is not Argument.NONE)
