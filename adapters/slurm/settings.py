"""A Slurm cluster's own settings, read from its entry in the configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator

from overspan.adapters.contract import ClusterConfig
from overspan.adapters.settings import KeepTime, Mebibytes, Text, read_cluster_settings, refuse_setting
from overspan.adapters.slurm.rendering.images import RUNTIMES
from overspan.bridge.model.sizes import parse_memory
from overspan.bridge.validation.models import DocumentModel, Mistake, Real, Switch, Whole, between, one_of

LOCAL, SSH, PARAMIKO = "local", "ssh", "paramiko"
TRANSPORTS = (LOCAL, SSH, PARAMIKO)
COMMANDS, PYSLURM = "commands", "pyslurm"
DEFAULT_TICK = 10.0
DEFAULT_STAGED = 256


def _check_word(text: str) -> str:
    if text.startswith("-"):
        raise ValueError(f"{text!r} is not a name")
    return text


def _check_path(path: str) -> str:
    if not path.startswith(("/", "~/")):
        raise ValueError(f"{path!r} is not an absolute path")
    return path


def _parse_size(value: Any) -> int:
    try:
        return parse_memory(str(value))
    except ValueError:
        raise ValueError(f"{value!r} is not a size; write a whole number with M or G, such as 500M") from None


Word = Annotated[Text, AfterValidator(_check_word)]
"""A name that no command takes for an option."""
FullPath = Annotated[str, Strict(), AfterValidator(_check_path)]


class Settings(DocumentModel):
    """How a cluster is reached, and what jobs get that say nothing themselves.

    `path` is the folder of Slurm's commands where they are not on PATH. `shared` says whether jobs see the submitter's
    file system. Times are seconds.
    """

    transport: Annotated[str, one_of(TRANSPORTS)] = LOCAL
    host: Word = ""
    user: Word = ""
    port: Annotated[Whole, between(1, 65535)] = 0
    ssh_config: FullPath = ""
    ssh_options: tuple[Annotated[str, Strict()], ...] = Field(default=(), examples=["[-o, Compression=yes]"])
    path: FullPath = ""
    python: Word = "python3"
    shared: Switch = True
    shared_root: Switch = True
    """Whether compute nodes see `root`, which is on the login node."""
    partition: Word = ""
    account: Word = ""
    qos: Word = ""
    tick: Annotated[Real, between(0.2, 3600)] = DEFAULT_TICK
    timeout: Annotated[Real, between(1, 3600)] = 60.0
    reader: Annotated[str, one_of((COMMANDS, PYSLURM))] = COMMANDS
    max_staged: Annotated[int, BeforeValidator(_parse_size)] = DEFAULT_STAGED
    """MiB that one `workdir` or source of `file_mounts` may have where it has to travel."""
    data_cache: FullPath = ""
    """A folder that all nodes see, where what jobs only read of object stores is kept; empty: each job fetches it."""
    data_fuse: Switch = True
    """Whether MOUNT is read through the store where a node can mount it; else all is brought before the start."""
    data_cache_size: Mebibytes | None = None
    """MiB that it may have; None: a part of its disk."""
    data_keep: KeepTime | None = Field(default=None, examples=["14d"])
    """How long after a job's end what it could not send is kept; None: as long as the job is known."""
    containers: Annotated[str, one_of(RUNTIMES)] = ""
    """How images are run (`images.RUNTIMES`); empty where the site has not said."""

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, values: Any) -> Any:
        """A host is reached by ssh; what is reached so, or has no shared root, has other files."""
        if not isinstance(values, Mapping):
            return values
        given = {key: value for key, value in values.items() if value is not None}
        transport = given.get("transport", SSH if given.get("host") else LOCAL)
        near = transport == LOCAL and given.get("shared_root", True) is True
        return {"shared": near, **given, "transport": transport}

    @model_validator(mode="after")
    def _check(self) -> Settings:
        if self.transport != LOCAL and not self.host:
            remedy = "set `host` to the login node, by the name that ssh knows"
            raise Mistake(f"`transport: {self.transport}` needs a host", remedy, ("transport",))
        if self.shared and not self.shared_root:
            raise Mistake(
                "with `shared: true` jobs see this machine's files, so `root` can be among those",
                "set `root` to a folder that the compute nodes share, or leave `shared` out",
                ("shared_root",),
            )
        if self.data_cache and not self.shared_root:
            raise Mistake(
                "`data_cache` is for jobs with object stores, which want a root that the compute nodes see",
                "leave `data_cache` out, or set `root` to a folder that the compute nodes share",
                ("data_cache",),
            )
        if self.transport != LOCAL and self.reader == PYSLURM:
            raise Mistake(
                "`reader: pyslurm` asks from this machine, and the cluster is reached by ssh",
                "leave `reader` out, or run the daemon on a login node with `transport: local`",
                ("reader",),
            )
        return self


def read_settings(config: ClusterConfig) -> Settings:
    """Check and read the settings of one cluster; raises InvalidRequest that names the key and the remedy."""
    settings = read_cluster_settings(Settings, config)
    if config.root and not config.root.startswith(("/", "~/")):
        refuse_setting(config, "root", f"{config.root!r} is not an absolute path on the cluster")
    return settings


def describe_place(settings: Settings, root: str) -> str:
    """Which Slurm these settings lead to: login node, user and the folder of the run directories."""
    node = "this machine" if settings.transport == LOCAL else f"{settings.user}@{settings.host}".lstrip("@")
    port = f":{settings.port}" if settings.port else ""
    return f"{node}{port}" + (f" ({root})" if root else "")
