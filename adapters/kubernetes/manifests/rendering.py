"""Rendering: the objects of a launch. Pure, and deterministic except for the key of a script's steps, which
is random: the Secret that was created first counts.

The order to create them is that of `Objects`; everything but the anchor is owned by the anchor, whose uid `own` takes.
Settings need their `namespace` filled in. A pod of a later attempt is made from the launch plan that the anchor keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from overspan.adapters.contract import Launch
from overspan.adapters.kubernetes.files import Archive, render_archives
from overspan.adapters.kubernetes.launches.gang import (
    BackendChoice,
    GangBackend,
    choose_backend,
    count_gang,
    render_group,
)
from overspan.adapters.kubernetes.manifests.commands import draw_key, list_access, render_commands
from overspan.adapters.kubernetes.manifests.containers import choose_script, name_script, needs_script
from overspan.adapters.kubernetes.manifests.environment import check_variables
from overspan.adapters.kubernetes.manifests.exporting import render_exported
from overspan.adapters.kubernetes.manifests.launch_plans import LaunchPlan, PodSelection, make_plan, read_plan
from overspan.adapters.kubernetes.manifests.limits import check_job
from overspan.adapters.kubernetes.manifests.names import check_names
from overspan.adapters.kubernetes.manifests.partitions import settle_partition
from overspan.adapters.kubernetes.manifests.pods import PodTemplate, make_pod_template, render_set
from overspan.adapters.kubernetes.manifests.services import (
    name_shared,
    own,
    own_all,
    render_anchor,
    render_secret,
    render_service,
    render_shared,
)
from overspan.adapters.kubernetes.manifests.storage import render_mover_program, render_store_secrets
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.storage import StoreAccess

__all__ = [
    "LaunchPlan",
    "Objects",
    "PodSelection",
    "own",
    "own_all",
    "plan_launch",
    "read_plan",
    "render",
    "render_pods",
]

Document = dict[str, Any]


class Objects(NamedTuple):
    """Everything that a launch is, in the order of its creation."""

    anchor: Document
    configs: tuple[Document, ...]
    secret: Document | None
    exported: tuple[Document, ...]
    """The Secrets with the environments of batch scripts, and with the stores that tasks have folders of."""
    service: Document | None
    gang: tuple[Document, ...]
    pods: tuple[Document, ...]

    def owned(self) -> Iterator[Document]:
        """All but the anchor, in order."""
        yield from self.configs
        yield from self.exported
        yield from (item for item in (self.secret, self.service) if item is not None)
        yield from self.gang
        yield from self.pods


def plan_launch(
    launch: Launch, settings: Settings, best: GangBackend, files: Mapping[str, Archive] | None = None
) -> LaunchPlan:
    """The plan of a launch, with the gang backend that it can have where `best` is the cluster's.

    Raises InvalidRequest for what the cluster cannot do, with the remedy; nothing has been written then.
    """
    return plan_with_backend(launch, settings, best, files)[0]


def plan_with_backend(
    launch: Launch, settings: Settings, best: GangBackend, files: Mapping[str, Archive] | None = None
) -> tuple[LaunchPlan, BackendChoice]:
    """The same with the choice of the backend, which says why it is not `best`."""
    settings = settle_partition(settings, launch.job.spec.partition)
    check_names(launch.job)
    check_job(launch.job)
    check_variables(launch.job)
    plan = make_plan(launch, settings, best, files or {})
    firsts = [
        pod for template in _make_pod_templates(plan, settings) for pod in _render_first(plan, settings, template, (0,))
    ]
    choice = choose_backend(plan.job, best, firsts)
    return replace(plan, backend=choice.backend), choice


def render(
    launch: Launch,
    plan: LaunchPlan,
    settings: Settings,
    stores: Mapping[str, StoreAccess] | None = None,
    *,
    trial: bool = False,
) -> Objects:
    """The objects of a launch with the pods of each task's first attempt; with `trial` one pod of each is enough.

    Without `stores` there is no Secret of them. Raises InvalidRequest, and Denied for credentials that cannot be read.
    """
    settings = settle_partition(settings, plan.job.spec.partition)
    templates = _make_pod_templates(plan, settings)
    texts = {key: text for template in templates for key, text in template.variables.texts.items()}
    texts.update({name_script(task): choose_script(task) for task in plan.job.spec.tasks if needs_script(task)})
    nodes = (0,) if trial else None
    objects = Objects(
        anchor=render_anchor(plan, texts, settings.namespace),
        configs=(
            *render_archives(plan.token, plan.files),
            *render_commands(plan, settings),
            *render_mover_program(plan),
            *_render_shared(plan, templates),
        ),
        secret=render_secret(launch, {**draw_key(plan.job), **list_access(launch, plan, settings)}),
        exported=(
            *render_exported(launch.token, launch.job, settings),
            *(() if stores is None else render_store_secrets(launch, stores)),
        ),
        service=render_service(plan),
        gang=render_group(plan.backend, plan.token, count_gang(plan.job), templates[0].pod),
        pods=tuple(pod for template in templates for pod in _render_first(plan, settings, template, nodes)),
    )
    for document in (objects.anchor, *objects.owned()):
        document["metadata"]["namespace"] = settings.namespace
    return objects


def render_pods(plan: LaunchPlan, settings: Settings, pods: PodSelection) -> list[Document]:
    """The pods of some nodes of an attempt. Raises InvalidRequest."""
    settings = settle_partition(settings, plan.job.spec.partition)
    template = make_pod_template(plan, settings, plan.job.spec_of(pods.task), pods.attempt)
    rendered = render_set(plan, settings, template, pods)
    for document in rendered:
        document["metadata"]["namespace"] = settings.namespace
    return rendered


def _make_pod_templates(plan: LaunchPlan, settings: Settings) -> Sequence[PodTemplate]:
    """One for each task that is not over."""
    job = plan.job
    return [
        make_pod_template(plan, settings, task, len(facts.attempts))
        for task, facts in zip(job.spec.tasks, job.tasks, strict=True)
        if not facts.over
    ]


def _render_first(
    plan: LaunchPlan, settings: Settings, template: PodTemplate, nodes: tuple[int, ...] | None
) -> list[Document]:
    number = len(plan.job.task(template.task.name).attempts)
    return render_set(plan, settings, template, PodSelection(template.task.name, number, nodes))


def _render_shared(plan: LaunchPlan, templates: Sequence[PodTemplate]) -> Iterator[Document]:
    """The variables that pods take from ConfigMaps."""
    for template in templates:
        if template.variables.shared:
            name = name_shared(plan.token, plan.job, template.task.name)
            yield render_shared(name, plan.token, template.variables.shared)
