"""A Kubernetes cluster's own settings, read from its entry in the configuration file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, Strict, model_validator

from overspan.adapters.contract import ClusterConfig
from overspan.adapters.settings import (
    Delay,
    KeepTime,
    Mebibytes,
    Nullable,
    Text,
    Texts,
    WallTime,
    name_entries,
    read_cluster_settings,
    refuse_setting,
)
from overspan.bridge.model.durations import parse_wall_time
from overspan.bridge.validation.models import DocumentModel, Mistake, Real, Switch, Whole, between, one_of, read_model

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


def _check_label(text: str) -> str:
    if len(text) > 63 or not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", text):
        raise ValueError(f"{text!r} is not a namespace; write lower-case letters, digits and '-'")
    return text


def _check_domain(text: str) -> str:
    text = text.strip(".")
    if len(text) > 253 or not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", text):
        raise ValueError(f"{text!r} is not a domain; write one such as cluster.local")
    return text


def _check_partition(name: str) -> str:
    if not re.fullmatch(r"[\w.+-]+", name):
        raise ValueError(f"{name!r} is not the name of a partition; use letters, digits, '_', '.', '+' and '-'")
    return name


def _check_path(path: str) -> str:
    if path and not re.fullmatch(r"/[^:]+", path):
        raise ValueError(f"{path!r} is not an absolute path")
    return path.rstrip("/")


def _parse_life(value: Any) -> int:
    seconds = parse_wall_time(value)
    if not seconds or seconds > 366 * DAY:
        raise ValueError(f"{value!r} is not a time; every pod ends some day: write at most a year")
    return seconds


def _check_cpus(count: float) -> float:
    if not (count == 0 or 0.001 <= count <= 10**6):
        raise ValueError(f"{count} is not a number of CPUs; write one such as 1 or 0.5, or 0 for no request")
    return count


def _list_one(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _fold_kinds(kinds: dict[str, GpuKind]) -> dict[str, GpuKind]:
    return {name.lower(): kind for name, kind in kinds.items()}


Names = Annotated[tuple[Text, ...], BeforeValidator(_list_one)]
"""A name, or a list of names."""
Tolerations = Annotated[tuple[Document, ...], Field(examples=["[{key: gpu, operator: Exists}]"])]
"""As a pod has them."""


class GpuKind(DocumentModel):
    """How one kind of GPU is asked for: nodes whose label has one of `values`, or a resource of its own."""

    values: Names = Field(default=(), alias="value", min_length=1)
    label: Text = ""
    resource: Text = ""

    @model_validator(mode="before")
    @classmethod
    def _take_values(cls, value: Any) -> Any:
        return {"value": value} if isinstance(value, (str, list)) else value

    @model_validator(mode="after")
    def _check(self) -> GpuKind:
        if not self.values and not self.resource:
            raise ValueError("write the value of the node label, or a `resource`")
        return self


class NodeGpus(DocumentModel):
    """GPUs as the cluster's nodes tell them. Kinds are found by their lower-case name."""

    resource: Text = "nvidia.com/gpu"
    label: Text = "nvidia.com/gpu.product"
    types: Annotated[dict[Text, GpuKind], AfterValidator(_fold_kinds)] = Field(
        default={}, examples=["{H100: NVIDIA-H100-80GB-HBM3}, by the values of the node label"]
    )


class Volume(DocumentModel):
    """A volume that pods can mount: `claim: NAME`, or one source as a pod has it (`nfs`, `hostPath`, `csi`...).

    With a `path` every pod has it there. `shared` says that the submitter's machine has the same files at that path.
    """

    model_config = ConfigDict(extra="allow")

    claim: Text = ""
    path: Annotated[str, Strict(), AfterValidator(_check_path)] = ""
    sub_path: str = ""
    read_only: Switch = False
    shared: Switch = False

    @property
    def source(self) -> Document:
        """The volume's source, as a pod has it."""
        return {"persistentVolumeClaim": {"claimName": self.claim}} if self.claim else dict(self.model_extra or {})

    @model_validator(mode="before")
    @classmethod
    def _take_claim(cls, value: Any) -> Any:
        return {"claim": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check(self) -> Volume:
        sources = self.model_extra or {}
        if len(sources) + bool(self.claim) != 1:
            raise ValueError("one source is wanted, as `claim: NAME` or as a pod has it, such as nfs or hostPath")
        for key, source in sources.items():
            if not isinstance(source, Mapping):
                raise Mistake("a mapping is wanted, as a pod has it", path=(key,))
        if self.shared and not self.path:
            raise Mistake("it needs the `path` that pods and this machine have in common", path=("shared",))
        return self


class Partition(DocumentModel):
    """A name that jobs may ask for: nodes with these labels, in Kueue's queue, for so long (seconds) at most."""

    outside: ClassVar = frozenset({"name"})

    name: str = ""
    node_selector: Texts = Field(default={})
    tolerations: Tolerations = ()
    queue: Text = ""
    time_limit: WallTime = Field(default=None, alias="time")


class Settings(DocumentModel):
    """How a cluster is reached, and what pods get that say nothing themselves. Times are seconds."""

    outside: ClassVar = frozenset({"name", "root"})

    name: str = ""
    """The cluster's own name in the configuration."""
    root: str = ""
    """A folder on a shared volume, for archives that are too large for the API."""
    kubeconfig: Text = ""
    context: Text = ""
    namespace: Annotated[Text, AfterValidator(_check_label)] = ""
    """Where pods live; empty is the context's. Rendering needs it filled in."""
    image: Text = ""
    queue: Text = ""
    """Kueue's LocalQueue."""
    partitions: Annotated[
        dict[Annotated[Text, AfterValidator(_check_partition)], Partition], Nullable, AfterValidator(name_entries)
    ] = Field(default={}, min_length=1, examples=["{gpu: {node_selector: {pool: gpu}}}"])
    """The first one is the default; none: the cluster is one."""
    gang: Annotated[str, one_of(GANGS)] = AUTO
    gang_timeout: Annotated[Delay, between(1, DAY)] = 300
    admission_timeout: WallTime = DAY
    """How long Kueue may keep a job from running; None: for ever."""
    failover_after: Annotated[Delay, between(1, DAY)] | None = None
    """How long a job that could go to another cluster waits for nodes; None: by the number of its pods."""
    autoscaler: Switch = False
    """Whether nodes are made when pods ask for them, which takes minutes."""
    scheduler: Text = ""
    security: Annotated[str, one_of((RESTRICTED,))] = ""
    """The Pod Security Standard that pods are to meet; empty: what the job says."""
    service_account: Text = ""
    image_pull_secrets: Names = Field(default=(), min_length=1)
    priority_classes: Texts = Field(default={})
    """PriorityClass by Slurm's QOS, or by the `priority_class` that a file names."""
    cpus: Annotated[Real, AfterValidator(_check_cpus)] | None = None
    """CPUs of a node of a task that names none; None asks for none."""
    memory: Mebibytes | None = None
    """MiB, by the same rule."""
    gpus: NodeGpus = NodeGpus()
    gres: Texts = Field(default={})
    """Extended resource by the name that Slurm's --gres has."""
    node_selector: Texts = Field(default={})
    tolerations: Tolerations = ()
    labels: Texts = Field(default={})
    annotations: Texts = Field(default={})
    volumes: dict[Text, Volume] = Field(
        default={}, max_length=MAX_VOLUMES, examples=["{data: {claim: datasets, path: /data}}"]
    )
    default_time: Annotated[int, BeforeValidator(_parse_life)] = DEFAULT_LIFE
    """How long a pod without a wall time lives at most."""
    cluster_domain: Annotated[Text, AfterValidator(_check_domain)] = "cluster.local"
    checkpoint_image: Text = ""
    """The image, with python3, of pods that look for checkpoints where no pod of the job can; empty: `image`."""
    data_image: Text = ""
    """The image, with python3, of the containers that move the data of object stores; empty: the task's."""
    data_fuse: Text = ""
    """The extended resource by which a pod gets /dev/fuse, to read MOUNT through the store; empty: it is brought."""
    data_cache: Volume | None = Field(default=None, examples=["{hostPath: {path: /var/cache/overspan}}"])
    """Where what jobs only read of object stores is kept for the next ones; None: each pod fetches its own."""
    data_cache_size: Mebibytes | None = None
    """MiB that it may have; None: a part of its disk."""
    data_volume: Volume | None = Field(default=None, examples=["{hostPath: {path: /var/lib/overspan-data}}"])
    """Where what jobs write to object stores lies until it is sent, and stays if it cannot be; None: with the pod."""
    data_keep: KeepTime | None = Field(default=None, examples=["14d"])
    """How long after a job's end what it could not send is kept; None: as long as the job is known."""
    commands: Annotated[str, one_of(COMMANDS)] = AUTO
    environment: Annotated[str, one_of(ENVIRONMENTS)] = PORTABLE
    host_network: Switch = False
    """Whether pods have their nodes' addresses."""
    step_port: Annotated[Whole, between(1024, 65535)] = 6818
    """Where the pods of a batch script wait for its steps."""
    tick: Annotated[Real, between(0.1, 3600)] = 1.0
    request_timeout: Annotated[Real, between(1, 3600)] = 30.0
    kubernetes: Document = Field(default={}, examples=["{spec: {nodeSelector: {pool: gpu}}}"])
    """A part of a pod manifest for every pod; a job's own comes after it."""

    @model_validator(mode="after")
    def _check(self) -> Settings:
        if self.gang == KUEUE and not self.queue and not any(one.queue for one in self.partitions.values()):
            raise Mistake("`gang: kueue` needs a queue", "set `queue` to a LocalQueue of the namespace", ("gang",))
        for name, volume in (("data_cache", self.data_cache), ("data_volume", self.data_volume)):
            if volume is not None:
                self._check_data(name, volume)
        return self

    def _check_data(self, name: str, volume: Volume) -> None:
        if volume.path or volume.shared or volume.read_only:
            raise Mistake("it is mounted where data is moved alone, to be written", path=(name,))
        if "hostPath" in volume.source and self.security == RESTRICTED:
            raise Mistake("`security: restricted` allows no hostPath", f"name a claim: `{name}: NAME`", (name,))


def read_settings(config: ClusterConfig) -> Settings:
    """Check and read the settings of one cluster; raises InvalidRequest that names the key and the remedy."""
    settings = read_cluster_settings(Settings, config)
    shared = {name: _read_shared(config, settings, name) for name, each in config.paths.items() if each.volume}
    if shared:
        settings = settings.model_copy(update={"volumes": {**settings.volumes, **shared}})
    if config.root:
        settings = settings.model_copy(update={"root": _check_root(config, settings)})
    queues = [one.queue for one in settings.partitions.values() if one.queue]
    # The cluster's own is for partitions that name none.
    return settings if settings.queue or not queues else settings.model_copy(update={"queue": queues[0]})


def _read_shared(config: ClusterConfig, settings: Settings, name: str) -> Volume:
    """The volume of a folder that the cluster shares with others: every pod has it, at the folder's path."""
    folder, keys = config.paths[name], ("paths", name, "volume")
    if name in settings.volumes:
        refuse_setting(config, "paths", f"{name!r} is the name of a volume in `volumes` too", "give it another name")
    written = {"claim": folder.volume} if isinstance(folder.volume, str) else folder.volume
    if not isinstance(written, Mapping) or {"path", "shared"} & written.keys():
        refuse_setting(
            config,
            "paths",
            f"the volume of {name!r} is not one source, as `volumes` has it",
            "write the name of a claim, or a source as a pod has it, such as nfs or hostPath",
        )
    whole = {**written, "path": folder.path, "shared": folder.here}
    return read_model(Volume, whole, config.positions.below(keys), ("clusters", config.name, *keys))


def _check_root(config: ClusterConfig, settings: Settings) -> str:
    root = config.root.rstrip("/") or "/"
    shared = [volume.path for volume in settings.volumes.values() if volume.shared]
    if not any(root == path or root.startswith(f"{path}/") for path in shared):
        refuse_setting(
            config,
            "root",
            f"{config.root!r} is on no volume that pods and this machine share",
            "name a folder below the `path` of a volume with `shared: true`, or leave `root` out",
        )
    return root
