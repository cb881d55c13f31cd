"""A local cluster's own settings, read from its entry in the configuration file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from overspan.adapters.contract import ClusterConfig
from overspan.adapters.setting_values import Readers, read_values
from overspan.bridge.model.durations import parse_delay, parse_wall_time
from overspan.bridge.model.resources import parse_accelerators, to_milli
from overspan.bridge.model.sizes import parse_memory

METHODS = ("auto", "namespace", "nss_wrapper", "env")
"""How members get their names; `auto` is the best that works."""

OFF, REQUEUE, CANCEL = "off", "requeue", "cancel"
"""What becomes of running jobs of a lower priority when the first in the queue needs their room."""


@dataclass(frozen=True)
class Partition:
    """A name that jobs may ask for; all partitions share the machine. `time_limit` is in seconds."""

    name: str
    time_limit: int | None = None


@dataclass(frozen=True)
class Settings:
    """What the configuration says of this machine; None is measured. Memory in MiB, `gpus` a kind for each device."""

    cpu_milli: int | None = None
    memory_mib: int | None = None
    gpus: tuple[str, ...] | None = None
    partitions: tuple[Partition, ...] = (Partition("local"),)
    python: str = sys.executable
    names: str = "auto"
    preempt: str = OFF
    preempt_grace: int | None = None
    """Seconds between TERM and KILL of a preempted job; None: each task's own."""

    def partition(self, name: str) -> Partition | None:
        """The partition of that name, the first for an empty name; None when there is none."""
        if not name:
            return self.partitions[0]
        return next((part for part in self.partitions if part.name == name), None)


def read_settings(config: ClusterConfig) -> Settings:
    """Check and read the settings of one cluster; raises InvalidRequest that names the key and the remedy."""
    return Settings(**read_values(config, "local", _READERS))


def _read_cpus(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or to_milli(value) <= 0:
        raise ValueError(f"{value!r} is not a number of CPUs; write one such as 8")
    return to_milli(value)


def _read_memory(value: Any) -> int:
    mib = parse_memory(str(value)) if isinstance(value, (str, int)) and not isinstance(value, bool) else 0
    if mib <= 0:
        raise ValueError(f"{value!r} is not an amount of memory; write one such as 16G")
    return mib


def _read_gpus(value: Any) -> tuple[str, ...]:
    if value == 0 or value == {} or value == []:
        return ()
    kinds: list[str] = []
    for gpus in parse_accelerators(value):
        if gpus.count != int(gpus.count):
            raise ValueError(f"{gpus} is not a whole number of GPUs")
        kinds += [gpus.kind] * int(gpus.count)
    return tuple(kinds)


def _read_partitions(value: Any) -> tuple[Partition, ...]:
    if isinstance(value, list):
        value = dict.fromkeys(value)
    if not isinstance(value, Mapping) or not value or not all(isinstance(name, str) and name for name in value):
        raise ValueError("write a list of names, or a mapping of names to their settings; the first is the default")
    return tuple(_read_partition(name, entry or {}) for name, entry in value.items())


def _read_partition(name: str, entry: Any) -> Partition:
    if not isinstance(entry, Mapping) or set(entry) - {"time"}:
        raise ValueError(f"partition {name!r} takes one setting, `time`")
    return Partition(name, parse_wall_time(entry["time"]) if "time" in entry else None)


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is not a path")
    return value


def _read_names(value: Any) -> str:
    if value not in METHODS:
        raise ValueError(f"{value!r} is not a way to give names; write one of {', '.join(METHODS)}")
    return str(value)


def _read_preempt(value: Any) -> str:
    if value is False:
        return OFF
    if value not in (OFF, REQUEUE, CANCEL):
        raise ValueError(f"{value!r} is not a way to preempt; write one of {OFF}, {REQUEUE}, {CANCEL}")
    return str(value)


_READERS: Readers = {
    "cpus": ("cpu_milli", _read_cpus),
    "memory": ("memory_mib", _read_memory),
    "gpus": ("gpus", _read_gpus),
    "partitions": ("partitions", _read_partitions),
    "python": ("python", _read_text),
    "names": ("names", _read_names),
    "preempt": ("preempt", _read_preempt),
    "preempt_grace": ("preempt_grace", parse_delay),
}
