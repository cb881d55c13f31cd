"""How long launches may wait for their nodes, where they could go to another cluster."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.adapters.kubernetes.samples import configure, read_file

from overspan.adapters.kubernetes.launches.start_timeouts import find_failover_timeout
from overspan.adapters.kubernetes.observation.launch_summaries import has_start_gate
from overspan.bridge.model.errors import InvalidRequest


@pytest.mark.parametrize(
    ("nodes", "settings", "seconds"),
    [
        (1, {}, 10.2),
        (50, {}, 20.0),
        (1000, {}, 60.0),
        (1, {"autoscaler": True}, 900.0),
        (1000, {"autoscaler": True, "failover_after": "2m"}, 120.0),
        (1000, {"failover_after": 30}, 30.0),
    ],
)
def test_the_time_grows_with_the_pods(nodes: int, settings: dict[str, Any], seconds: float) -> None:
    job = read_file(f"name: a\nnum_nodes: {nodes}\nrun: x\n")
    assert find_failover_timeout(job, configure(**settings)) == pytest.approx(seconds)


@pytest.mark.parametrize("settings", [{"autoscaler": "yes"}, {"failover_after": 0}])
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        configure(**settings)


@pytest.mark.parametrize(("text", "waits"), [("", False), ("cluster: [one, two]\n", True), ("cluster: one\n", False)])
def test_a_pod_with_a_choice_waits_for_the_daemon(text: str, waits: bool) -> None:
    job = read_file(f"name: a\n{text}run: x\n")
    assert has_start_gate(job, job.spec.tasks[0]) is waits
