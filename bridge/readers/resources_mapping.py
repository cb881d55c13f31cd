"""Maps `resources` to the needs of one node, the clusters to try, and other settings that SkyPilot keeps there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from overspan.bridge.model.errors import Place
from overspan.bridge.model.resources import Cpus, Gpus, Resources
from overspan.bridge.model.sizes import Memory
from overspan.bridge.readers.field_types import attempt
from overspan.bridge.readers.placement import (
    ClusterTarget,
    Infra,
    join_infra,
    overlay_infra,
    resolve_infra,
    split_infra,
)
from overspan.bridge.readers.read_context import ReadContext
from overspan.bridge.readers.resource_fields import alternative_nodes
from overspan.bridge.validation.diagnostics import Diagnostics, Fault
from overspan.bridge.validation.yaml_nodes import Table, place_in

Values = dict[str, Any]
IMAGE_PREFIX = "docker:"


@dataclass(frozen=True)
class Alternative:
    """One way to run a task: the cluster that it names (empty: none), the partition there, and what it asks for."""

    cluster: str = ""
    partition: str = ""
    resources: Resources = field(default_factory=Resources)
    image: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    priority_class: str = ""


@dataclass(frozen=True)
class RequestedResources:
    """All of `resources`. `infra` keeps the original texts, for a note where --cluster replaces them."""

    alternatives: tuple[Alternative, ...] = (Alternative(),)
    """In order of preference; at least one."""
    infra: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    recovery: Values = field(default_factory=dict)
    priority: int | None = None

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters that are named, in order."""
        return tuple(dict.fromkeys(part.cluster for part in self.alternatives if part.cluster))


class Layer(NamedTuple):
    """A mapping of `resources`, with its `infra` kept apart from its other keys; `whole` where `infra` was written."""

    values: Values
    infra: Infra
    whole: bool


def map_resources(values: Values, node: Table, context: ReadContext, found: Diagnostics) -> RequestedResources:
    """Map the values of `resources`; its alternatives are laid over its other keys, one after another."""
    tables = alternative_nodes(node)
    base = _unalias(values, node, found)
    listed = [key for key in ("any_of", "ordered") if base.values.get(key)]
    if len(listed) > 1:
        found.add("any_of and ordered exclude each other", place_in(node, "ordered"))
    written = base.values.get(listed[0], ()) if listed else ()
    layers = [
        (_lay(base, _unalias(part, table, found)), table) for part, table in zip(written, tables[1:], strict=False)
    ] or [(base, node)]
    first = layers[0][0].values
    infra = tuple(dict.fromkeys(str(layer.infra) for layer, _ in layers if any(layer.infra)))
    alternatives = [_map_alternative(layer, table, node, context, found) for layer, table in layers]
    return RequestedResources(
        alternatives=merge_gpus(_keep_chosen(alternatives, context)),
        infra=infra,
        ports=first.get("ports", ()),
        recovery=_recovery(first.get("job_recovery"), node, found),
        priority=first.get("priority"),
    )


def merge_gpus(alternatives: Sequence[Alternative]) -> tuple[Alternative, ...]:
    """Join those that differ in nothing but their GPUs: the cluster itself chooses among kinds of GPUs."""
    merged: list[Alternative] = []
    for one in alternatives:
        bare = _without_gpus(one)
        place = next((place for place, kept in enumerate(merged) if _without_gpus(kept) == bare), None)
        if place is None:
            merged.append(one)
        elif one.resources.gpus and merged[place].resources.gpus:
            gpus = tuple(dict.fromkeys((*merged[place].resources.gpus, *one.resources.gpus)))
            merged[place] = replace(merged[place], resources=replace(merged[place].resources, gpus=gpus))
        elif one != merged[place]:
            merged.append(one)
    return tuple(merged)


def _without_gpus(one: Alternative) -> tuple[Alternative, bool]:
    return replace(one, resources=replace(one.resources, gpus=())), bool(one.resources.gpus)


def _unalias(values: Values, node: Table, found: Diagnostics) -> Layer:
    """Bring `gpus`, and `cloud`, `region`, `zone`, under their present names."""
    values = dict(values)
    if "gpus" in values:
        if "accelerators" in values:
            found.add("gpus and accelerators are the same key", place_in(node, "gpus"), "keep one of them")
        values["accelerators"] = values.pop("gpus")
    older = join_infra({key: values.pop(key, "") for key in Infra._fields})
    written = values.pop("infra", None)
    if written is None:
        return Layer(values, older, False)
    if any(older):
        found.add("infra says what cloud, region and zone say", place_in(node, "infra"), "keep infra")
    with found.collecting():
        return Layer(values, split_infra(written, place_in(node, "infra")), True)
    return Layer(values, Infra(), True)


def _lay(base: Layer, part: Layer) -> Layer:
    infra = part.infra if part.whole else overlay_infra(base.infra, part.infra)
    return Layer({**base.values, **part.values}, infra, base.whole or part.whole)


def _map_alternative(layer: Layer, table: Table, node: Table, context: ReadContext, found: Diagnostics) -> Alternative:
    target = _target(layer.infra, _place_of_infra(table, node), context, found)
    return Alternative(
        cluster=target.cluster,
        partition=target.partition,
        resources=_node_need(layer.values, table, found),
        image=_image(layer.values.get("image_id"), table if table.get("image_id") else node, found),
        labels=layer.values.get("labels", {}),
        priority_class=layer.values.get("priority_class", ""),
    )


def _place_of_infra(*tables: Table) -> Place:
    """The position of an alternative's `infra`: in the alternative, or in the mapping around it."""
    for table in tables:
        for key in ("infra", *Infra._fields):
            if table.get(key):
                return place_in(table, key)
    return tables[0].place


def _target(infra: Infra, place: Place, context: ReadContext, found: Diagnostics) -> ClusterTarget:
    try:
        return resolve_infra(infra, place, context, found) or ClusterTarget("")
    except Fault as fault:
        # Under --cluster a file for another cloud runs as it is.
        if not context.cluster:
            found.add(fault.message, fault.place, fault.remedy)
        return ClusterTarget("")


def _keep_chosen(alternatives: Sequence[Alternative], context: ReadContext) -> list[Alternative]:
    """Under --cluster: the alternatives that name a chosen cluster, or no place; all, without place, if none does."""
    if not context.cluster:
        return list(alternatives)
    kept = [one for one in alternatives if one.cluster in context.chosen]
    return kept or [replace(one, cluster="", partition="") for one in alternatives]


def _node_need(values: Values, node: Table, found: Diagnostics) -> Resources:
    cpus: Cpus | None = values.get("cpus")
    memory: Memory = values.get("memory") or Memory()
    gpus: tuple[Gpus, ...] = values.get("accelerators", ())
    count: float | None = None if cpus is None else cpus[0]
    with found.collecting():
        need: Resources = attempt(
            lambda: Resources(
                cpus=count,
                cpus_at_least=bool(cpus and cpus.at_least),
                memory_mib=memory.mib,
                memory_mib_per_cpu=memory.mib_per_cpu,
                memory_at_least=memory.at_least,
                gpus=tuple(dict.fromkeys(gpus)),
            ),
            node,
        )
        return need
    return Resources()


_IMAGE_PATHS = ("/", "./", "~/")
_IMAGE_ENDINGS = (".sif", ".sqsh")


def _image(value: Any, node: Table, found: Diagnostics) -> str:
    """The container image; a mapping has one for each region, which have to agree here."""
    if not value:
        return ""
    place = place_in(node, "image_id")
    images = list(dict.fromkeys(value.values())) if isinstance(value, dict) else [value]
    if len(images) > 1:
        found.add("image_id names several images", place, "write one, as docker:IMAGE")
    image = str(images[0])
    if image.startswith(IMAGE_PREFIX):
        return image.removeprefix(IMAGE_PREFIX)
    if image.startswith(_IMAGE_PATHS) or image.endswith(_IMAGE_ENDINGS):
        return image
    found.note(f"{place}: image_id has no effect: {image} is an image of cloud machines; write docker:IMAGE or a path")
    return ""


def _recovery(value: Any, node: Table, found: Diagnostics) -> Values:
    if isinstance(value, str):
        found.note(f"{place_in(node, 'job_recovery')}: the strategy {value} has no effect here")
        return {}
    return dict(value or {})
