"""Manifests as YAML: what `span plan` prints for a Kubernetes cluster, and what a launch was made from. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import yaml

from overspan.adapters.contract import Launch
from overspan.adapters.kubernetes.files import pack_files
from overspan.adapters.kubernetes.launches.gang import GANG_SCHEDULERS, BackendChoice, GangBackend
from overspan.adapters.kubernetes.manifests.commands import DOCUMENT as COMMANDS_DOCUMENT
from overspan.adapters.kubernetes.manifests.limits import note_job
from overspan.adapters.kubernetes.manifests.rendering import LaunchPlan, Objects, plan_with_backend, render
from overspan.adapters.kubernetes.manifests.services import PLAN
from overspan.adapters.kubernetes.settings import SOFT, Settings
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job
from overspan.bridge.model.secret_names import hide_secrets

Document = dict[str, Any]

TOKEN = "plan-{job}-0"
"""The token of a launch that is never made."""
_HIDDEN = "<hidden>"
_NOT_ASKED = "this daemon has not asked the cluster yet: what it has for groups (`span check`) comes before gates"
_SHOWN_PODS = 1
"""Pods of one task that are printed; the others differ in what has their number in it."""


class _Dumper(yaml.SafeDumper):
    """Scripts as blocks, and no anchors for what several pods share."""

    def ignore_aliases(self, data: Any) -> bool:
        """Print everything where it stands."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text and not any(line.endswith((" ", "\t")) for line in text.split("\n")) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def render_plan(job: Job, settings: Settings, best: GangBackend | None = GangBackend.SOFT) -> str:
    """The manifests of a job, with what is noted about them as comments; secrets are named and never shown. Blocking.

    `best` is the cluster's gang backend, None where that is unknown. Raises InvalidRequest for what the
    cluster cannot do.
    """
    launch = Launch(TOKEN.format(job=job.id), job)
    settings = settings.model_copy(update={"namespace": settings.namespace or "default"})
    plan, choice = plan_with_backend(launch, settings, best or GangBackend.SOFT, pack_files(job, settings, write=False))
    notes = list(note_job(job, settings, choice))
    if best is None and choice.backend is GangBackend.SOFT and settings.gang != SOFT:
        notes.insert(0, _NOT_ASKED)
    return render_manifests(render(launch, plan, settings), choice, notes)


def render_kept(plan: LaunchPlan, settings: Settings) -> str:
    """The manifests of a launch, from the plan that its anchor keeps. Blocking. Raises InvalidRequest."""
    plan = replace(plan, job=hide_secrets(plan.job))
    notes = [f"the environment of {task} travels as a Secret, which the plan has not" for task in plan.exported]
    launch = Launch(plan.token, plan.job, plan.environment)
    return render_manifests(render(launch, plan, settings), BackendChoice(plan.backend), notes)


def list_notes(job: Job, settings: Settings, best: GangBackend = GangBackend.SOFT) -> tuple[str, ...]:
    """What of a job the cluster accepts and carries out in part; nothing for one that it refuses."""
    try:
        choice = plan_with_backend(Launch(TOKEN.format(job=job.id), job), settings, best)[1]
    except InvalidRequest:
        return ()
    return note_job(job, settings, choice)


def render_manifests(objects: Objects, choice: BackendChoice, notes: Sequence[str]) -> str:
    """The objects of a launch as YAML documents."""
    count = len(objects.pods)
    lines = [f"# {count} pod{'s' * (count != 1)}, started together by {GANG_SCHEDULERS[choice.backend].words}"]
    if choice.backend is GangBackend.ALONE:
        lines = [f"# {count} pod{'s' * (count != 1)}"]
    lines += [f"# {note}" for note in notes]
    documents = [_shorten(item) for item in (objects.anchor, *objects.owned()) if item["kind"] != "Pod"]
    pods, left = _choose_pods(objects.pods)
    documents += pods
    if left:
        lines.append(f"# {left} more pods differ from these in their number alone")
    return "\n".join(lines) + "\n---\n" + "---\n".join(_dump(document) for document in documents)


def _choose_pods(pods: Sequence[Document]) -> tuple[list[Document], int]:
    """The first pods of each task, and how many are left."""
    shown: list[Document] = []
    counts: dict[str, int] = {}
    for pod in pods:
        task = pod["metadata"]["annotations"]["overspan.io/task"]
        counts[task] = counts.get(task, 0) + 1
        if counts[task] <= _SHOWN_PODS:
            shown.append(pod)
    return shown, len(pods) - len(shown)


def _shorten(document: Document) -> Document:
    """Without secrets, packed files and the launch's own notes."""
    found = dict(document)
    if document["kind"] == "Secret":
        found["data"] = dict.fromkeys(document["data"], _HIDDEN)
    if "binaryData" in document:
        sizes = {name: len(text) * 3 // 4 for name, text in document["binaryData"].items()}
        # A plan that an anchor keeps names archives without their bytes.
        found["binaryData"] = {name: f"<{size} bytes>" if size else "<packed files>" for name, size in sizes.items()}
    if PLAN in document.get("data", {}):
        found["data"] = {**document["data"], PLAN: "<the job, for pods that are made later>"}
    if COMMANDS_DOCUMENT in document.get("data", {}):
        found["data"] = {**document["data"], COMMANDS_DOCUMENT: "<the job's nodes, for its steps>"}
        found["binaryData"] = dict.fromkeys(document["binaryData"], "<the program of Slurm's commands>")
    return found


def _dump(document: Document) -> str:
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text
