"""Read one task document into a ParsedTask. `group_checks` checks what concerns several tasks."""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from overspan.bridge.model.errors import Place
from overspan.bridge.model.file_paths import join_path
from overspan.bridge.model.spec import (
    Backoff,
    Demand,
    Ready,
    ReadyKind,
    RetryPolicy,
    TaskSpec,
)
from overspan.bridge.model.storage import FlushPolicy, StorageMount
from overspan.bridge.readers.field_types import Record, take_plain
from overspan.bridge.readers.native_options import slurm_options
from overspan.bridge.readers.placement import ClusterRequest, check_clusters
from overspan.bridge.readers.read_context import ReadContext
from overspan.bridge.readers.resources_mapping import Alternative, RequestedResources, map_resources
from overspan.bridge.readers.storage_mounts import read_mounts
from overspan.bridge.readers.task_variables import add_login, fill_variables, read_variables
from overspan.bridge.validation.diagnostics import Diagnostics, Fault
from overspan.bridge.validation.yaml_nodes import Node, Table, describe, key_place, place_in

Values = dict[str, Any]
_ACTIVATION = re.compile(
    r"^[ \t]*(?:[^#\n]*(?:&&|;)[ \t]*)?((?:conda|mamba|micromamba) activate|nvm use)\b", re.MULTILINE
)
"""Commands that programs define in ~/.bashrc as functions of the shell."""
_OWN_LOGIN = re.compile(r"conda\.sh|mamba\.sh|nvm\.sh|shell[ .][\w. ]*hook|bashrc|bash_profile|etc/profile")
"""What a text does to have them itself."""


class TaskCandidate(NamedTuple):
    """One way to run a task: its cluster (empty: any), the partition that `infra` names there, what it asks for."""

    cluster: str
    partition: str
    demand: Demand


@dataclass(frozen=True)
class ParsedTask:
    """A task read from its own document, with what `group_checks` needs to check it against the others."""

    spec: TaskSpec
    table: Table
    values: Values
    cluster_request: ClusterRequest
    candidates: tuple[TaskCandidate, ...]
    priority: int | None
    later: Mapping[str, Any]
    later_places: Mapping[str, Place]

    @property
    def mount_places(self) -> dict[str, Place]:
        """Where each source of `file_mounts` stands."""
        mounts = {**self.spec.file_mounts, **{mount.target: mount.url for mount in self.spec.storage}}
        places = {source: place_in(self.table, "file_mounts", target) for target, source in mounts.items()}
        for mount in self.spec.storage:
            place = place_in(self.table, "file_mounts", mount.target, "source") if mount.sources else None
            places.update((source, place) for source in mount.sources if place is not None)
        return places

    def place(self, *path: str | int) -> Place:
        """A position in the task's document."""
        return place_in(self.table, *path)


class _Later(NamedTuple):
    """Settings of a task that are read but cannot be carried out: values by key, and positions by refusal text."""

    task: str
    values: dict[str, Any]
    places: dict[str, Place]

    def add(self, key: str, value: Any, place: Place, detail: str = "") -> None:
        """Keep a key's value, and name its place."""
        self.values[f"{self.task}.{key}"] = value
        self.places[f"{self.task}.{key}" + (f" ({detail})" if detail else "")] = place


_READ_LATER = frozenset({"cluster", "elastic", "file_mounts", "flush", "needs", "volumes", "workdir"})
"""Fields that are made of their keys when more is known."""


def read_task(table: Table, record: Record, name: str, context: ReadContext, found: Diagnostics) -> ParsedTask:
    """Read a task document under a name that is known already; faults go to `found`."""
    variables = read_variables(table, context, found)
    table = fill_variables(table, variables, found)
    values = record.read(table, found)
    wanted = _read_resources(table, values, context, found)
    candidates = tuple(
        TaskCandidate(one.cluster, one.partition, _read_demand(table, values, one, found))
        for one in wanted.alternatives
    )
    first = candidates[0].demand
    made = {
        "name": name,
        "resources": first.resources,
        "env": variables.env,
        "secrets": variables.secrets,
        "image": first.image,
        "labels": first.labels,
        "ports": tuple(dict.fromkeys((*values.get("ports", ()), *wanted.ports))),
        "retry": _read_retry(values, wanted.recovery, table, found),
        "flush": FlushPolicy(**values.get("flush", {})),
        "ready": _read_ready(values.get("ready"), table, found),
        "native": first.native,
    }
    spec = TaskSpec(**{**take_plain(TaskSpec, values, _READ_LATER), **made})
    if values.get("login"):
        spec = _log_in(spec, table, found)
    elif "login" not in values:
        _note_activation(spec, table, found)
    later = _Later(name, {}, {})
    spec = replace(spec, **_read_files(table, values, context, later, found))
    if "event_callback" in values:
        later.add("event_callback", values["event_callback"], place_in(table, "event_callback"))
    return ParsedTask(
        spec=spec,
        table=table,
        values=values,
        cluster_request=_read_cluster_request(table, values, wanted, context, found),
        candidates=candidates,
        priority=wanted.priority,
        later=later.values,
        later_places=later.places,
    )


def _log_in(spec: TaskSpec, table: Table, found: Diagnostics) -> TaskSpec:
    """The task with the login environment in its shell texts."""
    names = [*spec.env, *spec.secrets]
    if spec.run.startswith("#!"):
        found.add("login is for the shell, and `run` has a #! line", place_in(table, "login"), "leave one of them out")
    return replace(spec, setup=add_login(spec.setup, names), run=add_login(spec.run, names))


def _note_activation(spec: TaskSpec, table: Table, found: Diagnostics) -> None:
    """Note a command that only a login environment has, which SkyPilot's tasks have without a word."""
    for key, text in (("setup", spec.setup), ("run", spec.run)):
        command = _ACTIVATION.search(text)
        if command is not None and not _OWN_LOGIN.search(text[: command.start(1)]):
            found.note(
                f"{place_in(table, key)}: {command[1]} is a function of a login environment, which the task does not"
                f" have: write `login: true`"
            )


def _read_resources(table: Table, values: Values, context: ReadContext, found: Diagnostics) -> RequestedResources:
    node = table.get("resources")
    if not isinstance(node, Table) or "resources" not in values:
        return RequestedResources()
    return map_resources(values["resources"], node, context, found)


def _read_cluster_request(
    table: Table, values: Values, wanted: RequestedResources, context: ReadContext, found: Diagnostics
) -> ClusterRequest:
    """The task's clusters: its own key, or else those of `infra`."""
    place = place_in(table, "cluster")
    if not isinstance(values.get("cluster"), tuple):
        named = wanted.clusters or (wanted.infra if context.cluster else ())
        return ClusterRequest(named, place_in(table, "resources", "infra"))
    if context.cluster:
        return ClusterRequest(values["cluster"], place)
    with found.collecting():
        clusters = check_clusters(values["cluster"], place, context)
        if wanted.clusters and set(clusters) != set(wanted.clusters):
            raise Fault("cluster and infra name different clusters", place, "keep one of them")
        return ClusterRequest(clusters, place)
    return ClusterRequest((), place)


def _read_retry(values: Values, recovery: Values, table: Table, found: Diagnostics) -> RetryPolicy:
    """The budgets, from the task's own keys or from resources.job_recovery."""
    kept: Values = {}
    for key in ("max_restarts_on_errors", "recover_on_exit_codes"):
        if key in values and key in recovery and values[key] != recovery[key]:
            found.add(f"{key} differs from the one in resources.job_recovery", place_in(table, key), "keep one of them")
        if key in values or key in recovery:
            kept[key] = values.get(key, recovery.get(key))
    for key in ("max_recoveries", "max_restarts"):
        if key in values:
            kept[key] = values[key]
    backoff = Backoff(**values.get("backoff", {}))
    if backoff.first > backoff.limit:
        found.add("the first wait is longer than the limit", place_in(table, "backoff", "first"))
    return RetryPolicy(**kept, backoff=backoff)


def _read_ready(values: Values | None, table: Table, found: Diagnostics) -> Ready | None:
    if values is None:
        return None
    place = place_in(table, "ready")
    kinds = [kind for kind in ReadyKind if kind.value in values]
    if len(kinds) != 1:
        found.add(
            "ready needs exactly one of tcp, http, file, command", place, "write for example `ready: {tcp: 8000}`"
        )
        return None
    kind = kinds[0]
    target = str(values[kind.value])
    if kind is ReadyKind.HTTP:
        port, _, path = target.partition("/")
        if not re.fullmatch("[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
            found.add(f"{target!r} is not PORT/path", place_in(table, "ready", "http"), 'write "8000/health"')
        target = f"{port}/{path}"
    if not target.strip():
        found.add(f"{kind.value} is empty", place_in(table, "ready", kind.value))
    return Ready(kind, target, values.get("period", Ready.period), float(values.get("timeout", Ready.timeout)))


def _read_demand(table: Table, values: Values, one: Alternative, found: Diagnostics) -> Demand:
    return Demand(one.resources, one.image, one.labels, _read_native(table, values, one, found))


def _read_native(table: Table, values: Values, one: Alternative, found: Diagnostics) -> dict[str, Values]:
    """Native options of the task: its own keys laid over SkyPilot's `config`."""
    config = values.get("config", {})
    slurm: Values = {}
    options = _config_node(table, "slurm", "sbatch_options", found)
    if options is not None:
        with found.collecting():
            slurm.update(slurm_options().read(options, found))
    slurm.update(values.get("slurm", {}))
    if one.partition:
        slurm.setdefault("partition", one.partition)
    pod: Values = {}
    if one.priority_class:
        pod = {"spec": {"priorityClassName": one.priority_class}}
    if _config_node(table, "kubernetes", "pod_config", found) is not None:
        pod = overlay(pod, config["kubernetes"]["pod_config"])
    pod = overlay(pod, values.get("kubernetes", {}))
    return {kind: options for kind, options in (("slurm", slurm), ("kubernetes", pod)) if options}


def _config_node(table: Table, kind: str, key: str, found: Diagnostics) -> Node | None:
    """The value of config.KIND.KEY; other keys there are noted."""
    config = table.get("config")
    section = config.get(kind) if isinstance(config, Table) else None
    if section is None:
        return None
    if not isinstance(section, Table):
        found.add(f"config.{kind} is a mapping, and this is {describe(section)}", section.place)
        return None
    for other, entry in section.entries.items():
        if other != key:
            found.note(f"{entry.place}: config.{kind}.{other} has no effect here")
    value = section.get(key)
    if kind == "kubernetes" and value is not None and not isinstance(value, Table):
        found.add(f"config.{kind}.{key} is a mapping, and this is {describe(value)}", value.place)
        return None
    return value


def overlay(below: Mapping[str, Any], above: Mapping[str, Any]) -> Values:
    """Lay one mapping over another, mapping by mapping; lists and values are replaced."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = overlay(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _read_files(table: Table, values: Values, context: ReadContext, later: _Later, found: Diagnostics) -> Values:
    """workdir, file_mounts and volumes; repositories, sized volumes and some storage go to `later`."""
    files: Values = {"volumes": {}}
    workdir = values.get("workdir")
    if isinstance(workdir, str):
        files["workdir"] = absolute(workdir, context)
    elif workdir:
        later.add("workdir", workdir, place_in(table, "workdir"), f"the repository {workdir.get('url', '')}")
    mounts = read_mounts(table, values.get("file_mounts", {}), found)
    files["file_mounts"] = {target: absolute(path, context) for target, path in mounts.paths.items()}
    files["storage"] = tuple(_place_sources(mount, context) for mount in mounts.storage)
    for target, words in mounts.later.items():
        later.add("file_mounts", list(mounts.later), key_place(table, "file_mounts", target), words)
    sized: Values = {}
    for target, volume in values.get("volumes", {}).items():
        if not target.startswith(("/", "~", ".")):
            found.add(f"{target!r} is not a path", place_in(table, "volumes", target), "write /PATH: VOLUME")
        if isinstance(volume, dict) and not set(volume) - {"name", "sub_path"} and volume.get("name"):
            volume = os.path.join(volume["name"], volume.get("sub_path", "")).rstrip("/")
        if isinstance(volume, str):
            files["volumes"][target] = absolute(volume, context) if volume.startswith(("~/", "./", "../")) else volume
        else:
            sized[target] = volume
            later.add("volumes", sized, key_place(table, "volumes", target), f"a volume of its own at {target}")
    return files


def _place_sources(mount: StorageMount, context: ReadContext) -> StorageMount:
    """The mount with absolute paths of what is sent to it; a slash at the end stays."""
    if not mount.sources:
        return mount
    places = (absolute(path, context).rstrip("/") + "/" * path.endswith("/") for path in mount.sources)
    return replace(mount, sources=tuple(places))


def absolute(path: str, context: ReadContext) -> str:
    """A path of the submitter's: `~` is the home, a relative one starts at the directory of the submission."""
    home = context.environment.get("HOME", "")
    if home and (path == "~" or path.startswith("~/")):
        path = home + path[1:]
    return join_path(context.directory, path)
