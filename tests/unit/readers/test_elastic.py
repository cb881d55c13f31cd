"""`elastic` of a task: what it is read as, and what is refused beside it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from overspan.bridge.model.elastic import Elastic
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.spec import JobSpec, RestartScope
from overspan.bridge.readers.job_file import read_job_file
from overspan.bridge.readers.read_context import ReadContext

HEADER = {"name": "rl", "execution": "parallel", "primary_tasks": ["trainer"]}
TRAINER = {"name": "trainer", "run": "true"}


def read(rollout: dict[str, Any], *others: dict[str, Any], **header: Any) -> JobSpec:
    """The group of a trainer and a rollout task, as the reader makes it."""
    documents = [{**HEADER, **header}, TRAINER, {"name": "rollout", "run": "true", **rollout}, *others]
    return read_job_file(yaml.safe_dump_all(documents, sort_keys=False), "rl.yaml", context=ReadContext())


@pytest.mark.parametrize(
    ("written", "meant", "nodes"),
    [
        ({"elastic": {"max": 4}}, Elastic(1, 4, 1, 60.0), 1),
        ({"elastic": {"min": 2, "max": 8, "scale_up_after": "5m"}}, Elastic(2, 8, 2, 300.0), 2),
        ({"elastic": {"min": 2, "max": 8, "scale_up_after": "never"}, "num_nodes": 5}, Elastic(2, 8, 5, None), 2),
    ],
)
def test_the_launch_has_what_is_needed_and_the_rest_is_wanted(
    written: dict[str, Any], meant: Elastic, nodes: int
) -> None:
    spec = read(written)
    task = spec.task("rollout")
    assert (task.elastic, task.num_nodes, task.restart) == (meant, nodes, RestartScope.NODE)
    assert spec.changes_size and not read({}).changes_size


@pytest.mark.parametrize(
    ("written", "header", "text"),
    [
        ({"elastic": {"min": 3, "max": 2}}, {}, "max is 2, and min is 3"),
        ({"elastic": {"min": 2}}, {}, "needs the key 'max'"),
        ({"elastic": {"max": 2}, "num_nodes": 3}, {}, "num_nodes is 3, and elastic allows 1 to 2"),
        ({"elastic": {"max": 2}, "on_failure": "fail_group"}, {}, "its members come and go"),
        ({"elastic": {"max": 2}, "restart": "group"}, {}, "each member starts again alone"),
        ({"elastic": {"max": 2}, "share": "trainer"}, {}, "shares the nodes of trainer"),
        ({"elastic": {"max": 2, "scale_up_after": "soon"}}, {}, "soon"),
        ({"elastic": {"max": 2}}, {"primary_tasks": []}, "a primary task"),
        ({"elastic": {"max": 2}}, {"execution": "serial", "primary_tasks": []}, "the job is no group"),
        ({"elastic": {"max": 2, "least": 1}}, {}, "unknown key 'least'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(written: dict[str, Any], header: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest) as found:
        read(written, **header)
    assert text in str(found.value)
    assert found.value.place is not None and found.value.place.line is not None
