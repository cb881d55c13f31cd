"""A Slurm cluster's own settings, read from its entry in the configuration file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from overspan.adapters.contract import ClusterConfig
from overspan.adapters.setting_values import Readers, read_seconds, read_values
from overspan.adapters.slurm.rendering.images import RUNTIMES
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.sizes import parse_memory

LOCAL, SSH, PARAMIKO = "local", "ssh", "paramiko"
TRANSPORTS = (LOCAL, SSH, PARAMIKO)
COMMANDS, PYSLURM = "commands", "pyslurm"
DEFAULT_TICK = 10.0
DEFAULT_STAGED = 256


@dataclass(frozen=True)
class Settings:
    """How a cluster is reached, and what jobs get that say nothing themselves.

    `path` is the folder of Slurm's commands where they are not on PATH. `shared` says whether jobs see the submitter's
    file system. Times are seconds.
    """

    transport: str = LOCAL
    host: str = ""
    user: str = ""
    port: int = 0
    ssh_config: str = ""
    ssh_options: tuple[str, ...] = ()
    path: str = ""
    python: str = "python3"
    shared: bool = True
    shared_root: bool = True
    """Whether compute nodes see `root`, which is on the login node."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    tick: float = DEFAULT_TICK
    timeout: float = 60.0
    reader: str = COMMANDS
    max_staged: int = DEFAULT_STAGED
    """MiB that one `workdir` or source of `file_mounts` may have where it has to travel."""
    containers: str = ""
    """How images are run (`images.RUNTIMES`); empty where the site has not said."""


def read_settings(config: ClusterConfig) -> Settings:
    """Check and read the settings of one cluster; raises InvalidRequest that names the key and the remedy."""
    values = read_values(config, "Slurm", _READERS)
    if values.get("host") and "transport" not in values:
        values["transport"] = SSH
    remote = values.get("transport", LOCAL) != LOCAL
    if remote and not values.get("host"):
        raise InvalidRequest(
            f"clusters.{config.name}: `transport: {values['transport']}` needs a host",
            remedy="set `host` to the login node, by the name that ssh knows",
        )
    apart = not values.get("shared_root", True)
    if apart and values.get("shared"):
        raise InvalidRequest(
            f"clusters.{config.name}: with `shared: true` jobs see this machine's files, so `root` can be among those",
            remedy="set `root` to a folder that the compute nodes share, or leave `shared` out",
        )
    values.setdefault("shared", not (remote or apart))
    if remote and values.get("reader") == PYSLURM:
        raise InvalidRequest(
            f"clusters.{config.name}: `reader: pyslurm` asks from this machine, and the cluster is reached by ssh",
            remedy="leave `reader` out, or run the daemon on a login node with `transport: local`",
        )
    if config.root and not config.root.startswith(("/", "~/")):
        raise InvalidRequest(f"clusters.{config.name}.root: {config.root!r} is not an absolute path on the cluster")
    return Settings(**values)


def describe_place(settings: Settings, root: str) -> str:
    """Which Slurm these settings lead to: login node, user and the folder of the run directories."""
    node = "this machine" if settings.transport == LOCAL else f"{settings.user}@{settings.host}".lstrip("@")
    port = f":{settings.port}" if settings.port else ""
    return f"{node}{port}" + (f" ({root})" if root else "")


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not value or value.startswith("-") or not value.isprintable():
        raise ValueError(f"{value!r} is not a name")
    return value


def _read_path(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith(("/", "~/")):
        raise ValueError(f"{value!r} is not an absolute path")
    return value


def _read_words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise ValueError("write a list of words for ssh, such as [-o, Compression=yes]")
    return tuple(value)


def _read_transport(value: Any) -> str:
    if value not in TRANSPORTS:
        raise ValueError(f"{value!r} is not a way to reach a cluster; write one of {', '.join(TRANSPORTS)}")
    return str(value)


def _read_port(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65536:
        raise ValueError(f"{value!r} is not a port")
    return value


def _read_switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _read_reader(value: Any) -> str:
    if value not in (COMMANDS, PYSLURM):
        raise ValueError(f"{value!r} is neither {COMMANDS} nor {PYSLURM}")
    return str(value)


def _read_containers(value: Any) -> str:
    if value not in RUNTIMES:
        raise ValueError(f"{value!r} is not a way to run images; write one of {', '.join(RUNTIMES)}")
    return str(value)


def _read_size(value: Any) -> int:
    try:
        return parse_memory(str(value))
    except ValueError:
        raise ValueError(f"{value!r} is not a size; write a whole number with M or G, such as 500M") from None


_BY_KEY: Mapping[str, Callable[[Any], Any]] = {
    "transport": _read_transport,
    "host": _read_text,
    "user": _read_text,
    "port": _read_port,
    "ssh_config": _read_path,
    "ssh_options": _read_words,
    "path": _read_path,
    "python": _read_text,
    "shared": _read_switch,
    "shared_root": _read_switch,
    "partition": _read_text,
    "account": _read_text,
    "qos": _read_text,
    "tick": read_seconds(0.2, 3600),
    "timeout": read_seconds(1, 3600),
    "max_staged": _read_size,
    "reader": _read_reader,
    "containers": _read_containers,
}
_READERS: Readers = {key: (key, read) for key, read in _BY_KEY.items()}
