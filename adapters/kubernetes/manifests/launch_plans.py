"""What all pods of a launch are made from, as the anchor keeps it for those that take their place later. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from overspan.adapters.contract import FORMAT, Launch
from overspan.adapters.kubernetes.files import Archive
from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.manifests.environment import is_secret, select_carried, shares_variables
from overspan.adapters.kubernetes.manifests.exporting import choose_exported
from overspan.adapters.kubernetes.manifests.scripts import RUN_DIR
from overspan.adapters.kubernetes.manifests.volumes import find_shared
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form, Origin, TaskSpec


@dataclass(frozen=True)
class LaunchPlan:
    """What all pods of a launch are made from. `job` is without secrets; `files` are archives by submitter's path."""

    token: str
    job: Job
    environment: Mapping[str, str] = field(default_factory=dict)
    """The daemon's own variables; the values of secret ones are blank."""
    backend: GangBackend = GangBackend.SOFT
    files: Mapping[str, Archive] = field(default_factory=dict)
    shared: tuple[str, ...] = ()
    """Tasks whose pods have a ConfigMap for what is the same in all of them."""
    reaches: bool = False
    """Whether its pods are given what commands in them need to reach the daemon."""
    exported: tuple[str, ...] = ()
    """Batch scripts whose pods have a Secret with the environment that they were submitted with."""


class PodSelection(NamedTuple):
    """Some nodes of an attempt; None is all of them. `go` is the mark that lets them start, empty for none yet."""

    task: str
    attempt: int
    nodes: tuple[int, ...] | None = None
    run: int = 0
    go: str = ""


def make_plan(launch: Launch, settings: Settings, backend: GangBackend, files: Mapping[str, Archive]) -> LaunchPlan:
    """The plan of a launch. InvalidRequest for an environment that cannot travel."""
    environment = {name: "" if is_secret(name) else value for name, value in select_carried(launch.environment).items()}
    spec = launch.job.spec
    shared = tuple(task.name for task in spec.tasks if shares_variables(task))
    exported = tuple(task.name for task in spec.tasks if choose_exported(task, spec, settings).values)
    job, reaches = relocate(launch.job, settings), bool(launch.access)
    return LaunchPlan(launch.token, job, environment, backend, files, shared, exported=exported, reaches=reaches)


def relocate(job: Job, settings: Settings) -> Job:
    """The job as its pods see it: submitted from the same folder where that is on a shared volume, else from the run
    directory.

    The environment of a batch script is not in it (exporting.py).
    """
    tasks = tuple(
        replace(task, env={}, workdir=_locate_script(task, settings)) if task.form is Form.BATCH else task
        for task in job.spec.public().tasks
    )
    here = job.spec.origin
    directory = here.directory if find_shared(here.directory, settings) is not None else RUN_DIR
    origin = Origin(user=here.user, uid=here.uid, host=here.host, directory=directory, umask=here.umask)
    return replace(job, spec=replace(job.spec, environment={}, tasks=tasks, origin=origin))


def _locate_script(task: TaskSpec, settings: Settings) -> str:
    """Where a script works: a named folder is the image's, if it is on no shared volume; empty is the run directory."""
    return task.workdir if task.chdir or find_shared(task.workdir, settings) is not None else ""


def write_plan(plan: LaunchPlan) -> dict[str, Any]:
    """The anchor's `plan.json`."""
    return {
        "format": FORMAT,
        "token": plan.token,
        "job": encode(plan.job),
        "environment": dict(plan.environment),
        "rung": plan.backend.value,
        "shared": list(plan.shared),
        "exported": list(plan.exported),
        **({"reaches": True} if plan.reaches else {}),
        "files": {
            source: {"name": archive.name, "digest": archive.digest, "path": archive.path}
            for source, archive in plan.files.items()
        },
    }


def read_plan(plan: Mapping[str, Any]) -> LaunchPlan:
    """Read an anchor's `plan.json`. ValueError for one of another format."""
    if plan.get("format") != FORMAT:
        raise ValueError(f"the plan has format {plan.get('format')}; this version reads {FORMAT}")
    try:
        files = {
            source: Archive(entry["name"], entry["digest"], path=entry.get("path", ""))
            for source, entry in plan.get("files", {}).items()
        }
        job, environment = decode(Job, plan["job"]), plan.get("environment", {})
        # A launch of an older version has none.
        shared, exported = (tuple(map(str, plan.get(key, ()))) for key in ("shared", "exported"))
        backend, reaches = GangBackend(plan["rung"]), bool(plan.get("reaches"))
        return LaunchPlan(
            str(plan["token"]), job, environment, backend, files, shared, exported=exported, reaches=reaches
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a plan: {error}") from None
