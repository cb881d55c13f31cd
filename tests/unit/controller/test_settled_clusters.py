"""Which cluster each task of a job has, where its file names several."""

from __future__ import annotations

from dataclasses import replace

import pytest

from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.submission.across import settle_clusters
from overspan.bridge.model.errors import InvalidRequest, NotFound
from overspan.bridge.model.ids import ArraySpec, IndexRange
from overspan.bridge.model.job import new_job
from overspan.bridge.model.parts import join_clusters, list_parts, place_task, split_clusters, take_part
from overspan.bridge.model.spec import Candidate, Form, JobSpec, TaskSpec

CLUSTERS = Clusters(
    Settings(clusters={name: ClusterSettings(kind="slurm") for name in ("leo", "kube")}, default_cluster="leo"), "/s"
)


def spec(*clusters: str, **more: object) -> JobSpec:
    tasks = tuple(TaskSpec(f"t{number}", run="true", cluster=name) for number, name in enumerate(clusters))
    return replace(JobSpec("g", tasks, group=True), **more)  # type: ignore[arg-type]


def settle(given: JobSpec) -> JobSpec:
    return settle_clusters(given, CLUSTERS, None)


@pytest.mark.parametrize(
    ("given", "tasks", "clusters"),
    [
        (spec("", ""), ["", ""], ()),
        (spec("kube", "kube"), ["", ""], ("kube",)),
        (spec("kube", ""), ["kube", "leo"], ("kube+leo",)),
        (spec("kube", "", clusters=("kube",)), ["", ""], ("kube",)),
        (spec("", "leo", "kube", clusters=("kube",)), ["kube", "leo", "kube"], ("kube+leo",)),
    ],
)
def test_every_task_has_a_cluster_where_they_are_on_several(
    given: JobSpec, tasks: list[str], clusters: tuple[str, ...]
) -> None:
    found = settle(given)
    assert [task.cluster for task in found.tasks] == tasks and found.clusters == clusters
    assert found.across == ("+" in "".join(clusters))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (spec("kube", "", clusters=("leo", "kube")), "the job has a list of them"),
        (spec("kube", "", candidates=(Candidate("leo"), Candidate("kube"))), "the job has a list of them"),
        (spec("kube", "leo", array=ArraySpec((IndexRange(0, 1),))), "an array cannot be on several clusters"),
    ],
)
def test_what_no_group_across_can_be(given: JobSpec, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        settle(given)


def test_scripts_and_shared_nodes_are_of_one_cluster() -> None:
    one, two = spec("kube", "leo").tasks
    with pytest.raises(InvalidRequest, match="the batch script 't1' is a job of one cluster"):
        settle(spec(tasks=(one, replace(two, form=Form.BATCH))))
    with pytest.raises(InvalidRequest, match="'t1' shares the nodes of 't0', which is on another cluster"):
        settle(spec(tasks=(one, replace(two, share="t0"))))
    with pytest.raises(NotFound, match="moon"):
        settle(spec("moon", "leo"))


def test_each_cluster_has_its_own_part() -> None:
    job = new_job(1, settle(spec("kube", "leo", "kube")), 0.0)
    assert list_parts(job) == ("kube", "leo") == split_clusters(join_clusters(["kube", "leo", "kube"]))
    assert split_clusters("leo") == ()
    part = take_part(job, "leo")
    assert [task.over for task in part.tasks] == [True, False, True] and list_parts(part) == ("leo",)
    assert place_task(job, "t1", "kube+leo") == "leo" and place_task(job, "t1", "far") == "far"
