"""A Kubernetes cluster's own settings, read from its entry in the configuration file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from overspan.adapters.contract import ClusterConfig
from overspan.adapters.setting_values import Readers, read_seconds, read_values
from overspan.bridge.model.durations import parse_delay, parse_wall_time
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.sizes import parse_memory

AUTO, NATIVE, KUEUE, SOFT = "auto", "native", "kueue", "soft"
GANGS = (AUTO, NATIVE, KUEUE, SOFT)
"""How a group starts as one; `auto` is the best that the cluster has."""
ALWAYS = "always"
COMMANDS = (AUTO, ALWAYS)
"""Which pods get Slurm's commands; `auto` is those whose text names one, or that bring files."""
RESTRICTED = "restricted"
PORTABLE, FULL = "portable", "full"
ENVIRONMENTS = (PORTABLE, FULL)
"""What of a script's environment travels to its pods; `full` is also what describes the submitting machine."""

DAY = 86400
DEFAULT_LIFE = 14 * DAY
MAX_VOLUMES = 64

Document = Mapping[str, Any]


@dataclass(frozen=True)
class GpuKind:
    """How one kind of GPU is asked for: nodes whose label has one of `values`, or a resource of its own."""

    values: tuple[str, ...] = ()
    label: str = ""
    resource: str = ""


@dataclass(frozen=True)
class NodeGpus:
    """GPUs as the cluster's nodes tell them. Kinds are found by their lower-case name."""

    resource: str = "nvidia.com/gpu"
    label: str = "nvidia.com/gpu.product"
    types: Mapping[str, GpuKind] = field(default_factory=dict)


@dataclass(frozen=True)
class Volume:
    """A volume that pods can mount: a volume source of the pod's API (`persistentVolumeClaim`, `nfs`, `csi`...).

    With a `path` every pod has it there. `shared` says that the submitter's machine has the same files at that path.
    """

    source: Document
    path: str = ""
    sub_path: str = ""
    read_only: bool = False
    shared: bool = False


@dataclass(frozen=True)
class Partition:
    """A name that jobs may ask for: nodes with these labels, in Kueue's queue, for so long (seconds) at most."""

    name: str
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Document, ...] = ()
    queue: str = ""
    time_limit: int | None = None


@dataclass(frozen=True)
class Settings:
    """How a cluster is reached, and what pods get that say nothing themselves. Times are seconds."""

    name: str = ""
    """The cluster's own name in the configuration."""
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    """Where pods live; empty is the context's. Rendering needs it filled in."""
    image: str = ""
    queue: str = ""
    """Kueue's LocalQueue."""
    partitions: tuple[Partition, ...] = ()
    """The first one is the default; none: the cluster is one."""
    gang: str = AUTO
    gang_timeout: int = 300
    admission_timeout: int | None = DAY
    """How long Kueue may keep a job from running; None: for ever."""
    failover_after: int | None = None
    """How long a job that could go to another cluster waits for nodes; None: by the number of its pods."""
    autoscaler: bool = False
    """Whether nodes are made when pods ask for them, which takes minutes."""
    scheduler: str = ""
    service_account: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    priority_classes: Mapping[str, str] = field(default_factory=dict)
    """PriorityClass by Slurm's QOS, or by the `priority_class` that a file names."""
    cpus: float | None = None
    """CPUs of a node of a task that names none; None asks for none."""
    memory_mib: int | None = None
    gpus: NodeGpus = field(default_factory=NodeGpus)
    gres: Mapping[str, str] = field(default_factory=dict)
    """Extended resource by the name that Slurm's --gres has."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Document, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    root: str = ""
    """A folder on a shared volume, for archives that are too large for the API."""
    default_time: int = DEFAULT_LIFE
    """How long a pod without a wall time lives at most."""
    cluster_domain: str = "cluster.local"
    commands: str = AUTO
    environment: str = PORTABLE
    security: str = ""
    """The Pod Security Standard that pods are to meet; empty: what the job says."""
    step_port: int = 6818
    """Where the pods of a batch script wait for its steps."""
    tick: float = 1.0
    request_timeout: float = 30.0
    overlay: Document = field(default_factory=dict)
    """A part of a pod manifest for every pod; a job's own comes after it."""


def read_settings(config: ClusterConfig) -> Settings:
    """Check and read the settings of one cluster; raises InvalidRequest that names the key and the remedy."""
    values = read_values(config, "Kubernetes", _READERS)
    if config.root:
        values["root"] = _check_root(config, values.get("volumes", {}))
    queues = [one.queue for one in values.get("partitions", ()) if one.queue]
    if queues:
        # The cluster's own is for partitions that name none.
        values.setdefault("queue", queues[0])
    if values.get("gang") == KUEUE and not values.get("queue"):
        raise InvalidRequest(
            f"clusters.{config.name}: `gang: kueue` needs a queue",
            remedy="set `queue` to a LocalQueue of the namespace",
        )
    return Settings(name=config.name, **values)


def _check_root(config: ClusterConfig, volumes: Mapping[str, Volume]) -> str:
    root = config.root.rstrip("/") or "/"
    shared = [volume.path for volume in volumes.values() if volume.shared]
    if not any(root == path or root.startswith(f"{path}/") for path in shared):
        raise InvalidRequest(
            f"clusters.{config.name}.root: {config.root!r} is on no volume that pods and this machine share",
            remedy="name a folder below the `path` of a volume with `shared: true`, or leave `root` out",
        )
    return root


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError(f"{value!r} is not a name")
    return value


def _read_label(value: Any) -> str:
    text = _read_text(value)
    if len(text) > 63 or not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", text):
        raise ValueError(f"{value!r} is not a namespace; write lower-case letters, digits and '-'")
    return text


def _read_security(value: Any) -> str:
    if value != RESTRICTED:
        raise ValueError(f"{value!r} is none of: {RESTRICTED}")
    return RESTRICTED


def _read_domain(value: Any) -> str:
    text = _read_text(value).strip(".")
    if len(text) > 253 or not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", text):
        raise ValueError(f"{value!r} is not a domain; write one such as cluster.local")
    return text


def _read_names(value: Any) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not listed:
        raise ValueError("write a name, or a list of names")
    return tuple(_read_text(item) for item in listed)


def _read_texts(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) and key for key in value):
        raise ValueError("write a mapping of names to texts")
    for key, text in value.items():
        if not isinstance(text, str):
            raise ValueError(f"{key}: {text!r} is not a text; put it in quotes")
    return dict(value)


def _read_gang(value: Any) -> str:
    if value not in GANGS:
        raise ValueError(f"{value!r} is not a way to start a group; write one of {', '.join(GANGS)}")
    return str(value)


def _read_commands(value: Any) -> str:
    if value not in COMMANDS:
        raise ValueError(f"{value!r} is not which pods get Slurm's commands; write one of {', '.join(COMMANDS)}")
    return str(value)


def _read_environment(value: Any) -> str:
    if value not in ENVIRONMENTS:
        raise ValueError(f"{value!r} is not what of an environment travels; write one of {', '.join(ENVIRONMENTS)}")
    return str(value)


def _read_port(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1024 <= value <= 65535:
        raise ValueError(f"{value!r} is not a port; write a number between 1024 and 65535")
    return value


def _read_delay(value: Any) -> int:
    seconds = parse_delay(value)
    if not 1 <= seconds <= DAY:
        raise ValueError(f"{value!r} is not between a second and a day")
    return seconds


def _read_life(value: Any) -> int:
    seconds = parse_wall_time(value)
    if not seconds or seconds > 366 * DAY:
        raise ValueError(f"{value!r} is not a time; every pod ends some day: write at most a year")
    return seconds


def _read_cpus(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (value == 0 or 0.001 <= value <= 10**6):
        raise ValueError(f"{value!r} is not a number of CPUs; write one such as 1 or 0.5, or 0 for no request")
    return float(value)


def _read_memory(value: Any) -> int:
    mib = parse_memory(str(value)) if isinstance(value, (str, int)) and not isinstance(value, bool) else 0
    if mib <= 0:
        raise ValueError(f"{value!r} is not an amount of memory; write one such as 4G")
    return mib


def _read_gpus(value: Any) -> NodeGpus:
    table = _read_table(value, ("resource", "label", "types"))
    base = NodeGpus()
    types = table.get("types") or {}
    if not isinstance(types, Mapping) or not all(isinstance(kind, str) and kind for kind in types):
        raise ValueError("types: write a mapping of kinds to the values of the node label, such as {H100: NVIDIA-H100}")
    return NodeGpus(
        _read_text(table.get("resource", base.resource)),
        _read_text(table.get("label", base.label)),
        {kind.lower(): _read_kind(kind, entry) for kind, entry in types.items()},
    )


def _read_kind(kind: str, entry: Any) -> GpuKind:
    if isinstance(entry, (str, list)):
        return GpuKind(values=_read_names(entry))
    try:
        table = _read_table(entry, ("value", "label", "resource"))
    except ValueError as error:
        raise ValueError(f"types.{kind}: {error}") from None
    values = _read_names(table["value"]) if "value" in table else ()
    resource = _read_text(table["resource"]) if "resource" in table else ""
    if not values and not resource:
        raise ValueError(f"types.{kind}: write the value of the node label, or a `resource`")
    return GpuKind(values, _read_text(table["label"]) if "label" in table else "", resource)


def _read_table(value: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, Mapping) or set(value) - set(keys):
        raise ValueError(f"write a mapping with {', '.join(keys)}")
    return {key: entry for key, entry in value.items() if entry is not None}


def _read_tolerations(value: Any) -> tuple[Document, ...]:
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise ValueError("write a list of tolerations as a pod has them, such as [{key: gpu, operator: Exists}]")
    return tuple(dict(item) for item in value)


_VOLUME_KEYS = ("claim", "path", "sub_path", "read_only", "shared")


def _read_volumes(value: Any) -> dict[str, Volume]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise ValueError("write a mapping of names to volumes, such as {data: {claim: datasets, path: /data}}")
    if len(value) > MAX_VOLUMES:
        raise ValueError(f"{len(value)} volumes are given; the limit is {MAX_VOLUMES}")
    return {name: _read_volume(name, entry) for name, entry in value.items()}


def _read_volume(name: str, entry: Any) -> Volume:
    """`claim: NAME`, or one source as a pod has it: `nfs: {server, path}`, `hostPath: {path}`..."""
    table: Any = {"claim": entry} if isinstance(entry, str) else entry
    if not isinstance(table, Mapping):
        raise ValueError(f"{name}: write the name of a claim, or a mapping such as {{claim: datasets, path: /data}}")
    sources = [key for key in table if key not in _VOLUME_KEYS]
    if len(sources) + ("claim" in table) != 1:
        raise ValueError(f"{name}: one source is wanted, as `claim: NAME` or as a pod has it, such as nfs or hostPath")
    if "claim" in table:
        source: dict[str, Any] = {"persistentVolumeClaim": {"claimName": _read_text(table["claim"])}}
    elif isinstance(table[sources[0]], Mapping):
        source = {sources[0]: dict(table[sources[0]])}
    else:
        raise ValueError(f"{name}.{sources[0]}: a mapping is wanted, as a pod has it")
    path = table.get("path") or ""
    if not isinstance(path, str) or (path and not re.fullmatch(r"/[^:]+", path)):
        raise ValueError(f"{name}.path: {path!r} is not an absolute path")
    shared = _read_switch(table.get("shared", False))
    if shared and not path:
        raise ValueError(f"{name}: `shared: true` needs the `path` that pods and this machine have in common")
    read_only = _read_switch(table.get("read_only", False))
    return Volume(source, path.rstrip("/"), str(table.get("sub_path") or ""), read_only, shared)


def _read_partitions(value: Any) -> tuple[Partition, ...]:
    if not isinstance(value, Mapping) or not value or not all(isinstance(name, str) and name for name in value):
        raise ValueError("write a mapping of names to their settings, such as {gpu: {node_selector: {pool: gpu}}}")
    return tuple(_read_partition(name, entry) for name, entry in value.items())


def _read_partition(name: str, entry: Any) -> Partition:
    if not re.fullmatch(r"[\w.+-]+", name):
        raise ValueError(f"{name!r} is not the name of a partition; use letters, digits, '_', '.', '+' and '-'")
    try:
        table = _read_table(entry or {}, ("node_selector", "tolerations", "queue", "time"))
        return Partition(
            name,
            _read_texts(table.get("node_selector", {})),
            _read_tolerations(table.get("tolerations", [])),
            _read_text(table["queue"]) if "queue" in table else "",
            parse_wall_time(table["time"]) if "time" in table else None,
        )
    except (ValueError, InvalidRequest) as error:
        raise ValueError(f"{name}: {error}") from None


def _read_switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _read_document(value: Any) -> Document:
    if not isinstance(value, Mapping):
        raise ValueError("write a part of a pod manifest, such as {spec: {nodeSelector: {pool: gpu}}}")
    return dict(value)


_READERS: Readers = {
    "kubeconfig": ("kubeconfig", _read_text),
    "context": ("context", _read_text),
    "namespace": ("namespace", _read_label),
    "image": ("image", _read_text),
    "queue": ("queue", _read_text),
    "partitions": ("partitions", _read_partitions),
    "gang": ("gang", _read_gang),
    "gang_timeout": ("gang_timeout", _read_delay),
    "admission_timeout": ("admission_timeout", parse_wall_time),
    "failover_after": ("failover_after", _read_delay),
    "autoscaler": ("autoscaler", _read_switch),
    "scheduler": ("scheduler", _read_text),
    "security": ("security", _read_security),
    "service_account": ("service_account", _read_text),
    "image_pull_secrets": ("image_pull_secrets", _read_names),
    "priority_classes": ("priority_classes", _read_texts),
    "cpus": ("cpus", _read_cpus),
    "memory": ("memory_mib", _read_memory),
    "gpus": ("gpus", _read_gpus),
    "gres": ("gres", _read_texts),
    "node_selector": ("node_selector", _read_texts),
    "tolerations": ("tolerations", _read_tolerations),
    "labels": ("labels", _read_texts),
    "annotations": ("annotations", _read_texts),
    "volumes": ("volumes", _read_volumes),
    "default_time": ("default_time", _read_life),
    "cluster_domain": ("cluster_domain", _read_domain),
    "commands": ("commands", _read_commands),
    "environment": ("environment", _read_environment),
    "step_port": ("step_port", _read_port),
    "tick": ("tick", read_seconds(0.1, 3600)),
    "request_timeout": ("request_timeout", read_seconds(1, 3600)),
    "kubernetes": ("overlay", _read_document),
}
