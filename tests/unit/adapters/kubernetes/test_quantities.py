"""Quantities, and what the scheduler counts for a pod."""

from __future__ import annotations

from typing import Any

import pytest

from overspan.adapters.kubernetes.api.quantities import parse_quantity, read_amounts, sum_requests


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        (2, 2.0),
        ("100m", 0.1),
        ("1.5", 1.5),
        (".5", 0.5),
        ("2.", 2.0),
        ("1Ki", 1024.0),
        ("2Gi", 2.0 * 2**30),
        ("1E", 1e18),
        ("1e3", 1e3),
        ("1E3", 1e3),
        ("5k", 5e3),
        ("250u", 250e-6),
        ("7n", 7e-9),
        ("-1", -1.0),
    ],
)
def test_quantities(text: Any, value: float) -> None:
    assert parse_quantity(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1KB", "Gi", "1..2", None])
def test_what_is_no_quantity(text: Any) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)


def test_amounts_leave_out_what_cannot_be_read() -> None:
    assert read_amounts({"cpu": "1", "memory": "much"}) == {"cpu": 1.0}
    assert read_amounts(None) == {}


def container(**requests: str) -> dict[str, Any]:
    return {"resources": {"requests": requests}}


def test_containers_add_up_and_init_containers_do_not() -> None:
    spec = {
        "containers": [container(cpu="500m"), container(cpu="1", memory="1Gi")],
        "initContainers": [container(cpu="2"), container(cpu="1", memory="3Gi")],
    }
    assert sum_requests(spec) == {"cpu": 2.0, "memory": 3.0 * 2**30}


def test_sidecars_add_to_what_comes_after_them() -> None:
    sidecar = {**container(cpu="1"), "restartPolicy": "Always"}
    spec = {"containers": [container(cpu="1")], "initContainers": [container(cpu="3"), sidecar, container(cpu="2.5")]}
    assert sum_requests(spec) == {"cpu": 3.5}


def test_limits_stand_for_requests_and_overhead_is_added() -> None:
    spec = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "4"}, "requests": {"cpu": "1"}}}]}
    assert sum_requests({**spec, "overhead": {"cpu": "250m"}}) == {"nvidia.com/gpu": 2.0, "cpu": 1.25}


def test_the_pods_own_requests_stand_for_its_containers() -> None:
    spec = {"containers": [container(cpu="1", memory="1Ki")], "resources": {"requests": {"cpu": "3"}}}
    assert sum_requests(spec) == {"cpu": 3.0, "memory": 1024.0}
