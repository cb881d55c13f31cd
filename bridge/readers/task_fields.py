"""The keys of a task document."""

from __future__ import annotations

import posixpath
from typing import Any

from overspan.bridge.model.durations import parse_delay, parse_wall_time
from overspan.bridge.model.pools import check_pool_name
from overspan.bridge.model.spec import NeedKind, OnFailure, RestartScope
from overspan.bridge.model.storage import MountMode, OnFlushFailure
from overspan.bridge.readers.field_types import (
    Effect,
    FieldType,
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
    number,
    program,
    text,
)
from overspan.bridge.readers.native_options import pod_overlay, slurm_options
from overspan.bridge.readers.resource_fields import AMOUNT, MAX_PORT, MAX_RETRIES, RESOURCES, exit_codes, ports
from overspan.bridge.readers.signals import parse_signal_before, parse_signal_name

MAX_NODES = 10_000
"""Nodes of one task."""
MAX_DELAY = 366 * 86400


def parse_bounded_delay(value: Any) -> int:
    """Read a delay of at most a year, in seconds. Raises ValueError."""
    seconds = parse_delay(value)
    if seconds > MAX_DELAY:
        raise ValueError(f"{value!r} is longer than a year")
    return seconds


def delay() -> FieldType:
    """Whole seconds, or a whole number with s, m, h, d or w."""
    return checked(parse_bounded_delay, {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]})


def _parse_seconds(value: Any) -> float:
    if isinstance(value, float) and 0 <= value <= MAX_DELAY:
        return value
    return float(parse_bounded_delay(value))


def seconds() -> FieldType:
    """Seconds, fractions too, or a delay with a unit."""
    return checked(_parse_seconds, {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]})


def _parse_mode(value: Any) -> MountMode:
    try:
        return MountMode(str(value).upper())
    except ValueError:
        raise ValueError(f"{value!r} is not a mode; write MOUNT, COPY or MOUNT_CACHED") from None


def parse_sub_path(value: Any) -> str:
    """Read a folder in a volume: a relative path that stays in it. Raises ValueError."""
    path = str(value).strip("/")
    if str(value).startswith("/") or not path or ".." in path.split("/"):
        raise ValueError(f"{value!r} is no path in a volume; write FOLDER/FOLDER")
    return posixpath.normpath(path)


def _parse_class_name(value: Any) -> str:
    fault = check_pool_name(str(value), "class")
    if fault:
        raise ValueError(f"{value!r} is no name of a class: {fault}")
    return str(value)


def clusters() -> FieldType:
    """One cluster, or several in the order to try them."""
    return list_of(text(253), single=True)


STORAGE = Record(
    "storage",
    {
        "name": TableKey(text(), "Name of the bucket or volume."),
        "source": TableKey(by_form(scalar=text(), items=list_of(text())), "Where the data is from: a path or a URL."),
        "store": TableKey(text(), "Kind of store."),
        "persistent": TableKey(boolean(), "Whether the store outlives the job."),
        "mode": TableKey(checked(_parse_mode, {"type": "string"}), "MOUNT, COPY or MOUNT_CACHED."),
        "type": TableKey(text(), "Kind of storage."),
        "config": TableKey(anything(), "Options of the mount."),
        "mount_options": TableKey(anything(), "Options of the program that mounts."),
    },
)

FLUSH = Record(
    "flush",
    {
        "timeout": TableKey(delay(), "How long data may be on its way to its store after the end."),
        "on_failure": TableKey(choice(OnFlushFailure), "What it means if it does not get there: fail or warn."),
    },
)

REPOSITORY = Record(
    "workdir",
    {
        "url": TableKey(text(), "URL of a git repository.", required=True),
        "ref": TableKey(text(), "Branch, tag or commit."),
    },
)

VOLUME = Record(
    "a volume",
    {
        "name": TableKey(text(253), "Name of the volume."),
        "size": TableKey(text(), "Size of a volume that lives as long as the job."),
        "type": TableKey(text(), "Kind of volume."),
        "config": TableKey(anything(), "Options of the volume."),
        "labels": TableKey(mapping_of(text()), "Labels of the volume."),
        "sub_path": TableKey(checked(parse_sub_path, {"type": "string"}), "Folder in the volume that is mounted."),
    },
)

NEED = Record(
    "a need",
    {
        "task": TableKey(text(), "Name of the task that is needed.", required=True),
        "until": TableKey(choice(NeedKind), "What is waited for: started, ready, ok, not_ok or ended."),
    },
)

READY = Record(
    "ready",
    {
        "tcp": TableKey(integer(1, MAX_PORT), "A port that accepts a connection."),
        "http": TableKey(checked(str, AMOUNT), "PORT/path that answers with a status below 400."),
        "file": TableKey(text(4096), "A file that exists."),
        "command": TableKey(program(), "Shell text that exits with 0."),
        "period": TableKey(number(0.05, 3600), "Seconds between two tries."),
        "timeout": TableKey(delay(), "How long tasks wait for it from its start before it fails; 0 is for ever."),
    },
)

BACKOFF = Record(
    "backoff",
    {
        "first": TableKey(seconds(), "Seconds before the first retry."),
        "factor": TableKey(number(1, 100), "How much longer each further wait is."),
        "limit": TableKey(seconds(), "Longest wait."),
        "jitter": TableKey(number(0, 1), "Part of itself by which a wait varies."),
    },
)

NEVER = "never"


def _parse_room(value: Any) -> Any:
    return NEVER if value == NEVER else parse_bounded_delay(value)


ELASTIC = Record(
    "elastic",
    {
        "min": TableKey(integer(1, MAX_NODES), "Members without which the task does not start; 1 unless it is given."),
        "max": TableKey(integer(1, MAX_NODES), "The most members.", required=True, advice="write {min: 2, max: 8}"),
        "scale_up_after": TableKey(
            checked(_parse_room, {"type": ["integer", "string"]}),
            "How long the cluster has room before a member is added; never: only by `span scale`.",
        ),
    },
)

CONFIG = Record(
    "config",
    {
        "kubernetes": TableKey(anything(), "Settings for Kubernetes; pod_config is laid over the pod."),
        "slurm": TableKey(anything(), "Settings for Slurm; sbatch_options are passed to sbatch."),
        "docker": TableKey(anything(), "Settings for Docker.", Effect.NOTED, "no container is run by Docker here"),
        "nvidia_gpus": TableKey(anything(), "GPU settings.", Effect.NOTED, "it belongs to cloud machines"),
        "hooks": TableKey(
            anything(),
            "Commands for a cluster's events.",
            Effect.NOTED,
            "`on_preemption` runs a command before its end",
        ),
        "jobs": TableKey(anything(), "Settings of a job server.", Effect.NOTED, "the daemon has settings of its own"),
        **{
            cloud: TableKey(anything(), f"Settings for {cloud}.", Effect.NOTED, "it belongs to cloud machines")
            for cloud in ("allowed_clouds", "aws", "azure", "gcp", "nebius", "oci", "ssh", "vsphere")
        },
    },
)

SKYPILOT: dict[str, TableKey] = {
    "name": TableKey(text(), "Name of the task: letters, digits, '-' and '_'."),
    "workdir": TableKey(
        by_form(scalar=text(4096), table=REPOSITORY.as_type()), "Folder the task starts in, or a git repository."
    ),
    "num_nodes": TableKey(integer(1, MAX_NODES), "Number of nodes."),
    "resources": TableKey(RESOURCES.as_type(), "What each node needs."),
    "file_mounts": TableKey(
        mapping_of(by_form(scalar=text(4096), table=STORAGE.as_type())),
        "Files and data: where they appear, and their source.",
    ),
    "setup": TableKey(program(), "Shell text that runs on every node before `run`."),
    "run": TableKey(program(), "Shell text that runs on every node."),
    "envs": TableKey(mapping_of(text(131072), nullable=True), "Environment; null has to be given with --env."),
    "secrets": TableKey(
        by_form(table=mapping_of(text(131072), nullable=True), items=list_of(text())),
        "Secret environment; null, and every name of a list, has to be given with --secret.",
    ),
    "volumes": TableKey(
        mapping_of(by_form(scalar=text(4096), table=VOLUME.as_type())), "Volumes: where they appear, and names."
    ),
    "config": TableKey(CONFIG.as_type(), "Settings for one kind of cluster."),
    "event_callback": TableKey(program(), "Shell text that runs when the state changes."),
    "api_server_access": TableKey(
        boolean(),
        "Whether span works inside the task.",
        Effect.NOTED,
        "span inside a task reaches the daemon as it can",
    ),
    "inputs": TableKey(anything(), "Sizes of inputs.", Effect.NOTED, "it only guides a choice between clouds"),
    "outputs": TableKey(anything(), "Sizes of outputs.", Effect.NOTED, "it only guides a choice between clouds"),
    "managed_secrets": TableKey(
        anything(), "", Effect.REFUSED, "list the names under `secrets` and give them with --secret"
    ),
    "service": TableKey(
        anything(),
        "Replicas of a server.",
        Effect.NOTED,
        "the file runs as one job, without replicas, probes and an endpoint",
    ),
}

OWN: dict[str, TableKey] = {
    "cluster": TableKey(clusters(), "Cluster to run on; a list is tried in order."),
    "login": TableKey(boolean(), "Whether `setup` and `run` have the login environment, as ~/.bashrc makes it."),
    "share": TableKey(text(), "Another task on whose nodes this one runs."),
    "spread": TableKey(boolean(), "Whether the task has nodes of its own."),
    "elastic": TableKey(ELASTIC.as_type(), "Bounds of the number of members, which come and go while the group runs."),
    "restart": TableKey(choice(RestartScope), "What starts again when a node is lost: task, group or node."),
    "on_failure": TableKey(
        choice(OnFailure), "What the failure of an auxiliary task means: ignore, restart or fail_group."
    ),
    "max_restarts_on_errors": TableKey(integer(0, MAX_RETRIES), "Restarts after errors of the program itself."),
    "recover_on_exit_codes": TableKey(exit_codes(), "Exit codes after which the task always starts again."),
    "max_recoveries": TableKey(integer(0, MAX_RETRIES), "Restarts after a lost node or a preemption."),
    "max_restarts": TableKey(integer(0, MAX_RETRIES), "Restarts for any cause, all together."),
    "backoff": TableKey(BACKOFF.as_type(), "Waits between attempts."),
    "time": TableKey(
        checked(parse_wall_time, {"type": ["integer", "string"]}), "Wall time: minutes, 90s, 2h or 1-12:00:00."
    ),
    "grace_period": TableKey(delay(), "Seconds between TERM and KILL."),
    "notice_signal": TableKey(
        checked(parse_signal_name, {"type": ["integer", "string"]}), "Signal when the primaries are done."
    ),
    "on_preemption": TableKey(program(), "Command to run when the cluster takes its resources away, before TERM."),
    "signal": TableKey(
        checked(parse_signal_before, {"type": ["integer", "string"]}), "Signal before the time limit: USR1@90."
    ),
    "flush": TableKey(FLUSH.as_type(), "What the end means for data of MOUNT_CACHED storage."),
    "needs": TableKey(
        list_of(by_form(scalar=text(), table=NEED.as_type()), single=True),
        "Tasks that are waited for: NAME, KIND:NAME or {task, until}.",
    ),
    "ports": TableKey(ports(), "Ports that the task listens on."),
    "ready": TableKey(READY.as_type(), "How the task is known to be ready."),
    "slurm": TableKey(slurm_options(), "Options for sbatch."),
    "kubernetes": TableKey(pod_overlay(), "A part of a pod manifest."),
}

CLASS_KEYS = (
    "resources", "setup", "envs", "config", "cluster", "login", "time", "grace_period", "slurm", "kubernetes",
    "file_mounts", "volumes",
)  # fmt: skip
"""Keys of a task that a class of workers may have."""

WORKER_CLASS = Record(
    "a class of workers",
    {
        "name": TableKey(checked(_parse_class_name, {"type": "string"}), "Name of the class.", required=True),
        "workers": TableKey(integer(0, MAX_NODES), "Number of workers of the class."),
        "min_workers": TableKey(integer(0, MAX_NODES), "Lowest number of workers of the class."),
        "max_workers": TableKey(integer(0, MAX_NODES), "Highest number of workers of the class."),
        "weight": TableKey(number(0, 1e6), "Of classes that a job fits, the one of most weight is started."),
        **{key: {**SKYPILOT, **OWN}[key] for key in CLASS_KEYS},
    },
)

POOL = Record(
    "pool",
    {
        "workers": TableKey(integer(0, MAX_NODES), "Number of workers."),
        "min_workers": TableKey(integer(0, MAX_NODES), "Lowest number of workers."),
        "max_workers": TableKey(integer(1, MAX_NODES), "Highest number of workers."),
        "classes": TableKey(list_of(WORKER_CLASS.as_type()), "Classes of workers, each with numbers of its own."),
        "queue_length_threshold": TableKey(integer(1, 10**9), "Waiting jobs that call for one more worker."),
        "upscale_delay_seconds": TableKey(number(0, MAX_DELAY), "How long the queue is long before a worker is added."),
        "downscale_delay_seconds": TableKey(number(0, MAX_DELAY), "How long a worker is idle before it is ended."),
    },
)

POOL_KEY = {"pool": TableKey(by_form(scalar=text(), table=POOL.as_type()), "Workers of a pool, or the pool to run on.")}
