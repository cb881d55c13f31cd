"""The pods of a task: one template for all of its nodes, and what differs from node to node. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from overspan.adapters.kubernetes.files import render_files
from overspan.adapters.kubernetes.launches.gang import GANG_SCHEDULERS, PodMarks, count_gang, mark_pod
from overspan.adapters.kubernetes.logs.end_marks import make_mark
from overspan.adapters.kubernetes.manifests import names, placement
from overspan.adapters.kubernetes.manifests.containers import Parts, render_main, render_starters, render_volumes_of
from overspan.adapters.kubernetes.manifests.environment import Owner, TaskVariables, place_members, render_variables
from overspan.adapters.kubernetes.manifests.exporting import name_exported
from overspan.adapters.kubernetes.manifests.host_network import check_network, declare_ports
from overspan.adapters.kubernetes.manifests.launch_plans import LaunchPlan, PodSelection
from overspan.adapters.kubernetes.manifests.lifetimes import flush_of, grace_of, limit_pod
from overspan.adapters.kubernetes.manifests.numbered_texts import NumberedText, number_text
from overspan.adapters.kubernetes.manifests.overlay import lay_overlays
from overspan.adapters.kubernetes.manifests.resources import render_needs
from overspan.adapters.kubernetes.manifests.scripts import END_VARIABLE, KILL_VARIABLE
from overspan.adapters.kubernetes.manifests.security import restrict_pod
from overspan.adapters.kubernetes.manifests.services import name_shared
from overspan.adapters.kubernetes.manifests.storage import is_kept, place_data, render_mover_volumes
from overspan.adapters.kubernetes.observation.launch_summaries import ends_others
from overspan.adapters.kubernetes.observation.records import ATTEMPT, GO, INDEX, MAIN, MEMBERS, RUN, TASK
from overspan.adapters.kubernetes.settings import RESTRICTED, Settings
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.runtime.core.members_file import describe_members

Document = dict[str, Any]

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


class PodTemplate(NamedTuple):
    """What the pods of an attempt have in common, and the rest of each."""

    pod: Document
    task: TaskSpec
    variables: TaskVariables
    probe: Document | None


def make_pod_template(plan: LaunchPlan, settings: Settings, task: TaskSpec, attempt: int) -> PodTemplate:
    """The template of an attempt. Raises InvalidRequest for what the cluster cannot do."""
    job, token = plan.job, plan.token
    needs = render_needs(task, settings)
    files = render_files(token, task, plan.files, settings)
    owner = Owner(token, job, plan.environment, settings.name)
    shares = task.name in plan.shared
    variables = render_variables(owner, task, attempt, needs.gpus, shares=shares)
    parts = Parts(token, job, task, settings, needs, files, plan, shares)
    main, probe = render_main(parts)
    main["env"] = list(variables.common)
    spec: Document = {
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "automountServiceAccountToken": bool(settings.service_account),
        "terminationGracePeriodSeconds": grace_of(task) + flush_of(task),
        "activeDeadlineSeconds": limit_pod(job, task, settings),
        **_render_placing(plan, settings, task, parts),
        "containers": [main],
        "volumes": [*render_volumes_of(parts), *render_mover_volumes(plan, task, parts.settings)],
    }
    labels = {
        **settings.labels,
        **task.labels,
        **names.label_job(job),
        **names.label_launch(token),
        **names.select_members(token, job),
    }
    notes = {**settings.annotations, _DEFAULT_CONTAINER: MAIN}
    pod: Document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": labels, "annotations": notes, "finalizers": [names.FINALIZER]},
        "spec": spec,
    }
    pod = _finish(declare_ports(lay_overlays(pod, plan.job, settings, task), task), settings, parts)
    if task.name in plan.exported:
        _take_variables(pod, {"secretRef": {"name": name_exported(token, job, task.name)}})
    if variables.shared:
        _take_variables(pod, {"configMapRef": {"name": name_shared(token, job, task.name)}})
    if settings.security == RESTRICTED:
        check_network(pod, task, settings)
        pod = restrict_pod(pod)
    return PodTemplate(pod, task, variables, probe)


def _take_variables(pod: Document, source: Document) -> None:
    """Have the task's container take all that an object has; the last one counts, and `env` more (API, envFrom)."""
    main = next(item for item in pod["spec"]["containers"] if item["name"] == MAIN)
    main["envFrom"] = [*main.get("envFrom", ()), source]


def _render_placing(plan: LaunchPlan, settings: Settings, task: TaskSpec, parts: Parts) -> Document:
    """Where the pods may run and as whom: fields of the spec that are left out where nothing is said."""
    job = plan.job
    fields: Document = {
        "nodeSelector": dict(settings.node_selector),
        "tolerations": placement.render_tolerations(settings, parts.needs),
        "affinity": placement.render_affinity(plan.token, task, parts.needs),
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


def _finish(pod: Document, settings: Settings, parts: Parts) -> Document:
    """What follows from the overlays: priority classes by the cluster's names, and the container before the task's."""
    spec = pod["spec"]
    wanted = spec.get("priorityClassName")
    if wanted:
        spec["priorityClassName"] = settings.priority_classes.get(wanted, wanted)
    main = next(item for item in spec["containers"] if item["name"] == MAIN)
    starters = render_starters(parts, main, host_network=bool(spec.get("hostNetwork")))
    if starters or spec.get("initContainers"):
        spec["initContainers"] = [*starters, *spec.get("initContainers", ())]
    return pod


def render_set(plan: LaunchPlan, settings: Settings, template: PodTemplate, pods: PodSelection) -> list[Document]:
    """The pods of some nodes of a template, of all without a choice."""
    context = _make_context(plan, settings, template, pods)
    nodes = range(template.task.num_nodes) if pods.nodes is None else pods.nodes
    return [_render_pod(context, index) for index in nodes]


class _RenderContext(NamedTuple):
    """What the pods of a set are rendered from, made once."""

    plan: LaunchPlan
    template: PodTemplate
    pods: PodSelection
    name: NumberedText
    host: NumberedText
    labels: Document
    notes: Document
    spec: Document
    env: Sequence[Document]
    """The entries that are no node's own."""
    settings: Settings


def _make_context(plan: LaunchPlan, settings: Settings, template: PodTemplate, pods: PodSelection) -> _RenderContext:
    job, token, task, pod = plan.job, plan.token, template.task, template.pod
    first = pods.attempt == _first_attempt(job, task.name) and not pods.run
    joins = first or GANG_SCHEDULERS[plan.backend].members_only
    marks = mark_pod(plan.backend, token, count_gang(job), settings.queue) if joins else PodMarks()
    notes = {TASK: task.name, INDEX: "", ATTEMPT: str(pods.attempt), RUN: str(pods.run)}
    if pods.go:
        notes[GO] = pods.go
    if job.spec.changes_size:
        notes[MEMBERS] = describe_members(place_members(job, task, 0))
    spec = {**pod["spec"], "hostname": "", **marks.fields}
    if names.has_names(job):
        spec["subdomain"] = names.name_domain(job)
    known = {END_VARIABLE, KILL_VARIABLE, *template.variables.own}
    main = next(item for item in spec["containers"] if item["name"] == MAIN)

    def name(index: int) -> str:
        return names.name_pod(token, job, (task.name, index), pods.attempt, pods.run)

    return _RenderContext(
        plan,
        template,
        pods,
        number_text(name, task.num_nodes),
        number_text(partial(names.name_host, job, task.name), task.num_nodes),
        dict(marks.labels),
        {**pod["metadata"]["annotations"], **notes, **marks.annotations},
        spec,
        [entry for entry in main.get("env", ()) if entry["name"] not in known],
        settings,
    )


def _first_attempt(job: Job, task: str) -> int:
    return len(job.task(task).attempts)


def _render_pod(context: _RenderContext, index: int) -> Document:
    """One pod. What is the same in all of them is shared, not copied."""
    plan, task, pods = context.plan, context.template.task, context.pods
    job, backend, pod = plan.job, plan.backend, context.template.pod
    metadata = {
        "name": context.name(index),
        **pod["metadata"],
        "labels": {**pod["metadata"]["labels"], **placement.mark_member(job, task, index, backend), **context.labels},
        "annotations": {**context.notes, INDEX: str(index)},
    }
    spec = {**context.spec, "hostname": context.host(index)}
    company = placement.render_company(plan.token, task, index, backend)
    if company:
        spec["affinity"] = _join_affinity(spec.get("affinity", {}), company)
    own = context.template.variables.render_node(index)
    if flush_of(task):
        own.append({"name": KILL_VARIABLE, "value": str(grace_of(task))})
    if ends_others(job.spec, task):
        end = make_mark(plan.token, task.name, index, pods.attempt, pods.run)
        own.append({"name": END_VARIABLE, "value": end})
    spec["containers"] = [
        _render_container(item, context, index, own) if item["name"] == MAIN else item for item in spec["containers"]
    ]
    if is_kept(task, context.settings):
        spec = place_data(spec, context.settings, plan.token, metadata["name"])
    return {**pod, "metadata": metadata, "spec": spec}


def _render_container(main: Document, context: _RenderContext, index: int, own: list[Document]) -> Document:
    container = {**main, "env": [*context.env, *own]}
    probe = context.template.probe
    if probe is not None and index == 0 and "readinessProbe" not in container:
        container["readinessProbe"] = probe
    return container


def _join_affinity(below: Mapping[str, Any], above: Mapping[str, Any]) -> Document:
    """Requirements of both."""
    joined = dict(below)
    for kind, requirements in above.items():
        known = joined.get(kind, {})
        joined[kind] = {**known, **{key: [*known.get(key, ()), *terms] for key, terms in requirements.items()}}
    return joined
