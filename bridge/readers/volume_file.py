"""Reads a volume file: SkyPilot's YAML of a volume, of which the keys mean the same on every kind of cluster."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from overspan.bridge.model.errors import InvalidRequest, Place
from overspan.bridge.model.volumes import VolumeRequest, check_access_mode, check_volume_name, parse_volume_size
from overspan.bridge.readers.placement import resolve_infra, split_infra
from overspan.bridge.readers.read_context import ReadContext
from overspan.bridge.validation.diagnostics import Diagnostics, Fault
from overspan.bridge.validation.models import DocumentModel, Mistake, read_model
from overspan.bridge.validation.positions import NOWHERE, Positions
from overspan.bridge.validation.yaml_documents import read_table
from overspan.bridge.validation.yaml_nodes import plain

CLAIM_TYPE = "k8s-pvc"
"""SkyPilot's word for a claim on Kubernetes."""
_UNNAMED = "unnamed"
_SHAPE = "write `type: k8s-pvc`, or leave it out: a volume is what its cluster has"


def _read_text(value: Any) -> Any:
    """A number is a text too: `size: 100`."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _read_name(value: Any) -> Any:
    return check_volume_name(value) if isinstance(value, str) else value


def _read_size(value: Any) -> Any:
    return parse_volume_size(str(value)) if isinstance(value, (str, int, float)) else value


def _read_mode(value: Any) -> Any:
    return check_access_mode(value) if isinstance(value, str) else value


def _read_type(value: Any) -> Any:
    if value not in ("", CLAIM_TYPE):
        raise Mistake(f"{value!r} is a type of volume that this version does not make", _SHAPE)
    return value


class VolumeConfig(DocumentModel):
    """`config` of a volume file."""

    namespace: str = ""
    storage_class_name: str = ""
    access_mode: Annotated[str, BeforeValidator(_read_mode)] = ""


class VolumeFile(DocumentModel):
    """A volume file, and the options of `span volume apply` by the same names."""

    name: Annotated[str, BeforeValidator(_read_name)]
    type: Annotated[str, BeforeValidator(_read_type)] = ""
    infra: str = ""
    size: Annotated[int | None, BeforeValidator(_read_size)] = Field(default=None, examples=["100", "10Gi"])
    config: VolumeConfig = VolumeConfig()
    labels: dict[str, Annotated[str, BeforeValidator(_read_text)]] = Field(default={})


class VolumePlan(NamedTuple):
    """A volume as a file and options ask for it; `cluster` is empty where neither names one."""

    request: VolumeRequest
    cluster: str
    notes: tuple[str, ...]


def read_volume(values: dict[str, Any], text: str, file: str, context: ReadContext) -> VolumePlan:
    """Read what is asked for: options (`values`, with a file's keys) over the keys of a volume file.

    Raises InvalidRequest with all mistakes, those of the file with their lines.
    """
    table = read_table(text, file) if text else None
    positions = Positions((table,)) if table is not None else NOWHERE
    # Each by itself first, so that mistakes of the file are told with their lines, and those of options without.
    if table is not None:
        written = plain(table)
        read_model(VolumeFile, {"name": _UNNAMED, **written} if values.get("name") else written, positions)
        read_model(VolumeFile, {"name": _UNNAMED, **values}, NOWHERE)
        below = written.get("config") or {}
        values = {**written, **values, "config": {**below, **values.get("config", {})}}
    read = read_model(VolumeFile, values, NOWHERE)
    found = Diagnostics()
    cluster = context.cluster or _find_cluster(read, positions, context, found)
    notes = ("`labels` has no effect: a volume has Overspan's own",) if read.labels else ()
    own = read.config
    request = VolumeRequest(
        read.name, read.size, own.storage_class_name, own.access_mode, own.namespace, context.origin.user
    )
    return VolumePlan(request, cluster, (*found.notes, *notes))


def _find_cluster(read: VolumeFile, positions: Positions, context: ReadContext, found: Diagnostics) -> str:
    """The cluster of `infra`; without it that of the type, if one of its kind is there; else none."""
    words = read.infra or ("kubernetes" if read.type else "")
    place = positions.value(("infra",) if read.infra else ("type",)) or Place("--infra" if read.infra else "--type")
    try:
        target = resolve_infra(split_infra(words, place), place, context, found) if words else None
    except Fault as fault:
        raise InvalidRequest(fault.message, remedy=fault.remedy, place=fault.place) from None
    return target.cluster if target is not None else ""
