"""The keys of a header document, and the tables of every kind of document."""

from __future__ import annotations

from enum import Enum
from typing import Any

from overspan.bridge.model.ids import ArraySpec, parse_array
from overspan.bridge.model.spec import RestartScope, Start
from overspan.bridge.readers.dependencies import parse_dependency
from overspan.bridge.readers.evaluation_fields import ON_CHECKPOINT, STOP_WHEN
from overspan.bridge.readers.field_types import (
    Effect,
    Record,
    TableKey,
    anything,
    boolean,
    by_form,
    checked,
    choice,
    integer,
    list_of,
    mapping_of,
    text,
)
from overspan.bridge.readers.native_options import pod_overlay, slurm_options
from overspan.bridge.readers.resource_fields import RESOURCES
from overspan.bridge.readers.schedule_fields import cron
from overspan.bridge.readers.task_fields import OWN, POOL_KEY, SKYPILOT, clusters, delay

PRIORITY_LIMIT = 2**31 - 1
"""Highest priority, either way; what the store and Slurm can both keep."""


class Execution(Enum):
    """How the tasks of a file run."""

    PARALLEL = "parallel"
    SERIAL = "serial"


def _parse_array(value: Any) -> ArraySpec:
    return parse_array(str(value))


_TEXT = {"type": "string"}

JOB_NEEDS = list_of(
    by_form(
        scalar=checked(lambda value: parse_dependency(str(value).strip()), {"type": ["string", "integer"]}),
    ),
    single=True,
)

_GROUP: dict[str, TableKey] = {
    "name": TableKey(text(), "Name of the job: letters, digits, '-' and '_'; {id} becomes the job's id."),
    "execution": TableKey(
        choice(Execution), "parallel: a group, all tasks at once. serial: a pipeline, one after another."
    ),
    "primary_tasks": TableKey(
        list_of(text()), "Tasks that decide when the group ends; all of them where it is empty or missing."
    ),
    "termination_delay": TableKey(
        by_form(scalar=delay(), table=mapping_of(delay())),
        "How long auxiliary tasks live after the primaries: 30s, or one for each task with a default.",
    ),
    "inter_connection": TableKey(boolean(), "Whether the tasks find each other by name."),
    "placement": TableKey(
        anything(), "Where the tasks run.", Effect.NOTED, "the tasks of a job are on one cluster, as with SAME_INFRA"
    ),
}

JOB: dict[str, TableKey] = {
    "failover_after": TableKey(delay(), "How long to wait for a cluster before the next one is tried."),
    "race": TableKey(boolean(), "Whether to queue on all clusters and take the first that starts."),
    "start": TableKey(
        choice(Start),
        "turns: the tasks of a stage start, or none. together: those of all stages. independent: each as it can.",
    ),
    "start_timeout": TableKey(delay(), "How long a start may take before what is held is given back."),
    "array": TableKey(checked(_parse_array, {"type": ["string", "integer"]}), "Indices of a job array: 0-99%10."),
    "begin": TableKey(checked(str, _TEXT), "When the job may start: now+1hour, 16:00, 2030-01-31T12:00."),
    "deadline": TableKey(checked(str, _TEXT), "When the job has to be over: now+2hours, 2030-01-31T12:00."),
    "kill_on_invalid_dep": TableKey(boolean(), "Whether a need that can never be met cancels the job."),
    "cron": TableKey(cron(), "When to submit the job again and again, as in crontab(5)."),
    "priority": TableKey(integer(-PRIORITY_LIMIT, PRIORITY_LIMIT), "Priority among waiting jobs; higher starts first."),
    "hold": TableKey(boolean(), "Whether the job waits for a release."),
    "hold_on_failure": TableKey(delay(), "How long a failed job keeps its nodes, to look around."),
    "on_checkpoint": TableKey(
        list_of(ON_CHECKPOINT.as_type(), single=True), "Evaluations: a job for each checkpoint; one or a list."
    ),
    "stop_when": TableKey(STOP_WHEN.as_type(), "A score that ends the job as done."),
}

_SHARED: dict[str, TableKey] = {
    "cluster": TableKey(clusters(), "Cluster to run on; a list is tried in order."),
    "restart": TableKey(choice(RestartScope), "What starts again when a node is lost: task, group or node."),
    "needs": TableKey(JOB_NEEDS, "Other jobs that are waited for: afterok:12."),
    "slurm": TableKey(slurm_options(), "Options for sbatch."),
    "kubernetes": TableKey(pod_overlay(), "A part of a pod manifest."),
    **POOL_KEY,
}

_HEADER_KEYS = {**_GROUP, **JOB, **_SHARED}
_TASK_KEYS = {**SKYPILOT, **OWN}

TASK_ONLY = frozenset(_TASK_KEYS) - frozenset(_HEADER_KEYS)
"""Keys that tell a task document from a header."""
HEADER_ONLY = frozenset(_GROUP) - {"name"}

HEADER = Record(
    "the header",
    _HEADER_KEYS,
    {
        **dict.fromkeys(RESOURCES.fields, "it belongs under `resources` of a task, after a line of ---"),
        **dict.fromkeys(TASK_ONLY, "it belongs in the document of a task, after a line of ---"),
    },
)
"""The first document of a group or pipeline."""

_OF_RESOURCES = dict.fromkeys(frozenset(RESOURCES.fields) - frozenset(_TASK_KEYS), "it belongs under `resources`")

TASK = Record(
    "a task",
    _TASK_KEYS,
    {
        **_OF_RESOURCES,
        **dict.fromkeys(_HEADER_KEYS, "it belongs in the header, the first document of the file"),
    },
)
"""A task of a group or pipeline."""

SINGLE = Record(
    "the job",
    {**_TASK_KEYS, **JOB, "needs": _SHARED["needs"], **POOL_KEY},
    {
        **_OF_RESOURCES,
        **dict.fromkeys(
            HEADER_ONLY, "it belongs in the header of a group: a first document with `execution: parallel`"
        ),
    },
)
"""A file of one document: the job and its only task."""
