"""The pods of a task: one template for all of its nodes, and what differs from node to node. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from overspan.adapters.kubernetes import names, placement
from overspan.adapters.kubernetes.blueprints import Blueprint, PodSet
from overspan.adapters.kubernetes.containers import Parts, render_main, render_starters, render_volumes_of
from overspan.adapters.kubernetes.end_marks import make_mark
from overspan.adapters.kubernetes.environment import Owner, TaskVariables, render_variables
from overspan.adapters.kubernetes.files import render_files
from overspan.adapters.kubernetes.gang import count_gang, joins_later, mark_pod
from overspan.adapters.kubernetes.lifetimes import grace_of, limit_pod
from overspan.adapters.kubernetes.overlay import lay_over
from overspan.adapters.kubernetes.records import ATTEMPT, GO, INDEX, MAIN, MEMBER, RUN, TASK
from overspan.adapters.kubernetes.resources import render_needs
from overspan.adapters.kubernetes.scripts import END_VARIABLE
from overspan.adapters.kubernetes.settings import Settings
from overspan.adapters.kubernetes.shapes import ends_others
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import TaskSpec

Document = dict[str, Any]

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


class Template(NamedTuple):
    """What the pods of an attempt have in common, and the rest of each."""

    pod: Document
    task: TaskSpec
    variables: TaskVariables
    probe: Document | None
    nodes: tuple[int, ...]


def make_template(
    blueprint: Blueprint, settings: Settings, task: TaskSpec, attempt: int, nodes: tuple[int, ...] | None = None
) -> Template:
    """The template of some nodes of an attempt, of all without a choice.

    Raises InvalidRequest for what the cluster cannot do.
    """
    job, token = blueprint.job, blueprint.token
    needs = render_needs(task, settings)
    files = render_files(token, task, blueprint.files, settings)
    owner = Owner(token, job, blueprint.environment, settings.name)
    nodes = tuple(range(task.num_nodes)) if nodes is None else nodes
    variables = render_variables(owner, task, attempt, needs.gpus, nodes)
    parts = Parts(token, job, task, settings, needs, files)
    main, probe = render_main(parts)
    main["env"] = list(variables.common)
    spec: Document = {
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "automountServiceAccountToken": bool(settings.service_account),
        "terminationGracePeriodSeconds": grace_of(task),
        "activeDeadlineSeconds": limit_pod(job, task, settings),
        **_render_placing(blueprint, settings, task, needs.expressions != () or task.spread, parts),
        "containers": [main],
        "volumes": render_volumes_of(parts),
    }
    labels = {**settings.labels, **task.labels, **names.label_launch(token), MEMBER: token}
    notes = {**settings.annotations, _DEFAULT_CONTAINER: MAIN}
    pod: Document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": labels, "annotations": notes, "finalizers": [names.FINALIZER]},
        "spec": spec,
    }
    pod = _finish(_lay_overlays(pod, blueprint, settings, task), settings, parts)
    return Template(pod, task, variables, probe, nodes)


def _render_placing(blueprint: Blueprint, settings: Settings, task: TaskSpec, bound: bool, parts: Parts) -> Document:
    """Where the pods may run and as whom: fields of the spec that are left out where nothing is said."""
    job = blueprint.job
    affinity = placement.render_affinity(blueprint.token, task, parts.needs) if bound else {}
    fields: Document = {
        "nodeSelector": dict(settings.node_selector),
        "tolerations": placement.render_tolerations(settings, parts.needs),
        "affinity": affinity,
        "schedulerName": settings.scheduler,
        "priorityClassName": settings.priority_classes.get(job.spec.qos, "") if job.spec.qos else "",
        "serviceAccountName": settings.service_account,
        "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
    }
    if names.has_names(job):
        search = f"{names.name_domain(job)}.{settings.namespace or 'default'}.svc.{settings.cluster_domain}"
        # So that `task-index` alone is a name too, as in SLURM_JOB_NODELIST.
        fields["dnsConfig"] = {"searches": [search]}
    return {key: value for key, value in fields.items() if value}


def _lay_overlays(pod: Document, blueprint: Blueprint, settings: Settings, task: TaskSpec) -> Document:
    """The site's part first, then the job's, then the task's."""
    layers: tuple[tuple[str, Mapping[str, Any]], ...] = (
        (f"clusters.{settings.name}.kubernetes", settings.overlay),
        ("kubernetes", blueprint.job.spec.native.get("kubernetes", {})),
        (f"{task.name}: kubernetes", task.native.get("kubernetes", {})),
    )
    for where, overlay in layers:
        pod = lay_over(pod, overlay, where) if overlay else pod
    return pod


def _finish(pod: Document, settings: Settings, parts: Parts) -> Document:
    """What follows from the overlays: priority classes by the cluster's names, and the container before the task's."""
    spec = pod["spec"]
    wanted = spec.get("priorityClassName")
    if wanted:
        spec["priorityClassName"] = settings.priority_classes.get(wanted, wanted)
    main = next(item for item in spec["containers"] if item["name"] == MAIN)
    starters = render_starters(parts, main)
    if starters or spec.get("initContainers"):
        spec["initContainers"] = [*starters, *spec.get("initContainers", ())]
    return pod


def render_set(blueprint: Blueprint, settings: Settings, template: Template, pods: PodSet) -> list[Document]:
    """The pods of a template. `pods.nodes` is the template's."""
    first = pods.attempt == _first_attempt(blueprint.job, pods.task) and not pods.run
    marks: tuple[dict[str, str], dict[str, str], Document] = ({}, {}, {})
    if first or joins_later(blueprint.rung):
        queue = blueprint.job.spec.partition or settings.queue
        marks = mark_pod(blueprint.rung, blueprint.token, count_gang(blueprint.job), queue)
    return [_render_pod(blueprint, template, pods, index, marks) for index in template.nodes]


def _first_attempt(job: Job, task: str) -> int:
    return len(job.task(task).attempts)


def _render_pod(
    blueprint: Blueprint,
    template: Template,
    pods: PodSet,
    index: int,
    marks: tuple[dict[str, str], dict[str, str], Document],
) -> Document:
    """One pod. What is the same in all of them is shared, not copied."""
    job, task, rung = blueprint.job, template.task, blueprint.rung
    pod = template.pod
    labels, notes, fields = marks
    who = {TASK: task.name, INDEX: str(index), ATTEMPT: str(pods.attempt), RUN: str(pods.run)}
    if pods.go:
        who[GO] = pods.go
    metadata = {
        "name": names.name_pod(blueprint.token, job, (task.name, index), pods.attempt, pods.run),
        **pod["metadata"],
        "labels": {**pod["metadata"]["labels"], **placement.mark_member(job, task, index, rung), **labels},
        "annotations": {**pod["metadata"]["annotations"], **who, **notes},
    }
    spec = {**pod["spec"], "hostname": names.name_host(job, task.name, index), **fields}
    if names.has_names(job):
        spec["subdomain"] = names.name_domain(job)
    company = placement.render_company(blueprint.token, task, index, rung)
    if company:
        spec["affinity"] = _join_affinity(spec.get("affinity", {}), company)
    end = make_mark(blueprint.token, task.name, index, pods.attempt, pods.run)
    marks_end = [{"name": END_VARIABLE, "value": end}] if ends_others(job.spec, task) else []
    spec["containers"] = [
        _render_container(item, template, index, marks_end) if item["name"] == MAIN else item
        for item in spec["containers"]
    ]
    return {**pod, "metadata": metadata, "spec": spec}


def _render_container(main: Document, template: Template, index: int, more: list[Document]) -> Document:
    own = [*template.variables.nodes[index], *more]
    known = {entry["name"] for entry in own}
    env = [entry for entry in main.get("env", ()) if entry["name"] not in known]
    container = {**main, "env": [*env, *own]}
    if template.probe is not None and index == 0 and "readinessProbe" not in container:
        container["readinessProbe"] = template.probe
    return container


def _join_affinity(below: Mapping[str, Any], above: Mapping[str, Any]) -> Document:
    """Requirements of both."""
    joined = dict(below)
    for kind, requirements in above.items():
        known = joined.get(kind, {})
        joined[kind] = {**known, **{key: [*known.get(key, ()), *terms] for key, terms in requirements.items()}}
    return joined
