"""Volumes that outlive jobs: what is asked for, and what a cluster has."""

from __future__ import annotations

import re
from typing import Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.sizes import parse_skypilot_memory

ACCESS_MODES = ("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod")
"""As Kubernetes names them."""
SHARED_MODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})
"""Those of a volume that several nodes may mount at once."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class VolumeRequest(NamedTuple):
    """A volume that is to be there; what is empty, and a `mib` of None, is left to the cluster, or as it is."""

    name: str
    mib: Optional[int] = None
    storage_class: str = ""
    access_mode: str = ""
    namespace: str = ""
    owner: str = ""


class VolumeRecord(NamedTuple):
    """A volume as its cluster has it, each part in the cluster's words; `message` says what keeps it from use."""

    name: str
    kind: str
    size: str = ""
    storage_class: str = ""
    access: str = ""
    status: str = ""
    message: str = ""


class AppliedVolume(NamedTuple):
    """A volume that was asked for; `done` is `made`, `grown` or `unchanged`, `notes` what had no effect."""

    volume: VolumeRecord
    done: str
    notes: tuple[str, ...] = ()


def check_volume_name(name: str) -> str:
    """The name of a volume, which every kind of cluster takes. Raises ValueError."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise ValueError(f"{name!r} is no name of a volume; write lower-case letters, digits, '-' and '.'")
    return name


def check_present_name(name: str) -> str:
    """The name of a volume that may be there: jobs make folders of other names too. Raises ValueError for a path."""
    if not name or "/" in name or name in (".", ".."):
        raise ValueError(f"{name!r} is no name of a volume; `span volume ls` lists them")
    return name


def parse_volume_size(text: str) -> int:
    """Read a size as MiB: GB as a number, or with a unit (K, M, G, T, also as Gi or GiB), all powers of 1024."""
    try:
        found = parse_skypilot_memory(text)
    except ValueError:
        found = None
    if found is None or found.mib is None or found.at_least:
        raise ValueError(f"{text!r} is no size of a volume; write GB such as 100, or 500M, 10Gi, 2T")
    return found.mib


def check_access_mode(mode: str) -> str:
    """An access mode in Kubernetes' spelling, in whatever case it was written; empty stays. Raises ValueError."""
    known = {each.lower(): each for each in ACCESS_MODES}
    if mode and mode.lower() not in known:
        raise ValueError(f"{mode!r} is no access mode; write one of {', '.join(ACCESS_MODES)}")
    return known.get(mode.lower(), "")
