"""`span check --across`: which trials are run, what becomes of one that does not end, and the words at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from overspan.bridge.cli.clusters import check, reach
from overspan.bridge.cli.clusters.reach import parse_ports, run_trial
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.client import Accepted, CancelOrder, Outcome
from overspan.bridge.model.errors import InvalidRequest, OverspanError, Rejected

OVER = Outcome(over=True, state="COMPLETED")
WAITS = Outcome(over=False, state="PENDING")


def found(host: bool, *works: bool) -> dict[str, Any]:
    ways = (("leo", "kube"), ("kube", "leo"))
    rows = [
        {
            "source": source,
            "target": target,
            "host_network": host,
            "port": 8000,
            "works": each,
            "detail": "n1 to 10.0.0.1",
        }
        for (source, target), each in zip(ways, works, strict=True)
    ]
    return {"findings": rows, "gaps": []}


class FakeDaemon:
    """A client whose trials end as they are told, one after another."""

    def __init__(self, *answers: Any, outcome: Outcome = OVER, interrupt: bool = False) -> None:
        self.answers = list(answers)
        self.outcome, self.interrupt = outcome, interrupt
        self.asked: list[bool] = []
        self.cancelled: list[tuple[str, ...]] = []
        self.closed = 0
        self.reach = SimpleNamespace(prepare=self.prepare, conclude=lambda ref: self.answers.pop(0))

    def __enter__(self) -> FakeDaemon:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def prepare(self, clusters: Sequence[str], **options: Any) -> dict[str, Any]:
        self.asked.append(options["host_network"])
        return {"text": "name: x\n---\n", "has_host_network": not options["host_network"]}

    def send(self, submission: Any) -> Accepted:
        if self.answers and isinstance(self.answers[0], OverspanError):
            raise self.answers.pop(0)
        return Accepted(id=7)

    def wait(self, ref: str, timeout: float) -> Outcome:
        if self.interrupt:
            raise KeyboardInterrupt
        return self.outcome

    def show(self, ref: str) -> dict[str, Any]:
        return {"state": "PENDING", "reason": "Resources: kube"}

    def cancel(self, order: CancelOrder) -> None:
        self.cancelled.append(order.refs)

    def close(self) -> None:
        self.closed += 1


Ask = Callable[..., tuple[int, str]]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    def ask(daemon: FakeDaemon, *words: str) -> tuple[int, str]:
        monkeypatch.setattr(Invocation, "client", lambda call: daemon)
        code = check.run(Invocation("check", ("--across", "leo", "kube", *words), {}))
        return int(code), capsys.readouterr().out

    return ask


def test_the_host_network_is_tried_where_a_way_is_closed_alone(ask: Ask) -> None:
    daemon = FakeDaemon(found(False, True, True))
    code, text = ask(daemon)
    assert (code, daemon.asked, text.splitlines()[-1]) == (
        0,
        [False],
        "Groups over leo and kube reach each other as they are.",
    )
    daemon = FakeDaemon(found(False, False, True), found(True, True, True))
    code, text = ask(daemon)
    assert (code, daemon.asked) == (0, [False, True])
    assert "`kubernetes: {host_network: true}` in their tasks in pods" in text.splitlines()[-1]
    daemon = FakeDaemon(found(False, False, True), found(True, False, True))
    code, text = ask(daemon)
    assert code == 1 and text.splitlines()[-1].endswith("do not reach each other both ways: have the network opened.")
    # The cluster's settings have its tasks on the host network already.
    daemon = FakeDaemon(found(True, False, True))
    assert ask(daemon)[0] == 1 and daemon.asked == [False]


def test_a_cluster_that_refuses_the_host_network_leaves_what_was_found_before(ask: Ask) -> None:
    daemon = FakeDaemon(found(False, False, True), Rejected("pods is forbidden: violates PodSecurity"))
    code, text = ask(daemon, "--json")
    document = json.loads(text)
    assert code == 1 and [len(trial["findings"]) for trial in document["trials"]] == [2, 0]
    assert "violates PodSecurity" in document["trials"][1]["gaps"][0]
    with pytest.raises(Rejected):
        ask(FakeDaemon(Rejected("no such partition")))


@pytest.mark.parametrize("interrupt", [False, True])
def test_a_trial_that_does_not_end_is_cancelled(interrupt: bool) -> None:
    daemon: Any = FakeDaemon(outcome=WAITS, interrupt=interrupt)
    options = {"host_network": False, "seconds": 5}
    words = None if interrupt else r"the trial, job 7, is PENDING after 5 s \(Resources: kube\)"
    with pytest.raises(KeyboardInterrupt if interrupt else Rejected, match=words):
        run_trial(daemon, ("leo", "kube"), options)
    assert daemon.cancelled == [("7",)] and daemon.closed


def test_ports() -> None:
    assert parse_ports("") == [] and parse_ports("8000, 8010-8012") == [8000, 8010, 8011, 8012]
    for wrong in ("x", "0", "70000", "8010-8000", "1-33"):
        with pytest.raises(InvalidRequest, match="--ports"):
            parse_ports(wrong)


@pytest.mark.parametrize("words", [[], ["leo", "--across", "a", "b"], ["leo", "--ports", "8000"]])
def test_one_cluster_or_the_ways_between_two(words: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        check.run(Invocation("check", tuple(words), {}))
    assert reach.SECONDS == 300
