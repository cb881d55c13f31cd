"""A local cluster's own settings, read from its entry in the configuration file."""

from __future__ import annotations

import ipaddress
import sys
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field

from overspan.adapters.contract import ClusterConfig
from overspan.adapters.settings import (
    Delay,
    KeepTime,
    Mebibytes,
    Nullable,
    Text,
    WallTime,
    name_entries,
    read_cluster_settings,
)
from overspan.bridge.model.resources import parse_accelerators, to_milli
from overspan.bridge.validation.models import DocumentModel, Real, Switch, one_of

METHODS = ("auto", "namespace", "nss_wrapper", "env")
"""How members get their names; `auto` is the best that works."""

OFF, REQUEUE, CANCEL = "off", "requeue", "cancel"
"""What becomes of running jobs of a lower priority when the first in the queue needs their room."""


class Partition(DocumentModel):
    """A name that jobs may ask for; all partitions share the machine. `time_limit` is in seconds."""

    outside: ClassVar = frozenset({"name"})

    name: str = ""
    time_limit: WallTime = Field(default=None, alias="time")


def _check_cpus(count: float) -> float:
    if to_milli(count) <= 0:
        raise ValueError(f"{count:g} is not a number of CPUs; write one such as 8")
    return count


def _check_address(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"{text!r} is no IP address; write one such as 10.0.0.5") from None
    if address.is_loopback or address.is_unspecified:
        raise ValueError(f"no other machine reaches {text}; write an address of this machine such as 10.0.0.5")
    return str(address)


def _parse_gpus(value: Any) -> tuple[str, ...]:
    if value == 0 or value == {} or value == []:
        return ()
    kinds: list[str] = []
    for gpus in parse_accelerators(value):
        if gpus.count != int(gpus.count):
            raise ValueError(f"{gpus} is not a whole number of GPUs")
        kinds += [gpus.kind] * int(gpus.count)
    return tuple(kinds)


def _spread_names(value: Any) -> Any:
    return {str(name): {} for name in value} if isinstance(value, list) else value


def _spell_off(value: Any) -> Any:
    return OFF if value is False else value


class Settings(DocumentModel):
    """What the configuration says of this machine; None is measured. Memory in MiB, `gpus` a kind for each device."""

    cpus: Annotated[Real, AfterValidator(_check_cpus)] | None = None
    memory: Mebibytes | None = None
    gpus: Annotated[tuple[str, ...], BeforeValidator(_parse_gpus)] | None = None
    partitions: Annotated[
        dict[Text, Partition], BeforeValidator(_spread_names), Nullable, AfterValidator(name_entries)
    ] = Field(default={"local": Partition(name="local")}, min_length=1, examples=["{short: {time: 1h}, long: {}}"])
    """The first is the default."""
    python: Text = sys.executable
    names: Annotated[str, one_of(METHODS)] = "auto"
    address: Annotated[str, AfterValidator(_check_address)] = ""
    """Where nodes of other clusters reach this machine; empty: members are reached from here alone."""
    preempt: Annotated[str, BeforeValidator(_spell_off), one_of((OFF, REQUEUE, CANCEL))] = OFF
    preempt_grace: Delay | None = None
    """Seconds between TERM and KILL of a preempted job; None: each task's own."""

    data_fuse: Switch = True
    """Whether MOUNT is read through the store where a node can mount it; else all is brought before the start."""
    data_cache_size: Mebibytes | None = None
    """MiB of what jobs only read of object stores; None: a part of the disk."""
    data_keep: KeepTime | None = Field(default=None, examples=["14d"])
    """How long after a job's end what it could not send is kept; None: as long as the job is known."""

    @property
    def default_partition(self) -> Partition:
        """The partition of jobs that name none."""
        return next(iter(self.partitions.values()))

    def partition(self, name: str) -> Partition | None:
        """The partition of that name, the first for an empty name; None when there is none."""
        return self.partitions.get(name) if name else self.default_partition


def read_settings(config: ClusterConfig) -> Settings:
    """Check and read the settings of one cluster; raises InvalidRequest that names the key and the remedy."""
    return read_cluster_settings(Settings, config)
