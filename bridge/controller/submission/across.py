"""Settles which cluster each task of a group across has, and refuses what such a group cannot be."""

from __future__ import annotations

from dataclasses import replace

from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.model.errors import InvalidRequest, Place
from overspan.bridge.model.parts import join_clusters
from overspan.bridge.model.spec import Form, JobSpec

_ONE = "name one cluster for all tasks, or leave the list out"


def settle_clusters(spec: JobSpec, clusters: Clusters, place: Place | None) -> JobSpec:
    """The spec with a cluster for each task where they are on several; else with none for any.

    Raises InvalidRequest, and NotFound for a cluster that is not configured.
    """
    if not any(task.cluster for task in spec.tasks):
        return spec
    if len(spec.places) > 1:
        raise InvalidRequest("some tasks name a cluster and the job has a list of them", remedy=_ONE, place=place)
    if spec.candidates:
        spec = replace(spec.take(spec.candidates[0]), candidates=())
    default = spec.clusters[0] if spec.clusters else ""
    names = [clusters.get(task.cluster or default).name for task in spec.tasks]
    joined = join_clusters(names)
    if len(set(names)) == 1:
        tasks = tuple(replace(task, cluster="") for task in spec.tasks)
        return replace(spec, tasks=tasks, clusters=(joined,))
    _check(spec, place)
    tasks = tuple(replace(task, cluster=name) for task, name in zip(spec.tasks, names, strict=True))
    return replace(spec, tasks=tasks, clusters=(joined,))


def _check(spec: JobSpec, place: Place | None) -> None:
    """Refuse what has no meaning over several clusters."""
    if spec.array is not None:
        raise InvalidRequest("an array cannot be on several clusters", remedy=_ONE, place=place)
    for task in spec.tasks:
        if task.form is Form.BATCH:
            raise InvalidRequest(f"the batch script {task.name!r} is a job of one cluster", remedy=_ONE, place=place)
        other = next((each for each in spec.tasks if each.name == task.share), None)
        if other is not None and other.cluster != task.cluster:
            raise InvalidRequest(
                f"the task {task.name!r} shares the nodes of {task.share!r}, which is on another cluster",
                remedy="name the same cluster for both, or leave `share` out",
                place=place,
            )
