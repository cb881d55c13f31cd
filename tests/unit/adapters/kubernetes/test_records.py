"""A pod's document as a record."""

from __future__ import annotations

import json
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.adapters.kubernetes.kubernetes_pods import (
    RUNNING,
    condition,
    ended,
    make_document,
    make_record,
    waiting,
)

from overspan.adapters.kubernetes.observation.records import PodRecord, read_pod, read_time


def test_a_running_pod() -> None:
    record = make_record(RUNNING, ended(0), phase="Running", conditions=[condition("Ready"), condition("PodScheduled")])
    assert record == PodRecord(
        name="rlhf-trainer-1-a2",
        uid="u-1",
        namespace="training",
        token="abc-42-0",
        task="trainer",
        index=1,
        attempt=2,
        run=0,
        phase="Running",
        node="node-1",
        address="10.0.0.7",
        go="1795300000.000000",
        deleting_at=None,
        created_at=1795298400.0,
        started_at=1795298400.0,
        finished_at=None,
        exit_code=None,
        signal=0,
        reason="",
        message="",
        disruption="",
        status_reason="",
        waiting_reason="",
        waiting_message="",
        scheduled=True,
        ready=True,
        member="abc-42-0",
        begun=True,
    )
    assert not record.ended


def test_an_ended_pod() -> None:
    record = make_record(ended(3, message="setup failed"), deleted=True, phase="Failed")
    assert (record.exit_code, record.reason, record.message) == (3, "Error", "setup failed")
    assert (record.started_at, record.finished_at) == (1795298400.0, 1795298700.0)
    assert record.deleting_at == 1795298670.0
    assert record.ended


def test_only_the_main_container_is_the_programs() -> None:
    document = make_document(RUNNING)
    document["status"]["containerStatuses"][0]["state"] = ended(1)
    assert read_pod(document).exit_code is None


@pytest.mark.parametrize(
    ("before", "begun"), [(None, False), (RUNNING, True), (waiting("PodInitializing"), False), (ended(1), True)]
)
def test_what_runs_before_the_program_tells_that_the_pod_has_its_place(
    before: dict[str, Any] | None, begun: bool
) -> None:
    assert make_record(waiting("PodInitializing"), before).begun is begun


def test_the_scheduler_has_the_first_word() -> None:
    refused = condition("PodScheduled", "False", "Unschedulable", "0/2 nodes are available")
    record = make_record(waiting("ContainerCreating"), conditions=[refused])
    assert (record.waiting_reason, record.waiting_message) == ("Unschedulable", "0/2 nodes are available")


def test_trouble_comes_before_what_only_waits_for_it() -> None:
    record = make_record(waiting("PodInitializing"), waiting("ErrImagePull", "no such image"))
    assert (record.waiting_reason, record.waiting_message) == ("ErrImagePull", "no such image")
    assert make_record(waiting("ContainerCreating")).waiting_reason == "ContainerCreating"


def test_a_disruption_that_was_taken_back_is_none() -> None:
    assert (
        make_record(RUNNING, conditions=[condition("DisruptionTarget", "False", "PreemptionByScheduler")]).disruption
        == ""
    )
    assert (
        make_record(RUNNING, conditions=[condition("TerminationTarget", reason="Preempted")]).disruption == "Preempted"
    )


def test_the_pods_own_message_counts_where_it_has_a_reason() -> None:
    record = make_record(ended(137, message="mine"), reason="Evicted", message="The node was low on resource: memory.")
    assert (record.status_reason, record.message) == ("Evicted", "The node was low on resource: memory.")
    assert make_record(ended(137, message="mine"), message="other").message == "mine"


def test_the_same_texts_are_kept_once() -> None:
    first, second = make_record(RUNNING), make_record(RUNNING)
    for name in ("namespace", "token", "task", "phase", "node", "member"):
        assert getattr(first, name) is getattr(second, name)
    assert sys.getsizeof(first) < 400


def test_ten_thousand_pods_are_small() -> None:
    texts = [json.dumps(make_document(RUNNING, ended(0))).replace("u-1", f"uid-{number}") for number in range(1000)]
    tracemalloc.start()
    try:
        records = [read_pod(json.loads(text)) for text in texts]
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Ten thousand of them are some ten megabytes.
    assert size / len(records) < 1500


def test_times() -> None:
    assert read_time("2026-11-21T22:00:00Z") == 1795298400.0
    assert read_time("2026-11-21T22:00:00.25Z") == 1795298400.25
    assert read_time(None) is None
    assert read_time("soon") is None


def test_an_empty_document() -> None:
    record = read_pod({})
    assert (record.phase, record.begun, record.scheduled, record.token) == ("Pending", False, False, "")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["state", "name", "type", "x"]), inner),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(["conditions", "containerStatuses", "initContainerStatuses"]), _JSON, max_size=3),
    st.dictionaries(st.sampled_from(["initContainers", "containers"]), _JSON, max_size=2),
)
def test_parts_of_another_shape_are_no_error(status: dict[str, Any], spec: dict[str, Any]) -> None:
    assert read_pod({"status": status, "spec": spec}).name == ""
