"""What all pods of a launch are made from, as the anchor keeps it for those that take their place later. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from overspan.adapters.contract import FORMAT, Launch
from overspan.adapters.kubernetes.environment import (
    is_secret,
    keep_exported,
    select_carried,
    shares_variables,
)
from overspan.adapters.kubernetes.files import Archive
from overspan.adapters.kubernetes.gang import Rung
from overspan.adapters.kubernetes.scripts import RUN_DIR
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form, Origin


@dataclass(frozen=True)
class Blueprint:
    """`job` has no secrets and is told as the cluster sees it; `files` has the archives by the submitter's paths."""

    token: str
    job: Job
    environment: Mapping[str, str] = field(default_factory=dict)
    """The daemon's own variables; the values of secret ones are blank."""
    rung: Rung = Rung.SOFT
    files: Mapping[str, Archive] = field(default_factory=dict)
    shared: tuple[str, ...] = ()
    """Tasks whose pods have a ConfigMap for what is the same in all of them."""


class PodSet(NamedTuple):
    """Some nodes of an attempt; None is all of them. `go` is the mark that lets them start, empty for none yet."""

    task: str
    attempt: int
    nodes: tuple[int, ...] | None = None
    run: int = 0
    go: str = ""


def draw_blueprint(launch: Launch, rung: Rung, files: Mapping[str, Archive]) -> Blueprint:
    """The blueprint of a launch."""
    environment = {name: "" if is_secret(name) else value for name, value in select_carried(launch.environment).items()}
    shared = tuple(task.name for task in launch.job.spec.tasks if shares_variables(task))
    return Blueprint(launch.token, relocate(launch.job), environment, rung, files, shared)


def relocate(job: Job) -> Job:
    """The job as one that was submitted from its run directory in the pod.

    Nothing of the submitter's machine is known there: of the environment the named variables travel, and the folder of
    the submission is the run directory.
    """
    here = job.spec.origin.directory
    tasks = tuple(
        replace(task, env=keep_exported(task, job.spec.origin.command), workdir=_move(task.workdir, here))
        if task.form is Form.BATCH
        else task
        for task in job.spec.public().tasks
    )
    origin = Origin(user=job.spec.origin.user, uid=job.spec.origin.uid, host=job.spec.origin.host, directory=RUN_DIR)
    return replace(job, spec=replace(job.spec, environment={}, tasks=tasks, origin=origin))


def _move(path: str, here: str) -> str:
    return "" if path in ("", here) else path


def write_plan(blueprint: Blueprint) -> dict[str, Any]:
    """The anchor's `plan.json`."""
    return {
        "format": FORMAT,
        "token": blueprint.token,
        "job": encode(blueprint.job),
        "environment": dict(blueprint.environment),
        "rung": blueprint.rung.value,
        "shared": list(blueprint.shared),
        "files": {
            source: {"name": archive.name, "digest": archive.digest, "path": archive.path}
            for source, archive in blueprint.files.items()
        },
    }


def read_blueprint(plan: Mapping[str, Any]) -> Blueprint:
    """The blueprint that an anchor's `plan.json` has. ValueError for one of another format."""
    if plan.get("format") != FORMAT:
        raise ValueError(f"the plan has format {plan.get('format')}; this version reads {FORMAT}")
    try:
        files = {
            source: Archive(entry["name"], entry["digest"], path=entry.get("path", ""))
            for source, entry in plan.get("files", {}).items()
        }
        job, environment = decode(Job, plan["job"]), plan.get("environment", {})
        # A launch of an older version has none.
        shared = tuple(map(str, plan.get("shared", ())))
        return Blueprint(str(plan["token"]), job, environment, Rung(plan["rung"]), files, shared)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a plan: {error}") from None
