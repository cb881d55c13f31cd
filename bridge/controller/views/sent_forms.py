"""A job's native form, script or manifests: as its cluster keeps it, else as it would be sent now, and which it is."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from overspan.adapters.abilities import KeptForm, Plan, Sent
from overspan.adapters.contract import Adapter
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.references import Directory
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.views.plans import describe_conditions, render_plan
from overspan.bridge.model.errors import InvalidRequest, OverspanError
from overspan.bridge.model.job import Job
from overspan.bridge.model.secret_names import HIDDEN, hide_exports, hide_secrets, is_secret
from overspan.bridge.model.spec import Form

FORGOTTEN = "nothing on the cluster keeps it any more"


class GivenVariable(NamedTuple):
    """A variable that the work is given by its submission; the task is empty where it is for all of them.

    `origin` is `task` for what the job file says, `secret`, or `submission` for the submitter's own.
    """

    task: str
    name: str
    value: str
    origin: str
    hidden: bool = False


class SentForms:
    """Reads native forms through the adapter of the job's cluster."""

    def __init__(self, directory: Directory, clusters: Clusters) -> None:
        self._directory = directory
        self._clusters = clusters

    async def read(self, ref: str) -> dict[str, Any]:
        """The native form: `text`, whether it `was_sent`, and in words where that is known from.

        Raises NotFound, InvalidRequest for what cannot be rendered, Unreachable for a cluster that cannot be opened.
        """
        entry = (await self._directory.find(ref)).entry
        adapter = self._clusters.get(entry.cluster).adapter
        kept, why = await _read_kept(adapter, entry)
        if kept is not None:
            text = hide_exports(kept.text, entry.job)
            return {"text": text, "was_sent": True, "source": _word_launch(entry) + kept.source}
        text = await _render(adapter, hide_secrets(entry.job), entry.cluster)
        return {"text": text, "was_sent": False, "source": _word_rendered(entry, why)}

    async def list_variables(self, ref: str) -> list[dict[str, Any]]:
        """The variables of a job, or of one task of it; values that are secret are not among them."""
        target = await self._directory.find(ref)
        return [each._asdict() for each in list_variables(target.entry.job, target.task)]


async def _read_kept(adapter: Adapter, entry: JobEntry) -> tuple[KeptForm | None, str]:
    """What the cluster has kept of the newest launch; None with the reason."""
    if not entry.handle:
        return None, ""
    if not isinstance(adapter, Sent):
        return None, FORGOTTEN
    try:
        kept: KeptForm | None = await adapter.read_sent(entry.handle)
    except OverspanError as error:
        return None, error.line
    return kept, "" if kept is not None else FORGOTTEN


async def _render(adapter: Adapter, job: Job, cluster: str) -> str:
    if not isinstance(adapter, Plan):
        raise InvalidRequest(f"the cluster {cluster} cannot show what it is sent")
    return describe_conditions(job) + await asyncio.to_thread(render_plan, adapter, job)


def _word_launch(entry: JobEntry) -> str:
    return "" if entry.launched else f"launch {entry.handle_launch}, which is over: "


def _word_rendered(entry: JobEntry, why: str) -> str:
    if entry.handle:
        return f"rendered anew, as it would be sent now: {why}"
    return "never sent: this would have been" if entry.job.over else "not sent yet: this would be sent now"


def list_variables(job: Job, only: str = "") -> list[GivenVariable]:
    """The variables of a job's tasks, then those of the submission, each by name."""
    found, submitted = [], dict(job.spec.environment)
    for task in job.spec.tasks:
        if task.form is Form.BATCH:
            # What sbatch's --export lets through.
            submitted |= task.env
        elif only in ("", task.name):
            name = task.name if len(job.spec.tasks) > 1 else ""
            found += [_make_variable(name, *item, "task") for item in sorted(task.env.items())]
            found += [GivenVariable(name, key, HIDDEN, "secret", True) for key in sorted(task.secrets)]
    return found + [_make_variable("", *item, "submission") for item in sorted(submitted.items())]


def _make_variable(task: str, name: str, value: str, origin: str) -> GivenVariable:
    hidden = is_secret(name, value)
    return GivenVariable(task, name, HIDDEN if hidden else value, origin, hidden)
